//! `verify`: runs models and compares what comes out.

mod html;
mod text;

use std::path::{Path, PathBuf};

use clap::ArgAction;
use posenc_onnx::detect::{Options, detect};
use posenc_onnx::report::{SiteCheck, Verify};
use posenc_onnx::verify::{check_rope, expectations};

use crate::backend::Choice;
use crate::exit::{Exit, Failure};
use crate::model;
use crate::progress::Progress;
use crate::terminal::Terminal;
use crate::value::{self, Lengths};

/// Run the encodings of a model and compare them with their formulas in f64
///
/// Every attention site is cut out and run on its own, at positions up to the full length. A
/// rewritten model carries what it is to compute; in others the frequencies that are read count.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to run
    #[arg(value_name = "MODEL", required_unless_present = "all")]
    model: Option<PathBuf>,

    /// Model to compare it with
    #[arg(value_name = "OTHER")]
    other: Option<PathBuf>,

    /// Check every encoding and scaling of this build on every runtime, without a model
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "model")]
    all: bool,

    /// What to run on: tract, cpu, cuda, cuda:1, or a name of ONNX Runtime; can be repeated
    #[arg(long, value_name = "PROVIDER", help_heading = "Runs")]
    provider: Vec<Choice>,

    /// Refuse to run nodes anywhere but on the provider
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Runs")]
    no_fallback: bool,

    /// Lengths to run at
    #[arg(long, value_name = "LIST", help_heading = "Runs")]
    lengths: Option<Lengths>,

    /// Inputs to run on, as saved by NumPy [default: made up from a seed]
    #[arg(long, value_name = "FILE.npz", help_heading = "Runs")]
    inputs: Option<PathBuf>,

    /// Absolute difference that is allowed [default: from an error model]
    #[arg(long, value_name = "F", value_parser = value::not_negative, help_heading = "Bounds")]
    atol: Option<f64>,

    /// Difference relative to the largest magnitude that is allowed
    #[arg(long, value_name = "F", value_parser = value::not_negative, help_heading = "Bounds")]
    rtol: Option<f64>,

    /// Look for the first value that is out of bounds
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Bounds")]
    bisect: bool,

    /// Write a report for a browser
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<PathBuf>,

    /// Write JSON to stdout
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Output")]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  posenc-onnx verify model.onnx
  posenc-onnx verify long.onnx --provider tract --provider cpu
  posenc-onnx verify long.onnx --report long.html

Exit code 1: a difference. Exit code 5: the provider asked for is not there.";

/// Compares and says what came out.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    // A provider that is not there is told from one that nothing runs on yet.
    for choice in args.provider.iter().filter(|c| !c.is_served()) {
        choice.open()?;
    }
    if let Some(flag) = args.unserved() {
        let sentence = format!("this version does not do {flag} yet; leave it out");
        return Err(Failure::unsupported(sentence).into());
    }
    let path = args.model.as_deref().unwrap_or(Path::new(""));
    let progress = Progress::start(terminal, format!("verifying {}", path.display()));
    let mut sites = vec![];
    let chosen: &[Choice] = match args.provider.as_slice() {
        [] => &Choice::defaults()[..1],
        chosen => chosen,
    };
    for choice in chosen {
        sites.extend(model::named(path, checks(path, choice))?);
    }
    drop(progress);
    let report = Verify::new(vec![], sites);
    if let Some(page) = &args.report {
        let written = std::fs::write(page, html::html(&report, &path.display().to_string()));
        model::named(page, written.map_err(|e| Failure::usage(e.to_string())))?;
    }
    if args.json {
        terminal.print_json(&report)?;
    } else {
        terminal.print(text::text(&report, terminal.out))?;
    }
    Ok(if report.ok {
        Exit::Done
    } else {
        Exit::Difference
    })
}

/// Every rotation against its formula, on one provider.
fn checks(path: &Path, choice: &Choice) -> anyhow::Result<Vec<SiteCheck>> {
    let runtime = choice.open()?;
    let model = model::open_checked(path)?;
    let found = detect(&model, &Options::default());
    let expected = expectations(&model, &found)?;
    Ok(check_rope(&model, &found, &expected, &*runtime)?)
}

impl Args {
    /// The first flag that was given and that nothing heeds yet.
    fn unserved(&self) -> Option<&'static str> {
        let flags = [
            ("OTHER", self.other.is_some()),
            ("--all", self.all),
            ("--no-fallback", self.no_fallback),
            ("--lengths", self.lengths.is_some()),
            ("--inputs", self.inputs.is_some()),
            ("--atol", self.atol.is_some()),
            ("--rtol", self.rtol.is_some()),
            ("--bisect", self.bisect),
            ("--provider", !self.provider.iter().all(Choice::is_served)),
        ];
        let said = flags.into_iter().find(|(_, said)| *said);
        said.map(|(flag, _)| flag)
    }
}
