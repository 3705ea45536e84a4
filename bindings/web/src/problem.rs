//! Errors as the page shows them.

use posenc_cli::Exit;
use posenc_cli::steps::{self, keywords};
use serde_json::{Value, json};

/// The sentence of an error and the exit code of the command line for it.
pub fn problem(error: &anyhow::Error) -> Value {
    json!({"exit": Exit::of(error) as u8, "sentence": labelled(&steps::sentence(error))})
}

/// A sentence in which options are named as the form labels them.
pub fn labelled(sentence: &str) -> String {
    keywords::respelled(sentence, &[], |name| format!("“{}”", label(name)))
}

/// The label of an option.
pub fn label(name: &str) -> String {
    name.replace('_', " ")
}

/// The error with the name of its file, unless it has it already.
pub fn at(file: &str, error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    match steps::sentence(&error).starts_with(file) {
        true => error,
        false => error.context(file.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use posenc_cli::steps::Failure;

    use super::*;

    #[test]
    fn options_are_named_by_their_labels_and_files_once() {
        let error = Failure::usage("no length: give `max-length`, or --original-length");
        let shown = problem(&at("m.onnx", error));
        let sentence = "m.onnx: no length: give “max length”, or “original length”";
        assert_eq!(shown, json!({"exit": 2, "sentence": sentence}));
        let named = at("m.onnx", Failure::usage("m.onnx: no"));
        assert_eq!(problem(&named)["sentence"], "m.onnx: no");
    }
}
