//! `inspect` of a folder.

use std::path::{Path, PathBuf};

use posenc_onnx::report::{Inspect, SCHEMA};

use super::Folder;
use super::counterparts::Counterparts;
use super::found::is_model;
use super::html;
use super::report::{Found, Problem};
use super::text;
use crate::exit::{Exit, sentence};
use crate::files;
use crate::inspect::text::text as whole;
use crate::inspect::{Args, chapter};
use crate::page::{Made, Page};
use crate::progress::Progress;
use crate::terminal::{Terminal, Verbosity};

/// Prints what was found in every model of a folder.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    let folder = Folder::with_models(&args.model)?;
    let (chosen, _) = args.chosen.split(&folder)?;
    let mut page = None;
    if let Some(file) = &args.report {
        let read: Vec<PathBuf> = folder.models.iter().map(|path| folder.file(path)).collect();
        let read: Vec<&Path> = read.iter().map(PathBuf::as_path).collect();
        files::check_report(file, &read)?;
        page = Some((file, Made::now()?, Page::new("")));
    }
    let progress = Progress::start(terminal, format!("reading {}", folder.path.display()));
    let mut models: Vec<(PathBuf, Inspect)> = vec![];
    let (mut errors, mut exit) = (vec![], Exit::Done);
    for path in chosen {
        let file = folder.file(&path);
        progress.now(format!("reading {}", file.display()));
        match args.read(&file, &progress) {
            Ok((model, mut report)) => {
                match folder.contradiction(&path, &model) {
                    Ok(found) => report.warnings.extend(found.map(|found| found.sentence)),
                    Err(why) => report.warnings.push(why),
                }
                if let Some((_, _, chapters)) = &mut page {
                    chapter(chapters, models.len(), &report, &model);
                }
                models.push((path, report));
            }
            Err(error) => {
                exit = exit.or_worse(Exit::of(&error));
                errors.push(Problem::of(&file, sentence(&error)));
            }
        }
    }
    drop(progress);
    for (path, why) in folder.stray.iter().filter(|(path, _)| is_model(path)) {
        let file = folder.file(path);
        errors.push(Problem::of(&file, format!("{}: {why}", file.display())));
        exit = exit.or_worse(Exit::Model);
    }
    let counterparts = Counterparts::of(&folder, &models);
    let names = |group: &Vec<usize>| {
        let paths = group.iter().map(|at| folder.file(&models[*at].0));
        paths.map(|path| path.display().to_string()).collect()
    };
    let groups = counterparts.groups.iter().filter(|group| group.len() > 1);
    let found = Found {
        schema: SCHEMA,
        folder: folder.path.display().to_string(),
        models: models.iter().map(|(_, report)| report).collect(),
        shared: groups.map(names).collect(),
        disagreements: counterparts.disagreements,
        errors,
    };
    if let Some((file, made, chapters)) = page {
        files::write_report(file, &html::html(&found, chapters, &made))?;
        terminal.note(format_args!("wrote {}", file.display()));
    }
    if args.json {
        terminal.print_json(&found)?;
        return Ok(exit);
    }
    let mut text = text::found(&found, terminal.out);
    if args.explain || terminal.verbosity() == Verbosity::Verbose {
        for (_, report) in &models {
            text += &format!("\n{}", whole(report, terminal.out));
        }
    }
    terminal.print_report(&text)?;
    Ok(exit)
}
