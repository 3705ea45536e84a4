//! Attention sites.

use serde::Serialize;

use posenc_encodings::kind::{Form, Stack};
use posenc_encodings::words;

words! {
    /// What the keys of a site are computed from.
    ///
    /// ```
    /// # use posenc_onnx::{Model, report::AttentionKind};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let attention = model.inspect().attention;
    /// assert!(attention.iter().all(|site| site.kind == AttentionKind::SelfAttention));
    /// assert_eq!(AttentionKind::SelfAttention.to_string(), "self");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    "kind of attention" AttentionKind {
        /// From the sequence of the queries.
        SelfAttention = "self",
        /// From another sequence.
        Cross = "cross",
    }
}

/// One attention site: a softmax over keys, or a fused operator.
///
/// ```
/// # use posenc_onnx::Model;
/// let model = Model::open("../../fixtures/gemma3-text/dynamo/model.onnx")?;
/// let sites = model.inspect().attention;
/// assert_eq!((sites[0].heads, sites[0].kv_heads), (Some(4), Some(2)));
/// assert_eq!((sites[0].window, sites[1].window), (Some(8), None));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Attention {
    /// The scope or node of the site.
    pub name: String,
    /// The stack; `None` where the model has one.
    pub stack: Option<Stack>,
    /// The place in the order of the stack's sites, from 0; `None` for a site outside of it.
    pub layer: Option<usize>,
    /// Self- or cross-attention.
    pub kind: AttentionKind,
    /// Query heads.
    pub heads: Option<usize>,
    /// Key and value heads.
    pub kv_heads: Option<usize>,
    /// Elements of a head of q and k.
    pub head_dim: Option<usize>,
    /// Whether a query is kept from seeing later keys.
    pub causal: Option<bool>,
    /// Keys that a query sees, itself included, where a mask limits the distance.
    pub window: Option<usize>,
    /// Whether a mask of the input hides keys.
    pub padding_mask: bool,
    /// Whether keys and values of earlier runs are an input.
    pub past: bool,
    /// How the site is written in the graph.
    pub form: Form,
}
