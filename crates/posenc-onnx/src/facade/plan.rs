//! What a request changes, before anything has changed.

mod edits;

use std::fmt;

use serde_json::Value;

use super::Rewritten;
use crate::error::RewriteError;
use crate::plan::change::Change;
use crate::plan::resize::Wanted;
use crate::rewrite::Planned;
pub use edits::PlannedEdit;
use edits::{changed, reformed, rescaled, swapped};
use posenc_encodings::inferred::{self, Inferred};

/// What a request changes in a model. Nothing is edited before [`apply`](Self::apply).
///
/// It prints as a table: what comes of which site, and which values were inferred.
///
/// ```
/// # use posenc_onnx::{Model, Rescale};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let plan = model.plan(Rescale::yarn(4.0).original_length(64))?;
/// println!("{plan}");
/// assert_eq!(plan.edits().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Plan<'a> {
    planned: Planned<'a>,
    edits: Vec<PlannedEdit>,
    inferred: Vec<Inferred>,
}

impl<'a> Plan<'a> {
    pub(super) fn new(planned: Planned<'a>) -> Self {
        let (mut of_branches, mut all) = (vec![], vec![]);
        match &planned.change {
            Change::Sort | Change::Nothing { .. } => {}
            Change::Form => of_branches.push(reformed(&planned, &planned.branches[0].found)),
            Change::Rescale(plans) => {
                for (branch, plan) in planned.branches.iter().zip(plans) {
                    if let Some(plan) = plan {
                        of_branches.push(rescaled(&planned, &branch.found, plan));
                        all.extend(plan.inferred.iter().cloned());
                    }
                }
            }
            Change::Stretch(plans) => {
                let plan = &plans[0];
                of_branches.push(changed(&planned, plan.findings(), |at, e| {
                    plan.after(at, e)
                }));
                all.extend(plan.inferred.iter().cloned());
            }
            Change::Resize(plan) => {
                let findings = plan.findings(&planned.branches[0].found).into_iter();
                of_branches.push(changed(&planned, findings, |at, e| plan.after(at, e)));
                all.extend(plan.inferred.iter().cloned());
            }
            Change::Open(plan) => {
                let findings = 0..planned.branches[0].found.findings.len();
                of_branches.push(changed(&planned, findings, |_, e| e.clone()));
                all.extend(plan.inferred.iter().cloned());
            }
            Change::Swap(plans) => {
                for (branch, plan) in planned.branches.iter().zip(plans) {
                    if let Some(plan) = plan {
                        of_branches.push(swapped(&planned, &branch.found, plan));
                        all.extend(plan.inferred.iter().cloned());
                    }
                }
            }
        }
        // As in the report of the result, branches that do the same count once.
        let mut changed = of_branches.into_iter().filter(|edits| !edits.is_empty());
        let edits = changed.next().unwrap_or_default();
        let mut inferred = vec![];
        for value in all {
            inferred::add(&mut inferred, value);
        }
        Self {
            planned,
            edits,
            inferred,
        }
    }

