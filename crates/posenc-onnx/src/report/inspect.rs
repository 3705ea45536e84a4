//! `inspect`.

use std::collections::BTreeMap;

use posenc_ir::{DType, Model, Payload};
use serde::Serialize;

use super::limit::Limit;
use super::{Attention, Encoding, SCHEMA};

/// `Constant` nodes with at least this many elements are weights rather than numbers.
const WEIGHTS: usize = 256;

/// What a model encodes positions with.
///
/// ```
/// # use posenc_onnx::Model;
/// let model = Model::open("../../fixtures/bert/dynamo/model.onnx")?;
/// let report = model.inspect();
/// assert_eq!(report.encodings[0].layers, [0, 1]);
/// assert_eq!(report.attention[0].causal, Some(false));
/// assert_eq!(report.limits[0].length, 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Inspect {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The file.
    pub model: ModelSummary,
    /// The encodings, grouped by kind, stack and hyperparameters.
    pub encodings: Vec<Encoding>,
    /// The attention sites, once per run of the model.
    pub attention: Vec<Attention>,
    /// What bounds the length of a sequence.
    pub limits: Vec<Limit>,
    /// What a user should know, one sentence each.
    pub warnings: Vec<String>,
    /// Candidates that were looked at and refused; written on request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Vec<Refusal>>,
}

impl Inspect {
    /// The report of a model in which nothing was found.
    ///
    /// ```
    /// # use posenc_onnx::{Model, report::{Inspect, ModelSummary}};
    /// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
    /// let report = Inspect::new(ModelSummary::of(model.as_ir()));
    /// assert!(report.encodings.is_empty() && report.model.nodes > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(model: ModelSummary) -> Self {
        Self {
            schema: SCHEMA,
            model,
            encodings: vec![],
            attention: vec![],
            limits: vec![],
            warnings: vec![],
            refused: None,
        }
    }
}

/// What the file says of itself.
///
/// ```
/// # use posenc_onnx::Model;
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let summary = model.inspect().model;
/// assert_eq!(summary.opsets[""], 20);
/// assert_eq!(summary.fingerprint, model.as_ir().fingerprint());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelSummary {
    /// The file; empty for a model from memory.
    pub path: String,
    /// [`Model::fingerprint`].
    pub fingerprint: String,
    /// [`Model::sha256`], where requested.
    pub sha256: Option<String>,
    /// The version of the file format.
    pub ir_version: i64,
    /// The imported operator sets by domain; ai.onnx is the empty one.
    pub opsets: BTreeMap<String, i64>,
    /// The exporter.
    pub producer: String,
    /// Nodes of the graph, its bodies and its functions.
    pub nodes: usize,
    /// Elements of float initializers and large float constants.
    pub parameters: u64,
    /// Whether tensors are stored in other files.
    pub external_data: bool,
}

impl ModelSummary {
    /// The summary of a model; touches no payload.
    ///
    /// ```
    /// # use posenc_onnx::{Model, report::ModelSummary};
    /// let bytes = std::fs::read("../../fixtures/mini/rope/model.onnx")?;
    /// let summary = ModelSummary::of(Model::from_bytes(bytes)?.as_ir());
    /// assert_eq!((summary.path.as_str(), summary.external_data), ("", false));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(model: &Model) -> Self {
        let graph = model.graph();
        let stored = || graph.values().filter_map(|v| Some((v, graph.stored(v)?)));
        let weighs = |v, elements| graph.producer(v).is_none() || elements >= WEIGHTS;
        let float = |dtype| {
            use DType::{BF16, F8E4M3FN, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, F32, F64};
            matches!(
                dtype,
                F16 | F32 | F64 | BF16 | F8E4M3FN | F8E4M3FNUZ | F8E5M2 | F8E5M2FNUZ
            )
        };
        let parameters = stored()
            .filter(|(_, s)| s.dtype.is_some_and(float))
            .filter_map(|(v, s)| s.elements().filter(|n| weighs(v, *n)))
            .fold(0u64, |sum, n| sum.saturating_add(n as u64));
        Self {
            path: model
                .path()
                .map_or_else(String::new, |p| p.display().to_string()),
            fingerprint: model.fingerprint(),
            sha256: None,
            ir_version: model.ir_version(),
            opsets: model.opsets(),
            producer: model.producer().to_owned(),
            nodes: graph.nodes().count(),
            parameters,
            external_data: stored().any(|(_, s)| matches!(s.payload, Payload::External(_))),
        }
    }
}

