//! Output streams, and their colors.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use clap::ColorChoice;

use crate::exit::Failure;
use crate::flag_names::as_flags;

/// How much is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors and data.
    Quiet,
    /// Warnings and notes too.
    #[default]
    Normal,
    /// Attempts too.
    Verbose,
}

/// The two streams.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    /// Colors of data.
    pub(crate) out: Palette,
    err: Palette,
    verbosity: Verbosity,
    width: Option<usize>,
    /// The names of all flags.
    flags: BTreeSet<String>,
}

/// Whether a stream has colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Palette {
    /// Plain text.
    Plain,
    /// SGR sequences.
    Colored,
}

/// Environment variables and properties of a stream that determine colors.
#[derive(Clone, Copy, Debug, Default)]
struct ColorConditions {
    /// `NO_COLOR` is set and not empty.
    no_color: bool,
    /// `CLICOLOR_FORCE` is set to anything but 0.
    force: bool,
    /// `CLICOLOR` is 0, or `TERM` is `dumb`.
    dumb: bool,
    tty: bool,
}

impl Palette {
    fn choose(choice: ColorChoice, conditions: ColorConditions) -> Self {
        let colored = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto if conditions.no_color => false,
            ColorChoice::Auto => conditions.force || conditions.tty && !conditions.dumb,
        };
        if colored { Self::Colored } else { Self::Plain }
    }

    fn sgr(self, code: &str, text: impl Display) -> String {
        match self {
            Self::Plain => text.to_string(),
            Self::Colored => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    /// A heading.
    pub(crate) fn bold(self, text: impl Display) -> String {
        self.sgr("1", text)
    }

    /// Something less important.
    pub(crate) fn dim(self, text: impl Display) -> String {
        self.sgr("2", text)
    }

    /// A success.
    pub(crate) fn good(self, text: impl Display) -> String {
        self.sgr("32", text)
    }

    /// A failure.
    pub(crate) fn bad(self, text: impl Display) -> String {
        self.sgr("1;31", text)
    }

    /// A warning.
    pub(crate) fn alert(self, text: impl Display) -> String {
        self.sgr("33", text)
    }

    /// A name.
    pub(crate) fn name(self, text: impl Display) -> String {
        self.sgr("36", text)
    }
}

impl Terminal {
    /// The streams of the process, where `flags` are those of the command line.
    pub(crate) fn new(choice: ColorChoice, verbosity: Verbosity, flags: BTreeSet<String>) -> Self {
        let set = crate::places::variable;
        let conditions = |tty| ColorConditions {
            no_color: set("NO_COLOR").is_some(),
            force: set("CLICOLOR_FORCE").is_some_and(|v| v != "0"),
            dumb: set("CLICOLOR").is_some_and(|v| v == "0")
                || set("TERM").is_some_and(|v| v == "dumb"),
            tty,
        };
        let columns = || set("COLUMNS")?.to_str()?.parse().ok();
        Self {
            out: Palette::choose(choice, conditions(io::stdout().is_terminal())),
            err: Palette::choose(choice, conditions(io::stderr().is_terminal())),
            verbosity,
            width: columns(),
            flags,
        }
    }

    /// How much is printed.
    pub(crate) fn verbosity(&self) -> Verbosity {
        self.verbosity
    }

    /// The width of the terminal in columns, from `COLUMNS`.
    pub(crate) fn width(&self) -> usize {
        self.width.unwrap_or(100).clamp(40, 240)
    }

    /// Whether to show progress: stderr is a terminal.
    pub(crate) fn is_watched(&self) -> bool {
        self.verbosity > Verbosity::Quiet && io::stderr().is_terminal()
    }

    /// Whether data is written to a terminal, which interprets control characters.
    pub(crate) fn shows_data(&self) -> bool {
        io::stdout().is_terminal()
    }

    /// Writes data to stdout.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub(crate) fn print(&self, data: impl Display) -> anyhow::Result<()> {
        let mut out = io::BufWriter::new(io::stdout().lock());
        let written = write!(out, "{data}").and_then(|()| out.flush());
        written.map_err(|e| match e.kind() {
            io::ErrorKind::BrokenPipe => e.into(),
            _ => Failure::usage(format!("standard output: {e}")).into(),
        })
    }

    /// Writes a report in words to stdout, in which the library's names of parameters become flags.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub(crate) fn print_report(&self, text: &str) -> anyhow::Result<()> {
        self.print(as_flags(text, &self.flags))
    }

    /// Writes JSON to stdout, indented.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub(crate) fn print_json(&self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        self.print(text)
    }

    /// Prints a note, unless `--quiet` is given.
    pub(crate) fn note(&self, text: impl Display) {
        if self.verbosity >= Verbosity::Normal {
            self.message(self.err.dim("note:"), text);
        }
    }

    /// Prints a detail, if `--verbose` is given.
    pub(crate) fn detail(&self, text: impl Display) {
        if self.verbosity >= Verbosity::Verbose {
            self.message(self.err.dim("detail:"), text);
        }
    }

    /// Prints a warning, unless `--quiet` is given.
    pub(crate) fn warn(&self, text: impl Display) {
        if self.verbosity >= Verbosity::Normal {
            self.message(self.err.alert("warning:"), text);
        }
    }

    /// Prints an error.
    pub(crate) fn fail(&self, text: impl Display) {
        self.message(self.err.bad("error:"), text);
    }

    fn message(&self, label: impl Display, text: impl Display) {
        let text = shortened(one_line(&as_flags(&text.to_string(), &self.flags)));
        // If stderr is closed, there is nowhere to report that.
        let _ = writeln!(io::stderr(), "{label} {text}");
    }
}

