//! The binary of posenc-onnx.

use std::process::ExitCode;

use posenc_cli::Search;

fn main() -> ExitCode {
    posenc_cli::run(std::env::args_os().skip(1), &Search::Machine).into()
}
