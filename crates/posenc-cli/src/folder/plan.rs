//! What a request changes in the models of a folder, which have to agree.

use std::path::{Path, PathBuf};

use glob::Pattern;
use posenc_encodings::inferred::Inferred;
use posenc_onnx::report::Inspect;
use posenc_onnx::request::Request;
use posenc_onnx::{Model, Plan, RewriteError};

use super::Folder;
use super::configs;
use super::counterparts::Counterparts;
use crate::exit::{Exit, Failure};
use crate::model::named;
use crate::progress::Progress;

/// Models with their plans, and models in which nothing encodes positions.
pub(super) type Planned<'a> = (Vec<(&'a PathBuf, &'a Model, Plan<'a>)>, Vec<PathBuf>);

/// What the request changes in each model.
///
/// # Errors
/// When one refuses it, unless nothing there can encode a position; when all are so.
pub(super) fn plans<'a>(
    folder: &Folder,
    models: &'a [(PathBuf, Model)],
    request: &Request,
    progress: &Progress,
) -> anyhow::Result<Planned<'a>> {
    let (mut plans, mut without) = (vec![], vec![]);
    for (path, model) in models {
        let file = folder.file(path);
        progress.now(format!("planning {}", file.display()));
        let request = Request {
            model_config: configs::of_model(folder, path)?,
            ..request.clone()
        };
        match model.plan(request) {
            Ok(plan) => plans.push((path, model, plan)),
            Err(RewriteError::Refused(_)) if model.encodes_no_position() => {
                without.push(path.clone());
            }
            Err(error) => {
                let error = named::<(), _>(&file, Err(error)).expect_err("it is an error");
                return Err(hinted(&error, path));
            }
        }
    }
    if plans.is_empty() {
        let why = "no model in this folder encodes positions";
        return named(&folder.path, Err(Failure::nothing(why)));
    }
    Ok((plans, without))
}

/// The error of one model, with a way to rewrite the others.
pub(super) fn hinted(error: &anyhow::Error, path: &Path) -> anyhow::Error {
    let note = format!(
        "nothing was written; --except '{path}' would leave this model as it is, and --drop '{path}' would \
         leave it out",
        path = Pattern::escape(&path.display().to_string())
    );
    match Exit::of(error) {
        Exit::Difference | Exit::Unsupported => Failure::with_note(error, &note).into(),
        _ => Failure::reworded(error, |why| why).into(),
    }
}

/// Refuses models that should encode positions alike and do not, or of which different values were
/// inferred.
///
/// # Errors
/// With the first two.
pub(super) fn check_counterparts(
    folder: &Folder,
    plans: &[(&PathBuf, &Model, Plan<'_>)],
) -> anyhow::Result<()> {
    if plans.len() < 2 {
        return Ok(());
    }
    let found: Vec<(PathBuf, Inspect)> = plans
        .iter()
        .map(|(path, model, _)| ((*path).clone(), model.inspect()))
        .collect();
    let counterparts = Counterparts::of(folder, &found);
    let advice = "give --only or --except to rewrite some of the models";
    if let Some(first) = counterparts.disagreements.first() {
        let why = format!("{}; {advice}", first.sentence());
        return Err(Failure::unsupported(why).into());
    }
    for group in &counterparts.groups {
        let (first, _, plan) = &plans[group[0]];
        for at in &group[1..] {
            let (path, _, other) = &plans[*at];
            if let Some([a, b]) = differing(plan.inferred(), other.inferred()) {
                let [first, path] = [first, path].map(|path| folder.file(path));
                let why = format!(
                    "{} and {} belong together, and of them different values of {} were inferred: {} ({}), \
                     and {} ({}); give the value by its flag",
                    first.display(),
                    path.display(),
                    a.name,
                    a.value,
                    a.source,
                    b.value,
                    b.source
                );
                return Err(Failure::unsupported(why).into());
            }
        }
    }
    Ok(())
}

/// The first value that was inferred differently.
fn differing<'a>(a: &'a [Inferred], b: &'a [Inferred]) -> Option<[&'a Inferred; 2]> {
    let pair = |a: &'a Inferred| Some([a, b.iter().find(|b| b.name == a.name)?]);
    let mut pairs = a.iter().filter_map(pair);
    pairs.find(|[a, b]| match (a.value.as_f64(), b.value.as_f64()) {
        // A theta that was read from frequencies of another precision.
        (Some(a), Some(b)) => (a - b).abs() > 1e-3 * a.abs().max(b.abs()),
        _ => a.value != b.value,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn inferred(values: &[(&'static str, Value)]) -> Vec<Inferred> {
        let of = |(name, value): &(&'static str, Value)| Inferred {
            name: (*name).into(),
            value: value.clone(),
            source: "somewhere".into(),
        };
        values.iter().map(of).collect()
    }

    #[test]
    fn values_of_one_name_have_to_be_close() {
        let first = inferred(&[("theta", json!(1e4)), ("original-length", json!(64))]);
        let cases = [
            (
                "itself",
                vec![("theta", json!(1e4)), ("original-length", json!(64))],
                None,
            ),
            ("rounded", vec![("theta", json!(10_001.0))], None),
            ("another theta", vec![("theta", json!(5e5))], Some("theta")),
            (
                "another length",
                vec![("original-length", json!(128))],
                Some("original-length"),
            ),
            ("a word", vec![("theta", json!("open"))], Some("theta")),
            ("another name", vec![("factor", json!(2))], None),
            ("nothing", vec![], None),
        ];
        for (name, values, want) in cases {
            let other = inferred(&values);
            let got = differing(&first, &other).map(|[a, _]| a.name.clone());
            assert_eq!(got.as_deref(), want, "{name}");
        }
    }

    #[test]
    fn only_what_can_be_left_out_is_advised() {
        let path = Path::new("a[1].onnx");
        let refused = Failure::unsupported("no").into();
        let why = hinted(&refused, path);
        assert_eq!(Exit::of(&why), Exit::Unsupported);
        assert!(
            why.to_string().contains("--except 'a[[]1[]].onnx'"),
            "{why}"
        );
        let usage = Failure::usage("no").into();
        assert_eq!(hinted(&usage, path).to_string(), "no");
    }
}
