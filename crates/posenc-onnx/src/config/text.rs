//! JSON as Python's `json.dumps(value, indent=2, ensure_ascii=False)` writes it, so that lines which stay
//! are the same to the byte where a file was written so. Characters outside of ASCII that were escaped
//! become the characters, which mean the same.

use std::io;

use posenc_encodings::hf::json::with_words;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// The text of a file: indented by two spaces, with a line break at the end.
pub(super) fn text(value: &Value) -> String {
    let mut bytes = vec![];
    let python = Python(PrettyFormatter::new());
    let written = value.serialize(&mut Serializer::with_formatter(&mut bytes, python));
    let text = written.ok().and_then(|()| String::from_utf8(bytes).ok());
    // A value is always written.
    with_words(text.unwrap_or_else(|| value.to_string())) + "\n"
}

/// Lines as serde breaks them, and numbers as Python spells them.
struct Python(PrettyFormatter<'static>);

/// A number in the shortest digits that give it: `1e-06` below 0.0001, `1e+16` from there on.
fn number(x: f64) -> String {
    let short = format!("{x:e}");
    let (digits, exponent) = short.split_once('e').unwrap_or((&short, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if !(-4..16).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
        _ if x.fract() == 0.0 => format!("{x}.0"),
        _ => x.to_string(),
    }
}

impl Formatter for Python {
    fn write_f64<W: ?Sized + io::Write>(&mut self, to: &mut W, x: f64) -> io::Result<()> {
        to.write_all(number(x).as_bytes())
    }

    fn begin_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_array(to)
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_array(to)
    }

    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_array_value(to, first)
    }

    fn end_array_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_array_value(to)
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_object(to)
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_object(to)
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        self.0.begin_object_key(to, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.begin_object_value(to)
    }

    fn end_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        self.0.end_object_value(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `json.dumps(value, indent=2, ensure_ascii=False)` of Python prints.
    #[test]
    fn files_of_python_are_written_to_the_byte() {
        let python = "{\n  \"a\": [\n    1.0,\n    1e-06,\n    0.0001,\n    2.5e-05,\n    1e+16,\n    \
                      1234567890123456.0,\n    1.142899990081787,\n    -0.02,\n    1e+300,\n    -0.0\n  ],\n  \
                      \"b\": {\n    \"c\": null,\n    \"d\": \"\\\"\\n\"\n  },\n  \"e\": [],\n  \"f\": {},\n  \
                      \"g\": [\n    [\n      7\n    ],\n    true\n  ]\n}\n";
        let value: Value = serde_json::from_str(python).unwrap();
        assert_eq!(text(&value), python);
    }

    #[test]
    fn words_that_are_no_json_are_written_again() {
        let python = "{\n  \"limits\": [\n    0.0,\n    Infinity\n  ]\n}\n";
        let value = posenc_encodings::hf::json::parse(python).unwrap();
        assert_eq!(text(&value), python);
    }

    #[test]
    fn characters_outside_of_ascii_are_written_as_they_are() {
        let python = "{\n  \"é\": \"▁🤗\u{7f}\\u0001\\t\"\n}\n";
        let escaped = r#"{"\u00e9": "\u2581\ud83e\udd17\u007f\u0001\t"}"#;
        for given in [python, escaped] {
            let value: Value = serde_json::from_str(given).unwrap();
            assert_eq!(text(&value), python);
        }
    }

    #[test]
    fn the_configs_of_fixtures_are_written_to_the_byte() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures");
        for name in [
            "llama/torchscript",
            "phi3-longrope/optimum",
            "gemma3-text/dynamo",
        ] {
            let config = std::fs::read_to_string(format!("{fixtures}/{name}/config.json")).unwrap();
            let value: Value = serde_json::from_str(&config).unwrap();
            assert_eq!(text(&value).trim_end(), config.trim_end(), "{name}");
        }
    }
}
