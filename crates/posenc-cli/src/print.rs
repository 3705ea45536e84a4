//! `print`: a model as ONNX text.

use std::path::PathBuf;

use posenc_ir::text::Weights;

use crate::exit::Exit;
use crate::model;
use crate::terminal::Terminal;

/// Print a model in the ONNX text syntax, which the official parser reads
///
/// Warnings name what the syntax cannot express, such as the documentation of nodes. With `--weights
/// full`, comments at the start of the text name it too.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Model to read
    #[arg(value_name = "MODEL")]
    model: PathBuf,

    /// How tensors are printed
    #[arg(long, value_enum, value_name = "HOW", default_value_t = TensorText::Hash)]
    weights: TensorText,
}

/// How tensors are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TensorText {
    /// The start of the SHA-256 of large tensors
    Hash,
    /// Every value, so that the text is the whole model
    Full,
    /// The length of large tensors, without reading them
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
        TensorText::Hash => Weights::Hash,
        TensorText::Full => Weights::Full,
        TensorText::None => Weights::None,
    };
    // An invalid model is printed too: printing is how people find the error.
    match read.check() {
        Ok(warnings) => model::warn(terminal, &args.model, &warnings),
        Err(wrong) => model::warn(terminal, &args.model, &[wrong]),
    }
    let mut text = read.text(weights);
    if terminal.shows_data() {
        text = text.for_terminals();
    }
    for omitted in text.omissions() {
        terminal.warn(omitted);
    }
    terminal.print(text)?;
    Ok(Exit::Done)
}
