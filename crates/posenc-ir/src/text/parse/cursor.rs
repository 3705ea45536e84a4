//! Characters, names and literals.

use std::borrow::Cow;

use crate::error::{Error, Result};

/// A position in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

/// A number or string literal.
#[derive(Debug)]
pub(super) enum Literal<'a> {
    Int(&'a str),
    Float(&'a str),
    Text(Cow<'a, str>),
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// An error at this position.
    pub(super) fn error(&self, why: impl Into<String>) -> Error {
        let before = &self.text[..self.at];
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let column = before[start..].chars().count() + 1;
        Error::invalid(why).at(format!("line {line}, column {column}"))
    }

    /// Skips whitespace and comments.
    fn skip(&mut self) {
        let bytes = self.text.as_bytes();
        loop {
            let rest = &bytes[self.at..];
            let space = |b: &u8| matches!(b, b' ' | b'\t'..=b'\r');
            self.at += rest.iter().take_while(|b| space(b)).count();
            if bytes.get(self.at) != Some(&b'#') {
                return;
            }
            let rest = &bytes[self.at..];
            self.at += rest.iter().take_while(|b| **b != b'\n').count();
        }
    }

    /// The next character after whitespace, without consuming it; 0 at the end.
    pub(super) fn peek(&mut self) -> u8 {
        self.skip();
        self.here()
    }

    fn here(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    pub(super) fn is_at_end(&mut self) -> bool {
        self.skip();
        self.at == self.text.len()
    }

    /// Consumes this character if it is next.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte && self.at < self.text.len();
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<()> {
        if self.eat(byte) {
            Ok(())
        } else {
            Err(self.error(format!("expected '{}'", char::from(byte))))
        }
    }

    /// Consumes `=>`.
    pub(super) fn arrow(&mut self) -> Result<()> {
        self.skip();
        if !self.text[self.at..].starts_with("=>") {
            return Err(self.error("expected '=>'"));
        }
        self.at += 2;
        Ok(())
    }

    /// Letters, digits and `_`, with no digit first; empty where there are none.
    pub(super) fn word(&mut self) -> &'a str {
        self.skip();
        let rest = &self.text[self.at..];
        let bytes = rest.as_bytes();
        let first = bytes.first().copied().unwrap_or(0);
        if !first.is_ascii_alphabetic() && first != b'_' {
            return "";
        }
        let allowed = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let word = &rest[..bytes.iter().take_while(|b| allowed(b)).count()];
        self.at += word.len();
        word
    }

    /// The next word, without consuming it.
    pub(super) fn peek_word(&self) -> &'a str {
        let mut ahead = *self;
        ahead.word()
    }

    pub(super) fn identifier(&mut self) -> Result<&'a str> {
        match self.word() {
            "" => Err(self.error("expected a name")),
            word => Ok(word),
        }
    }

    /// A word or a string; `None` where there is neither.
    pub(super) fn name_if_any(&mut self) -> Result<Option<Cow<'a, str>>> {
        if self.peek() == b'"' {
            return self.string().map(Some);
        }
        Ok(Some(self.word()).filter(|w| !w.is_empty()).map(Cow::from))
    }

    /// A word or a string.
    pub(super) fn name(&mut self) -> Result<Cow<'a, str>> {
        let found = self.name_if_any()?;
        found.ok_or_else(|| self.error("expected a name"))
    }

    /// A quoted string; a backslash escapes the next character.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() != b'"' {
            return Err(self.error("expected a quoted string"));
        }
        let start = self.at + 1;
        let mut end = start;
        let mut escaped = false;
        loop {
            match self.text.as_bytes().get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    end += 2;
                }
                Some(_) => end += 1,
                None => return Err(self.error("the string is not terminated")),
            }
        }
        let inner = &self.text[start..end];
        self.at = end + 1;
        if !escaped {
            return Ok(inner.into());
        }
        let mut out = String::with_capacity(inner.len());
        let mut chars = inner.chars();
        while let Some(c) = chars.next() {
            // Every backslash is followed by a character, or the loop above had failed.
            out.push(if c == '\\' {
                chars.next().unwrap_or(c)
            } else {
                c
            });
        }
        Ok(out.into())
    }

    /// Whether `inf`, `infinity` or `nan` is next, in any case.
    pub(super) fn is_number_word(&mut self) -> bool {
        self.skip();
        number_word(&self.text[self.at..]).is_some()
    }

    pub(super) fn literal(&mut self) -> Result<Literal<'a>> {
        if self.peek() == b'"' {
            return self.string().map(Literal::Text);
        }
        let rest = &self.text[self.at..];
        let sign = usize::from(rest.starts_with('-'));
        let unsigned = &rest[sign..];
        if let Some(len) = number_word(unsigned) {
            self.at += sign + len;
            return Ok(Literal::Float(&rest[..sign + len]));
        }
        let bytes = unsigned.as_bytes();
        let digits = |from: usize| {
            let rest = bytes.get(from..).unwrap_or_default();
            from + rest.iter().take_while(|b| b.is_ascii_digit()).count()
        };
        let whole = digits(0);
        if whole == 0 {
            return Err(self.error("expected a number or a quoted string"));
        }
        let mut end = whole;
        if bytes.get(end) == Some(&b'.') {
            end = digits(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let signed = matches!(bytes.get(end + 1), Some(b'+' | b'-'));
            let from = end + 1 + usize::from(signed);
            end = digits(from);
            if end == from {
                return Err(self.error("the exponent of the number has no digits"));
            }
        }
        let text = &rest[..sign + end];
        self.at += text.len();
        Ok(if end > whole {
            Literal::Float(text)
        } else {
            Literal::Int(text)
        })
    }

    /// A signed integer of 64 bits.
    pub(super) fn int(&mut self) -> Result<i64> {
        self.skip();
        let start = *self;
        match self.literal()? {
            Literal::Int(text) => start.to_int(text),
            _ => Err(start.error("expected an integer")),
        }
    }

    /// The value of an integer literal at this position.
    pub(super) fn to_int(self, text: &str) -> Result<i64> {
        let wrong = |_| self.error(format!("{text} does not fit an integer of 64 bits"));
        text.parse().map_err(wrong)
    }

    /// The value of a number at this position.
    pub(super) fn to_f32(self, text: &str) -> Result<f32> {
        if let Some(nan) = nan(text) {
            return Ok(f32::NAN.copysign(nan));
        }
        let value = text.parse::<f32>().ok();
        let fits = |v: &f32| v.is_finite() || !is_finite(text);
        let value = value.filter(fits);
        value.ok_or_else(|| self.error(format!("{text} does not fit a float")))
    }

    /// As [`Cursor::to_f32`].
    pub(super) fn to_f64(self, text: &str) -> Result<f64> {
        if let Some(nan) = nan(text) {
            return Ok(f64::NAN.copysign(nan.into()));
        }
        let value = text.parse::<f64>().ok();
        let fits = |v: &f64| v.is_finite() || !is_finite(text);
        let value = value.filter(fits);
        value.ok_or_else(|| self.error(format!("{text} does not fit a double")))
    }
}

/// The length of `inf`, `infinity` or `nan` at the start of the text; followed by a digit, it is a
/// name.
fn number_word(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let len = bytes.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let word = &text[..len];
    let known = ["inf", "infinity", "nan"];
    let known = known.iter().any(|k| k.eq_ignore_ascii_case(word));
    (known && !bytes.get(len).is_some_and(u8::is_ascii_digit)).then_some(len)
}

/// The sign of `nan`.
fn nan(text: &str) -> Option<f32> {
    let unsigned = text.trim_start_matches('-');
    let sign = if unsigned.len() < text.len() {
        -1.0
    } else {
        1.0
    };
    unsigned.eq_ignore_ascii_case("nan").then_some(sign)
}

/// Whether the number is written in digits.
fn is_finite(text: &str) -> bool {
    text.bytes().any(|b| b.is_ascii_digit())
}
