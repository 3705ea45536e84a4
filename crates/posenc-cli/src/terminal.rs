//! Where words go, and whether in color.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use clap::ColorChoice;

use crate::exit::Failure;

/// How much is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verbosity {
    /// Errors and data.
    Quiet,
    /// What a user should know as well.
    #[default]
    Normal,
    /// What was tried as well.
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
}

/// Whether a stream takes colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Palette {
    /// Plain text.
    Plain,
    /// SGR sequences.
    Colored,
}

/// The environment as far as colors depend on it.
#[derive(Clone, Copy, Debug, Default)]
struct Wishes {
    /// `NO_COLOR` is set to something.
    no_color: bool,
    /// `CLICOLOR_FORCE` is set to something but 0.
    force: bool,
    /// `CLICOLOR` is 0, or `TERM` is `dumb`.
    dumb: bool,
    tty: bool,
}

impl Palette {
    fn choose(choice: ColorChoice, wishes: Wishes) -> Self {
        let colored = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto if wishes.no_color => false,
            ColorChoice::Auto => wishes.force || wishes.tty && !wishes.dumb,
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

    /// Something right.
    pub(crate) fn good(self, text: impl Display) -> String {
        self.sgr("32", text)
    }

    /// Something wrong.
    pub(crate) fn bad(self, text: impl Display) -> String {
        self.sgr("1;31", text)
    }

    /// Something to look at.
    pub(crate) fn alert(self, text: impl Display) -> String {
        self.sgr("33", text)
    }

    /// A name.
    pub(crate) fn name(self, text: impl Display) -> String {
        self.sgr("36", text)
    }
}

impl Terminal {
    /// The streams of the process.
    pub(crate) fn new(choice: ColorChoice, verbosity: Verbosity) -> Self {
        let set = crate::places::variable;
        let wishes = |tty| Wishes {
            no_color: set("NO_COLOR").is_some(),
            force: set("CLICOLOR_FORCE").is_some_and(|v| v != "0"),
            dumb: set("CLICOLOR").is_some_and(|v| v == "0")
                || set("TERM").is_some_and(|v| v == "dumb"),
            tty,
        };
        let columns = || set("COLUMNS")?.to_str()?.parse().ok();
        Self {
            out: Palette::choose(choice, wishes(io::stdout().is_terminal())),
            err: Palette::choose(choice, wishes(io::stderr().is_terminal())),
            verbosity,
            width: columns(),
        }
    }

    /// Columns of the terminal, where it says how many.
    pub(crate) fn width(&self) -> usize {
        self.width.unwrap_or(100).clamp(40, 240)
    }

    /// Whether a person follows what happens: then progress is shown.
    pub(crate) fn is_watched(&self) -> bool {
        self.verbosity > Verbosity::Quiet && io::stderr().is_terminal()
    }

    /// Whether data goes to a terminal, which obeys control characters.
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

    /// Writes JSON to stdout, indented.
    ///
    /// # Errors
    /// When stdout cannot be written to.
    pub(crate) fn print_json(&self, value: &impl serde::Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(value)?;
        text.push('\n');
        self.print(text)
    }

    /// Says something to a person, unless told to be quiet.
    pub(crate) fn note(&self, words: impl Display) {
        if self.verbosity >= Verbosity::Normal {
            self.say(self.err.dim("note:"), words);
        }
    }

    /// Says something that only a curious person wants to know.
    pub(crate) fn detail(&self, words: impl Display) {
        if self.verbosity >= Verbosity::Verbose {
            self.say(self.err.dim("detail:"), words);
        }
    }

    /// Warns, unless told to be quiet.
    pub(crate) fn warn(&self, words: impl Display) {
        if self.verbosity >= Verbosity::Normal {
            self.say(self.err.alert("warning:"), words);
        }
    }

    /// Says what went wrong.
    pub(crate) fn fail(&self, words: impl Display) {
        self.say(self.err.bad("error:"), words);
    }

    fn say(&self, label: impl Display, words: impl Display) {
        let words = shortened(one_line(&words.to_string()));
        // Nobody is there to hear that stderr is gone.
        let _ = writeln!(io::stderr(), "{label} {words}");
    }
}

/// Characters of a sentence that names something of a file; names may be as long as the file.
const LONGEST: usize = 1000;

/// The text with its middle left out, where it is too long to be read.
fn shortened(text: String) -> String {
    let count = text.chars().count();
    if count <= LONGEST {
        return text;
    }
    let start = text.chars().take(LONGEST / 2);
    let end = text.chars().skip(count - LONGEST / 2);
    start.chain([' ', '…', ' ']).chain(end).collect()
}

/// The text on one line: white space is folded, and what would move the cursor or change the
/// colors of a terminal is shown as a replacement character.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => line.push(' '),
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
        let tty = Wishes {
            tty: true,
            ..Wishes::default()
        };
        let no_color = Wishes {
            no_color: true,
            force: true,
            ..tty
        };
        let forced = Wishes {
            force: true,
            ..Wishes::default()
        };
        let dumb = Wishes { dumb: true, ..tty };
        use ColorChoice::{Always, Auto, Never};
        let cases = [
            ("a pipe", Auto, Wishes::default(), false),
            ("a terminal", Auto, tty, true),
            ("NO_COLOR", Auto, no_color, false),
            ("CLICOLOR_FORCE", Auto, forced, true),
            ("CLICOLOR=0", Auto, dumb, false),
            ("--color never", Never, forced, false),
            ("--color always", Always, no_color, true),
        ];
        for (name, choice, wishes, want) in cases {
            let got = Palette::choose(choice, wishes) == Palette::Colored;
            assert_eq!(got, want, "{name}");
        }
    }

    #[test]
    fn words_stay_on_their_line() {
        assert_eq!(one_line("a\nb\x1b[31m\u{9b}c é"), "a b�[31m�c é");
    }

    #[test]
    fn a_sentence_keeps_its_ends_whatever_a_file_is_called() {
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
