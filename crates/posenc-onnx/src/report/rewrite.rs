//! `rewrite`.

use serde::Serialize;
use serde_json::{Map, Value};

use super::{Limit, SCHEMA, SiteCheck};
use posenc_encodings::inferred::Inferred;
use posenc_encodings::words;

/// What a rewrite did, or would do.
///
/// ```
/// # use posenc_onnx::{Model, Swap};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Swap::remove())?.apply()?;
/// let json = serde_json::to_value(done.report())?;
/// assert_eq!(json["guarantee"], "new-function");
/// assert!(json["meaning"].as_str().unwrap().contains("fine-tune"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rewrite {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The model that was read.
    pub input: Endpoint,
    /// The model that was written; `None` for a dry run.
    pub output: Option<Endpoint>,
    /// The changes, in the order of the sites; none where the model already matched the request.
    pub edits: Vec<Edit>,
    /// Nodes that preceded something that they read, and were moved after it; written where
    /// there are any.
    #[serde(skip_serializing_if = "is_zero")]
    pub sorted: usize,
    /// What is guaranteed of the two models.
    pub guarantee: Guarantee,
    /// What another function means for the weights, in one sentence; written where an encoding
    /// was swapped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// Values that the request did not give, with where they came from.
    pub inferred: Vec<Inferred>,
    /// What bounds the length of a sequence.
    pub limits: Limits,
    /// The comparison of the emitted nodes with the formula in f64; `None` where nothing was
    /// there to check.
    pub check: Option<Check>,
    /// The configurations that were written next to the model, or would be; written where there
    /// are any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub configs: Vec<ConfigFile>,
    /// What a user should know, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

impl Rewrite {
    /// The report of a rewrite that found nothing to change.
    ///
    /// ```
    /// # use posenc_onnx::report::{Endpoint, Guarantee, Rewrite};
    /// let input = Endpoint { path: "a.onnx".into(), fingerprint: "ab".into() };
    /// let report = Rewrite::new(input);
    /// assert_eq!((report.edits.len(), report.guarantee), (0, Guarantee::Bits));
    /// ```
    pub fn new(input: Endpoint) -> Self {
        Self {
            schema: SCHEMA,
            input,
            output: None,
            edits: vec![],
            sorted: 0,
            guarantee: Guarantee::Bits,
            meaning: None,
            inferred: vec![],
            limits: Limits::default(),
            check: None,
            configs: vec![],
            warnings: vec![],
        }
    }
}

// serde hands a reference over.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A model file.
///
/// ```
/// # use posenc_onnx::{Model, Rescale};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Rescale::linear(2.0))?.apply()?;
/// let input = &done.report().input;
/// assert_eq!(input.path, "../../fixtures/mini/rope/model.onnx");
/// assert_eq!(input.fingerprint, model.as_ir().fingerprint());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Endpoint {
    /// The file.
    pub path: String,
    /// [`posenc_ir::Model::fingerprint`].
    pub fingerprint: String,
}

/// A configuration that was written next to the model, or would be.
///
/// ```
/// # use posenc_onnx::report::ConfigFile;
/// # use serde_json::json;
/// let changes = json!({"max_position_embeddings": [64, 256]});
/// let changes = changes.as_object().cloned().unwrap_or_default();
/// let file = ConfigFile { path: "out/config.json".into(), changes };
/// assert_eq!(serde_json::to_value(file)?["changes"]["max_position_embeddings"][1], 256);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ConfigFile {
    /// The file.
    pub path: String,
    /// The values that changed, by their keys: `[before, after]`, with `null` for a key that is
    /// not there. The key of a nested value has a dot before each part but the first. Empty for a
    /// copy of the configuration of the model that was read.
    pub changes: Map<String, Value>,
}

/// A change at one site.
///
/// ```
/// # use posenc_onnx::{Alibi, Model, Swap};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Swap::to(Alibi::default()))?.apply()?;
/// let edit = &done.report().edits[0];
/// assert_eq!((&edit.from["kind"], &edit.to["kind"]), (&"rope".into(), &"alibi".into()));
/// assert!(edit.nodes_added > 0 && edit.nodes_removed > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Edit {
    /// The attention site or the node, by its place in the graph.
    pub site: String,
    /// The encoding before: a kind and its parameters; `null` for nothing, and `image_size` alone where there is
    /// none and the model gets images of another size.
    pub from: Value,
    /// The encoding after.
    pub to: Value,
    /// Nodes that were added.
    pub nodes_added: usize,
    /// Nodes that were removed.
    pub nodes_removed: usize,
    /// Initializers with another payload or shape.
    pub initializers_changed: usize,
}

