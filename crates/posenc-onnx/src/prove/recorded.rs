//! A model against the record of its rewrite: every recorded site, encoding, mask and output is
//! expected, and what they are computed from.

use std::collections::BTreeSet;

use posenc_ir::{Model, NodeId, ValueId};
use serde_json::{Value, json};

use crate::detect::branches::Branch;
use crate::record::asked;
use crate::record::written::current::{Current, anchored, anchors, constants, large};
use crate::record::written::{Reading, Written, WrittenConstant, WrittenOutput, entries, short};
use crate::report::SiteCheck;

/// What holding a model to its record found.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// A line for the digest of every site and output, and one for everything else that differs.
    pub(crate) checks: Vec<SiteCheck>,
    /// What differs, one sentence each.
    pub(crate) differences: Vec<String>,
}

impl Held {
    /// A line; `why` is empty where nothing differs.
    pub(crate) fn line(&mut self, name: &str, quantity: &str, why: String) {
        let ok = why.is_empty();
        if !ok {
            self.differences.push(format!("{name}: {why}"));
        }
        self.checks.push(SiteCheck {
            site: name.to_owned(),
            quantity: quantity.to_owned(),
            max_error: ok.then_some(0.0),
            bound: 0.0,
            ok,
        });
    }

    /// A line where something differs; none where `why` is empty.
    pub(crate) fn failure(&mut self, name: &str, quantity: &str, why: String) {
        if !why.is_empty() {
            self.line(name, quantity, why);
        }
    }
}

/// Holds a model without `posenc.written` to the rest of its record: every rewrite makes that entry,
/// so one that has another of them lost it.
pub(crate) fn hold_lost(model: &Model) -> Held {
    let entries = model.metadata_entries();
    let others: Vec<&str> = entries
        .keys()
        .copied()
        .filter(|key| key.starts_with("posenc."))
        .collect();
    let mut held = Held::default();
    if !others.is_empty() {
        let why = format!(
            "this entry of the record is missing, though the model has {}, so that sites and \
             outputs cannot be held to it",
            others.join(", ")
        );
        held.failure("posenc.written", "record", why);
    }
    held
}

/// Holds a model to its record.
pub(crate) fn hold(model: &Model, written: &Written, branches: &[Branch]) -> Held {
    let mut held = Held::default();
    of_request(&mut held, model);
    of_entries(&mut held, model, written);
    let now = anchors(branches.iter().map(|branch| &branch.found));
    let anchored = anchored(model.graph(), written, &now);
    let nodes: Vec<Option<NodeId>> = anchored
        .iter()
        .map(|a| a.as_ref().map(|a| a.node))
        .collect();
    let current = branches
        .first()
        .and_then(|first| Current::of(model, &first.found, &nodes));
    for (i, (site, anchor)) in written.sites.iter().zip(&anchored).enumerate() {
        match anchor.as_ref().and_then(|a| a.read.as_ref()) {
            Some((_, read)) => {
                held.failure(&site.name, "encoding", encodings(&site.read, read));
                held.failure(&site.name, "mask", masks(&site.read, read));
            }
            None => {
                let why = "no longer reads as attention".to_owned();
                held.failure(&site.name, "attention", why);
            }
        }
        let digest = current.as_ref().and_then(|c| c.sites[i].as_ref());
        let same = digest == Some(&site.digest);
        held.line(&site.name, "graph", changed(same, "what it computes"));
    }
    for anchor in now
        .iter()
        .filter(|a| nodes.iter().all(|n| *n != Some(a.node)))
    {
        let name = anchor
            .read
            .as_ref()
            .map_or("attention", |(site, _)| &site.name);
        let why = "was not there after the rewrite".to_owned();
        held.failure(name, "attention", why);
    }
    let outputs = current.map(|c| c.outputs).unwrap_or_default();
    of_outputs(&mut held, &written.outputs, &outputs);
    of_constants(&mut held, model, written);
    held
}

/// What was asked for.
fn of_request(held: &mut Held, model: &Model) {
    let why = match asked::read(model) {
        Some(Ok(_)) => String::new(),
        Some(Err(why)) => format!("this entry of the record cannot be read: {why}"),
        None => "this entry of the record is missing".to_owned(),
    };
    held.failure("posenc.request", "record", why);
}

