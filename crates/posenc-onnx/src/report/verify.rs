//! `verify`.

use std::collections::BTreeMap;

use serde::Serialize;

use super::SCHEMA;

/// What a verification found.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Tract, verify::{VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let options = VerifyOptions { lengths: vec![8], ..VerifyOptions::default() };
/// let report = verify(model.as_ir(), None, &options, &[Box::new(Tract::default())])?;
/// assert!(report.ok && report.runs.iter().all(|run| run.length <= 8));
/// assert_eq!(report.sites[0].site, model.inspect().attention[0].name);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verify {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Outputs of whole models, one entry per runtime, setting, length and output.
    pub runs: Vec<Run>,
    /// Quantities of single sites against the formula in f64.
    pub sites: Vec<SiteCheck>,
    /// Whether every comparison kept its bound.
    pub ok: bool,
    /// What a user should know, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// What was not checked, with the reason; in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<String>,
}

impl Verify {
    /// A verification: right when every comparison kept its bound and there was at least one.
    ///
    /// ```
    /// # use posenc_onnx::report::Verify;
    /// assert!(!Verify::new(vec![], vec![]).ok, "nothing was compared");
    /// ```
    pub fn new(runs: Vec<Run>, sites: Vec<SiteCheck>) -> Self {
        let some = runs.iter().any(Run::is_comparison) || !sites.is_empty();
        let ok = some && runs.iter().all(|r| r.ok) && sites.iter().all(|s| s.ok);
        Self {
            schema: SCHEMA,
            runs,
            sites,
            ok,
            warnings: vec![],
            unchecked: vec![],
        }
    }
}

/// One output of one run, compared.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Rescale, Tract, verify::{VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let options = VerifyOptions { lengths: vec![8], ..VerifyOptions::default() };
/// let backends = [Box::new(Tract::default()) as _];
/// let other = Model::open("../../fixtures/mini/alibi/model.onnx")?;
/// let runs = verify(model.as_ir(), Some(other.as_ir()), &options, &backends)?.runs;
/// assert!(runs.iter().any(|run| !run.ok && run.max_abs > run.bound));
/// // A rewrite makes another function on purpose.
/// let other = model.plan(Rescale::linear(2.0))?.apply()?;
/// let runs = verify(model.as_ir(), Some(other.as_ir()), &options, &backends)?.runs;
/// assert!(runs.iter().any(|run| run.ok && run.max_abs > Some(1e-3) && run.bound.is_none()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Run {
    /// The runtime.
    pub runtime: String,
    /// Its execution provider.
    pub provider: String,
    /// Its graph optimization.
    pub optimization: String,
    /// The length of the sequence.
    pub length: usize,
    /// The size of the batch.
    pub batch: usize,
    /// Where the sequences after the first are padded: `right`, `left` or `none`.
    pub padding: String,
    /// The output.
    pub output: String,
    /// The largest absolute difference; `None` where the run gave none (NaN, wrong shape).
    pub max_abs: Option<f64>,
    /// The largest difference relative to the largest magnitude.
    pub rel: Option<f64>,
    /// The cosine of the angle between the two outputs.
    pub cosine: Option<f64>,
    /// The differences in units in the last place; `None` where there is nothing to compare with.
    pub ulp: Option<Ulp>,
    /// For logits over a vocabulary, the share of tokens whose largest logit is that of the same token in
    /// both; else `None`.
    pub top1: Option<f64>,
    /// How many elements are NaN.
    pub nan: usize,
    /// How many elements are infinite where another number was wanted, or anything where there was nothing
    /// to compare with.
    pub infinite: usize,
    /// The bound of the element that uses most of its own; `None` where there was nothing to
    /// compare with.
    pub bound: Option<f64>,
    /// Whether every element kept its bound, or is a number where there was nothing to compare
    /// with.
    pub ok: bool,
    /// The first value, in order of computation, that is out of bounds; where looked for.
    pub first_divergence: Option<String>,
    /// The nodes around it, in order of computation; empty where there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbourhood: Vec<Neighbour>,
    /// How many nodes each execution provider ran; empty where the runtime does not report it.
    pub placement: BTreeMap<String, usize>,
}

/// Differences of the elements of an output in units in the last place (ulp): the distance of what was wanted
/// to the next number of the output's type.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Tract, verify::{VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let options = VerifyOptions { lengths: vec![8], ..VerifyOptions::default() };
/// let runs = verify(model.as_ir(), Some(model.as_ir()), &options, &[Box::new(Tract::default())])?.runs;
/// assert_eq!(runs[0].ulp.map(|ulp| ulp.max), Some(0.0), "a model equals itself");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ulp {
    /// Half of the elements differ by no more.
    pub median: f64,
    /// 99 in 100 elements differ by no more.
    pub p99: f64,
    /// No element differs by more.
    pub max: f64,
}

