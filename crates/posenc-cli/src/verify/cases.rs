//! Several models that are verified one after the other, and what is printed of them.

use std::path::Path;

use posenc_onnx::Model;
use posenc_onnx::report::Verify;
use posenc_onnx::verify::{Bisect, verify};
use serde::Serialize;

use super::case::Case;
use super::html;
use super::junit;
use super::project::{Settings, is_same};
use super::runtimes::Runtimes;
use super::text::{Detail, text as report_text};
use crate::exit::{Exit, Failure};
use crate::files;
use crate::model;
use crate::page::{Made, Page};
use crate::places::Search;
use crate::terminal::Terminal;

/// What is written, and where.
pub(super) struct Output<'a> {
    pub(super) json: bool,
    pub(super) junit: Option<&'a Path>,
    /// The page, and what is said to have made it.
    pub(super) report: Option<(&'a Path, Made)>,
}

impl Output<'_> {
    /// Refuses to write in place of a file that is read, and two reports to one file.
    pub(super) fn check(&self, read: &[&Path]) -> anyhow::Result<()> {
        let page = self.report.as_ref().map(|(file, _)| *file);
        if let (Some(page), Some(junit)) = (page, self.junit)
            && (is_same(page, junit) || files::is_same(page, junit))
        {
            let why = "--report and --junit name one file; give each its own";
            return Err(Failure::usage(why).into());
        }
        let mut all = [self.junit, page].into_iter().flatten();
        all.try_for_each(|file| files::check_report(file, read))
    }
}

/// What was found of all.
#[derive(Debug, Serialize)]
struct Found {
    schema: u32,
    models: Vec<Case>,
    ok: bool,
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

/// Several models, of which a page may tell.
pub(super) struct Cases<'a> {
    output: Output<'a>,
    all: Vec<Case>,
    chapters: Page,
}

impl<'a> Cases<'a> {
    pub(super) fn new(output: Output<'a>) -> Self {
        Self {
            output,
            all: vec![],
            chapters: Page::new(""),
        }
    }

    /// Adds one with the models that the page shows, which were run in these runtimes.
    pub(super) fn push(&mut self, case: Case, models: &[(&Path, &Model)], runtimes: &Runtimes) {
        if self.output.report.is_some() {
            let number = self.all.len();
            let runtimes = runtimes.versions();
            html::chapter(&mut self.chapters, number, &case, models, &runtimes);
        }
        self.all.push(case);
    }

    /// Writes and prints what was found of all, and says how the process ends.
    pub(super) fn finish(self, terminal: &Terminal) -> anyhow::Result<Exit> {
        let Self {
            output,
            all: cases,
            chapters,
        } = self;
        if let Some(file) = output.junit {
            let outcomes = cases.iter().map(|case| (case.path.as_str(), case.found()));
            junit::write(file, outcomes)?;
        }
        let errors = cases.iter().map(|case| case.exit);
        let failed: Vec<Exit> = errors.filter(|exit| *exit != Exit::Done).collect();
        // What could not be verified says more than what differs.
        let worst = failed.iter().copied().max_by_key(|exit| *exit as u8);
        let exit = worst.unwrap_or(Exit::Done);
        let verdict = match (failed.len(), cases.len()) {
            (0, 1) => "the model is as it should be".to_owned(),
            (0, count) => format!("all {count} models are as they should be"),
            (bad, count) => format!("{bad} of {count} models are not as they should be"),
        };
        let ok = failed.is_empty();
        if let Some((file, made)) = &output.report {
            let page = html::whole(&cases, (ok, &verdict), chapters, made);
            files::write_report(file, &page)?;
            terminal.note(format_args!("wrote {}", file.display()));
        }
        let found = Found {
            schema: posenc_onnx::report::SCHEMA,
            models: cases,
            ok,
        };
        if output.json {
            terminal.print_json(&found)?;
            return Ok(exit);
        }
        let detail = Detail::of(terminal);
        let texts = found.models.iter().map(|case| text(case, detail, terminal));
        let mut text: String = texts.collect();
        if detail != Detail::Failures || !ok {
            text += &match ok {
                true => terminal.out.good(verdict),
                false => terminal.out.bad(verdict),
            };
            text.push('\n');
        }
        terminal.print_report(&text)?;
        Ok(exit)
    }
}

/// What is printed of one.
fn text(case: &Case, detail: Detail, terminal: &Terminal) -> String {
    let found = match case.found() {
        Ok(report) => report_text(report, detail, terminal.out),
        Err(error) => format!("{}\n", terminal.out.bad(error)),
    };
    if found.is_empty() {
        return found;
    }
    let from = case.original.as_ref();
    let from = from.map_or_else(String::new, |original| format!(" from {original}"));
    format!("{}{from}\n\n{found}\n", terminal.out.name(&case.path))
}