/// The other entries of the record.
fn of_entries(held: &mut Held, model: &Model, written: &Written) {
    let now = entries(model);
    let was = &written.entries;
    let all: BTreeSet<&String> = now.keys().chain(was.keys()).collect();
    for key in all.into_iter().filter(|_| !was.is_empty()) {
        let why = match (was.get(key), now.get(key)) {
            (was, now) if was == now => continue,
            (Some(_), Some(_)) => "this entry of the record was changed after the rewrite",
            (Some(_), None) => "this entry of the record is missing",
            (None, _) => "this entry of the record was not there after the rewrite",
        };
        // One line for each.
        if !held.checks.iter().any(|check| check.site == *key) {
            held.failure(key, "record", why.to_owned());
        }
    }
}

/// The large constants of the rewrite.
fn of_constants(held: &mut Held, model: &Model, written: &Written) {
    let all = constants(model.graph());
    for constant in &written.constants {
        let value = all.get(&(&*constant.name, constant.before));
        let digest = value.and_then(|v| model.digest_of(*v));
        let same = digest.map(short).as_ref() == Some(&constant.digest);
        held.line(&constant.name, "values", changed(same, "its values"));
    }
}

/// Holds the large weights of a rewritten model to those of the model that was rewritten.
pub(crate) fn hold_weights(
    model: &Model,
    original: &Model,
    written: &Written,
    branches: &[Branch],
) -> Held {
    let mut held = Held::default();
    let Some(first) = branches.first() else {
        return held;
    };
    let before = constants(original.graph());
    for (name, value) in large(model.graph(), &first.found) {
        let own = |c: &WrittenConstant| (&*c.name, c.before) == name;
        if written.constants.iter().any(own) {
            continue;
        }
        let digest = model.digest_of(value);
        let same = |v: &ValueId| original.digest_of(*v) == digest;
        let same = match before.get(&name) {
            Some(was) => same(was),
            // The names of weights are no interface.
            None => before.values().any(same),
        };
        let why = if same {
            ""
        } else {
            "its values are not those of the original"
        };
        held.line(name.0, "weights", why.to_owned());
    }
    held
}

fn changed(same: bool, what: &str) -> String {
    if same {
        String::new()
    } else {
        format!("{what} was changed after the rewrite")
    }
}

/// How what is read differs from what was recorded, in words.
fn encodings(recorded: &Reading, read: &Reading) -> String {
    let same = |(a, b): (&Value, &Value)| alike(a, b);
    let (was, is) = (&recorded.encodings, &read.encodings);
    if was.len() == is.len() && was.iter().zip(is).all(same) {
        return String::new();
    }
    let words = |all: &[Value]| {
        let each = all.iter().map(|e| {
            let kind = e["kind"].as_str().unwrap_or("unknown");
            format!("{kind} {}", e["params"])
        });
        match each.collect::<Vec<_>>().join(", ") {
            all if all.is_empty() => "none".to_owned(),
            all => all,
        }
    };
    format!("{} was recorded, {} is read", words(was), words(is))
}

fn masks(recorded: &Reading, read: &Reading) -> String {
    let of = |r: &Reading| (r.causal, r.window, r.padding);
    if of(recorded) == of(read) {
        return String::new();
    }
    let words = |r: &Reading| {
        let (causal, window, padding) = (json!(r.causal), json!(r.window), r.padding);
        format!("causal {causal}, window {window}, padding {padding}")
    };
    format!("{} was recorded, {} is read", words(recorded), words(read))
}

/// Whether two parameters are equal but for roundings.
fn alike(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => {
            let [a, b] = [a, b].map(|n| n.as_f64().unwrap_or(f64::NAN));
            (a - b).abs() <= 1e-5 * a.abs().max(b.abs())
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| alike(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let same = |(key, a): (&String, &Value)| b.get(key).is_some_and(|b| alike(a, b));
            a.len() == b.len() && a.iter().all(same)
        }
        _ => a == b,
    }
}

