//! `verify`: runs models and compares the results.

mod all;
mod case;
mod cases;
mod folders;
mod html;
mod inputs;
mod junit;
mod project;
mod runtimes;
mod summary;
mod text;

pub use runtimes::Runtimes;

use std::path::{Path, PathBuf};

use clap::ArgAction;
use posenc_onnx::Model;
use posenc_onnx::verify::{Bisect, verify};

use crate::backend::Choice;
use crate::exit::{Exit, Failure};
use crate::files;
use crate::folder::Chosen;
use crate::model;
use crate::page::Made;
use crate::places::Search;
use crate::progress::Progress;
use crate::terminal::Terminal;
use crate::value::{self, Lengths};
use project::Settings;
use text::Detail;

/// Run a model and its positional encodings, and compare the results
///
/// The rotation of every attention site, and whatever a rewrite inserted, is run on its own in every
/// runtime and compared with the formula in f64. The metadata of a rewritten model names the formula;
/// learned numbers are those of the model. Every other encoding is compared with the formula that is
/// detected; of learned numbers, with the rows that it reads. The whole model is run at several lengths
/// and compared with OTHER or, without it, between runtimes. For a model with a cache, prefill is
/// compared with decode. A rewritten model is held to the record of its rewrite. Where one of the two
/// models was rewritten from the other, their outputs may differ, and every node and weight outside of
/// the edits has to be equal. The last line says what was not checked.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to run, or folder of models
    #[arg(value_name = "MODEL", required_unless_present = "all")]
    model: Option<PathBuf>,

    /// Model to compare it with; of two folders, the models of one path
    #[arg(value_name = "OTHER")]
    other: Option<PathBuf>,

    #[command(flatten)]
    chosen: Chosen,

    /// Verify every model and rewrite that posenc.toml of this folder names
    #[arg(
        long,
        action = ArgAction::SetTrue,
        conflicts_with_all = ["model", "inputs", "only", "except"]
    )]
    all: bool,

    /// Where to run: tract, or a provider of ONNX Runtime, as cuda, cuda:1 or cuda,KEY=VALUE; repeatable
    #[arg(long, value_name = "PROVIDER", help_heading = "Runs")]
    provider: Vec<Choice>,

    /// Fail if nodes would run on another provider
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Runs")]
    no_fallback: bool,

    /// Sequence lengths to run at, as 1,64,128 [default: usual ones that the model supports]
    #[arg(long, value_name = "LIST", help_heading = "Runs")]
    lengths: Option<Lengths>,

    /// Inputs to run on, an array for each by its name, as numpy.savez writes them [default: random]
    #[arg(
        long,
        value_name = "FILE.npz",
        help_heading = "Runs",
        conflicts_with = "lengths"
    )]
    inputs: Option<PathBuf>,

    /// Absolute difference allowed between whole runs [default: by the model's types]
    #[arg(
        long,
        value_name = "F",
        value_parser = value::not_negative,
        allow_negative_numbers = true,
        help_heading = "Bounds"
    )]
    atol: Option<f64>,

    /// Relative difference allowed between whole runs [default: by the model's types]
    #[arg(
        long,
        value_name = "F",
        value_parser = value::not_negative,
        allow_negative_numbers = true,
        help_heading = "Bounds"
    )]
    rtol: Option<f64>,

    /// Search for the first value that is out of bounds
    #[arg(long, action = ArgAction::SetTrue, help_heading = "Bounds")]
    bisect: bool,

    /// Write a report with plots as a web page, of several models one with a chapter for each
    #[arg(long, value_name = "FILE.html", help_heading = "Output")]
    report: Option<PathBuf>,

    /// Write every comparison as a test case, in JUnit XML
    #[arg(long, value_name = "FILE.xml", help_heading = "Output")]
    junit: Option<PathBuf>,

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
  posenc-onnx verify folder folder-long
  posenc-onnx verify folder folder-long --except b.onnx
  posenc-onnx verify --all --junit verify.xml --report verify.html

`posenc-onnx runtime` lists providers.