/// A candidate that was looked at and refused.
///
/// ```
/// # use posenc_onnx::Model;
/// let model = Model::open("../../fixtures/bert/dynamo/model.onnx")?;
/// let refused = model.inspect().refused.unwrap(); // its table is learned
/// assert_eq!(refused[0].at, model.inspect().encodings[0].nodes[0]);
/// assert!(refused[0].why.starts_with("no sinusoid: "));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// The node or value.
    pub at: String,
    /// Why, as a fact about the graph.
    pub why: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::AttentionKind;
    use crate::report::LimitCause;
    use posenc_encodings::kind::{Form, Kind, Stack};
    use posenc_encodings::params::Params;

    #[test]
    fn the_json_is_that_of_the_contract() {
        let opsets = BTreeMap::from([(String::new(), 17)]);
        let mut report = Inspect::new(ModelSummary {
            path: "m.onnx".into(),
            fingerprint: "ab".into(),
            sha256: None,
            ir_version: 8,
            opsets,
            producer: "pytorch 2.15".into(),
            nodes: 412,
            parameters: 91034,
            external_data: false,
        });
        let mut params = Params::new();
        params.insert("theta".into(), json!(10000.0));
        params.insert("scaling".into(), json!(null));
        let mut rope = Encoding::new(Kind::Rope, Some(Stack::Decoder), Form::Ops, params);
        rope.layers = vec![0, 1];
        rope.sites = 2;
        rope.fit_error = Some(1.25e-7);
        rope.nodes = vec!["/model/rotary_emb/Cos".into()];
        report.encodings.push(rope);
        report.attention.push(Attention {
            name: "/model/layers.0/self_attn".into(),
            stack: Some(Stack::Decoder),
            layer: Some(0),
            kind: AttentionKind::SelfAttention,
            heads: Some(4),
            kv_heads: Some(2),
            head_dim: Some(16),
            causal: Some(true),
            window: None,
            padding_mask: true,
            past: false,
            form: Form::Ops,
        });
        report.limits.push(Limit {
            length: 512,
            cause: LimitCause::Table,
            value: Some("embeddings.weight".into()),
        });
        let want = concat!(
            r#"{"schema":1,"model":{"path":"m.onnx","fingerprint":"ab","sha256":null,"#,
            r#""ir_version":8,"opsets":{"":17},"producer":"pytorch 2.15","nodes":412,"#,
            r#""parameters":91034,"external_data":false},"encodings":[{"kind":"rope","#,
            r#""stack":"decoder","layers":[0,1],"sites":2,"form":"ops","#,
            r#""params":{"theta":10000.0,"scaling":null},"fit_error":1.25e-7,"#,
            r#""max_length":null,"nodes":["/model/rotary_emb/Cos"]}],"attention":[{"#,
            r#""name":"/model/layers.0/self_attn","stack":"decoder","layer":0,"kind":"self","#,
            r#""heads":4,"kv_heads":2,"head_dim":16,"causal":true,"window":null,"#,
            r#""padding_mask":true,"past":false,"form":"ops"}],"#,
            r#""limits":[{"length":512,"cause":"table","value":"embeddings.weight"}],"#,
            r#""warnings":[]}"#,
        );
        assert_eq!(serde_json::to_string(&report).unwrap(), want);
    }
}
