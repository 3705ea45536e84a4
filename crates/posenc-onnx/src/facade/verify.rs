//! Verifying files of models.

use posenc_ir::Model;
use posenc_runtime::Backend;

use crate::detect::Options;
use crate::inspect::{apart, inspect};
use crate::prove::{Beside, Bisect, VerifyError, VerifyOptions, verify_with};
use crate::report::Verify;
use crate::request::roles;
use crate::rewrite::again;

/// Proves a model: every rotation and what a rewrite inserted against the formula, the graph against
/// the record of its rewrite, and whole runs against `other` or, without it, against the first run.
///
/// The first run of all has nothing to be compared with; it only has to consist of numbers. Where
/// one of two models was rewritten from the other by its record, outputs may differ: what has to be
/// equal are the nodes, weights, inputs and outputs that the rewrite does not change. The first value that is out of
/// bounds is then searched beside the same rewrite of the original, made again.
///
/// # Errors
/// When a runtime is not available or does not support the model. A difference is no error: it is
/// in the report.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Tract, verify::{VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let options = VerifyOptions { lengths: vec![8], ..VerifyOptions::default() };
/// let same = model.as_ir();
/// let report = verify(same, Some(same), &options, &[Box::new(Tract::default())])?;
/// assert!(report.ok && report.runs.iter().all(|run| run.max_abs.is_some()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn verify(
    model: &Model,
    other: Option<&Model>,
    options: &VerifyOptions,
    backends: &[Box<dyn Backend>],
) -> Result<Verify, VerifyError> {
    match other.and_then(|other| again::pair(model, other)) {
        Some([out, original]) => {
            let (rest, again) = again::compare([out, original]);
            let again = again.filter(|_| options.bisect == Bisect::FirstFailure);
            let (beside, other) = match &again {
                Some(again) => (Beside::Again, again),
                None => (Beside::Original, original),
            };
            verify_with(out, Some(other), options, backends, Some((beside, rest)))
        }
        None => {
            let mut report = verify_with(model, other, options, backends, None)?;
            let why = other.filter(|_| !report.ok).and_then(|other| {
                again::of_another(model, other)
                    .or_else(|| of_other_encodings([model, other], options))
            });
            if let Some(why) = why {
                report.warnings.insert(0, why);
            }
            Ok(report)
        }
    }
}

