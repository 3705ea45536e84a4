//! JSON as Python's `json` module reads and writes it: with `NaN`, `Infinity` and `-Infinity`, which JSON
//! itself lacks and configs contain.

use serde_json::Value;

use super::HfConfigError;

/// The words of Python that are no JSON.
const WORDS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// What a word stands between in the string that holds its place: a character of no language.
const MARK: char = '\u{f8ff}';

/// Parses a text. A word that is no JSON becomes a string, which [`with_words`] writes as the word again.
///
/// # Errors
///
/// Text that is no JSON but for these words.
///
/// ```
/// # use posenc_encodings::hf::json::{parse, with_words};
/// let value = parse(r#"{"time_step_limit": [0.0, Infinity]}"#)?;
/// let text = serde_json::to_string(&value).unwrap();
/// assert_eq!(with_words(text), r#"{"time_step_limit":[0.0,Infinity]}"#);
/// # Ok::<(), posenc_encodings::hf::HfConfigError>(())
/// ```
pub fn parse(text: &str) -> Result<Value, HfConfigError> {
    let plain = serde_json::from_str(text);
    let value = plain.or_else(|why| serde_json::from_str(&quoted(text)).map_err(|_| why));
    value.map_err(|why| HfConfigError::Json(why.to_string()))
}

/// Written JSON with the words in their places.
pub fn with_words(text: String) -> String {
    match text.contains(MARK) {
        true => WORDS.iter().fold(text, |text, word| {
            text.replace(&format!("\"{MARK}{word}{MARK}\""), word)
        }),
        false => text,
    }
}

/// A text with strings in the place of words.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    let (mut rest, mut in_string) = (text, false);
    while let Some(next) = rest.chars().next() {
        let word = WORDS
            .iter()
            .find(|word| !in_string && rest.starts_with(**word));
        if let Some(word) = word {
            out.extend(['"', MARK]);
            out.push_str(word);
            out.extend([MARK, '"']);
            rest = &rest[word.len()..];
            continue;
        }
        let escaped = match next {
            '\\' if in_string => rest[1..].chars().next(),
            _ => None,
        };
        in_string ^= next == '"';
        out.push(next);
        out.extend(escaped);
        rest = &rest[next.len_utf8() + escaped.map_or(0, char::len_utf8)..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_python_are_read_and_written_again() {
        let text = "{\"a\":[-Infinity,Infinity,NaN,1.5],\"b\":\"Infinity, \\\" NaN \\\\\",\"é\":{\"NaN\":NaN}}";
        let value = parse(text).unwrap();
        assert_eq!(value["b"], "Infinity, \" NaN \\");
        assert_eq!(with_words(serde_json::to_string(&value).unwrap()), text);
        let plain = r#"{"NaN": "Infinity"}"#;
        assert_eq!(
            parse(plain).unwrap(),
            serde_json::from_str::<Value>(plain).unwrap()
        );
    }

    #[test]
    fn other_texts_stay_errors() {
        for text in [
            "{",
            "[Infinit]",
            "[Infinity",
            "[+Infinity]",
            "[nan]",
            "{NaN: 1}x",
            "\"\\",
        ] {
            let why = parse(text).unwrap_err();
            assert!(matches!(why, HfConfigError::Json(_)), "{text}");
        }
    }
}
