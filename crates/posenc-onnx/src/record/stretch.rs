//! The `posenc.stretch` metadata entry: by which scaling tables and biases were stretched, so that they
//! are not scaled twice, and how long a sequence could be before and can be since, so that a verification
//! runs around both.

use posenc_encodings::resize::{Antialias, Corners, Resizing};
use posenc_ir::Model;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::request::ScaleType;

const KEY: &str = "posenc.stretch";

/// What is recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Stretched {
    /// The longest sequence before the rewrite; `None` where nothing limited it.
    pub(crate) before: Option<usize>,
    /// The longest sequence since.
    pub(crate) after: Option<usize>,
    /// The scaling; `None` where rows were only added.
    pub(crate) scale: Option<ScaleType>,
    /// Which points coincide where rows were interpolated.
    #[serde(skip_serializing_if = "is_usual")]
    pub(crate) corners: Corners,
    /// Whether these were smoothed.
    #[serde(skip_serializing_if = "is_usual")]
    pub(crate) antialias: Antialias,
    /// The scaling of biases by the offset of patches; `None` where there are none.
    pub(crate) biases: Option<ScaleType>,
    /// Whether rows were added without a scaling since.
    #[serde(skip_serializing_if = "is_usual")]
    pub(crate) continued: bool,
    /// The scalings of earlier rewrites, each once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) earlier: Vec<ScaleType>,
    /// By how much biases are divided, over all rewrites; `None` where they are not.
    pub(crate) factor: Option<f64>,
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Stretched {
    /// The scaling of the last rewrite that scaled.
    pub(crate) fn last(&self) -> Option<ScaleType> {
        self.scale.or(self.earlier.last().copied())
    }

    /// The same after an earlier rewrite: what that one scaled stays scaled.
    fn behind(mut self, earlier: Self) -> Self {
        if self.scale.is_none() {
            self.corners = earlier.corners;
            self.antialias = earlier.antialias;
            self.biases = earlier.biases;
            self.continued |= earlier.continued;
        }
        let known = earlier.earlier.into_iter().chain(earlier.scale);
        for scale in known.filter(|scale| Some(*scale) != self.scale) {
            if !self.earlier.contains(&scale) {
                self.earlier.push(scale);
            }
        }
        self.factor = self.factor.or(earlier.factor);
        self
    }
}

/// Records the rewrite of the model with this fingerprint, and what is recorded of earlier ones.
pub(crate) fn write(model: &mut Model, source: &str, stretched: Stretched) {
    let stretched = match read(model) {
        Some(earlier) => stretched.behind(earlier),
        None => stretched,
    };
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

/// How earlier rewrites made rows of those of a learned table, as far as that is recorded.
pub(crate) fn resized(model: &Model) -> impl Iterator<Item = Resizing> {
    let scalings = read(model).into_iter();
    let scalings = scalings.flat_map(|own| own.earlier.into_iter().chain(own.scale));
    scalings.filter_map(ScaleType::resizing)
}

/// The scaling by which the rows of tables became mixtures of others, where one is recorded.
pub(crate) fn interpolated(model: &Model) -> Option<Resizing> {
    resized(model).find(|by| by.mixes())
}

#[cfg(test)]
mod tests {
    use posenc_encodings::laws::LawName;

    use super::*;

    fn model() -> Model {
        let text = "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                    test (float[batch] x) => (float[batch] y) {\n    y = Identity(x)\n}\n";
        Model::parse(text).unwrap()
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(read(&model()), None);
        let with_ends = Stretched {
            before: Some(64),
            after: Some(128),
            scale: Some(ScaleType::Cubic),
            corners: Corners::Aligned,
            antialias: Antialias::On,
            biases: Some(ScaleType::Cubic),
            continued: true,
            earlier: vec![ScaleType::Tile],
            factor: Some(2.5),
        };
        for stretched in [with_ends, Stretched::default()] {
            let mut model = self::model();
            write(&mut model, "abc", stretched.clone());
            assert_eq!(read(&model), Some(stretched));
        }
        let mut model = model();
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

    #[test]
    fn no_later_rewrite_takes_back_what_an_earlier_one_scaled() {
        let of = |scale, factor| Stretched {
            scale,
            factor,
            ..Stretched::default()
        };
        let linear = Some(ScaleType::from(LawName::Linear));
        for later in [
            None,
            Some(ScaleType::Truncate),
            Some(ScaleType::Tile),
            linear,
        ] {
            let mut model = self::model();
            for own in [of(linear, Some(2.0)), of(later, None), of(None, None)] {
                write(&mut model, "abc", own);
            }
            assert_eq!(interpolated(&model), Some(Resizing::Linear), "{later:?}");
            let factor = read(&model).and_then(|own| own.factor);
            assert_eq!(factor, Some(2.0), "{later:?}");
            let later = later.and_then(ScaleType::resizing);
            assert!(resized(&model).any(|by| later.is_none_or(|later| by == later)));
            assert!(resized(&model).count() <= 2, "each once");
        }
        let mut model = model();
        let aligned = Stretched {
            corners: Corners::Aligned,
            ..of(linear, None)
        };
        let longer = Stretched {
            continued: true,
            ..Stretched::default()
        };
        for (own, continued) in [
            (aligned.clone(), false),
            (longer, true),
            (of(None, None), true),
            (aligned, false),
        ] {
            write(&mut model, "abc", own);
            let read = read(&model).unwrap();
            assert_eq!((read.last(), read.corners), (linear, Corners::Aligned));
            assert_eq!(read.continued, continued);
        }
        let mut model = self::model();
        for own in [of(Some(ScaleType::Tile), None), of(None, Some(4.0))] {
            write(&mut model, "abc", own);
        }
        assert_eq!(interpolated(&model), None);
        assert_eq!(resized(&model).collect::<Vec<_>>(), [Resizing::Tile]);
        assert_eq!(read(&model).and_then(|own| own.factor), Some(4.0));
    }
}