/// Why two models differ that no record connects, where they encode positions differently.
fn of_other_encodings(models: [&Model; 2], options: &VerifyOptions) -> Option<String> {
    let read = Options {
        roles: roles(&options.roles),
        ..Options::default()
    };
    let [first, second] = models.map(|model| inspect(model, &read));
    let difference = apart(&first, &second)?;
    Some(format!(
        "the models encode positions differently: {difference}; no record of a rewrite says that they may, so that they \
         were compared as if both had to compute the same"
    ))
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::{Kind, Layout};
    use posenc_ir::Weights;

    use super::*;
    use crate::prove::testing::{Evaluator, fixture, rescaled_by};
    use crate::record::swap;
    use crate::request::{LawName, Request};
    use crate::rewrite::rewrite;

    #[test]
    fn errors_say_which_of_two_models_they_are_in() {
        let [a, b] = ["llama/torchscript", "llama/dynamo"].map(fixture);
        let mut longer = b.clone();
        rewrite(&mut longer, &rescaled_by(LawName::Yarn, 4.0)).unwrap();
        let error = |model: &Model, other: Option<&Model>, refused: &'static str| {
            let backends: [Box<dyn Backend>; 1] = [Box::new(Evaluator {
                refused: Some(refused),
                ..Evaluator::default()
            })];
            let options = VerifyOptions {
                lengths: vec![8],
                ..VerifyOptions::default()
            };
            let error = verify(model, other, &options, &backends).unwrap_err();
            error.to_string()
        };
        let (of_b, of_longer) = ("expand_2", "posenc_rope/attention_factor_0");
        for (model, other, refused, words) in [
            (&b, Some(&a), of_b, "the first model, "),
            (&a, Some(&b), of_b, "the second model, "),
            (&longer, Some(&b), of_longer, "the rewritten model, "),
            (&b, Some(&longer), of_longer, "the rewritten model, "),
            (&b, None, of_b, ""),
        ] {
            let why = error(model, other, refused);
            let rest = why.strip_prefix(words);
            assert!(rest.is_some_and(|rest| !rest.starts_with("the ")), "{why}");
        }
    }

    #[test]
    fn other_encodings_without_a_record_are_named_where_outputs_differ() {
        let [rope, alibi] = ["mini/rope", "mini/alibi"].map(fixture);
        let options = VerifyOptions {
            lengths: vec![8],
            ..VerifyOptions::default()
        };
        let verify = |first: &Model, second: &Model| {
            let backends: [Box<dyn Backend>; 1] = [Box::new(Evaluator::default())];
            verify(first, Some(second), &options, &backends).unwrap()
        };
        let report = verify(&rope, &alibi);
        assert!(!report.ok);
        let why = &report.warnings[0];
        assert!(
            why.contains("rope in 2 layers in the first model, alibi"),
            "{why}"
        );
        // Nothing is said of models that compute the same.
        let report = verify(&rope, &rope);
        assert!(report.ok && report.warnings.is_empty(), "{report:?}");
    }

    #[test]
    fn the_first_value_that_differs_is_searched_beside_the_rewrite_made_again() {
        let original = fixture("mini/rope");
        let mut out = original.clone();
        rewrite(&mut out, &rescaled_by(LawName::Linear, 2.0)).unwrap();
        let text = out.text(Weights::Full).to_string();
        let gelu = "[\"node_gelu_1\"] gelu_1 = Gelu <approximate = \"none\">";
        assert_eq!(text.matches(gelu).count(), 1);
        let changed = text.replace(gelu, &gelu.replace("none", "tanh"));
        let changed = Model::parse(&changed).unwrap();
        for (out, first) in [(&out, None), (&changed, Some("main_graph/node_gelu_1"))] {
            let options = VerifyOptions {
                lengths: vec![8],
                bisect: Bisect::FirstFailure,
                ..VerifyOptions::default()
            };
            let backends: [Box<dyn Backend>; 1] = [Box::new(Evaluator::default())];
            let report = verify(&original, Some(out), &options, &backends).unwrap();
            assert_eq!(report.ok, first.is_none(), "{report:?}");
            let mut found = report
                .runs
                .iter()
                .filter_map(|r| r.first_divergence.as_deref());
            assert_eq!(found.next(), first);
        }
    }

    #[test]
    fn inserted_encodings_that_a_later_rewrite_changed_are_right() {
        let inserted = |to| {
            let mut model = fixture("mini/none");
            let mut request = Request {
                to: Some(to),
                ..Request::default()
            };
            request.parameters.seed = (to == Kind::T5Bias).then_some(1);
            rewrite(&mut model, &request).unwrap();
            model
        };
        let mut relaid = Request::default();
        relaid.parameters.layout = Some(Layout::Interleaved);
        let mut scaled = rescaled_by(LawName::Linear, 2.0);
        scaled.parameters.original_length = None;
        let options = VerifyOptions {
            lengths: vec![8],
            ..VerifyOptions::default()
        };
        let verify = |model: &Model| {
            let backends: [Box<dyn Backend>; 1] = [Box::new(Evaluator::default())];
            verify(model, None, &options, &backends).unwrap()
        };
        for (kind, request, quantity) in [
            (Kind::Rope, relaid, "cos"),
            (Kind::Alibi, scaled.clone(), "scores"),
            (Kind::T5Bias, scaled, "scores"),
        ] {
            let mut model = inserted(kind);
            let record = model.metadata(swap::KEY).unwrap().to_owned();
            rewrite(&mut model, &request).unwrap();
            let report = verify(&model);
            assert!(report.ok, "{kind}: {report:?}");
            // By the record before the second rewrite, the numbers are others.
            model.set_metadata(swap::KEY, record);
            let sites = verify(&model).sites;
            let differs = sites.iter().any(|s| s.quantity == quantity && !s.ok);
            assert!(differs, "{kind}: {sites:?}");
        }
    }
}
