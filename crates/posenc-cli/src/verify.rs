//! `verify`: runs models and compares what comes out.

mod html;
mod text;

use std::path::{Path, PathBuf};

use clap::ArgAction;
use posenc_onnx::prove::{Bisect, VerifyOptions, verify};
use posenc_runtime::{Backend, Fallback, Provider};

use crate::backend::Choice;
use crate::exit::{Exit, Failure};
use crate::model;
use crate::progress::Progress;
use crate::terminal::Terminal;
use crate::value::{self, Lengths};

/// Run a model and its encodings, and compare what comes out
///
/// Every attention site is cut out and run on its own, at positions up to the full length, against
/// the formula in f64. A rewritten model carries what it is to compute; in others the frequencies
/// that are read count. The whole model is run at several lengths and compared with OTHER, or
/// between runtimes; with a cache, prefill is compared with decode.
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
  posenc-onnx verify a.onnx b.onnx --lengths 1,64,128 --bisect
  posenc-onnx verify long.onnx --report long.html

Exit code 1: a difference. Exit code 5: the provider asked for is not there.";

/// Compares and says what came out.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    if let Some(flag) = args.unserved() {
        let sentence = format!("this version does not do {flag} yet; leave it out");
        return Err(Failure::unsupported(sentence).into());
    }
    let path = args.model.as_deref().unwrap_or(Path::new(""));
    let progress = Progress::start(terminal, format!("verifying {}", path.display()));
    let runtimes = Runtimes::open(&args.provider)?;
    let (model, warnings) = model::open_checked(path)?;
    let other = match &args.other {
        Some(other) => Some(model::open_checked(other)?),
        None => None,
    };
    let options = args.options(&runtimes);
    let verified = verify(
        &model,
        other.as_ref().map(|o| &o.0),
        &options,
        &runtimes.backends,
    );
    let report = model::named(path, verified.map_err(anyhow::Error::from))?;
    drop(progress);
    model::warn(terminal, path, &warnings);
    if let (Some(path), Some((_, warnings))) = (&args.other, &other) {
        model::warn(terminal, path, warnings);
    }
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

/// The runtimes that a verification uses, each opened once.
struct Runtimes {
    backends: Vec<Box<dyn Backend>>,
    /// What was asked for: a runtime by its place in the list, and its provider.
    providers: Vec<(usize, Provider)>,
}

impl Runtimes {
    /// Opens what was asked for; where nothing was, every runtime that is there.
    fn open(choices: &[Choice]) -> anyhow::Result<Self> {
        let mut runtimes = Self {
            backends: vec![],
            providers: vec![],
        };
        if choices.is_empty() {
            let opened = Choice::defaults().into_iter().filter_map(|c| c.open().ok());
            runtimes.backends.extend(opened);
            return Ok(runtimes);
        }
        for choice in choices {
            let opened = choice.open()?;
            let mut known = runtimes.backends.iter();
            let place = match known.position(|b| b.name() == opened.name()) {
                Some(place) => place,
                None => {
                    runtimes.backends.push(opened);
                    runtimes.backends.len() - 1
                }
            };
            runtimes.providers.push((place, choice.provider()));
        }
        Ok(runtimes)
    }
}

impl Args {
    fn options(&self, runtimes: &Runtimes) -> VerifyOptions {
        VerifyOptions {
            providers: runtimes.providers.clone(),
            fallback: match self.no_fallback {
                true => Fallback::Refused,
                false => Fallback::Allowed,
            },
            lengths: self.lengths.clone().map_or_else(Vec::new, |l| l.0),
            atol: self.atol,
            rtol: self.rtol,
            bisect: match self.bisect {
                true => Bisect::FirstFailure,
                false => Bisect::No,
            },
            ..VerifyOptions::default()
        }
    }

    /// The first flag that was given and that nothing heeds yet.
    fn unserved(&self) -> Option<&'static str> {
        let flags = [("--all", self.all), ("--inputs", self.inputs.is_some())];
        let said = flags.into_iter().find(|(_, said)| *said);
        said.map(|(flag, _)| flag)
    }
}
