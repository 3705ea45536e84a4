//! Every model of `fixtures/`, and of the collections in `../shared` where they are present.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use posenc_ir::proto::{ModelProto, NodeProto};
use posenc_ir::{Diff, Model};
use prost::Message;

use super::rewrite::{Numbers, disguise};
use crate::shared::{collections, fixtures};

fn read(proto: &ModelProto, path: &Path) -> Model {
    Model::from_bytes_at(proto.encode_to_vec(), Some(path)).unwrap()
}

/// Added, removed and changed nodes, and all other differences together.
fn counts(diff: &Diff) -> [usize; 4] {
    let parts = [
        &diff.initializers,
        &diff.inputs,
        &diff.outputs,
        &diff.functions,
    ];
    let others = parts.iter().map(|d| d.len()).sum::<usize>();
    let entries = diff.order.len() + diff.opsets.len() + diff.metadata.len() + diff.model.len();
    let nodes = &diff.nodes;
    [
        nodes.added.len(),
        nodes.removed.len(),
        nodes.changed.len(),
        others + entries,
    ]
}

/// The differences in lines.
fn brief(diff: &Diff) -> String {
    let mut out = String::new();
    for delta in [&diff.nodes, &diff.initializers, &diff.inputs, &diff.outputs] {
        let added = delta.added.iter().map(|p| format!("+ {}\n", p.text));
        let removed = delta.removed.iter().map(|p| format!("- {}\n", p.text));
        out.extend(added.chain(removed));
        let changed = delta.changed.iter();
        out.extend(changed.map(|c| format!("{:?}: {} -> {}\n", c.what, c.a.text, c.b.text)));
    }
    out
}

/// The results of the checks of many models.
#[derive(Debug, Default)]
struct Checked {
    /// What is wrong.
    wrong: Vec<String>,
    /// How often a change of each kind was made.
    made: BTreeMap<&'static str, usize>,
}

/// Compares a model with itself disguised, and with `changes` changes of each kind.
fn check(path: &Path, changes: usize, checked: &mut Checked) {
    let Checked { wrong, made } = checked;
    let at = path.display();
    let proto = ModelProto::decode(fs::read(path).unwrap().as_slice()).unwrap();
    let model = read(&proto, path);
    for seed in 0..2 {
        let mut other = proto.clone();
        disguise(&mut other, seed);
        let found = Diff::between(&model, &read(&other, path)).unwrap();
        if !found.is_empty() {
            wrong.push(format!("{at} disguised {seed}\n{}", brief(&found)));
        }
    }
    type Change = fn(&mut ModelProto, &mut Numbers) -> bool;
    let kinds: [(&'static str, Change, [usize; 4]); 4] = [
        ("a constant", constant, [0, 0, 0, 1]),
        ("an attribute", attribute, [0, 0, 1, 0]),
        ("the order of inputs", inputs, [0, 0, 1, 0]),
        ("an added node", added, [1, 0, 0, 0]),
    ];
    for (what, change, want) in kinds {
        for seed in 0..changes {
            let numbers = &mut Numbers::new(seed as u64);
            let mut other = proto.clone();
            if !change(&mut other, numbers) {
                continue;
            }
            *made.entry(what).or_default() += 1;
            disguise(&mut other, seed as u64);
            let other = read(&other, path);
            let found = Diff::between(&model, &other).unwrap();
            let [added, removed, changed, others] = want;
            let back = Diff::between(&other, &model).unwrap();
            for (direction, found, want) in [
                ("there", found, want),
                ("back", back, [removed, added, changed, others]),
            ] {
                let got = counts(&found);
                if got != want {
                    let brief = brief(&found);
                    wrong.push(format!("{at} {what} {seed} {direction}: {got:?}\n{brief}"));
                }
            }
        }
    }
}

fn nodes(model: &mut ModelProto) -> &mut Vec<NodeProto> {
    &mut model.graph.as_mut().unwrap().node
}

/// Flips a bit of a weight that is read.
fn constant(model: &mut ModelProto, numbers: &mut Numbers) -> bool {
    let graph = model.graph.as_mut().unwrap();
    let read: Vec<String> = graph.node.iter().flat_map(|n| n.input.clone()).collect();
    let large = |t: &&mut posenc_ir::proto::TensorProto| {
        t.raw_data.as_ref().is_some_and(|d| d.len() > 64) && read.iter().any(|n| n == t.name())
    };
    let mut weights: Vec<_> = graph.initializer.iter_mut().filter(large).collect();
    if weights.is_empty() {
        return false;
    }
    let at = numbers.below(weights.len());
    let mut bytes = weights[at].raw_data.take().unwrap().to_vec();
    let bit = numbers.below(bytes.len());
    bytes[bit] ^= 1;
    weights[at].raw_data = Some(bytes.into());
    true
}

/// Adds 1 to an integer of an attribute.
fn attribute(model: &mut ModelProto, numbers: &mut Numbers) -> bool {
    let attributes = nodes(model).iter_mut().flat_map(|n| &mut n.attribute);
    let mut ints: Vec<&mut i64> = attributes
        .flat_map(|a| a.i.iter_mut().chain(&mut a.ints))
        .collect();
    if ints.is_empty() {
        return false;
    }
    let at = numbers.below(ints.len());
    *ints[at] += 1;
    true
}

/// Swaps two inputs that nodes compute, each by a different operator.
fn inputs(model: &mut ModelProto, numbers: &mut Numbers) -> bool {
    let ops: BTreeMap<String, String> = nodes(model)
        .iter()
        .flat_map(|n| n.output.iter().map(|o| (o.clone(), n.op_type().to_owned())))
        .collect();
    let differ = |n: &&mut NodeProto| {
        let of = |i: usize| n.input.get(i).and_then(|name| ops.get(name));
        matches!((of(0), of(1)), (Some(a), Some(b)) if a != b)
    };
    let mut found: Vec<_> = nodes(model).iter_mut().filter(differ).collect();
    if found.is_empty() {
        return false;
    }
    let at = numbers.below(found.len());
    found[at].input.swap(0, 1);
    true
}

/// Puts a node between another and one of its inputs.
fn added(model: &mut ModelProto, numbers: &mut Numbers) -> bool {
    let nodes = nodes(model);
    let full: Vec<usize> = (0..nodes.len())
        .filter(|i| nodes[*i].input.first().is_some_and(|n| !n.is_empty()))
        .collect();
    if full.is_empty() {
        return false;
    }
    let at = full[numbers.below(full.len())];
    let from = std::mem::replace(&mut nodes[at].input[0], "added here".into());
    let node = NodeProto {
        op_type: Some("Softsign".into()),
        input: vec![from],
        output: vec!["added here".into()],
        ..Default::default()
    };
    nodes.insert(at, node);
    true
}

#[test]
fn disguised_models_are_equal_and_one_change_is_one_difference() {
    let mut checked = Checked::default();
    let fixtures = fixtures();
    for model in &fixtures {
        check(model, 3, &mut checked);
    }
    assert_eq!(checked.made.len(), 4, "{:?}", checked.made);
    for (what, made) in &checked.made {
        assert!(*made > 2 * fixtures.len(), "{what}: {made} changes");
    }
    // There are many: one change of each kind.
    for model in collections() {
        check(&model, 1, &mut checked);
    }
    let wrong = checked.wrong;
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
