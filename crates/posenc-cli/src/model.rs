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

/// Reads a model and checks it, with warnings about unusual properties; an error names the file.
pub(crate) fn open_checked(path: &Path) -> anyhow::Result<(Model, Vec<Warning>)> {
    let model = open(path)?;
    let warnings = named(path, model.check())?;
    Ok((model, warnings))
}

/// The same, of a model that is to run: its tensors in other files have to be there.
pub(crate) fn open_whole(path: &Path) -> anyhow::Result<(Model, Vec<Warning>)> {
    let read = open_checked(path)?;
    match absence(path, &read.0)? {
        Some(absent) => named(path, Err(Failure::model(absent))),
        None => Ok(read),
    }
}

/// Prints warnings about a file.
pub(crate) fn warn(terminal: &Terminal, path: &Path, warnings: &[impl Display]) {
    for warning in warnings {
        terminal.warn(format_args!("{}: {warning}", path.display()));
    }
}

/// A warning about external data files that do not exist; `None` if there are none.
///
/// # Errors
/// When a field that names such a file is invalid; it names `path`, the file of the model.
pub fn absence(path: &Path, model: &Model) -> anyhow::Result<Option<String>> {
    let absent = named(path, model.missing_external_data())?;
    if absent.is_empty() {
        return Ok(None);
    }
    let files = absent.join(", ").replace(char::is_control, "?");
    Ok(Some(format!("external data not found: {files}")))
}

/// The result, with the file named in its error.
pub(crate) fn named<T, E>(path: &Path, result: Result<T, E>) -> anyhow::Result<T>
where
    anyhow::Error: From<E>,
{
    result.map_err(|e| Failure::of_file(&path.display().to_string(), &e.into()).into())
}

/// The text of a file that a flag names; if it cannot be read, that is an error of usage.
pub(crate) fn text_of(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).map_err(|e| Failure::usage(e.to_string()).into())
}
