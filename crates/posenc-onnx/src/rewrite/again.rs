//! A rewrite done again, to show that nothing outside of its edits has changed since.

use std::collections::BTreeSet;

use posenc_ir::Model;
use posenc_ir::diff::{Change, Delta, Diff, Entry, Part};
use serde_json::Value;

use crate::detect::Options;
use crate::detect::branches::branches;
use crate::prove::Rest;
use crate::prove::recorded::{self, Held};
use crate::record::asked::Asked;
use crate::record::swap::SwapRecord;
use crate::record::{self, asked, swap, written};
use crate::rewrite::{Rewritten, plan};

/// The share by which numbers differ that are computed twice in single precision.
const ROUNDED: f64 = 1e-6;

/// Which of two models was rewritten from the other, by the record: the result, and the original.
pub(crate) fn pair<'a>(a: &'a Model, b: &'a Model) -> Option<[&'a Model; 2]> {
    let is_of = |out: &Model, original: &Model| {
        let written = written::read(out).and_then(Result::ok);
        written.is_some_and(|w| w.source == original.fingerprint())
    };
    if is_of(a, b) {
        return Some([a, b]);
    }
    is_of(b, a).then_some([b, a])
}

/// Why two models that are no pair differ, where the record of one says what else it was rewritten from.
pub(crate) fn of_another(first: &Model, second: &Model) -> Option<String> {
    let named = [(second, "second", "first"), (first, "first", "second")];
    let mut named = named.into_iter().filter_map(|(out, own, other)| {
        let source = written::read(out)?.ok()?.source;
        Some(format!(
            "the {own} model was rewritten from another model than the {other} one, that of fingerprint {source}, so \
             that they were compared as if both had to compute the same; compare it with the model that its last \
             rewrite read, and that model with what it was rewritten from"
        ))
    });
    named.next().filter(|_| pair(first, second).is_none())
}

/// Rewrites the original once more, as the record of the result says, and compares every node,
/// weight, input and output with those of the result. Also returns the model that this makes, if any.
pub(crate) fn compare([out, original]: [&Model; 2]) -> (Rest, Option<Model>) {
    let mut rest = Rest {
        held: Held::default(),
        unchecked: vec![],
        moved: vec![],
    };
    match again(out, original) {
        Ok((asked, mut again)) => {
            let moved = again
                .respelled
                .iter_mut()
                .map(|own| std::mem::take(&mut own.moved));
            rest.moved = moved.flatten().collect();
            differences(&mut rest, &asked, [&again.model, out, original]);
            (rest, Some(again.model))
        }
        Err(why) => {
            weights_alone(&mut rest, [out, original], &why);
            (rest, None)
        }
    }
}

/// Holds large weights alone, and says why it holds nothing else.
fn weights_alone(rest: &mut Rest, [out, original]: [&Model; 2], why: &str) {
    rest.held = weights(out, original);
    let why = format!("nodes and small weights against the original, because {why}");
    rest.unchecked.push(why);
}

/// Holds large weights to those of the original, whatever else has changed.
fn weights(out: &Model, original: &Model) -> Held {
    let branches = branches(out, &Options::default());
    let written = written::read(out).and_then(Result::ok);
    let written = written.map(|w| recorded::hold_weights(out, original, &w, &branches));
    written.unwrap_or_default()
}

/// What was asked, and what it makes of the original.
fn again(out: &Model, original: &Model) -> Result<(Asked, Rewritten), String> {
    let none = || "the record does not say what was asked for".to_owned();
    let asked = asked::read(out).ok_or_else(none)?;
    let asked = asked.map_err(|why| format!("what was asked for cannot be read: {why}"))?;
    let mut request = asked.request.clone();
    if asked.has_tensors {
        let why = "the numbers of the file that was given are not in the model";
        let swapped = swap::read(out).and_then(Result::ok);
        let tensors = swapped.and_then(|swapped| super::tensors::of(out, &swapped));
        request.params = Some(tensors.ok_or_else(|| why.to_owned())?);
    }
    let planned = plan(original, request, &[]).map_err(|why| why.to_string());
    let done = planned.and_then(|planned| planned.apply().map_err(|why| why.to_string()));
    let mut done = done.map_err(|why| format!("it cannot be rewritten again: {why}"))?;
    // What a run of the result left unread was added to the record after the rewrite.
    let [own, first] = [out, &done.model].map(record::read_unread);
    if asked.request.allowances.allow_unread && own.len() > first.len() && own.starts_with(&first) {
        record::write_unread(&mut done.model, &own);
        written::renew(&mut done.model);
    }
    Ok((asked, done))
}

