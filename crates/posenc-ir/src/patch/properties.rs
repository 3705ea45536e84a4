//! Random graphs under random patches.

use proptest::prelude::*;
use prost::Message;

use crate::DType;
use crate::graph::Graph;
use crate::id::ValueId;
use crate::model::Model;
use crate::patch::Patch;
use crate::proto::GraphProto;
use crate::samples::{floats, model_proto, node, untyped, value, with_bodies};
use crate::tensor::Tensor;

const UNARY: [&str; 4] = ["Neg", "Exp", "Cos", "Identity"];
const BINARY: [&str; 3] = ["Add", "Mul", "Sub"];

/// A node of a random graph: how it is made, and which earlier values it reads.
#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    a: usize,
    b: usize,
    read: bool,
}

/// An edit, with places that are taken modulo what there is.
#[derive(Clone, Debug)]
enum Edit {
    Insert(usize),
    Bypass(usize, usize),
    MoveOne(usize, usize),
    Revalue(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (any::<u8>(), any::<usize>(), any::<usize>(), any::<bool>());
    let step = step.prop_map(|(kind, a, b, read)| Step { kind, a, b, read });
    prop::collection::vec(step, 1..14)
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![
        any::<usize>().prop_map(Edit::Insert),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::Bypass(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::MoveOne(a, b)),
        (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Edit::Revalue(a, b)),
    ];
    prop::collection::vec(edit, 1..5)
}

fn build(steps: &[Step]) -> Model {
    let mut graph = GraphProto {
        name: Some("random".to_owned()),
        input: vec![value("x", DType::F32, &[2]), value("c", DType::Bool, &[])],
        initializer: vec![floats("w", &[1.0, 2.0]), floats("k", &[3.0, 4.0])],
        ..Default::default()
    };
    let mut names: Vec<String> = ["x", "w", "k"].map(str::to_owned).to_vec();
    for (i, step) in steps.iter().enumerate() {
        let (a, b) = (&names[step.a % names.len()], &names[step.b % names.len()]);
        let out = format!("v{i}");
        let made = match step.kind % 8 {
            0..=2 => node(UNARY[step.a % 4], &[a], &[&out]),
            3..=5 => node(BINARY[step.b % 3], &[a, b], &[&out]),
            _ => {
                let body = |op: &str, from: &str, mark: &str| {
                    let inner = format!("{out}_{mark}");
                    GraphProto {
                        name: Some(inner.clone()),
                        initializer: vec![floats(&format!("{inner}_w"), &[0.5, 0.5])],
                        node: vec![node(op, &[from, &format!("{inner}_w")], &[&inner])],
                        output: vec![untyped(&inner)],
                        ..Default::default()
                    }
                };
                let branches = vec![
                    ("then_branch", body("Add", a, "t")),
                    ("else_branch", body("Mul", b, "e")),
                ];
                with_bodies(node("If", &["c"], &[&out]), branches)
            }
        };
        graph.node.push(made);
        if step.read || i + 1 == steps.len() {
            graph.output.push(untyped(&out));
        }
        names.push(out);
    }
    let model = Model::from_bytes(model_proto(graph).encode_to_vec()).unwrap();
    model.check().unwrap();
    model
}

/// Values that are still there, in any scope.
fn living(graph: &Graph) -> Vec<ValueId> {
    graph
        .values()
        .filter(|v| !graph.is_removed_value(*v))
        .collect()
}

/// The edits as one patch; those that recording refuses are passed over.
fn record(graph: &Graph, edits: &[Edit]) -> Patch {
    let values = living(graph);
    let pick = |i: usize| values[i % values.len()];
    let mut out = graph.emitter(graph.main(), "random");
    for edit in edits {
        match *edit {
            Edit::Insert(at) => {
                let old = pick(at);
                out.set_scope(graph.value(old).scope());
                let new = out.op("Neg", &[old]);
                let _ = out.redirect(old, new);
            }
            Edit::Bypass(old, new) => {
                let _ = out.redirect(pick(old), pick(new));
            }
            Edit::MoveOne(at, new) => {
                let old = pick(at);
                if let Some(u) = graph.uses(old).first() {
                    let _ = out.redirect_use(old, *u, pick(new));
                }
            }
            Edit::Revalue(at, uses) => {
                let old = pick(at);
                let all = graph.uses(old);
                let seen = &all[..uses % (all.len() + 1)];
                let _ = out.replace_constant(old, seen, Tensor::from_f32(&[2], &[7.0, 8.0]));
            }
        }
    }
    out.finish()
}

/// Every use is listed where it is read, and nowhere else.
fn uses_are_consistent(graph: &Graph) -> bool {
    let mut read: Vec<(ValueId, crate::graph::Use)> = vec![];
    for (id, node) in graph.nodes() {
        for (slot, value) in node.inputs().iter().enumerate() {
            read.extend(value.map(|v| (v, crate::graph::Use::new(id, slot))));
        }
    }
    let listed = living(graph).into_iter();
    let listed = listed.flat_map(|v| graph.uses(v).iter().map(move |u| (v, *u)));
    let mut listed: Vec<_> = listed.collect();
    read.sort_unstable();
    listed.sort_unstable();
    read == listed
}

fn interface(graph: &Graph) -> Vec<String> {
    let main = graph.scope(graph.main());
    let edges = main.inputs().iter().chain(main.outputs());
    edges.map(|v| graph.name(*v).to_owned()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_patch_is_applied_completely_or_not_at_all(
        steps in steps(),
        rounds in prop::collection::vec(edits(), 1..4),
    ) {
        let mut model = build(&steps);
        let names = interface(model.graph());
        for edits in rounds {
            let patch = record(model.graph(), &edits);
            let (text, bytes) = (model.graph().text(), model.to_bytes().unwrap());
            let described = patch.text(model.graph());
            if model.commit(patch).is_err() {
                prop_assert_eq!(model.graph().text(), text);
                prop_assert_eq!(model.to_bytes().unwrap(), bytes);
            } else if model.graph().text() != text {
                prop_assert!(!described.is_empty());
            }
            prop_assert!(model.check().is_ok());
            prop_assert!(uses_are_consistent(model.graph()));
            prop_assert_eq!(&interface(model.graph()), &names);
            let again = Model::from_bytes(model.to_bytes().unwrap()).unwrap();
            prop_assert!(again.check().is_ok());
            prop_assert!(uses_are_consistent(again.graph()));
            prop_assert_eq!(again.graph().text(), model.graph().text());
            prop_assert_eq!(again.to_bytes().unwrap(), model.to_bytes().unwrap());
        }
    }
}

#[test]
fn most_random_patches_change_something() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut changed, mut refused) = (0, 0);
    for _ in 0..200 {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        let edits = edits().new_tree(&mut runner).unwrap().current();
        let mut model = build(&steps);
        let text = model.graph().text();
        let patch = record(model.graph(), &edits);
        match model.commit(patch) {
            Ok(_) => changed += usize::from(model.graph().text() != text),
            Err(_) => refused += 1,
        }
    }
    assert!(
        changed > 50 && refused > 20,
        "{changed} changed, {refused} refused"
    );
}
