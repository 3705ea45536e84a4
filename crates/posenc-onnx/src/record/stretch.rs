//! The `posenc.stretch` metadata entry: how long a sequence could be before a rewrite moved the end of
//! its tables, and how long it can be since, so that a verification runs around both.

use posenc_ir::Model;
use serde::{Deserialize, Serialize};
use serde_json::json;

const KEY: &str = "posenc.stretch";

/// The longest sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    /// Before the rewrite.
    pub(crate) before: usize,
    /// Since.
    pub(crate) after: usize,
}

/// Records the ends of the rewrite of the model with this fingerprint.
pub(crate) fn write(model: &mut Model, source: &str, ends: Ends) {
    let entry = json!({
        "tool": concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")),
        "source": source,
        "before": ends.before,
        "after": ends.after,
    });
    model.set_metadata(KEY, entry.to_string());
}

/// The ends that are recorded, where they can be read.
pub(crate) fn read(model: &Model) -> Option<Ends> {
    serde_json::from_str(model.metadata(KEY)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_as_they_were_written() {
        let text = "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                    test (float[batch] x) => (float[batch] y) {\n    y = Identity(x)\n}\n";
        let mut model = Model::parse(text).unwrap();
        assert_eq!(read(&model), None);
        let ends = Ends {
            before: 64,
            after: 128,
        };
        write(&mut model, "abc", ends);
        assert_eq!(read(&model), Some(ends));
        for text in ["", "[]", "{}", "{\"before\": -1, \"after\": 2}"] {
            model.set_metadata(KEY, text);
            assert_eq!(read(&model), None, "{text}");
        }
    }
}