/// The most characters of a message; names in it may be as long as a file.
const LONGEST: usize = 1000;

/// The text without its middle if it is too long to be read.
fn shortened(text: String) -> String {
    let count = text.chars().count();
    if count <= LONGEST {
        return text;
    }
    let start = text.chars().take(LONGEST / 2);
    let end = text.chars().skip(count - LONGEST / 2);
    start.chain([' ', '…', ' ']).chain(end).collect()
}

/// The text on one line: line breaks and tabs become spaces, other control characters and those that turn the
/// direction of writing a replacement character.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                line.push(char::REPLACEMENT_CHARACTER)
            }
            c if c.is_control() => line.push(char::REPLACEMENT_CHARACTER),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_follow_the_flag_then_the_environment_then_the_terminal() {
        let tty = ColorConditions {
            tty: true,
            ..ColorConditions::default()
        };
        let no_color = ColorConditions {
            no_color: true,
            force: true,
            ..tty
        };
        let forced = ColorConditions {
            force: true,
            ..ColorConditions::default()
        };
        let dumb = ColorConditions { dumb: true, ..tty };
        use ColorChoice::{Always, Auto, Never};
        let cases = [
            ("a pipe", Auto, ColorConditions::default(), false),
            ("a terminal", Auto, tty, true),
            ("NO_COLOR", Auto, no_color, false),
            ("CLICOLOR_FORCE", Auto, forced, true),
            ("CLICOLOR=0", Auto, dumb, false),
            ("--color never", Never, forced, false),
            ("--color always", Always, no_color, true),
        ];
        for (name, choice, conditions, want) in cases {
            let got = Palette::choose(choice, conditions) == Palette::Colored;
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn messages_are_one_line() {
        assert_eq!(one_line("a\nb\x1b[31m\u{9b}c é"), "a b�[31m�c é");
    }

    #[test]
    fn a_long_message_keeps_its_start_and_end() {
        let long = format!("start {} end", "é".repeat(1 << 20));
        let short = shortened(long);
        assert_eq!(short.chars().count(), LONGEST + 3);
        assert!(short.starts_with("start é") && short.ends_with("é end"));
        assert_eq!(shortened("é".repeat(LONGEST)), "é".repeat(LONGEST));
    }

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Palette::Plain.bad("no"), "no");
        assert_eq!(Palette::Colored.bad("no"), "\x1b[1;31mno\x1b[0m");
    }
}