    /// What changes at each site, in order of computation. Branches of a model that was merged of
    /// one with and one without a cache all change, and count once, as in the report of the result:
    /// the sites are those of the first branch that changes.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let plan = model.plan(Rescale::linear(2.0))?;
    /// let sites: Vec<&str> = plan.edits().iter().map(|edit| edit.site.as_str()).collect();
    /// assert_eq!(sites, ["node_softmax", "node_softmax_1"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn edits(&self) -> &[PlannedEdit] {
        &self.edits
    }

    /// The values that the request does not give, each with its source.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let plan = model.plan(Rescale::linear(2.0))?;
    /// assert_eq!(plan.inferred()[0].name, "theta");
    /// assert_eq!(plan.inferred()[0].source, "the graph's frequencies");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inferred(&self) -> &[Inferred] {
        &self.inferred
    }

    /// The length that tables, caches and buffers are to hold, where it is known.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Rescale};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// assert_eq!(model.plan(Rescale::linear(2.0))?.max_length(), None);
    /// let plan = model.plan(Rescale::llama3(8.0).original_length(64))?;
    /// assert_eq!(plan.max_length(), Some(8 * 64));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_length(&self) -> Option<usize> {
        match &self.planned.change {
            Change::Sort | Change::Form | Change::Nothing { .. } | Change::Open(_) => None,
            Change::Resize(plan) => plan.length(),
            Change::Stretch(plans) => plans.iter().find_map(|plan| plan.max_length),
            Change::Rescale(plans) => plans.iter().flatten().find_map(|plan| plan.max_length),
            Change::Swap(plans) => plans.iter().flatten().find_map(|plan| plan.max_length),
        }
    }

    /// Whether no encoding changes: the model has the requested encoding already, or only its nodes
    /// are sorted.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Swap};
    /// let model = Model::open("../../fixtures/mini/none/model.onnx")?;
    /// assert!(model.plan(Swap::remove())?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// This plan without a borrow of the model, for programs that keep the two apart. The graph
    /// is copied, and no tensor.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Swap};
    /// let plan = {
    ///     let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    ///     model.plan(Swap::remove())?.into_owned()
    /// };
    /// assert_eq!(plan.apply()?.report().edits.len(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_owned(self) -> Plan<'static> {
        Plan {
            planned: self.planned.into_owned(),
            edits: self.edits,
            inferred: self.inferred,
        }
    }

    /// Makes the changes in a copy of the model, reads the result again, and compares it with the
    /// plan.
    ///
    /// # Errors
    /// When a form of the model is not supported, or the result does not match the plan.
    ///
    /// ```
    /// # use posenc_onnx::{Model, Swap};
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let done = model.plan(Swap::remove())?.apply()?;
    /// let again = Model::from_bytes(done.to_bytes()?)?;
    /// assert!(again.plan(Swap::remove())?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn apply(self) -> Result<Rewritten, RewriteError> {
        let done = self.planned.apply()?;
        done.model.check().map_err(RewriteError::Result)?;
        Ok(Rewritten(done))
    }
}

impl fmt::Display for Plan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.planned.change {
            Change::Sort => return f.write_str("sort the nodes"),
            _ if self.edits.is_empty() => return f.write_str("nothing to change"),
            Change::Swap(_) => write!(f, "replace the encoding of ")?,
            Change::Stretch(_) => write!(f, "stretch the encoding of ")?,
            Change::Open(_) => write!(f, "take images of any size at ")?,
            Change::Resize(plan) => match plan.wanted {
                Wanted::Image { size, .. } => write!(f, "take images of {size} at ")?,
                Wanted::Length { .. } | Wanted::OpenLength { .. } => {
                    write!(f, "stretch the encoding of ")?;
                }
            },
            Change::Form => write!(f, "write encodings in another form or layout at ")?,
            Change::Rescale(_) if self.planned.keeps_frequencies() => {
                write!(f, "keep the frequencies of ")?;
            }
            Change::Rescale(_) => write!(f, "rescale the rotations of ")?,
            // It has no edits.
            Change::Nothing { .. } => {}
        }
        let sites = self.edits.len();
        write!(f, "{sites} {}", if sites == 1 { "site" } else { "sites" })?;
        for edit in &self.edits {
            let with_form = matches!(self.planned.change, Change::Form);
            let [from, to] = [&edit.from, &edit.to].map(|encoding| match with_form {
                true => words(encoding) + &form_words(encoding),
                false => words(encoding),
            });
            write!(f, "\n  {}: {from} → {to}", edit.site)?;
        }
        if let Some(length) = self.max_length() {
            write!(
                f,
                "\nextend tables, caches and buffers to {length} positions"
            )?;
        }
        if !self.inferred.is_empty() {
            f.write_str("\ninferred")?;
        }
        for Inferred {
            name,
            value,
            source,
        } in &self.inferred
        {
            write!(f, "\n  {name} = {value}, from {source}")?;
        }
        Ok(())
    }
}