With --all, posenc.toml names models, their rewrites by the flags of rewrite, and settings. A
rewrite whose output does not exist is made in memory; one that exists has to be what the rewrite
makes:
  [verify]
  provider = [\"tract\", \"cpu\"]
  lengths = [1, 64, 128]

  [[model]]
  path = \"model.onnx\"

  [[model.rewrite]]
  output = \"long.onnx\"
  scale = \"yarn\"
  factor = 4
  verify = { atol = 1e-3 }    # instead of [verify], for this one

Exit codes:
  0  all comparisons are within bounds
  1  a comparison is out of bounds, or nothing could be compared
  2  the command line is wrong, or a required value is missing
  3  the model cannot be read or is invalid
  4  the model or the request has a form that is not supported
  5  the requested runtime or provider is not available";

/// Compares and prints the result.
pub(crate) fn run(args: &Args, search: &Search, terminal: &Terminal) -> anyhow::Result<Exit> {
    if args.all {
        let how = (&args.settings(), args.bisect());
        return all::run(how, args.output()?, search, terminal);
    }
    let path = args.model.as_deref().unwrap_or(Path::new(""));
    if path.is_dir() {
        return args.folders(path, search, terminal);
    }
    args.chosen.check_single(path)?;
    let read = [Some(path), args.other.as_deref(), args.inputs.as_deref()];
    let read: Vec<&Path> = read.into_iter().flatten().collect();
    let output = args.output()?;
    output.check(&read)?;
    let progress = Progress::start(terminal, format!("verifying {}", path.display()));
    let runtimes = Runtimes::open(&args.provider, search)?;
    let (model, warnings) = model::open_whole(path)?;
    let other = match &args.other {
        Some(other) => Some(model::open_whole(other)?),
        None => None,
    };
    let mut options = args.settings().options(&runtimes, args.bisect());
    if let Some(path) = &args.inputs {
        options.inputs = model::named(path, inputs::read(path))?;
    }
    let verified = verify(
        &model,
        other.as_ref().map(|o| &o.0),
        &options,
        &runtimes.backends,
    );
    let report = verified.map_err(|error| {
        let all = [Some(path), args.other.as_deref()].into_iter().flatten();
        let all: Vec<String> = all.map(|path| path.display().to_string()).collect();
        Failure::of_file(&all.join(" and "), &error.into())
    })?;
    drop(progress);
    runtimes.note_missing(terminal);
    model::warn(terminal, path, &warnings);
    if let (Some(path), Some((_, warnings))) = (&args.other, &other) {
        model::warn(terminal, path, warnings);
    }
    if let Some((page, made)) = &output.report {
        let model = Model::checked(model)?;
        let other = other.map(|(other, _)| Model::checked(other)).transpose()?;
        let other = args.other.as_deref().zip(other.as_ref());
        let models: Vec<(&Path, &Model)> = std::iter::once((path, &model)).chain(other).collect();
        let text = html::html(&report, &models, &runtimes.versions(), made);
        files::write_report(page, &text)?;
        terminal.note(format_args!("wrote {}", page.display()));
    }
    if let Some(file) = &args.junit {
        junit::write(file, [(&*path.to_string_lossy(), Ok(&report))])?;
        terminal.note(format_args!("wrote {}", file.display()));
    }
    if args.json {
        terminal.print_json(&report)?;
    } else {
        terminal.print_report(&text::text(&report, Detail::of(terminal), terminal.out))?;
    }
    Ok(if report.ok {
        Exit::Done
    } else {
        Exit::Difference
    })
}

impl Args {
    /// Verifies the models of a folder.
    fn folders(&self, folder: &Path, search: &Search, terminal: &Terminal) -> anyhow::Result<Exit> {
        if self.inputs.is_some() {
            let why = "--inputs is for one model, and this is a folder; remove it";
            return model::named(folder, Err(Failure::usage(why)));
        }
        let output = self.output()?;
        let settings = self.settings();
        let how = cases::How {
            bisect: self.bisect(),
            runtimes: Runtimes::open(&settings.provider, search)?,
            settings,
        };
        how.runtimes.note_missing(terminal);
        let folders = (folder, self.other.as_deref(), &self.chosen);
        folders::run(folders, &how, output, terminal)
    }

    /// What is written, and where.
    fn output(&self) -> anyhow::Result<cases::Output<'_>> {
        let made = self.report.as_ref().map(|_| Made::now()).transpose()?;
        Ok(cases::Output {
            json: self.json,
            junit: self.junit.as_deref(),
            report: self.report.as_deref().zip(made),
        })
    }

    /// What the flags say of runs and bounds.
    fn settings(&self) -> Settings {
        Settings {
            provider: self.provider.clone(),
            no_fallback: self.no_fallback,
            lengths: self.lengths.clone().map_or_else(Vec::new, |l| l.0),
            atol: self.atol,
            rtol: self.rtol,
        }
    }

    fn bisect(&self) -> Bisect {
        if self.bisect {
            Bisect::FirstFailure
        } else {
            Bisect::No
        }
    }
}
