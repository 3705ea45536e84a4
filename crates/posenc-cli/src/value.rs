//! Values of flags.

use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use posenc_encodings::words::Word;
use posenc_onnx::request::parse_list;

/// One of the words of `T`; clap lists them and suggests the most similar.
pub(crate) fn word<T: Word>() -> impl TypedValueParser<Value = T> {
    one_of(T::ALL.iter().copied())
}

/// One of these words.
pub(crate) fn one_of<T: Word>(words: impl Iterator<Item = T>) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(words.map(|w| PossibleValue::new(w.name()).help(w.about())))
        .try_map(|name| name.parse::<T>())
}

/// Numbers given on the command line or in a file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct List(pub(crate) Vec<f64>);

impl FromStr for List {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numeric = |c: char| c.is_ascii_digit() || "[ +-.,eE]".contains(c);
        if text.chars().all(numeric) || !std::path::Path::new(text).is_file() {
            return parse_list(text).map(Self).map_err(|e| {
                if text.chars().any(char::is_alphabetic) {
                    format!("there is no such file, and {e}")
                } else {
                    e.to_string()
                }
            });
        }
        let read = std::fs::read_to_string(text).map_err(|e| format!("{text}: {e}"))?;
        parse_list(&read)
            .map(Self)
            .map_err(|e| format!("{text}: {e}"))
    }
}

/// Whole numbers separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lengths(pub(crate) Vec<usize>);

impl FromStr for Lengths {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let length = |word: &str| {
            let number = word.trim().parse().ok().filter(|n| *n > 0);
            number.ok_or_else(|| format!("{word:?} is not a length; write lengths as 1,64,65"))
        };
        text.split(',')
            .map(length)
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// A number above zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n > 0.0);
    number.ok_or_else(|| "it must be a finite number above 0".to_owned())
}

/// A number that is not negative.
pub(crate) fn not_negative(text: &str) -> Result<f64, String> {
    let number = text
        .parse()
        .ok()
        .filter(|n: &f64| n.is_finite() && *n >= 0.0);
    number.ok_or_else(|| "it must be a finite number of at least 0".to_owned())
}

/// A whole number above zero.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| *n > 0);
    number.ok_or_else(|| "it must be a whole number above 0".to_owned())
}

/// A name and a word: `NAME=WORD`. The name may itself contain a `=`.
pub(crate) fn named<T: Word>(text: &str) -> Result<(String, T), String> {
    let (name, word) = text
        .rsplit_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or("write it as NAME=ROLE")?;
    let word = word.parse::<T>().map_err(|e| e.to_string())?;
    Ok((name.to_owned(), word))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use posenc_onnx::request::InputRole;

    use super::*;

    #[test]
    fn a_list_is_given_in_place_or_in_a_file() {
        assert_eq!("1,2.5".parse(), Ok(List(vec![1.0, 2.5])));
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"[1.0,\n 2.5]\n").unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(path.parse(), Ok(List(vec![1.0, 2.5])));
    }

    #[test]
    fn what_is_neither_a_list_nor_a_file_is_refused() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"one, two").unwrap();
        let path = file.path().to_str().unwrap();
        let reason = |list: &str| parse_list(list).unwrap_err().to_string();
        for (text, want) in [
            ("", reason("")),
            ("absent.json", "there is no such file, and ".to_owned()),
            ("1,,x", "there is no such file, and ".to_owned()),
            (path, format!("{path}: {}", reason("one, two"))),
        ] {
            let error = text.parse::<List>().unwrap_err();
            assert!(error.starts_with(&want), "{text}: {error}");
        }
    }

    #[test]
    fn lengths_are_whole_and_above_zero() {
        assert_eq!("1,64, 65".parse(), Ok(Lengths(vec![1, 64, 65])));
        for text in ["", "0", "1,", "-1", "1.5", "1-4"] {
            let error = text.parse::<Lengths>().unwrap_err();
            assert!(error.contains("is not a length"), "{text}: {error}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!(positive("1e4"), Ok(1e4));
        assert_eq!(not_negative("0"), Ok(0.0));
        assert_eq!(count("7"), Ok(7));
        for text in ["0", "-1", "nan", "inf", "x", ""] {
            let error = positive(text).unwrap_err();
            assert_eq!(error, "it must be a finite number above 0", "{text}");
        }
        for text in ["-1", "nan", "inf", "x"] {
            let error = not_negative(text).unwrap_err();
            assert_eq!(error, "it must be a finite number of at least 0", "{text}");
        }
        for text in ["0", "-1", "1.5", "x"] {
            let error = count(text).unwrap_err();
            assert_eq!(error, "it must be a whole number above 0", "{text}");
        }
    }

    #[test]
    fn a_role_is_given_to_a_name() {
        let want = ("pos=ids".to_owned(), InputRole::Position);
        assert_eq!(named("pos=ids=position"), Ok(want));
        for text in ["position", "=position"] {
            let error = named::<InputRole>(text).unwrap_err();
            assert_eq!(error, "write it as NAME=ROLE", "{text}");
        }
        for word in ["", "where"] {
            let error = named::<InputRole>(&format!("pos={word}")).unwrap_err();
            let want = word.parse::<InputRole>().unwrap_err().to_string();
            assert_eq!(error, want, "{word}");
        }
    }
}
