//! `verify --all`: the models of a project and their rewrites.

use std::path::Path;

use posenc_ir::diff::Diff;
use posenc_onnx::Model;
use posenc_onnx::report::{SiteCheck, Verify};
use posenc_onnx::verify::{Bisect, verify};
use serde::Serialize;

use super::junit;
use super::project::{FILE, Project, Settings, Wanted};
use super::runtimes::Runtimes;
use super::text::{self, Detail};
use crate::exit::{Exit, Failure, sentence};
use crate::places::Search;
use crate::progress::Progress;
use crate::terminal::Terminal;
use crate::{files, model, rewrite};

/// What is written, and where.
pub(super) struct Output<'a> {
    pub(super) json: bool,
    pub(super) junit: Option<&'a Path>,
}

/// What was found of all.
#[derive(Debug, Serialize)]
struct Found {
    schema: u32,
    models: Vec<Case>,
    ok: bool,
}

/// A model, or a rewrite of one.
#[derive(Debug, Serialize)]
struct Case {
    path: String,
    /// The model that it is rewritten from.
    #[serde(skip_serializing_if = "Option::is_none")]
    original: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    report: Option<Verify>,
    /// Why there is no report.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    exit: Exit,
}

impl Case {
    fn of(path: &Path, original: Option<&Path>, verified: anyhow::Result<Verify>) -> Self {
        let words = |path: &Path| path.display().to_string();
        let exit = match &verified {
            Ok(report) if report.ok => Exit::Done,
            Ok(_) => Exit::Difference,
            Err(error) => Exit::of(error),
        };
        let (report, error) = match verified {
            Ok(report) => (Some(report), None),
            Err(error) => (None, Some(sentence(&error))),
        };
        Self {
            path: words(path),
            original: original.map(words),
            report,
            error,
            exit,
        }
    }

    fn text(&self, detail: Detail, terminal: &Terminal) -> String {
        let found = match (&self.report, &self.error) {
            (Some(report), _) => text::text(report, detail, terminal.out),
            (None, Some(error)) => format!("{}\n", terminal.out.bad(error)),
            (None, None) => String::new(),
        };
        if found.is_empty() {
            return found;
        }
        let from = self.original.as_ref();
        let from = from.map_or_else(String::new, |original| format!(" from {original}"));
        format!("{}{from}\n\n{found}\n", terminal.out.name(&self.path))
    }
}

