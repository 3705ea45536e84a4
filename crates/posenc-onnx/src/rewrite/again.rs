//! A rewrite done again, to show that nothing outside of its edits has changed since.

use std::collections::BTreeSet;

use posenc_ir::Model;
use posenc_ir::diff::{Change, Delta, Diff, Entry, Part};

use crate::detect::Options;
use crate::detect::branches::branches;
use crate::prove::Rest;
use crate::prove::recorded::{self, Held};
use crate::record::asked::Asked;
use crate::record::swap::SwapRecord;
use crate::record::{asked, swap, written};
use crate::rewrite::plan;

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

/// Rewrites the original once more, as the record of the result says, and compares every node,
/// weight, input and output with those of the result.
pub(crate) fn compare([out, original]: [&Model; 2]) -> Rest {
    let mut rest = Rest {
        held: Held::default(),
        unchecked: vec![],
    };
    match again(out, original) {
        Ok((asked, again)) => differences(&mut rest, &asked, [&again, out]),
        Err(why) => {
            rest.held = weights(out, original);
            let why = format!("nodes and small weights against the original, because {why}");
            rest.unchecked.push(why);
        }
    }
    rest
}

/// Holds large weights to those of the original, whatever else has changed.
fn weights(out: &Model, original: &Model) -> Held {
    let branches = branches(out, &Options::default());
    let written = written::read(out).and_then(Result::ok);
    let written = written.map(|w| recorded::hold_weights(out, original, &w, &branches));
    written.unwrap_or_default()
}

/// What was asked, and the model that it makes of the original.
fn again(out: &Model, original: &Model) -> Result<(Asked, Model), String> {
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
    let done = done.map_err(|why| format!("it cannot be rewritten again: {why}"))?;
    Ok((asked, done.model))
}

/// Holds a model to the same rewrite done again.
fn differences(rest: &mut Rest, asked: &Asked, [again, out]: [&Model; 2]) {
    let found = match Diff::between(again, out) {
        Ok(found) => found,
        Err(why) => {
            let why = format!("nodes and weights against the original, because {why}");
            return rest.unchecked.push(why);
        }
    };
    if !asked.is_of_this_version() && !found.is_empty() {
        let why = "nodes and weights against the original, because another version of the tool \
                   made the model";
        return rest.unchecked.push(why.to_owned());
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
    for entry in entries.chain(found.metadata.iter().filter(is_own)) {
        let side = |text: &Option<String>| match text {
            Some(text) if text.len() < 80 => text.clone(),
            Some(_) => "another".to_owned(),
            None => "none".to_owned(),
        };
        let why = format!(
            "{} is {}, not {}",
            entry.key,
            side(&entry.b),
            side(&entry.a)
        );
        held.failure(&entry.key, "original", why);
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
