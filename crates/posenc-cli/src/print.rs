//! `print`: a model as ONNX text.

use std::path::PathBuf;

use posenc_ir::text::Weights;

use crate::exit::Exit;
use crate::model;
use crate::terminal::Terminal;

/// Print a model in the ONNX text syntax, which the official parser reads
///
/// Warnings name what the syntax has no form for, such as the documentation of nodes; with `--weights
/// full`, comments at the head of the text do too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to read
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    /// How tensors are written
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Shown::Hash)]
    weights: Shown,
}

/// How tensors are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shown {
    /// Large ones as the start of their sha256
    Hash,
    /// With every value, so that the text is the whole model
    Full,
    /// Large ones as their length, without reading them
    None,
}

const EXAMPLES: &str = "\
Examples:
  posenc-onnx print model.onnx | less
  posenc-onnx print small.onnx --weights full > small.onnxtxt
  diff <(posenc-onnx print a.onnx) <(posenc-onnx print b.onnx)";

/// Prints the text.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    let read = model::open(&args.model)?;
    let weights = match args.weights {
        Shown::Hash => Weights::Hash,
        Shown::Full => Weights::Full,
        Shown::None => Weights::None,
    };
    // What is wrong with a model is often what somebody prints it for.
    match read.check() {
        Ok(warnings) => model::warn(terminal, &args.model, &warnings),
        Err(wrong) => model::warn(terminal, &args.model, &[wrong]),
    }
    let mut text = read.text(weights);
    if terminal.shows_data() {
        text = text.for_terminals();
    }
    for unsaid in text.unsaid() {
        terminal.warn(unsaid);
    }
    terminal.print(text)?;
    Ok(Exit::Done)
}