/// Verifies every model and every rewrite of the project of this folder.
pub(super) fn run(
    (flags, bisect): (&Settings, Bisect),
    output: &Output<'_>,
    search: &Search,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
    let project = Project::read()?;
    let mut read: Vec<&Path> = project.files().collect();
    if let Some(twice) = read
        .iter()
        .enumerate()
        .find(|(at, path)| read[..*at].contains(path))
    {
        let why = format!("{} is named twice", twice.1.display());
        return model::named(Path::new(FILE), Err(Failure::usage(why)));
    }
    read.push(Path::new(FILE));
    if let Some(file) = output.junit {
        files::check_report(file, &read)?;
    }
    let progress = Progress::start(terminal, "verifying".to_owned());
    let mut cases = vec![];
    for entry in &project.models {
        let settings = entry.verify.as_ref().unwrap_or(&project.verify);
        let of_model = settings.clone();
        let settings = of_model.clone().or(flags.clone());
        let wanted = entry.rewrites()?;
        progress.now(format!("verifying {}", entry.path.display()));
        let how = How::open(bisect, settings, search)?;
        let read = open(&entry.path);
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                let path = &entry.path;
                cases.push(Case::of(path, None, Err(error)));
                let why = || anyhow::anyhow!("{} was not read", path.display());
                let lost = wanted
                    .iter()
                    .map(|w| Case::of(&w.output, Some(path), Err(why())));
                cases.extend(lost);
                continue;
            }
        };
        let alone = model::named(&entry.path, how.verify(&read, None));
        cases.push(Case::of(&entry.path, None, alone));
        for wanted in &wanted {
            progress.now(format!("verifying {}", wanted.output.display()));
            let own = wanted.verify.clone();
            let own = own.map(|own| of_model.clone().or(own).or(flags.clone()));
            let own = own
                .map(|settings| How::open(bisect, settings, search))
                .transpose()?;
            let how = own.as_ref().unwrap_or(&how);
            let verified = model::named(&wanted.output, how.rewritten(wanted, &read));
            cases.push(Case::of(&wanted.output, Some(&entry.path), verified));
        }
    }
    drop(progress);
    let outcomes = cases.iter().map(|case| {
        let error = case.error.as_deref().unwrap_or_default();
        (case.path.as_str(), case.report.as_ref().ok_or(error))
    });
    if let Some(file) = output.junit {
        junit::write(file, outcomes)?;
    }
    let errors = cases.iter().map(|case| case.exit);
    let failed: Vec<Exit> = errors.filter(|exit| *exit != Exit::Done).collect();
    // What could not be verified says more than what differs.
    let worst = failed.iter().copied().max_by_key(|exit| *exit as u8);
    let exit = worst.unwrap_or(Exit::Done);
    let count = cases.len();
    let found = Found {
        schema: posenc_onnx::report::SCHEMA,
        models: cases,
        ok: failed.is_empty(),
    };
    if output.json {
        terminal.print_json(&found)?;
        return Ok(exit);
    }
    let detail = Detail::of(terminal);
    let texts = found.models.iter().map(|case| case.text(detail, terminal));
    let mut text: String = texts.collect();
    if detail != Detail::Failures || !found.ok {
        text += &match failed.len() {
            0 => terminal
                .out
                .good(format!("all {count} models are as they should be")),
            bad => terminal
                .out
                .bad(format!("{bad} of {count} models are not as they should be")),
        };
        text.push('\n');
    }
    terminal.print(text)?;
    Ok(exit)
}

/// A model with all its tensors.
fn open(path: &Path) -> anyhow::Result<Model> {
    let (model, _) = model::open_whole(path)?;
    model::named(path, Model::checked(model))
}

/// How models are verified.
struct How {
    bisect: Bisect,
    settings: Settings,
    runtimes: Runtimes,
}

impl How {
    fn open(bisect: Bisect, settings: Settings, search: &Search) -> anyhow::Result<Self> {
        let runtimes = Runtimes::open(&settings.provider, search)?;
        Ok(Self {
            bisect,
            settings,
            runtimes,
        })
    }

    fn verify(&self, model: &Model, other: Option<&Model>) -> anyhow::Result<Verify> {
        let options = self.settings.options(&self.runtimes, self.bisect);
        let other = other.map(Model::as_ir);
        Ok(verify(
            model.as_ir(),
            other,
            &options,
            &self.runtimes.backends,
        )?)
    }

    /// The file of a rewrite, which has to be what the rewrite makes; where there is none, what it makes.
    fn rewritten(&self, wanted: &Wanted, original: &Model) -> anyhow::Result<Verify> {
        let made = rewrite::in_memory(&wanted.args, original)?;
        if !wanted.output.exists() {
            let made = Model::checked(made.into_ir())?;
            return self.verify(&made, Some(original));
        }
        let file = open(&wanted.output)?;
        let differs = !Diff::between(made.as_ir(), file.as_ir())?.is_empty();
        let mut report = self.verify(&file, Some(original))?;
        report.sites.insert(
            0,
            SiteCheck {
                site: wanted.output.display().to_string(),
                quantity: "rewrite".to_owned(),
                max_error: (!differs).then_some(0.0),
                bound: 0.0,
                ok: !differs,
            },
        );
        report.ok &= !differs;
        if differs {
            report.warnings.push(format!(
                "{} is not what the rewrite makes of the model now; write it again",
                wanted.output.display()
            ));
        }
        Ok(report)
    }
}
