//! The command line of posenc-onnx: gathers flags, paths and environment, prints, and says how the
//! process ends.
//!
//! [`run`] is the whole of it, for a binary. [`steps`] is what its subcommands do, without flags and
//! without printing, for bindings of other languages.

mod backend;
mod columns;
mod completions;
mod diff;
mod exit;
mod files;
mod flag_names;
mod folder;
mod inspect;
mod man;
mod model;
mod number;
mod page;
mod param;
mod places;
mod print;
mod progress;
mod rewrite;
mod rope;
mod runtime;
pub mod steps;
mod table;
mod terminal;
mod value;
mod verify;
mod words;

use std::ffi::{OsStr, OsString};
use std::io::Write;

use clap::{ArgAction, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use terminal::{Terminal, Verbosity};

pub use exit::Exit;
pub use places::Search;

/// Find, rescale, swap and prove the positional encodings of ONNX transformer models.
#[derive(Debug, Parser)]
#[command(name = "posenc-onnx", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,

    /// When to use colors
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,

    /// Print only errors and data
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    quiet: bool,

    /// Also print what was attempted
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    Inspect(inspect::Args),
    Rewrite(Box<rewrite::Args>),
    Verify(Box<verify::Args>),
    Print(print::Args),
    Diff(diff::Args),
    Table(Box<table::Args>),
    Runtime(runtime::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Man(man::Args),
}

const EXAMPLES: &str = "\
Examples:
  posenc-onnx inspect model.onnx
  posenc-onnx rewrite model.onnx --scale yarn --factor 4 -o long.onnx
  posenc-onnx rewrite model.onnx --to alibi -o alibi.onnx
  posenc-onnx verify long.onnx
  posenc-onnx table --scale yarn --rotary-dim 64 --original-length 4096 --format plot

Exit codes:
  0  done
  1  a check or diff found a difference, or the model has no attention to rewrite
  2  the command line is wrong, or a required value is missing
  3  the model cannot be read or is invalid
  4  the model or the request has a form that is not supported
  5  the requested runtime or execution provider is not available";

/// Freed memory that the allocator keeps for later allocations.
const KEPT: usize = 4 << 20;

/// By default, glibc returns the end of its heap to the system once a few hundred kilobytes are
/// free, and pages must be cleared again when it grows. Freeing one larger block raises that
/// threshold to twice its size.
fn keep_freed_memory() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(KEPT)));
}

/// Runs the command that `arguments` give, without the name of the program, and prints what it says.
/// `search` is where ONNX Runtime is looked for.
pub fn run(arguments: impl IntoIterator<Item = OsString>, search: &Search) -> Exit {
    keep_freed_memory();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let command = Cli::command().color(early_color(&arguments));
    let name = OsString::from(command.get_name().to_owned());
    let words = std::iter::once(name).chain(arguments);
    let exit = match command
        .try_get_matches_from(words)
        .and_then(|m| Cli::from_arg_matches(&m))
    {
        Ok(cli) => carry_out(&cli, search),
        Err(error) => {
            // Help and version are written to stdout, which may be closed.
            let _ = error.print();
            if error.use_stderr() {
                Exit::Usage
            } else {
                Exit::Done
            }
        }
    };
    // Only the end of a Rust program would write what is left; it may be closed.
    let _ = std::io::stdout().flush();
    exit
}

fn carry_out(cli: &Cli, search: &Search) -> Exit {
    let verbosity = match (cli.quiet, cli.verbose) {
        (true, _) => Verbosity::Quiet,
        (false, 0) => Verbosity::Normal,
        (false, _) => Verbosity::Verbose,
    };
    let flags = flag_names::names(&Cli::command());
    let terminal = Terminal::new(cli.color, verbosity, flags);
    let done = match &cli.command {
        Command::Inspect(args) if args.model.is_dir() => folder::inspect::run(args, &terminal),
        Command::Inspect(args) => inspect::run(args, &terminal),
        Command::Rewrite(args) if args.model.is_dir() => {
            folder::rewrite::run(args, search, &terminal)
        }
        Command::Rewrite(args) => rewrite::run(args, search, &terminal),
        Command::Verify(args) => verify::run(args, search, &terminal),
        Command::Print(args) => print::run(args, &terminal),
        Command::Diff(args) => diff::run(args, &terminal),
        Command::Table(args) => table::run(args, &terminal),
        Command::Runtime(args) => runtime::run(args, search, &terminal),
        Command::Man(args) => man::run(args, &terminal, Cli::command()),
        Command::Completions(args) => completions::run(args, &terminal, &mut Cli::command()),
    };
    match done {
        Ok(exit) => exit,
        Err(error) if Exit::is_closed_pipe(&error) => Exit::Done,
        Err(error) => {
            terminal.fail(exit::sentence(&error));
            Exit::of(&error)
        }
    }
}

/// The colors of help and usage errors, which are printed before the flags are parsed.
fn early_color(arguments: &[OsString]) -> ColorChoice {
    let mut args = arguments.iter().map(OsString::as_os_str);
    let mut choice = None;
    while let Some(arg) = args.next() {
        let Some(arg) = arg.to_str() else { continue };
        choice = match arg.strip_prefix("--color") {
            Some("") => args
                .next()
                .and_then(OsStr::to_str)
                .and_then(|when| when.parse().ok()),
            Some(when) => when.strip_prefix('=').and_then(|when| when.parse().ok()),
            None if arg == "--" => break,
            None => continue,
        };
    }
    choice.unwrap_or(ColorChoice::Auto)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_and_flag_has_a_help_text() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for arg in command.get_arguments() {
                let name = format!("{} {}", command.get_name(), arg.get_id());
                assert!(arg.get_help().is_some(), "{name} has no help");
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.ends_with('.'), "{name}: {help}");
            }
        }
    }
}
