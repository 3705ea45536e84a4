//! How the encodings of two models differ.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::report::{Encoding, Inspect};
use posenc_encodings::words::Word;

/// How two models encode positions differently, by what was read of them; `None` where they do not. How they are
/// written in the graph is no difference.
pub(crate) fn apart(first: &Inspect, second: &Inspect) -> Option<String> {
    let [kinds, others] = [first, second].map(kinds);
    if kinds != others {
        let [kinds, others] = [kinds, others].map(|kinds| named(&kinds));
        return Some(format!(
            "{kinds} in the first model, {others} in the second"
        ));
    }
    let pairs = (first.encodings.iter()).filter_map(|own| Some((own, same_place(own, second)?)));
    let mut differences = vec![];
    for (own, other) in pairs {
        let params = own.params.keys().chain(other.params.keys());
        let params: BTreeSet<&String> = params.collect();
        for param in params {
            let [value, changed] = [own, other].map(|e| e.params.get(param));
            if value != changed {
                let shown = |value: Option<&Value>| {
                    let value = value.filter(|value| !value.is_null());
                    value.map_or_else(|| "none".to_owned(), Value::to_string)
                };
                let (kind, value, changed) = (own.kind.name(), shown(value), shown(changed));
                differences.push(format!("{param} of {kind} is {value} and {changed}"));
            }
        }
    }
    (!differences.is_empty()).then(|| differences.join(", "))
}

/// Kinds with their stacks and layers.
fn kinds(report: &Inspect) -> BTreeSet<(&'static str, Option<&'static str>, Vec<usize>)> {
    let all = report.encodings.iter();
    let layers = |e: &Encoding| {
        let mut layers = e.layers.clone();
        layers.sort_unstable();
        layers
    };
    all.map(|e| (e.kind.name(), e.stack.map(Word::name), layers(e)))
        .collect()
}

fn named(kinds: &BTreeSet<(&'static str, Option<&'static str>, Vec<usize>)>) -> String {
    let all = kinds.iter().map(|(kind, stack, layers)| {
        let stack = stack.map_or_else(String::new, |stack| format!(" of the {stack}"));
        match layers.len() {
            0 => format!("{kind}{stack}"),
            1 => format!("{kind}{stack} in 1 layer"),
            count => format!("{kind}{stack} in {count} layers"),
        }
    });
    match all.collect::<Vec<String>>() {
        all if all.is_empty() => "no encoding".to_owned(),
        all => all.join(" and "),
    }
}

/// The encoding of the same kind in the same layers of another model.
fn same_place<'a>(own: &Encoding, other: &'a Inspect) -> Option<&'a Encoding> {
    let mut all = other.encodings.iter();
    all.find(|e| (e.kind, e.stack) == (own.kind, own.stack) && e.layers == own.layers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::Options;
    use crate::inspect::inspect;
    use crate::prove::testing::{fixture, rescaled_by};
    use crate::request::LawName;
    use crate::rewrite::rewrite;

    fn read(model: &posenc_ir::Model) -> Inspect {
        inspect(model, &Options::default())
    }

    #[test]
    fn other_kinds_and_other_parameters_are_named() {
        let rope = fixture("llama/dynamo");
        let mut longer = rope.clone();
        rewrite(&mut longer, &rescaled_by(LawName::Linear, 4.0)).unwrap();
        assert_eq!(
            apart(&read(&rope), &read(&longer)).unwrap(),
            "scaling of rope is none and {\"type\":\"linear\",\"factor\":4.0}"
        );
        let learned = fixture("bert/dynamo");
        assert_eq!(
            apart(&read(&rope), &read(&learned)).unwrap(),
            "rope in 2 layers in the first model, learned in 2 layers in the second"
        );
    }

    #[test]
    fn one_encoding_of_two_exporters_is_the_same() {
        let [a, b] = ["llama/torchscript", "llama/dynamo"].map(fixture);
        assert_eq!(apart(&read(&a), &read(&b)), None);
    }
}
