//! Any bytes: an answer or an error, and unchanged bytes back.

use posenc_ir::{Model, Weights};

/// Reads, checks, prints and writes.
///
/// # Panics
/// When a model that could be read is not written as it was.
pub fn decode(data: &[u8]) {
    let Ok(model) = Model::from_bytes(data.to_vec(), None) else {
        return;
    };
    let written = model.to_bytes().expect("what was read can be written");
    assert!(written == data, "an unchanged model is written otherwise");
    let _ = model.check();
    let _ = model.fingerprint();
    for weights in [Weights::Hash, Weights::Full, Weights::None] {
        assert!(!model.text(weights).to_string().is_empty());
    }
}
