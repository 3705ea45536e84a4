//! `inspect`: the positional encodings of a model.

mod html;
mod limits;
pub(crate) mod text;

pub(crate) use html::{Shown, chapter, found, marks};
pub(crate) use limits::limits;
pub(crate) use text::{attention, encodings, facts, notes, refused};

use std::path::{Path, PathBuf};

use posenc_onnx::report::Inspect;
use posenc_onnx::request::InputRole;
use posenc_onnx::request::hf_config::HfConfig;
use posenc_onnx::{Model, RewriteError};

use crate::exit::Exit;
use crate::files;
use crate::folder::Chosen;
use crate::model;
use crate::page::Made;
use crate::progress::Progress;
use crate::terminal::Terminal;
use crate::value;

/// Show the positional encodings, attention sites and length limits of a model
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to read, or folder of models
    #[arg(value_name = "MODEL")]
    pub(crate) model: PathBuf,

    #[command(flatten)]
    pub(crate) chosen: Chosen,

    /// Write JSON to stdout
    #[arg(long)]
    pub(crate) json: bool,

    /// Also hash the whole file, which reads every byte of it
    #[arg(long)]
    hash: bool,

    /// Hugging Face config, for values that the graph does not determine
    #[arg(long, value_name = "FILE")]
    hf_config: Option<PathBuf>,

    /// List the candidates that were rejected, and why
    #[arg(long)]
    pub(crate) explain: bool,

    /// Write a report with plots as a web page, of a folder one with a chapter for each model
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,

    /// Role of an input that cannot be inferred
    #[arg(long, value_name = "NAME=ROLE", value_parser = value::named::<InputRole>)]
    input_role: Vec<(String, InputRole)>,
}

const EXAMPLES: &str = "\
Examples:
  posenc-onnx inspect model.onnx
  posenc-onnx inspect model.onnx --explain
  posenc-onnx inspect model.onnx --report model.html
  posenc-onnx inspect folder --except b.onnx
  posenc-onnx inspect model.onnx --json | jq '.encodings[].params'";

/// Prints what was found.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    args.chosen.check_single(&args.model)?;
    let made = match &args.report {
        Some(page) => {
            files::check_report(page, &[&args.model])?;
            Some((page, Made::now()?))
        }
        None => None,
    };
    let progress = Progress::start(terminal, format!("reading {}", args.model.display()));
    let (model, report) = args.read(&args.model, &progress)?;
    if let Some((page, made)) = &made {
        files::write_report(page, &html::html(&report, &model, made))?;
        terminal.note(format_args!("wrote {}", page.display()));
    }
    drop(progress);
    if args.json {
        terminal.print_json(&report)?;
    } else {
        terminal.print_report(&text::text(&report, terminal.out))?;
    }
    Ok(Exit::Done)
}

impl Args {
    /// A model, and what was found in it.
    ///
    /// # Errors
    /// When it cannot be read, or does not fit the flags.
    pub(crate) fn read(
        &self,
        path: &Path,
        progress: &Progress,
    ) -> anyhow::Result<(Model, Inspect)> {
        let model = model::named(path, Model::open(path))?;
        let roles = self.input_role.iter().cloned().collect();
        let model = model::named(
            path,
            model.with_input_roles(roles).map_err(RewriteError::from),
        )?;
        progress.now(format!("inspecting {}", path.display()));
        let mut report = report(&model)?;
        if self.hash {
            report.model.sha256 = Some(model.as_ir().sha256());
        }
        if let Some(path) = &self.hf_config {
            model::named(path, consult(&mut report, path))?;
        }
        if !self.explain {
            report.refused = None;
        }
        Ok((model, report))
    }
}

/// What was found, with the warnings about the file.
///
/// # Errors
/// When a field about data in other files is invalid.
pub fn report(model: &Model) -> anyhow::Result<Inspect> {
    let mut report = model.inspect();
    let warnings = model.warnings().iter().map(ToString::to_string);
    report.warnings.splice(..0, warnings);
    let path = model.as_ir().path().unwrap_or(Path::new(""));
    report.warnings.extend(model::absence(path, model.as_ir())?);
    Ok(report)
}

/// Fills in values that only the config determines.
fn consult(report: &mut Inspect, path: &Path) -> anyhow::Result<()> {
    let config = HfConfig::parse(&model::text_of(path)?)?;
    Ok(report.consult(&config)?)
}
