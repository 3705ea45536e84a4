//! Text that can be parsed is printed unchanged, and printed text can be parsed.

use posenc_ir::{Model, Weights};

/// Parses any text, prints the model and parses it again.
///
/// # Panics
/// When the printed text gives another text.
pub fn text_parse(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(model) = Model::parse(text) {
        is_read_back(&model);
    }
}

/// Prints any model, parses the text and prints it again.
///
/// # Panics
/// When the text of a model that passes the check, and that the syntax can express, cannot be parsed
/// or gives another text.
pub fn text_round_trip(data: &[u8]) {
    if let Ok(model) = Model::from_bytes(data.to_vec()) {
        is_read_back(&model);
    }
}

fn is_read_back(model: &Model) {
    let printed = model.text(Weights::Full);
    let text = printed.to_string();
    let parsed = Model::parse(&text);
    // The text of a broken model is only for people.
    if model.check().is_err() || !printed.omissions().is_empty() {
        return;
    }
    match parsed {
        Ok(parsed) => assert_eq!(parsed.text(Weights::Full).to_string(), text),
        Err(error) => panic!("the text of a model cannot be parsed: {error}\n{text}"),
    }
}
