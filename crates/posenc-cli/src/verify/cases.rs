//! Several models that are verified one after the other, and what is printed of them.

use std::path::Path;

use posenc_onnx::Model;
use posenc_onnx::report::Verify;
use posenc_onnx::verify::{Bisect, verify};
use serde::Serialize;

use super::junit;
use super::project::Settings;
use super::runtimes::Runtimes;
use super::text::{self, Detail};
use crate::exit::{Exit, sentence};
use crate::model;
use crate::places::Search;
use crate::terminal::Terminal;

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
pub(super) struct Case {
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
    pub(super) fn of(
        path: &Path,
        original: Option<&Path>,
        verified: anyhow::Result<Verify>,
    ) -> Self {
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

/// A model with all its tensors.
pub(super) fn open(path: &Path) -> anyhow::Result<Model> {
    let (model, _) = model::open_whole(path)?;
    model::named(path, Model::checked(model))
}

/// How models are verified.
pub(super) struct How {
    pub(super) bisect: Bisect,
    pub(super) settings: Settings,
    pub(super) runtimes: Runtimes,
}

impl How {
    /// Opens the runtimes of the settings.
    pub(super) fn open(
        bisect: Bisect,
        settings: Settings,
        search: &Search,
    ) -> anyhow::Result<Self> {
        let runtimes = Runtimes::open(&settings.provider, search)?;
        Ok(Self {
            bisect,
            settings,
            runtimes,
        })
    }

    pub(super) fn verify(&self, model: &Model, other: Option<&Model>) -> anyhow::Result<Verify> {
        let options = self.settings.options(&self.runtimes, self.bisect);
        let other = other.map(Model::as_ir);
        Ok(verify(
            model.as_ir(),
            other,
            &options,
            &self.runtimes.backends,
        )?)
    }
}

/// Prints what was found of all, and says how the process ends.
pub(super) fn finish(
    cases: Vec<Case>,
    output: &Output<'_>,
    terminal: &Terminal,
) -> anyhow::Result<Exit> {
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
            0 if count == 1 => terminal.out.good("the model is as it should be"),
            0 => terminal
                .out
                .good(format!("all {count} models are as they should be")),
            bad => terminal
                .out
                .bad(format!("{bad} of {count} models are not as they should be")),
        };
        text.push('\n');
    }
    terminal.print_report(&text)?;
    Ok(exit)
}