/// Holds a model to the same rewrite done again.
fn differences(rest: &mut Rest, asked: &Asked, [again, out, original]: [&Model; 3]) {
    let found = match Diff::between(again, out) {
        Ok(found) => found,
        Err(why) => return weights_alone(rest, [out, original], &why.to_string()),
    };
    if !asked.is_of_this_version() && !found.is_empty() {
        let why = "another version of the tool made the model";
        return weights_alone(rest, [out, original], why);
    }
    let learned = learned(asked, out);
    let held = &mut rest.held;
    parts(held, "nodes", &found.nodes);
    let mut weights = found.initializers.clone();
    // Numbers of a file are rounded once more on their way.
    weights
        .changed
        .retain(|change| !learned.contains(&change.b.place));
    parts(held, "weights", &weights);
    parts(held, "inputs", &found.inputs);
    parts(held, "outputs", &found.outputs);
    if !found.functions.is_empty() {
        parts(held, "functions", &found.functions);
    }
    let is_own = |e: &&Entry| e.key.starts_with("posenc.");
    let entries = found.order.iter().chain(&found.opsets).chain(&found.model);
    // So are those that are estimated from them, in the record.
    let is_rounded = |e: &&Entry| asked.has_tensors && is_near(e);
    let own = found.metadata.iter().filter(is_own);
    for entry in entries.chain(own.filter(|e| !is_rounded(e))) {
        let short = |text: &Option<String>| match text {
            Some(text) if text.len() < 80 => Some(text.clone()),
            Some(_) => None,
            None => Some("none".to_owned()),
        };
        let why = match (short(&entry.a), short(&entry.b)) {
            (Some(again), Some(own)) => format!("{} is {own}, not {again}", entry.key),
            _ => format!("{} is not what the same rewrite writes", entry.key),
        };
        held.failure(&entry.key, "original", why);
    }
}

/// Whether an entry of the record says the same but for roundings. The digests of `posenc.written` are held to the
/// graph itself.
fn is_near(entry: &Entry) -> bool {
    let read = |text: &Option<String>| serde_json::from_str::<Value>(text.as_deref()?).ok();
    match (&*entry.key, read(&entry.a), read(&entry.b)) {
        (written::KEY, Some(_), Some(_)) => true,
        (swap::KEY, Some(a), Some(b)) => same(&a, &b),
        _ => false,
    }
}

/// Whether two values are the same, but for roundings of fractions to single precision.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        (Value::Number(x), Value::Number(y)) if x.is_f64() && y.is_f64() => {
            let [x, y] = [x, y].map(|n| n.as_f64().unwrap_or(f64::NAN));
            (x - y).abs() <= ROUNDED * x.abs().max(y.abs())
        }
        _ => a == b,
    }
}

/// The constants whose numbers came from a file.
fn learned(asked: &Asked, out: &Model) -> BTreeSet<String> {
    let swapped: Option<SwapRecord> = swap::read(out).and_then(Result::ok);
    let swapped = swapped.filter(|_| asked.has_tensors);
    let branches = swapped.into_iter().flat_map(|s| s.branches);
    let groups = branches.flat_map(|b| b.groups);
    groups.flat_map(|g| g.tensors).map(|t| t.constant).collect()
}

