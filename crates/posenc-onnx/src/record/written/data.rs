//! What is recorded of a rewrite, as data.

use std::collections::BTreeMap;

use posenc_encodings::kind::Stack;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::attention::site::Mask;
use crate::detect::Found;

/// What a rewrite wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Written {
    pub(super) tool: String,
    pub(super) scheme: u32,
    /// The fingerprint of the model that was rewritten.
    pub(crate) source: String,
    /// Every attention site, in order of computation, those of other branches after the first.
    pub(crate) sites: Vec<WrittenSite>,
    /// The outputs in their order.
    pub(crate) outputs: Vec<WrittenOutput>,
    /// Large constants that the rewrite made or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) constants: Vec<WrittenConstant>,
    /// Digests of the other entries of the record, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) entries: BTreeMap<String, String>,
}

/// One attention site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WrittenSite {
    /// Its name.
    pub(crate) name: String,
    /// Its stack; absent where the model has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stack: Option<Stack>,
    /// Its layer.
    pub(crate) layer: usize,
    /// The value that its softmax or fused operator computes.
    pub(crate) value: String,
    /// What it is computed from.
    pub(crate) digest: String,
    /// What is read there.
    #[serde(flatten)]
    pub(crate) read: Reading,
}

/// A constant of the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WrittenConstant {
    pub(crate) name: String,
    /// How many of this name come before it in other bodies.
    #[serde(default, skip_serializing_if = "is_none_before")]
    pub(crate) before: usize,
    pub(crate) digest: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde wants a reference")]
fn is_none_before(count: &usize) -> bool {
    *count == 0
}

/// An output of the graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WrittenOutput {
    pub(crate) name: String,
    pub(crate) digest: String,
}

/// What detection reads at a site.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// The encodings that it sees, with their parameters.
    pub(crate) encodings: Vec<Value>,
    /// Whether later keys are masked; `None` where unknown.
    pub(crate) causal: Option<bool>,
    /// Keys at this distance and farther are masked.
    pub(crate) window: Option<usize>,
    /// Whether the attention mask of the inputs is applied.
    pub(crate) padding: bool,
}

impl Reading {
    /// What is read at a site of a detection.
    pub(super) fn of(found: &Found, index: usize) -> Self {
        let Mask {
            causal,
            window,
            padding,
        } = found.attention[index].mask;
        let rotary = found.rotary.iter().filter(|r| r.site == index).map(|r| {
            let rope = &r.query.rotation.rope;
            let params = [
                ("rotary_dim", json!(rope.rotary_dim)),
                ("head_dim", json!(rope.head_dim)),
                ("layout", json!(rope.layout)),
            ];
            let params = params.map(|(name, value)| (name.to_owned(), value));
            json!({"kind": "rope", "params": Map::from_iter(params)})
        });
        let others = found.findings.iter().filter(|f| f.sites.contains(&index));
        let others = others
            .map(|f| json!({"kind": f.encoding.kind().to_string(), "params": f.encoding.params()}));
        Self {
            encodings: rotary.chain(others).collect(),
            causal,
            window,
            padding,
        }
    }
}

/// The digits of a digest that are recorded.
pub(crate) fn short(digest: u128) -> String {
    format!("{:016x}", digest >> 64)
}
