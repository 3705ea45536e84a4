//! The `posenc.written` metadata entry: what a rewrite wrote, site by site, so that a verification
//! expects all of it.
//!
//! A site has the digest of everything that its weights and its weighted values are computed from,
//! back to the sites before it; an output that of what it is computed from, back to the sites. Names,
//! the order of nodes and the place of constants do not count.

pub(crate) mod current;

use posenc_encodings::kind::Stack;
use posenc_ir::{Model, NodeId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::attention::site::Mask;
use crate::detect::Found;
use crate::detect::branches::Branch;
use current::{Current, anchors, constants, large};

const KEY: &str = "posenc.written";

/// How digests are computed; another number is not compared.
const SCHEME: u32 = 1;

/// What a rewrite wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Written {
    tool: String,
    scheme: u32,
    /// The fingerprint of the model that was rewritten.
    pub(crate) source: String,
    /// Every attention site, in order of computation, those of other branches after the first.
    pub(crate) sites: Vec<WrittenSite>,
    /// The outputs in their order.
    pub(crate) outputs: Vec<WrittenOutput>,
    /// Large constants that the rewrite made or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) constants: Vec<WrittenOutput>,
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

/// An output of the graph, or a constant.
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
    fn of(found: &Found, index: usize) -> Self {
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

/// Records what a model contains after a rewrite of `source`, which has this fingerprint.
pub(crate) fn write(model: &mut Model, (source, fingerprint): (&Model, &str), branches: &[Branch]) {
    let anchors = anchors(branches);
    let nodes: Vec<Option<NodeId>> = anchors.iter().map(|a| Some(a.node)).collect();
    let Some(first) = branches.first() else {
        return;
    };
    let Some(current) = Current::of(model, &first.found, &nodes) else {
        return;
    };
    let graph = model.graph();
    let sites = anchors.into_iter().zip(current.sites);
    let sites = sites.filter_map(|(anchor, digest)| {
        let (site, read) = anchor.read?;
        let value = graph.node(anchor.node).output(0)?;
        Some(WrittenSite {
            name: site.name.clone(),
            stack: site.place.stack,
            layer: site.place.layer,
            value: graph.name(value).to_owned(),
            digest: digest?,
            read,
        })
    });
    let before = constants(source.graph());
    let edited = large(graph, &first.found).filter_map(|(name, value)| {
        let was = before.get(name).and_then(|v| source.sampled(*v));
        let is_same = was.is_some() && was == model.sampled(value);
        let digest = if is_same {
            None
        } else {
            model.digest_of(value)
        };
        Some(WrittenOutput {
            name: name.to_owned(),
            digest: short(digest?),
        })
    });
    let written = Written {
        tool: concat!("posenc-onnx ", env!("CARGO_PKG_VERSION")).to_owned(),
        scheme: SCHEME,
        source: fingerprint.to_owned(),
        sites: sites.collect(),
        outputs: current.outputs,
        constants: edited.collect(),
    };
    let entry = json!(written).to_string();
    model.set_metadata(KEY, entry);
}

/// What an earlier rewrite wrote; `None` where there is no such record.
///
/// # Errors
/// In words, where the record cannot be read.
pub(crate) fn read(model: &Model) -> Option<Result<Written, String>> {
    let entry = model.metadata(KEY)?;
    let read = serde_json::from_str(entry).map_err(|e| e.to_string());
    Some(read.and_then(|written: Written| match written.scheme {
        SCHEME => Ok(written),
        other => Err(format!("its scheme {other} is not known")),
    }))
}

/// The digits of a digest that are recorded.
pub(crate) fn short(digest: u128) -> String {
    format!("{:016x}", digest >> 64)
}
