//! The `posenc.rope` metadata entry: what was done, so that a second rewrite and a verification
//! know.

pub mod law;

use posenc_ir::Model;
use serde_json::{Value, json};

use crate::detect::Found;
use crate::plan::rescale::Plan;
use posenc_encodings::laws::{LongRopeAttention, RampBounds, Scaling};

const KEY: &str = "posenc.rope";

/// What an earlier rewrite wrote down.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Whether any site was scaled.
    pub is_scaled: bool,
    /// The length before the scaling, where it was known.
    pub original_length: Option<usize>,
    /// The whole entry.
    pub entry: Value,
}

impl Record {
    /// The correction of the softmax scale that a layer has; 1 where there is none.
    pub fn softmax_factor(&self, layer: usize) -> f64 {
        let sites = self.entry["sites"].as_array();
        let mut sites = sites.into_iter().flatten();
        let site = sites.find(|s| {
            let layers = s["layers"].as_array();
            layers.is_some_and(|l| l.contains(&json!(layer)))
        });
        site.and_then(|s| s["softmax_factor"].as_f64())
            .unwrap_or(1.0)
    }
}

/// The record of a model, when there is one that can be read.
pub fn record(model: &Model) -> Option<Record> {
    let entry: Value = serde_json::from_str(model.metadata(KEY)?).ok()?;
    let sites = entry.get("sites")?.as_array()?;
    let kind = |s: &Value| s["scaling"]["type"].as_str().unwrap_or("none").to_owned();
    let original = |s: &Value| s["scaling"]["original_length"].as_u64();
    Some(Record {
        is_scaled: sites.iter().any(|s| kind(s) != "none"),
        original_length: sites
            .iter()
            .find_map(original)
            .and_then(|n| usize::try_from(n).ok()),
        entry,
    })
}

/// Writes the record of a rescale.
pub(crate) fn write(model: &mut Model, source: &str, before: &Found, plan: &Plan) {
    let mut sites: Vec<Value> = vec![];
    for (i, target) in &plan.targets {
        let layer = before.rotary[*i].site;
        let entry = json!({
            "layers": [],
            "theta": target.rope.theta,
            "rotary_dim": target.rope.rotary_dim,
            "head_dim": target.rope.head_dim,
            "scaling": scaling(&target.scaling),
            "softmax_factor": target.softmax_factor,
        });
        let same = |s: &&mut Value| {
            entry
                .as_object()
                .is_some_and(|e| e.iter().all(|(k, v)| k == "layers" || s[k] == *v))
        };
        let at = match sites.iter_mut().find(same) {
            Some(at) => at,
            None => {
                sites.push(entry);
                sites.last_mut().expect("just pushed")
            }
        };
        if let Some(layers) = at["layers"].as_array_mut() {
            layers.push(json!(layer));
        }
    }
    let entry = json!({
        "tool": concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")),
        "source": source,
        "max_length": plan.max_length,
        "sites": sites,
    });
    model.set_metadata(KEY, entry.to_string());
}

/// Says that no rotation is recorded any more.
pub(crate) fn clear(model: &mut Model, source: &str) {
    let entry = json!({
        "tool": concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")),
        "source": source,
        "max_length": null,
        "sites": [],
    });
    model.set_metadata(KEY, entry.to_string());
}

/// A scaling with all its parameters.
pub(crate) fn scaling(scaling: &Scaling) -> Value {
    let mut value = match scaling {
        Scaling::None => return Value::Null,
        Scaling::Linear(s) => json!({"factor": s.factor}),
        Scaling::Ntk(s) => json!({"factor": s.factor}),
        Scaling::Dynamic(s) => json!({"factor": s.factor, "original_length": s.max_position}),
        Scaling::Yarn(s) => json!({
            "factor": s.factor,
            "original_length": s.original_length,
            "beta_fast": s.beta_fast,
            "beta_slow": s.beta_slow,
            "truncate": s.bounds == RampBounds::Truncated,
            "attention_factor": s.attention_factor(),
        }),
        Scaling::LongRope(s) => {
            let (short, long) = match s.attention {
                LongRopeAttention::Switched { short, long } => (short, long),
                _ => {
                    let m = s.attention_factor(s.original_length);
                    (m, m)
                }
            };
            json!({
                "original_length": s.original_length,
                "short_factor": s.short_factor,
                "long_factor": s.long_factor,
                "short_mscale": short,
                "long_mscale": long,
            })
        }
        Scaling::Llama3(s) => json!({
            "factor": s.factor,
            "original_length": s.original_length,
            "low_freq_factor": s.low_freq_factor,
            "high_freq_factor": s.high_freq_factor,
        }),
        Scaling::Proportional(s) => {
            json!({"factor": s.factor, "partial_rotary_factor": s.share})
        }
    };
    value["type"] = json!(scaling.name());
    value
}
