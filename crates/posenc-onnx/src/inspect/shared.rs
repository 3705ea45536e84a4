//! Whether graphs of one model, as a decoder with a cache and one without, encode positions alike.

use serde_json::Value;

use crate::report::{Attention, AttentionKind, Encoding, Inspect};

/// How far two numbers may differ and count as the same: those of a float16 model are rounded.
const CLOSE: f64 = 1e-2;

/// Parameters that say how well the graph determines others.
const ABOUT_OTHERS: [&str; 2] = ["exact", "original_length_range"];

/// What a graph does in its model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Images,
    Decoder,
    Encoder,
}

impl Inspect {
    /// Whether two graphs do the same work in one model, so that they have to encode positions alike: both
    /// are decoders, both are encoders or both are for images, with the same heads.
    ///
    /// ```
    /// # use posenc_onnx::Model;
    /// let report = |name| Model::open(format!("../../fixtures/{name}/model.onnx")).map(|m| m.inspect());
    /// let llama = report("llama/dynamo")?;
    /// assert!(llama.is_counterpart(&report("llama/optimum")?));
    /// assert!(!llama.is_counterpart(&report("bert/dynamo")?));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_counterpart(&self, other: &Self) -> bool {
        let is_open_or_same = |a: Option<usize>, b: Option<usize>| match (a, b) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        let (Some(a), Some(b)) = (self.first_site(), other.first_site()) else {
            return false;
        };
        self.part() == other.part()
            && is_open_or_same(a.heads, b.heads)
            && is_open_or_same(a.head_dim, b.head_dim)
    }

    /// The first encodings in which a counterpart differs; a parameter that one of the graphs leaves open
    /// differs from none. `None` where they encode positions alike.
    ///
    /// ```
    /// # use posenc_onnx::Model;
    /// let report = |name| Model::open(format!("../../fixtures/{name}/model.onnx")).map(|m| m.inspect());
    /// let llama = report("llama/torchscript")?;
    /// assert_eq!(llama.disagreement(&report("llama/fp16")?), None);
    /// let yarn = report("llama-yarn/torchscript")?;
    /// let [plain, scaled] = llama.disagreement(&yarn).unwrap();
    /// assert!(plain.unwrap().params["scaling"].is_null());
    /// assert_eq!(scaled.unwrap().params["scaling"]["type"], "yarn");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn disagreement<'a>(&'a self, other: &'a Self) -> Option<[Option<&'a Encoding>; 2]> {
        let [a, b] = [self, other].map(Self::in_order);
        let count = a.len().max(b.len());
        let pairs = (0..count).map(|at| [a.get(at).copied(), b.get(at).copied()]);
        let mut differing = pairs.filter(|pair| match pair {
            [Some(a), Some(b)] => !is_alike(a, b),
            _ => true,
        });
        differing.next()
    }

    /// The encodings in an order that two graphs share.
    fn in_order(&self) -> Vec<&Encoding> {
        let mut all: Vec<&Encoding> = self.encodings.iter().collect();
        all.sort_by_key(|e| (e.kind.to_string(), e.stack, e.layers.first().copied()));
        all
    }

    fn part(&self) -> Part {
        let is_grid = |name| move |e: &Encoding| e.params.get(name).is_some_and(|v| !v.is_null());
        let images = self.encodings.iter();
        if images.clone().any(is_grid("grid")) {
            return Part::Images;
        }
        let generates = |site: &Attention| {
            site.past || site.causal == Some(true) || site.kind == AttentionKind::Cross
        };
        if self.attention.iter().any(generates) {
            Part::Decoder
        } else {
            Part::Encoder
        }
    }

    fn first_site(&self) -> Option<&Attention> {
        let is_self = |site: &&Attention| site.kind == AttentionKind::SelfAttention;
        self.attention.iter().find(is_self)
    }
}

