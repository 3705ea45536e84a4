//! Opening models.

use std::fmt::Display;
use std::path::Path;

use posenc_ir::{Model, Warning};

use crate::exit::Failure;
use crate::terminal::Terminal;

/// Reads a model; an error names the file.
pub(crate) fn open(path: &Path) -> anyhow::Result<Model> {
    named(path, Model::open(path))
}

/// Reads a model and checks it; an error names the file. What is unusual about it comes along.
pub(crate) fn open_checked(path: &Path) -> anyhow::Result<(Model, Vec<Warning>)> {
    let model = open(path)?;
    let warnings = named(path, model.check())?;
    Ok((model, warnings))
}

/// Warns of what is unusual about a file.
pub(crate) fn warn(terminal: &Terminal, path: &Path, warnings: &[impl Display]) {
    for warning in warnings {
        terminal.warn(format_args!("{}: {warning}", path.display()));
    }
}

/// What to say when external data of the model is not there.
pub(crate) fn absence(path: &Path, model: &Model) -> anyhow::Result<Option<String>> {
    let absent = named(path, model.absent_data())?;
    if absent.is_empty() {
        return Ok(None);
    }
    let files = absent.join(", ").replace(char::is_control, "?");
    let verb = if absent.len() == 1 { "is" } else { "are" };
    Ok(Some(format!("external data {files} {verb} not there")))
}

/// The result, with the file named in its error.
pub(crate) fn named<T, E>(path: &Path, result: Result<T, E>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    result.map_err(|e| Failure::of_file(&path.display().to_string(), &e.into()).into())
}

/// The text of a file that a flag names; where it cannot be read, the command line is wrong.
pub(crate) fn text_of(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).map_err(|e| Failure::usage(e.to_string()).into())
}