/// A line for the parts of one kind, and one for each that differs.
fn parts(held: &mut Held, kind: &str, delta: &Delta<Part>) {
    if delta.is_empty() {
        return held.line(kind, "original", String::new());
    }
    let each = [(&delta.removed, "is missing"), (&delta.added, "was added")];
    for (parts, what) in each {
        for part in parts {
            let why = format!("{} of the original: {what}: {}", kind, part.text);
            held.failure(&part.place, "original", why);
        }
    }
    for Change { a, b, what } in &delta.changed {
        let words: Vec<&str> = what.iter().map(|w| w.word()).collect();
        let why = format!(
            "{kind} of the original: its {} changed from {} to {}",
            words.join(" and "),
            a.text,
            b.text
        );
        held.failure(&a.place, "original", why);
    }
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Kind;
    use posenc_ir::Tensor;

    use super::*;
    use crate::graph::sketch::{HIDDEN, Sketch};
    use crate::request::Request;
    use crate::rewrite::rewrite;

    /// A layer after embeddings of this many words, and the names of two weights: the table of the
    /// embeddings, and a matrix.
    fn model(words: usize) -> (Model, [String; 2]) {
        let mut s = Sketch::default();
        let ids = s.input("input_ids", posenc_ir::DType::I64, &["batch", "sequence"]);
        let table = s.weights(&[words, HIDDEN]);
        let x = s.gather(&table, &ids, 0);
        let y = s.attends(&x, &x);
        let matrix = s.weights(&[HIDDEN, HIDDEN]);
        let y = s.op("MatMul", &[&y, &matrix]);
        (s.model(17, &[&y]), [table, matrix])
    }

    /// The model with another number in a weight.
    fn changed(model: &Model, name: &str) -> Model {
        let graph = model.graph();
        let value = graph.find(graph.main(), name).unwrap();
        let old = graph.constant(value).unwrap();
        let mut numbers = old.to_f64s().unwrap();
        numbers[5] += 1.0;
        let tensor = Tensor::from_f64(old.dtype(), old.dims(), &numbers);
        let mut out = graph.emitter(graph.main(), "test");
        out.replace_constant(value, graph.uses(value), tensor)
            .unwrap();
        model.clone().with_patch(out.finish()).unwrap().0
    }

    #[test]
    fn entries_of_numbers_from_a_file_may_differ_by_roundings_alone() {
        let near = |a: &str, b: &str| {
            is_near(&Entry {
                key: swap::KEY.to_owned(),
                a: Some(a.to_owned()),
                b: Some(b.to_owned()),
            })
        };
        let entry = r#"{"to": "shaw", "factor": [0.59460353782, 2]}"#;
        assert!(near(entry, &entry.replace("3782", "4081")));
        for other in [
            entry.replace("0.594", "0.595"),
            entry.replace("shaw", "rope"),
            entry.replace(", 2]", "]"),
            entry.replace("factor", "factors"),
            entry.replace("2]", "3]"),
            String::new(),
        ] {
            assert!(!near(entry, &other), "{other}");
        }
    }

    #[test]
    fn a_result_beside_another_model_than_its_original_is_said_to_be_that() {
        let (original, _) = model(30);
        let (other, _) = model(31);
        let mut out = original.clone();
        let request = Request {
            to: Some(Kind::Alibi),
            ..Request::default()
        };
        rewrite(&mut out, &request).unwrap();
        let why = of_another(&other, &out).unwrap();
        assert!(
            why.starts_with("the second model was rewritten from another"),
            "{why}"
        );
        assert!(why.contains(&original.fingerprint()), "{why}");
        let turned = of_another(&out, &other).unwrap();
        assert!(turned.starts_with("the first model"), "{turned}");
        assert_eq!(of_another(&original, &out), None);
        assert_eq!(of_another(&original, &other), None, "without a record");
    }

    #[test]
    fn large_weights_are_held_where_another_version_made_the_model() {
        let (original, [table, matrix]) = model(12_000);
        let mut out = original.clone();
        let request = Request {
            to: Some(Kind::Alibi),
            ..Request::default()
        };
        rewrite(&mut out, &request).unwrap();
        let key = "posenc.request";
        let entry = out.metadata(key).unwrap();
        let other = entry.replace(env!("CARGO_PKG_VERSION"), "0.0.0-other");
        assert_ne!(entry, other);
        let own = out.clone();
        out.set_metadata(key, other);
        for (weight, fails) in [(&matrix, false), (&table, true)] {
            let (rest, _) = compare([&changed(&out, weight), &original]);
            let large = rest.held.checks.iter().filter(|c| c.quantity == "weights");
            assert_eq!(large.clone().count(), 1, "{rest:?}");
            assert_eq!(large.clone().any(|c| !c.ok), fails, "{rest:?}");
            let why = "nodes and small weights against the original, because another version";
            assert!(rest.unchecked[0].starts_with(why), "{rest:?}");
        }
        let (rest, _) = compare([&own, &original]);
        assert!(rest.unchecked.is_empty(), "{rest:?}");
        assert!(rest.held.checks.iter().all(|c| c.ok), "{rest:?}");
    }

    #[test]
    fn what_a_run_left_unread_is_part_of_the_record_where_that_was_allowed() {
        let (original, _) = model(30);
        let held = |allow_unread: bool| {
            let mut request = Request {
                to: Some(Kind::Rope),
                ..Request::default()
            };
            request.allowances.allow_unread = allow_unread;
            let mut out = original.clone();
            rewrite(&mut out, &request).unwrap();
            record::write_unread(&mut out, &["a position is left".to_owned()]);
            written::renew(&mut out);
            let held = compare([&out, &original]).0.held;
            held.checks.iter().all(|check| check.ok)
        };
        assert!(held(true));
        assert!(!held(false), "control");
    }
}
