//! Text: what is parsed prints as it was, and what is printed parses.

use posenc_ir::{Model, Weights};

/// Parses any text, and prints and parses again what it says.
///
/// # Panics
/// When the text of a model that could be parsed does not lead back to it.
pub fn text_parse(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(model) = Model::parse(text) {
        comes_back(&model);
    }
}

/// Prints any model, and parses and prints again what was printed.
///
/// # Panics
/// When the text of a model that passes the check, and that the syntax can say, does not lead back
/// to it.
pub fn text_round_trip(data: &[u8]) {
    if let Ok(model) = Model::from_bytes(data.to_vec(), None) {
        comes_back(&model);
    }
}

fn comes_back(model: &Model) {
    let printed = model.text(Weights::Full);
    let text = printed.to_string();
    let parsed = Model::parse(&text);
    // A broken model has a text for people to look at.
    if model.check().is_err() || !printed.unsaid().is_empty() {
        return;
    }
    match parsed {
        Ok(parsed) => assert_eq!(parsed.text(Weights::Full).to_string(), text),
        Err(error) => panic!("the text of a model cannot be parsed: {error}\n{text}"),
    }
}
