//! Characters, names and literals.

use std::borrow::Cow;

use crate::error::{Error, Result};

/// A place in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

/// A number or string as it is written.
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

    /// An error here.
    pub(super) fn error(&self, why: impl Into<String>) -> Error {
        let before = &self.text[..self.at];
        let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
        let start = before.rfind('\n').map_or(0, |i| i + 1);
        let column = before[start..].chars().count() + 1;
        Error::invalid(why).at(format!("line {line}, column {column}"))
    }

    /// Passes over space and comments.
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

    /// The next character that is no space, without passing it; 0 at the end.
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

    /// Passes over this character where it is the next one.
    pub(super) fn eat(&mut self, byte: u8) -> bool {
        let found = self.peek() == byte && self.at < self.text.len();
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, byte: u8) -> Result<()> {
        match self.eat(byte) {
            true => Ok(()),
            false => Err(self.error(format!("'{}' is expected here", char::from(byte)))),
        }
    }

    /// `=>`, without space inside.
    pub(super) fn arrow(&mut self) -> Result<()> {
        self.skip();
        match self.text[self.at..].starts_with("=>") {
            true => self.at += 2,
            false => return Err(self.error("'=>' is expected here")),
        }
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
        let good = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
        let word = &rest[..bytes.iter().take_while(|b| good(b)).count()];
        self.at += word.len();
        word
    }

    /// The word that is next, without passing it.
    pub(super) fn peek_word(&self) -> &'a str {
        let mut ahead = *self;
        ahead.word()
    }

    pub(super) fn identifier(&mut self) -> Result<&'a str> {
        match self.word() {
            "" => Err(self.error("a name is expected here")),
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
        found.ok_or_else(|| self.error("a name is expected here"))
    }

    /// Text between quotes; a backslash takes the next character as it stands.
    pub(super) fn string(&mut self) -> Result<Cow<'a, str>> {
        if self.peek() != b'"' {
            return Err(self.error("a string in quotes is expected here"));
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
                None => return Err(self.error("the string that begins here has no end")),
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
            // The scan above has seen the character behind each backslash.
            out.push(if c == '\\' {
                chars.next().unwrap_or(c)
            } else {
                c
            });
        }
        Ok(out.into())
    }

    /// Whether a number in words is next: `inf`, `infinity` or `nan` in any case.
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
            return Err(self.error("a number or a string in quotes is expected here"));
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
        Ok(match end > whole {
            true => Literal::Float(text),
            false => Literal::Int(text),
        })
    }

    /// An integer of 64 bits with its sign.
    pub(super) fn int(&mut self) -> Result<i64> {
        self.skip();
        let start = *self;
        match self.literal()? {
            Literal::Int(text) => start.to_int(text),
            _ => Err(start.error("an integer is expected here")),
        }
    }

    /// The value of an integer literal that begins here.
    pub(super) fn to_int(self, text: &str) -> Result<i64> {
        let wrong = |_| self.error(format!("{text} does not fit an integer of 64 bits"));
        text.parse().map_err(wrong)
    }

    /// The value of a number that begins here.
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

/// The length of the number in words that the text begins with. A digit behind it makes it a name.
fn number_word(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let len = bytes.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let word = &text[..len];
    let known = ["inf", "infinity", "nan"];
    let known = known.iter().any(|k| k.eq_ignore_ascii_case(word));
    (known && !bytes.get(len).is_some_and(u8::is_ascii_digit)).then_some(len)
}

/// The sign of a number that is none.
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