fn of_outputs(held: &mut Held, was: &[WrittenOutput], is: &[WrittenOutput]) {
    let names = |all: &[WrittenOutput]| {
        let names = all.iter().map(|o| o.name.clone());
        names.collect::<Vec<_>>().join(", ")
    };
    let (before, after) = (names(was), names(is));
    if before != after {
        let why = format!("{before} were recorded, {after} are there");
        held.failure("outputs", "order", why);
    }
    for output in was {
        if let Some(now) = is.iter().find(|o| o.name == output.name) {
            let same = now.digest == output.digest;
            held.line(
                &output.name,
                "graph",
                changed(same, "what it is computed from"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Kind;
    use posenc_ir::Weights;

    use super::*;
    use crate::prove::testing::fixture;
    use crate::record::written;
    use crate::request::Request;
    use crate::rewrite::rewrite;

    #[test]
    fn what_was_asked_for_is_there_and_can_be_read() {
        let text = "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                    test (float[batch] x) => (float[batch] y) {\n    y = Identity(x)\n}\n";
        let bare = Model::parse(text).unwrap();
        let differences = |asked: Option<&str>| {
            let mut model = bare.clone();
            if let Some(asked) = asked {
                model.set_metadata("posenc.request", asked);
            }
            let mut held = Held::default();
            of_request(&mut held, &model);
            held.differences
        };
        let asked = r#"{"tool": "posenc-onnx", "request": {"to": "alibi"}}"#;
        assert_eq!(differences(Some(asked)), [""; 0]);
        let other = asked.replace("alibi", "alibu");
        for (asked, why) in [(None, "missing"), (Some(&*other), "cannot be read")] {
            let found = differences(asked);
            assert!(
                matches!(&found[..], [one] if one.contains(why)),
                "{found:?}"
            );
        }
    }

    #[test]
    fn every_entry_of_a_record_is_as_it_was_written() {
        let mut model = fixture("mini/rope");
        let request = Request {
            to: Some(Kind::Alibi),
            ..Request::default()
        };
        rewrite(&mut model, &request).unwrap();
        let differences = |model: &Model| {
            let written = written::read(model).unwrap().unwrap();
            let mut held = Held::default();
            of_entries(&mut held, model, &written);
            held.differences
        };
        assert_eq!(differences(&model), [""; 0]);
        assert!(model.metadata("posenc.rope").is_none());
        let swap = model.metadata("posenc.swap").unwrap().to_owned();
        for (key, entry, why) in [
            ("posenc.swap", swap.replace("alibi", "rope"), "was changed"),
            ("posenc.request", "{}".to_owned(), "was changed"),
            ("posenc.rope", "{}".to_owned(), "was not there"),
            ("another", "{}".to_owned(), ""),
            (
                "posenc.swap",
                swap.replace("\"tool\":\"", "\"tool\":\"other "),
                "",
            ),
        ] {
            let mut other = model.clone();
            other.set_metadata(key, entry);
            match &differences(&other)[..] {
                [] => assert_eq!(why, "", "{key}"),
                [one] => assert!(one.starts_with(key) && one.contains(why), "{one}"),
                more => panic!("{more:?}"),
            }
        }
        let text = model.text(Weights::Full).to_string();
        let without = Model::parse(&text.replace("\"posenc.swap\"", "\"swap\"")).unwrap();
        let found = differences(&without);
        assert!(
            matches!(&found[..], [one] if one == "posenc.swap: this entry of the record is missing"),
            "{found:?}"
        );
    }

    #[test]
    fn a_record_that_lost_its_digests_is_a_finding() {
        let text = "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                    test (float[batch] x) => (float[batch] y) {\n    y = Identity(x)\n}\n";
        let bare = Model::parse(text).unwrap();
        assert!(hold_lost(&bare).checks.is_empty());
        for key in [
            "posenc.rope",
            "posenc.swap",
            "posenc.request",
            "posenc.unread",
        ] {
            let mut model = bare.clone();
            model.set_metadata(key, "{}");
            let held = hold_lost(&model);
            assert!(matches!(&held.checks[..], [one] if !one.ok), "{held:?}");
            assert!(held.differences[0].contains(key), "{held:?}");
        }
    }
}
