//! Control characters, written as symbols.

use std::fmt::{self, Write};

/// How control characters other than tab and line feed are written. NUL, which ends the text for the
/// official parser, is always a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controls {
    /// As they are.
    Keep,
    /// As symbols.
    Show,
}

/// Writes text to `out`, with symbols for control characters.
pub(super) struct Symbols<W> {
    pub(super) out: W,
    pub(super) controls: Controls,
    /// Whether a symbol was written.
    pub(super) replaced: bool,
}

impl<W: Write> Symbols<W> {
    pub(super) fn new(out: W, controls: Controls) -> Self {
        Self {
            out,
            controls,
            replaced: false,
        }
    }

    fn symbol(&self, c: char) -> Option<char> {
        match c {
            '\0' => Some('\u{2400}'),
            '\n' | '\t' => None,
            _ if self.controls == Controls::Keep => None,
            '\0'..='\x1f' => char::from_u32(0x2400 + c as u32),
            '\x7f' => Some('\u{2421}'),
            '\u{80}'..='\u{9f}' => Some(char::REPLACEMENT_CHARACTER),
            _ => None,
        }
    }
}

impl<W: Write> Write for Symbols<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Control characters are one byte, or start with 0xc2: most text has none.
        let may_be = |b: u8| b < b' ' && b != b'\n' || b == 0x7f || b == 0xc2;
        if !text.bytes().any(may_be) {
            return self.out.write_str(text);
        }
        for c in text.chars() {
            let symbol = self.symbol(c);
            self.replaced |= symbol.is_some();
            self.out.write_char(symbol.unwrap_or(c))?;
        }
        Ok(())
    }
}

/// Discards text: for a pass that only collects notes.
pub(super) struct Discard;

impl Write for Discard {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

/// The text with symbols for all control characters.
pub(super) fn visible(text: &str) -> String {
    let mut symbols = Symbols::new(String::with_capacity(text.len()), Controls::Show);
    symbols
        .write_str(text)
        .expect("writing into a string does not fail");
    symbols.out
}
