//! Any bytes give a model or an error, and a model is written with the same bytes.

use posenc_ir::{Model, Weights};

/// Reads, checks, prints and writes.
///
/// # Panics
/// When a model is written with other bytes.
pub fn decode(data: &[u8]) {
    let Ok(model) = Model::from_bytes(data.to_vec()) else {
        return;
    };
    let written = model.to_bytes().expect("a model can be written");
    assert!(
        written == data,
        "an unchanged model is written with other bytes"
    );
    let _ = model.check();
    let _ = model.fingerprint();
    for weights in [Weights::Hash, Weights::Full, Weights::None] {
        assert!(!model.text(weights).to_string().is_empty());
    }
}
