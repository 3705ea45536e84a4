//! Lists of numbers: `1.0,1.5,2`, or the same as JSON.

/// The numbers of a list that is separated by commas or white space, with or without brackets.
///
/// # Errors
/// When there is no number, or something that is no finite number.
///
/// ```
/// # use posenc_onnx::request::parse_list;
/// assert_eq!(parse_list("1.0, 1.5,2"), Ok(vec![1.0, 1.5, 2.0]));
/// assert_eq!(parse_list("[1.0,1.5,2]"), parse_list("1 1.5 2"));
/// ```
pub fn parse_list(text: &str) -> Result<Vec<f64>, ListError> {
    let text = text.trim();
    let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
    let words = inner
        .unwrap_or(text)
        .split(|c: char| c == ',' || c.is_whitespace());
    let number = |word: &str| {
        let number = word.parse().ok().filter(|n: &f64| n.is_finite());
        number.ok_or_else(|| ListError::Number(word.to_owned()))
    };
    let list: Vec<f64> = words
        .filter(|word| !word.is_empty())
        .map(number)
        .collect::<Result<_, _>>()?;
    if list.is_empty() {
        return Err(ListError::Empty);
    }
    Ok(list)
}

/// A text that is no list of numbers.
///
/// ```
/// # use posenc_onnx::request::{ListError, parse_list};
/// assert_eq!(parse_list("1,inf"), Err(ListError::Number("inf".into())));
/// assert_eq!(parse_list("[]"), Err(ListError::Empty));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Something other than a number.
    #[error("{0:?} is no finite number; write the list as 1.0,1.5,2.0")]
    Number(String),
    /// Nothing.
    #[error("the list contains no number; write it as 1.0,1.5,2.0")]
    Empty,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_with_commas_spaces_and_brackets() {
        for text in [
            "1,2.5,3e2",
            "1 2.5 300",
            "[1, 2.5, 300.0]",
            " [1,\n2.5,\n3e2] ",
        ] {
            assert_eq!(parse_list(text), Ok(vec![1.0, 2.5, 300.0]), "{text}");
        }
    }

    #[test]
    fn what_is_no_list_of_numbers_is_refused() {
        let number = |word: &str| Err(ListError::Number(word.into()));
        let cases = [
            ("", Err(ListError::Empty)),
            ("[]", Err(ListError::Empty)),
            (",", Err(ListError::Empty)),
            ("1,x", number("x")),
            ("nan", number("nan")),
            ("1,inf", number("inf")),
            ("[1,2", number("[1")),
            ("{\"a\":1}", number("{\"a\":1}")),
        ];
        for (text, want) in cases {
            assert_eq!(parse_list(text), want, "{text}");
        }
    }
}