/// An encoding of a report in one line: its kind, its base and its scaling.
fn words(encoding: &Value) -> String {
    if let Some(list) = encoding.as_array() {
        return list.iter().map(words).collect::<Vec<_>>().join(" and ");
    }
    let Some(kind) = encoding["kind"].as_str() else {
        return "none".to_owned();
    };
    let mut words = kind.to_owned();
    let params = &encoding["params"];
    if let Some(theta) = params["theta"].as_f64() {
        words += &format!(" θ={theta}");
    }
    let scaling = &params["scaling"];
    if let Some(law) = scaling["type"].as_str() {
        words += &format!(" {law}");
    }
    for name in ["factor", "original_length"] {
        if let Some(number) = scaling[name].as_f64() {
            words += &format!(" {name}={number}");
        }
    }
    words
}

/// The form and the layout of a rotation, as more words behind [`words`].
fn form_words(encoding: &Value) -> String {
    let all = [&encoding["form"], &encoding["params"]["layout"]];
    let all = all.into_iter().filter_map(Value::as_str);
    all.map(|word| format!(" {word}")).collect()
}

#[cfg(test)]
mod tests {
    use crate::detect::branches::branches;
    use crate::facade::{Model, Rescale, Swap};
    use crate::prove::testing::fixture;
    use crate::request::{Parameters, Request};
    use crate::rewrite::tests::branches::twin;
    use posenc_encodings::kind::Kind;

    #[test]
    fn other_threads_may_have_models_plans_and_results() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Model>();
        is_shared::<crate::Plan<'static>>();
        is_shared::<crate::Rewritten>();
    }

    #[test]
    fn a_plan_says_what_it_changes() {
        let model = Model::checked(fixture("mini/rope")).unwrap();
        let said = |request: &str| {
            let request: Request = serde_json::from_str(request).unwrap();
            model.plan(request).unwrap().to_string()
        };
        for (request, want) in [
            (
                r#"{"scale": "linear", "parameters": {"factor": 2.0}}"#,
                "rescale the rotations of 2 sites\n  node_softmax: rope θ=10000 → rope θ=10000 linear",
            ),
            (
                r#"{"form": "onnx"}"#,
                "write encodings in another form or layout at 2 sites\n  \
                 node_softmax: rope θ=10000 ops half → rope θ=10000 onnx half",
            ),
            (
                r#"{"parameters": {"layout": "interleaved"}}"#,
                "write encodings in another form or layout at 2 sites\n  \
                 node_softmax: rope θ=10000 half → rope θ=10000 interleaved",
            ),
            (
                r#"{"parameters": {"max_length": 128}}"#,
                "keep the frequencies of 2 sites\n",
            ),
        ] {
            let said = said(request);
            assert!(said.starts_with(want), "{said}");
        }
    }

    #[test]
    fn branches_of_one_decoder_count_once_as_in_the_report() {
        let twin = twin();
        assert_eq!(branches(&twin, &crate::detect::Options::default()).len(), 2);
        let mut model = Model::checked(twin).unwrap();
        for request in [Swap::to(Kind::Rope).into(), Rescale::linear(2.0).into()] {
            let request: Request = request;
            let plan = model.plan(request).unwrap();
            let sites = |edits: &mut dyn Iterator<Item = String>| edits.collect::<Vec<_>>();
            let planned = sites(&mut plan.edits().iter().map(|e| e.site.clone()));
            let done = plan.apply().unwrap();
            let edits = &done.report().edits;
            assert_eq!(planned, sites(&mut edits.iter().map(|e| e.site.clone())));
            assert_eq!(planned.len(), 1);
            model = Model::checked(done.as_ir().clone()).unwrap();
        }
    }

    #[test]
    fn a_plan_has_the_parameters_that_are_known_of_every_encoding() {
        let model = Model::checked(fixture("mini/none")).unwrap();
        for kind in Kind::targets().filter(|kind| *kind != Kind::None) {
            let request = Request {
                to: Some(kind),
                parameters: Parameters {
                    max_length: Some(64),
                    ..Parameters::default()
                },
                ..Request::default()
            };
            let plan = model.plan(request).unwrap();
            let planned = plan.edits()[0].to.clone();
            assert_eq!(planned["kind"], kind.to_string());
            let params = planned["params"].as_object().unwrap();
            assert!(!params.is_empty(), "{kind}");
        }
    }
}
