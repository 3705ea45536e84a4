//! Characters that terminals obey, as signs.

use std::fmt::{self, Write};

/// What becomes of control characters but tab and line feed. NUL, at which the official parser
/// ends, is a sign in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Controls {
    /// They stand as they are.
    Kept,
    /// They are signs.
    Shown,
}

/// Writes text on with signs where they are due.
pub(super) struct Signs<W> {
    pub(super) out: W,
    pub(super) controls: Controls,
    /// Whether a sign was written.
    pub(super) replaced: bool,
}

impl<W: Write> Signs<W> {
    pub(super) fn new(out: W, controls: Controls) -> Self {
        Self {
            out,
            controls,
            replaced: false,
        }
    }

    fn sign(&self, c: char) -> Option<char> {
        match c {
            '\0' => Some('\u{2400}'),
            '\n' | '\t' => None,
            _ if self.controls == Controls::Kept => None,
            '\0'..='\x1f' => char::from_u32(0x2400 + c as u32),
            '\x7f' => Some('\u{2421}'),
            '\u{80}'..='\u{9f}' => Some(char::REPLACEMENT_CHARACTER),
            _ => None,
        }
    }
}

impl<W: Write> Write for Signs<W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Controls are one byte, or begin with 0xc2: most text is passed on at once.
        let may_be = |b: u8| b < b' ' && b != b'\n' || b == 0x7f || b == 0xc2;
        if !text.bytes().any(may_be) {
            return self.out.write_str(text);
        }
        for c in text.chars() {
            let sign = self.sign(c);
            self.replaced |= sign.is_some();
            self.out.write_char(sign.unwrap_or(c))?;
        }
        Ok(())
    }
}

/// Takes text and keeps nothing of it: for a pass that only looks for what must be noted.
pub(super) struct Nothing;

impl Write for Nothing {
    fn write_str(&mut self, _: &str) -> fmt::Result {
        Ok(())
    }
}

/// The text with signs for all control characters.
pub(super) fn shown(text: &str) -> String {
    let mut signs = Signs::new(String::with_capacity(text.len()), Controls::Shown);
    signs
        .write_str(text)
        .expect("writing into a string does not fail");
    signs.out
}
