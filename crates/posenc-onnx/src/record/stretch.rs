//! The `posenc.stretch` metadata entry: by which scaling tables and biases were stretched, so that they
//! are not scaled twice, and how long a sequence could be before and can be since, so that a verification
//! runs around both.

use posenc_encodings::resize::Resizing;
use posenc_ir::Model;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::request::ScaleType;

const KEY: &str = "posenc.stretch";

/// What is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Stretched {
    /// The longest sequence before the rewrite; `None` where nothing limited it.
    pub(crate) before: Option<usize>,
    /// The longest sequence since.
    pub(crate) after: Option<usize>,
    /// The scaling; `None` where rows were only added.
    pub(crate) scale: Option<ScaleType>,
    /// By how much biases are divided, over all rewrites; `None` where they are not.
    pub(crate) factor: Option<f64>,
}

/// Records the rewrite of the model with this fingerprint.
pub(crate) fn write(model: &mut Model, source: &str, stretched: &Stretched) {
    let Ok(Value::Object(mut entry)) = serde_json::to_value(stretched) else {
        return;
    };
    entry.retain(|_, value| !value.is_null());
    entry.insert(
        "tool".into(),
        concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")).into(),
    );
    entry.insert("source".into(), source.into());
    model.set_metadata(KEY, Value::Object(entry).to_string());
}

/// What is recorded, where it can be read.
pub(crate) fn read(model: &Model) -> Option<Stretched> {
    let entries: Map<String, Value> = serde_json::from_str(model.metadata(KEY)?).ok()?;
    serde_json::from_value(Value::Object(entries)).ok()
}

/// How an earlier rewrite made rows of those of a learned table, where that is recorded.
pub(crate) fn resized(model: &Model) -> Option<Resizing> {
    read(model)?.scale?.resizing()
}

/// The scaling by which the rows of tables became mixtures of others, where one is recorded.
pub(crate) fn interpolated(model: &Model) -> Option<Resizing> {
    resized(model).filter(|by| by.mixes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                    test (float[batch] x) => (float[batch] y) {\n    y = Identity(x)\n}\n";
        let mut model = Model::parse(text).unwrap();
        assert_eq!(read(&model), None);
        let with_ends = Stretched {
            before: Some(64),
            after: Some(128),
            scale: Some(ScaleType::Cubic),
            factor: Some(2.5),
        };
        for stretched in [with_ends, Stretched::default()] {
            write(&mut model, "abc", &stretched);
            assert_eq!(read(&model), Some(stretched));
        }
        for text in [
            "",
            "[]",
            "{\"before\": -1, \"after\": 2}",
            "{\"scale\": \"far\"}",
        ] {
            model.set_metadata(KEY, text);
            assert_eq!(read(&model), None, "{text}");
        }
    }
}
