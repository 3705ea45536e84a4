//! `verify` of a folder, or of two: their models by their paths.

use std::path::Path;

use super::cases::{Case, How, Output, finish, open};
use crate::exit::{Exit, Failure};
use crate::files;
use crate::folder::Folder;
use crate::model::named;
use crate::progress::Progress;
use crate::terminal::Terminal;

/// Verifies every model of a folder; with a second folder, the models there, each with the one of its path.
pub(super) fn run(
    (folder, other): (&Path, Option<&Path>),
    how: &How,
    output: &Output<'_>,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    if let Some(other) = other.filter(|other| !other.is_dir()) {
        let why = "is no folder, and the first one is; give two folders or two models";
        return named(other, Err(Failure::usage(why)));
    }
    let first = Folder::with_models(folder)?;
    let second = other.map(Folder::with_models).transpose()?;
    let mut read = vec![];
    for folder in [Some(&first), second.as_ref()].into_iter().flatten() {
        read.extend(folder.models.iter().map(|path| folder.file(path)));
    }
    if let Some(file) = output.junit {
        let read: Vec<&Path> = read.iter().map(|path| path.as_path()).collect();
        files::check_report(file, &read)?;
    }
    let progress = Progress::start(terminal, format!("verifying {}", folder.display()));
    let mut cases = vec![];
    for path in &first.models {
        let file = first.file(path);
        progress.now(format!("verifying {}", file.display()));
        let Some(second) = &second else {
            let verified = open(&file).and_then(|model| how.verify(&model, None));
            cases.push(Case::of(&file, None, named(&file, verified)));
            continue;
        };
        let own = second.file(path);
        let verified = if second.models.contains(path) {
            open(&file).and_then(|original| how.verify(&open(&own)?, Some(&original)))
        } else {
            Err(missing(second))
        };
        cases.push(Case::of(&own, Some(&file), named(&own, verified)));
    }
    for path in second.iter().flat_map(|second| &second.models) {
        if !first.models.contains(path) {
            let file = other.map(|other| other.join(path)).unwrap_or_default();
            let verified = named(&file, Err(missing(&first)));
            cases.push(Case::of(&file, None, verified));
        }
    }
    drop(progress);
    finish(cases, output, terminal)
}

/// A model that only one of the folders has.
fn missing(folder: &Folder) -> anyhow::Error {
    let path = folder.path.display();
    Failure::usage(format!("there is no model of this path in {path}")).into()
}