words! {
    /// What is guaranteed of a model and its rewrite: the least over all edits.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale, report::Guarantee};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let same = model.plan(Rescale::none())?.apply()?;
    /// assert_eq!(same.report().guarantee, Guarantee::Bits);
    /// let scaled = model.plan(Rescale::linear(2.0))?.apply()?;
    /// assert_eq!(scaled.report().guarantee, Guarantee::NewFunction);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    "guarantee" Guarantee {
        /// Every output keeps its bits.
        Bits = "bits",
        /// The same function, rounded elsewhere.
        Rounding = "rounding",
        /// Another function, as requested.
        NewFunction = "new-function",
    }
}

/// Limits of the two models.
///
/// ```
/// # use posenc_onnx::{Model, Rope, Swap};
/// let model = Model::open("../../fixtures/mini/learned/model.onnx")?;
/// let done = model.plan(Swap::to(Rope::default()))?.apply()?;
/// let limits = &done.report().limits;
/// assert_eq!(limits.before[0].length, 40);
/// assert!(limits.after.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Limits {
    /// Of the model that was read.
    pub before: Vec<Limit>,
    /// Of the model that was written.
    pub after: Vec<Limit>,
}

/// The comparison of emitted nodes with the formula in f64.
///
/// ```
/// # use posenc_onnx::report::Check;
/// assert!(!Check::of(&[]).ok, "no comparison is no proof");
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    /// How many sites were compared.
    pub sites: usize,
    /// The largest absolute difference.
    pub max_error: f64,
    /// The bound that it had to keep.
    pub bound: f64,
    /// Whether every site kept its bound.
    pub ok: bool,
}

impl Check {
    /// The summary of checks of sites: of all quantities the one that uses most of its bound. No
    /// check at all is not ok.
    ///
    /// ```
    /// use posenc_onnx::report::{Check, SiteCheck};
    ///
    /// let check = |max_error, ok| {
    ///     let (site, quantity) = ("layers.0".into(), "q".into());
    ///     SiteCheck { site, quantity, max_error: Some(max_error), bound: 1.0, ok }
    /// };
    /// let all = Check::of(&[check(0.5, true), check(2.0, false)]);
    /// assert_eq!((all.sites, all.max_error, all.ok), (1, 2.0, false));
    /// ```
    pub fn of(checks: &[SiteCheck]) -> Self {
        let mut sites: Vec<&str> = checks.iter().map(|c| c.site.as_str()).collect();
        sites.sort_unstable();
        sites.dedup();
        let share = |c: &&SiteCheck| match c.max_error {
            Some(0.0) => 0.0,
            Some(error) => error / c.bound,
            None => f64::INFINITY,
        };
        let worst = checks.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
        Self {
            sites: sites.len(),
            max_error: worst.and_then(|c| c.max_error).unwrap_or(f64::NAN),
            bound: worst.map_or(0.0, |c| c.bound),
            ok: !checks.is_empty() && checks.iter().all(|c| c.ok),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::report::LimitCause;

    #[test]
    fn the_json_is_that_of_the_contract() {
        let end = |path: &str| Endpoint {
            path: path.into(),
            fingerprint: "ab".into(),
        };
        let mut report = Rewrite::new(end("a.onnx"));
        let empty = concat!(
            r#"{"schema":1,"input":{"path":"a.onnx","fingerprint":"ab"},"output":null,"#,
            r#""edits":[],"guarantee":"bits","inferred":[],"limits":{"before":[],"after":[]},"#,
            r#""check":null}"#,
        );
        assert_eq!(serde_json::to_string(&report).unwrap(), empty);
        report.output = Some(end("b.onnx"));
        report.guarantee = Guarantee::NewFunction;
        report.edits.push(Edit {
            site: "layers.0".into(),
            from: json!({"kind": "rope"}),
            to: json!({"kind": "alibi"}),
            nodes_added: 3,
            nodes_removed: 9,
            initializers_changed: 1,
        });
        report.inferred.push(Inferred {
            name: "factor".into(),
            value: json!(4.0),
            source: "the default".into(),
        });
        report.limits.before.push(Limit {
            length: 512,
            cause: LimitCause::CausalBuffer,
            value: None,
        });
        report.check = Some(Check {
            sites: 2,
            max_error: 0.5,
            bound: 1.0,
            ok: true,
        });
        let want = concat!(
            r#"{"schema":1,"input":{"path":"a.onnx","fingerprint":"ab"},"#,
            r#""output":{"path":"b.onnx","fingerprint":"ab"},"edits":[{"site":"layers.0","#,
            r#""from":{"kind":"rope"},"to":{"kind":"alibi"},"nodes_added":3,"nodes_removed":9,"#,
            r#""initializers_changed":1}],"guarantee":"new-function","#,
            r#""inferred":[{"name":"factor","value":4.0,"source":"the default"}],"#,
            r#""limits":{"before":[{"length":512,"cause":"causal-buffer","value":null}],"#,
            r#""after":[]},"check":{"sites":2,"max_error":0.5,"bound":1.0,"ok":true}}"#,
        );
        assert_eq!(serde_json::to_string(&report).unwrap(), want);
    }
}