/// A node near the first value that is out of bounds.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Tract, verify::{Bisect, VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let other = Model::open("../../fixtures/mini/alibi/model.onnx")?;
/// let options = VerifyOptions { bisect: Bisect::FirstFailure, ..VerifyOptions::default() };
/// let runs = verify(model.as_ir(), Some(other.as_ir()), &options, &[Box::new(Tract::default())])?.runs;
/// let failed = runs.iter().find(|run| run.first_divergence.is_some()).unwrap();
/// let first = failed.neighbourhood.iter().find(|near| near.is_first).unwrap();
/// assert!(first.ok == Some(false) && first.max_abs > Some(1e-3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Neighbour {
    /// The node as ONNX text.
    pub node: String,
    /// Whether its value is the first one that is out of bounds.
    pub is_first: bool,
    /// The largest difference of its value; `None` where it was not compared, or is no number.
    pub max_abs: Option<f64>,
    /// Whether its value is within bounds; `None` where it was not compared.
    pub ok: Option<bool>,
}

impl Run {
    /// Whether there was something to compare with.
    ///
    #[cfg_attr(feature = "tract", doc = "```")]
    #[cfg_attr(not(feature = "tract"), doc = "```ignore")]
    /// # use posenc_onnx::{Model, Tract, verify::{VerifyOptions, verify}};
    /// let model = Model::open("../../fixtures/mini/alibi/model.onnx")?;
    /// let options = VerifyOptions { lengths: vec![8], ..VerifyOptions::default() };
    /// let report = verify(model.as_ir(), None, &options, &[Box::new(Tract::default())])?;
    /// assert!(!report.runs[0].is_comparison(), "the first run is what others are compared with");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_comparison(&self) -> bool {
        self.bound.is_some()
    }
}

/// One quantity of one site, compared with the formula in f64.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Rescale, Tract};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let done = model.plan(Rescale::linear(2.0))?.apply()?;
/// let verification = done.verify(&Tract::default())?;
/// let check = &verification.checks()[0];
/// assert_eq!(check.quantity, "cos");
/// assert!(check.ok && check.max_error < Some(check.bound));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SiteCheck {
    /// The site.
    pub site: String,
    /// What was compared: cos, sin, q, k, scores, bias, table.
    pub quantity: String,
    /// The absolute difference at the element that uses most of its bound; `None` where there was
    /// none to take (NaN, wrong shape).
    pub max_error: Option<f64>,
    /// The bound of that element.
    pub bound: f64,
    /// Whether every element kept its own.
    pub ok: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(ok: bool) -> SiteCheck {
        SiteCheck {
            site: "layers.0".into(),
            quantity: "q".into(),
            max_error: Some(0.5),
            bound: 1.0,
            ok,
        }
    }

    fn run(ok: bool) -> Run {
        Run {
            runtime: "tract".into(),
            provider: "cpu".into(),
            optimization: "all".into(),
            length: 64,
            batch: 1,
            padding: "none".into(),
            output: "logits".into(),
            max_abs: None,
            rel: None,
            cosine: None,
            ulp: Some(Ulp::default()),
            top1: None,
            nan: 0,
            infinite: 0,
            bound: Some(1.0),
            ok,
            first_divergence: None,
            neighbourhood: vec![],
            placement: BTreeMap::new(),
        }
    }

    #[test]
    fn the_json_is_that_of_the_contract() {
        let report = Verify::new(vec![run(true)], vec![site(true)]);
        let want = concat!(
            r#"{"schema":1,"runs":[{"runtime":"tract","provider":"cpu","optimization":"all","#,
            r#""length":64,"batch":1,"padding":"none","output":"logits","max_abs":null,"rel":null,"#,
            r#""cosine":null,"ulp":{"median":0.0,"p99":0.0,"max":0.0},"top1":null,"nan":0,"infinite":0,"#,
            r#""bound":1.0,"ok":true,"first_divergence":null,"placement":{}}],"#,
            r#""sites":[{"site":"layers.0","quantity":"q","max_error":0.5,"bound":1.0,"#,
            r#""ok":true}],"ok":true}"#,
        );
        assert_eq!(serde_json::to_string(&report).unwrap(), want);
    }

    #[test]
    fn one_failure_or_no_comparison_at_all_is_not_ok() {
        let cases: [(&str, Vec<Run>, Vec<SiteCheck>, bool); 5] = [
            ("nothing", vec![], vec![], false),
            ("a run", vec![run(true)], vec![], true),
            ("a site", vec![], vec![site(true)], true),
            (
                "a bad run",
                vec![run(true), run(false)],
                vec![site(true)],
                false,
            ),
            ("a bad site", vec![run(true)], vec![site(false)], false),
        ];
        for (name, runs, sites, want) in cases {
            assert_eq!(Verify::new(runs, sites).ok, want, "{name}");
        }
    }
}
