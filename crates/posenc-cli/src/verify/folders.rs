//! `verify` of a folder, or of two: their models by their paths.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use glob::Pattern;
use posenc_onnx::Model;
use posenc_onnx::report::{SiteCheck, Verify};

use super::case::Case;
use super::cases::{Cases, How, Output, open};
use crate::exit::{Exit, Failure};
use crate::folder::{Chosen, Folder};
use crate::model::named;
use crate::progress::Progress;
use crate::terminal::Terminal;

/// Verifies the chosen models of a folder; with a second folder, the models there, each with the one of its
/// path.
pub(super) fn run(
    (folder, other, chosen): (&Path, Option<&Path>, &Chosen),
    how: &How,
    output: Output<'_>,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    if let Some(other) = other.filter(|other| !other.is_dir()) {
        let why = "is no folder, and the first one is; give two folders or two models";
        return named(other, Err(Failure::usage(why)));
    }
    let first = Folder::with_models(folder)?;
    let second = other.map(Folder::with_models).transpose()?;
    let folders = || [Some(&first), second.as_ref()].into_iter().flatten();
    let all: BTreeSet<&PathBuf> = folders().flat_map(|folder| &folder.models).collect();
    let all: Vec<PathBuf> = all.into_iter().cloned().collect();
    let (chosen, _) = chosen.split_all(folder, &all)?;
    let mut read = vec![];
    for folder in folders() {
        read.extend(folder.models.iter().map(|path| folder.file(path)));
    }
    let read: Vec<&Path> = read.iter().map(|path| path.as_path()).collect();
    output.check(&read)?;
    let progress = Progress::start(terminal, format!("verifying {}", folder.display()));
    let mut cases = Cases::new(output);
    for path in &chosen {
        let file = first.file(path);
        progress.now(format!("verifying {}", file.display()));
        let Some(second) = &second else {
            let opened = open(&file).map(|model| (None, model));
            add(&mut cases, how, (&first, path), None, opened);
            continue;
        };
        let is_in = |folder: &Folder| folder.models.contains(path);
        let (original, opened) = match (is_in(&first), is_in(second)) {
            (true, true) => {
                let both =
                    open(&file).and_then(|model| Ok((Some(model), open(&second.file(path))?)));
                (Some(&*file), both)
            }
            (true, false) => (Some(&*file), Err(missing(path, [second, &first]))),
            (false, _) => (None, Err(missing(path, [&first, second]))),
        };
        add(&mut cases, how, (second, path), original, opened);
    }
    drop(progress);
    cases.finish(terminal)
}

/// Adds a model of a folder, verified alone or with the one that it is rewritten from.
fn add(
    cases: &mut Cases<'_>,
    how: &How,
    (folder, path): (&Folder, &Path),
    original: Option<&Path>,
    opened: anyhow::Result<(Option<Model>, Model)>,
) {
    let file = folder.file(path);
    let verified = opened.and_then(|(before, model)| {
        let report = verify(how, (folder, path), &model, before.as_ref())?;
        Ok((before, model, report))
    });
    let (before, model, verified) = match named(&file, verified) {
        Ok((before, model, report)) => (before, Some(model), Ok(report)),
        Err(error) => (None, None, Err(error)),
    };
    let before = original.zip(before.as_ref());
    let shown: Vec<(&Path, &Model)> = before
        .into_iter()
        .chain(model.iter().map(|model| (&*file, model)))
        .collect();
    let case = Case::of(&file, original, verified);
    cases.push(case, &shown, &how.runtimes);
}

/// Verifies a model, and holds the configuration that governs it to its graph.
fn verify(
    how: &How,
    (folder, path): (&Folder, &Path),
    model: &Model,
    original: Option<&Model>,
) -> anyhow::Result<Verify> {
    let mut report = how.verify(model, original)?;
    match folder.contradiction(path, model) {
        Ok(None) => {}
        Ok(Some(found)) => {
            report.sites.push(SiteCheck {
                site: found.config.display().to_string(),
                quantity: "config".to_owned(),
                max_error: None,
                bound: 0.0,
                ok: false,
            });
            report.ok = false;
            report.warnings.push(found.sentence);
        }
        Err(why) => report.warnings.push(why),
    }
    Ok(report)
}

/// A model that only the second of two folders has.
fn missing(path: &Path, folders: [&Folder; 2]) -> anyhow::Error {
    let [without, with] = folders.map(|folder| folder.path.display());
    let pattern = Pattern::escape(&path.display().to_string());
    Failure::nothing(format!(
        "there is no model of this path in {without}, and {with} has one; --except '{pattern}' skips a model \
         that was left out on purpose"
    ))
    .into()
}