fn is_alike(a: &Encoding, b: &Encoding) -> bool {
    let keys = a.params.keys().chain(b.params.keys());
    let is_open_or_same = |a: Option<usize>, b: Option<usize>| a.is_none() || b.is_none() || a == b;
    a.kind == b.kind
        && is_open_or_same(a.max_length, b.max_length)
        && keys
            .filter(|key| !ABOUT_OTHERS.contains(&key.as_str()))
            .all(|key| match (a.params.get(key), b.params.get(key)) {
                // A graph without a scaling has none: that is not left open.
                (Some(a), Some(b)) if key == "scaling" => a.is_null() == b.is_null() && same(a, b),
                (a, b) => same(a.unwrap_or(&Value::Null), b.unwrap_or(&Value::Null)),
            })
}

/// Whether two values are the same, as far as both are known.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Null, _) | (_, Value::Null) => true,
        (Value::Number(a), Value::Number(b)) => {
            let [a, b] = [a, b].map(|n| n.as_f64().unwrap_or(f64::NAN));
            (a - b).abs() <= CLOSE * a.abs().max(b.abs())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut keys = a.keys().chain(b.keys());
            keys.all(|key| {
                let [a, b] = [a, b].map(|map| map.get(key).unwrap_or(&Value::Null));
                ABOUT_OTHERS.contains(&key.as_str()) || same(a, b)
            })
        }
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::{Form, Kind};
    use serde_json::json;

    use super::*;

    fn encoding(params: Value) -> Encoding {
        Encoding::new(
            Kind::Rope,
            None,
            Form::Ops,
            params.as_object().cloned().unwrap(),
        )
    }

    #[test]
    fn what_is_open_agrees_with_all_and_what_is_known_with_itself() {
        let plain = json!({"theta": 1e4, "scaling": null});
        let yarn = json!({"theta": 1e4, "scaling": {"type": "yarn", "factor": 4.0, "original_length": null,
                          "original_length_range": [63, 198], "exact": false}});
        let exact = json!({"theta": 1e4, "scaling": {"type": "yarn", "factor": 4.0, "original_length": 64}});
        let other = json!({"theta": 1e4, "scaling": {"type": "yarn", "factor": 8.0, "original_length": 64}});
        let linear = json!({"theta": 1e4, "scaling": {"type": "linear", "factor": 4.0}});
        let cases = [
            ("itself", &plain, &plain, true),
            (
                "an open theta",
                &plain,
                &json!({"theta": null, "scaling": null}),
                true,
            ),
            (
                "a rounded theta",
                &plain,
                &json!({"theta": 10003.0, "scaling": null}),
                true,
            ),
            (
                "another theta",
                &plain,
                &json!({"theta": 5e5, "scaling": null}),
                false,
            ),
            ("an open length", &yarn, &exact, true),
            ("no scaling", &plain, &yarn, false),
            ("another factor", &exact, &other, false),
            ("another law", &exact, &linear, false),
            (
                "lists",
                &json!({"slopes": [0.5, 0.25]}),
                &json!({"slopes": [0.5, 0.25]}),
                true,
            ),
            (
                "other lists",
                &json!({"slopes": [0.5, 0.25]}),
                &json!({"slopes": [0.5, 0.125]}),
                false,
            ),
            (
                "longer lists",
                &json!({"slopes": [0.5]}),
                &json!({"slopes": [0.5, 0.25]}),
                false,
            ),
            (
                "words",
                &json!({"layout": "half"}),
                &json!({"layout": "interleaved"}),
                false,
            ),
        ];
        for (name, a, b, want) in cases {
            let [a, b] = [a, b].map(|params| encoding(params.clone()));
            assert_eq!(is_alike(&a, &b), want, "{name}");
            assert_eq!(is_alike(&b, &a), want, "{name}, the other way round");
        }
        let [mut a, b] = [&plain, &plain].map(|params| encoding(params.clone()));
        a.max_length = Some(64);
        assert!(is_alike(&a, &b), "a table and none");
        let longer = Encoding {
            max_length: Some(128),
            ..b
        };
        assert!(!is_alike(&a, &longer), "tables of other lengths");
    }
}
