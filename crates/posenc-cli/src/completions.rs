//! `completions`.

use clap_complete::Shell;

use crate::exit::Exit;
use crate::terminal::Terminal;

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Shell to write the script for
    shell: Shell,
}

const EXAMPLES: &str = "\
Examples:
  posenc-onnx completions bash > ~/.local/share/bash-completion/completions/posenc-onnx
  posenc-onnx completions zsh  > ~/.zfunc/_posenc-onnx
  posenc-onnx completions fish > ~/.config/fish/completions/posenc-onnx.fish";

/// Prints the script.
pub(crate) fn run(
    args: &Args,
    terminal: &Terminal,
    command: &mut clap::Command,
) -> anyhow::Result<Exit> {
    let mut script = vec![];
    clap_complete::generate(args.shell, command, "posenc-onnx", &mut script);
    terminal.print(String::from_utf8_lossy(&script))?;
    Ok(Exit::Done)
}
