//! `rewrite` of a folder: all its models together, or none.

use std::path::{Path, PathBuf};

use posenc_ir::fingerprint_of;
use posenc_ir::text::Weights;
use posenc_onnx::report::{Endpoint, Rewrite};
use posenc_onnx::request::Request;
use posenc_onnx::{Model, Plan, RewriteError, Rewritten};

use super::configs::{self, Configs};
use super::copies;
use super::plan::{check_counterparts, hinted, plans};
use super::report::{Kept, Report};
use super::staging::{self, Staging};
use super::{Folder, text};
use crate::exit::{Exit, Failure};
use crate::model::{self, named};
use crate::places::Search;
use crate::progress::Progress;
use crate::rewrite::check::{self, Proof};
use crate::rewrite::diff::diff;
use crate::rewrite::external::{ExternalData, save};
use crate::rewrite::{Args, text as texts};
use crate::terminal::{Terminal, Verbosity};

/// Why a model is copied: by a flag, or because there is nothing to change.
const EXCEPTED: &str = "not chosen";
const POSITIONLESS: &str = "encodes no position";

/// A model that is rewritten.
struct Done {
    path: PathBuf,
    result: Rewritten,
    report: Rewrite,
}

/// Rewrites the models of a folder and says what was done.
pub(crate) fn run(args: &Args, search: &Search, terminal: &Terminal) -> anyhow::Result<Exit> {
    let options = &args.output;
    let output = output(args)?;
    let mut folder = Folder::with_models(&args.model)?;
    folder.check_stray()?;
    let dropped = folder.drop_models(&args.drop)?;
    if options.output.is_some() {
        staging::check(&folder.path, output)?;
    }
    let (chosen, excepted) = args.chosen.split(&folder)?;
    let request = named(&folder.path, args.request())?;
    request.check_supported().map_err(RewriteError::from)?;
    let progress = Progress::start(terminal, format!("reading {}", folder.path.display()));
    let mut models = vec![];
    for path in chosen {
        let file = folder.file(&path);
        progress.now(format!("reading {}", file.display()));
        models.push((path, named(&file, Model::open(&file))?));
    }
    let mut kept: Vec<(PathBuf, &'static str)> =
        excepted.into_iter().map(|path| (path, EXCEPTED)).collect();
    let (plans, without) = plans(&folder, &models, &request, &progress)?;
    kept.extend(without.into_iter().map(|path| (path, POSITIONLESS)));
    kept.sort();
    check_counterparts(&folder, &plans)?;
    let proof = if args.checks.verify {
        Proof::Required
    } else {
        Proof::Wanted
    };
    let mut done = vec![];
    for (path, model, plan) in plans {
        let file = folder.file(path);
        progress.now(format!("rewriting {}", file.display()));
        let absent = model::absence(&file, model.as_ir())?;
        let made = named(&file, rewrite(plan, (proof, &request), search));
        let (result, mut report) = made.map_err(|e| match &absent {
            Some(absent) => Failure::with_note(&e, absent).into(),
            None => hinted(&e, path),
        })?;
        let unusual = model.warnings().iter().map(ToString::to_string);
        report.warnings.extend(unusual.chain(absent));
        let path = path.clone();
        done.push(Done {
            path,
            result,
            report,
        });
    }
    let results: Vec<(PathBuf, &Rewritten)> = done
        .iter()
        .map(|done| (done.path.clone(), &done.result))
        .collect();
    let configs = configs::plan(&folder, &results, options.write_config)?;
    let mut report = prospect(&folder, output, (&done, &configs), (&kept, &dropped));
    let sources: Vec<(PathBuf, &posenc_ir::Model)> = models
        .iter()
        .filter(|(path, _)| done.iter().any(|done| done.path == *path))
        .map(|(path, model)| (path.clone(), model.as_ir()))
        .collect();
    let copied: Vec<PathBuf> = kept.iter().map(|(path, _)| path.clone()).collect();
    let mut files = copies::files(&folder, &sources, (&copied, &dropped));
    files.retain(|file| !configs.changes(file));
    report.files = files.len() - copied.len();
    if report.ok && !options.dry_run {
        staging::check(&folder.path, output)?;
        progress.now(format!("writing {}", output.display()));
        let staging = Staging::next_to(output)?;
        let written = write(
            &folder,
            (&mut done, &configs, &files),
            options.external_data,
            (&staging.path(), output),
        );
        written.map_err(|e| staging.renamed(&e))?;
        staging.commit()?;
        report.output = Some(output.display().to_string());
    }
    drop(progress);
    let diffs = options
        .diff
        .then(|| diffs(&models, &done, output, terminal));
    report.models = done.iter().map(|done| done.report.clone()).collect();
    print(args, &report, diffs, terminal)?;
    // The process ends here: to free large graphs piece by piece would take time for nothing.
    let ok = report.ok;
    std::mem::forget((models, done));
    Ok(if ok { Exit::Done } else { Exit::Difference })
}

/// The folder to write.
fn output(args: &Args) -> anyhow::Result<&Path> {
    let options = &args.output;
    let refuse = |why: &str| named(&args.model, Err(Failure::usage(why)));
    if options.in_place {
        return refuse("a folder is not changed in place; give a new folder with -o");
    }
    if options.external_data == ExternalData::Keep {
        let why = "data cannot be kept where it is for a new folder; use --external-data copy, link or \
                   inline";
        return refuse(why);
    }
    match &options.output {
        Some(output) => Ok(output),
        // Nothing is written, and paths are those of the input.
        None if options.dry_run => Ok(&args.model),
        None => refuse("the input is a folder; give a new folder with -o"),
    }
}

/// The report before anything is written.
fn prospect(
    folder: &Folder,
    output: &Path,
    (done, configs): (&[Done], &Configs),
    (kept, dropped): (&[(PathBuf, &'static str)], &[PathBuf]),
) -> Report {
    let mut report = Report::new(folder.path.display().to_string());
    let is_ok = |done: &Done| done.report.check.as_ref().is_none_or(|check| check.ok);
    report.ok = done.iter().all(is_ok);
    report.configs = configs.report(output);
    report.warnings.clone_from(&configs.warnings);
    for (path, why) in kept {
        if *why == EXCEPTED {
            for config in configs.governing(folder, path) {
                let (model, config) = (folder.file(path), folder.file(&config));
                report.warnings.push(format!(
                    "{} stays as it is, and {} changes for the other models",
                    model.display(),
                    config.display()
                ));
            }
        }
        let path = folder.file(path).display().to_string();
        report.kept.push(Kept { path, why });
    }
    report.left_out = folder
        .hidden
        .iter()
        .chain(dropped)
        .map(|path| folder.file(path).display().to_string())
        .collect();
    report
}

/// Rewrites a model and compares the result with formulas.
fn rewrite(
    plan: Plan<'_>,
    (proof, request): (Proof, &Request),
    search: &Search,
) -> anyhow::Result<(Rewritten, Rewrite)> {
    let mut done = plan.apply()?;
    let mut report = done.report().clone();
    check::fill(&mut done, (proof, request), search, &mut report)?;
    Ok((done, report))
}

/// Writes everything into the folder that is to be `output`.
fn write(
    folder: &Folder,
    (done, configs, files): (&mut [Done], &Configs, &[PathBuf]),
    mode: ExternalData,
    (to, output): (&Path, &Path),
) -> anyhow::Result<()> {
    copies::copy(folder, files, to)?;
    for done in done {
        let input = folder.file(&done.path);
        let path = to.join(&done.path);
        let linked = save(done.result.as_ir(), &input, &path, mode)?;
        let [from, named] = [to, output].map(|path| path.display().to_string());
        let linked = linked.map(|warning| warning.replace(&from, &named));
        done.report.warnings.extend(linked);
        done.report.output = Some(Endpoint {
            fingerprint: fingerprint_of(&path)?,
            path: output.join(&done.path).display().to_string(),
        });
    }
    configs.write(to)
}

/// What changed in each graph, as diffs of their texts.
fn diffs(models: &[(PathBuf, Model)], done: &[Done], output: &Path, terminal: &Terminal) -> String {
    let of = |done: &Done| {
        let (_, model) = models.iter().find(|(path, _)| *path == done.path)?;
        let [before, after] = [model.as_ir(), done.result.as_ir()];
        let [before, after] = [before, after].map(|m| m.text(Weights::Hash).to_string());
        let (name, new) = (&done.report.input.path, output.join(&done.path));
        let names = [name.as_str(), &new.display().to_string()];
        Some(diff(&before, &after, names, terminal.out))
    };
    done.iter().filter_map(of).collect()
}

fn print(
    args: &Args,
    report: &Report,
    diffs: Option<String>,
    terminal: &Terminal,
) -> anyhow::Result<()> {
    if args.output.json {
        return terminal.print_json(report);
    }
    if let Some(diffs) = diffs {
        terminal.print(diffs)?;
        for line in texts::configs(&report.configs) {
            terminal.note(line);
        }
        for warning in text::warnings(report) {
            terminal.warn(warning);
        }
        terminal.note(match &report.output {
            Some(output) => format!("wrote {output}"),
            None => "nothing was written".to_owned(),
        });
        return Ok(());
    }
    let mut text = String::new();
    if terminal.verbosity() == Verbosity::Verbose {
        for report in &report.models {
            text += &format!("{}\n", texts::text(report, terminal.out));
        }
    }
    text += &text::rewritten(report, terminal.out);
    terminal.print_report(&text)
}
