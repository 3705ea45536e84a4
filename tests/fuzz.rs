//! The bodies of the fuzz targets on their seeds, on earlier findings, and on mutations.
//!
//! `fuzz/run` does the same for longer, with coverage.

use std::fs;
use std::path::PathBuf;

use posenc_ir::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto,
    TensorProto,
};
use posenc_ir::{Model, Weights};
use posenc_onnx::request::{LawName, Request};
use posenc_tests::fuzz::external::Folder;
use posenc_tests::fuzz::random::Random;
use posenc_tests::fuzz::tree::{Kind, Message};
use posenc_tests::fuzz::{
    decode, diff, evaluate, external, mutate, rewrite, text_parse, text_round_trip,
};
use posenc_tests::shared::root;
use prost::Message as _;

/// The longest input, the same as in `fuzz/run`.
const LIMIT: usize = 1 << 16;

/// The entries of a folder under `fuzz/`, in order.
fn entries(folder: &str) -> Vec<PathBuf> {
    let folder = root().join("fuzz").join(folder);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut found: Vec<PathBuf> = entries.map(|e| e.unwrap().path()).collect();
    found.sort();
    found
}

/// The files of a folder under `fuzz/`, at least `at_least`.
fn contents(folder: &str, at_least: usize) -> Vec<Vec<u8>> {
    let files = entries(folder);
    assert!(files.len() >= at_least, "{} in {folder}", files.len());
    files.iter().map(|f| fs::read(f).unwrap()).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    contents("seeds/model", 60)
}

/// The seeds of texts, and the models among the other seeds as text.
fn texts() -> Vec<Vec<u8>> {
    let read = |seed| Model::from_bytes(seed).ok();
    let models = seeds().into_iter().filter_map(read);
    let printed = models.map(|m| m.text(Weights::Full).to_string().into_bytes());
    let printed: Vec<Vec<u8>> = printed.collect();
    assert!(printed.len() >= 40, "{} seeds are models", printed.len());
    let written = contents("seeds/text", 10);
    written.into_iter().chain(printed).collect()
}

/// Inputs that made a target fail before; most targets have none.
fn regressions(target: &str) -> Vec<PathBuf> {
    let targets = entries("regressions");
    if targets.iter().any(|t| t.ends_with(target)) {
        entries(&format!("regressions/{target}"))
    } else {
        vec![]
    }
}

/// Changes a seed.
type Mutation = fn(&[u8], usize, &mut Random) -> Vec<u8>;

/// Runs a body on the seeds, on the regressions of `target`, and on mutations of the seeds.
fn smoke(target: &str, mutations: usize, body: impl Fn(&[u8])) {
    smoke_on(target, &seeds(), mutate::model, mutations, body);
}

fn smoke_on(
    target: &str,
    seeds: &[Vec<u8>],
    mutation: Mutation,
    mutations: usize,
    body: impl Fn(&[u8]),
) {
    let run = |what: String, data: &[u8]| {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(data)));
        assert!(ran.is_ok(), "{target} panicked on {what}");
    };
    for file in regressions(target) {
        run(file.display().to_string(), &fs::read(&file).unwrap());
    }
    for (i, seed) in seeds.iter().enumerate() {
        run(format!("seed {i}"), seed);
    }
    for i in 0..mutations {
        let mut random = Random::new(i as u64);
        let seed = &seeds[i % seeds.len()];
        let changed = mutation(seed, LIMIT, &mut random);
        run(format!("mutation {i}"), &changed);
    }
}

#[test]
fn decoding_survives_seeds_regressions_and_mutations() {
    smoke("decode", 900, decode);
}

#[test]
fn no_external_location_leads_outside() {
    let folder = Folder::new();
    smoke("external", 600, |data| external(&folder, data));
}

#[test]
fn evaluation_survives_seeds_regressions_and_mutations() {
    smoke("evaluate", 600, evaluate);
}

#[test]
fn rewriting_survives_seeds_regressions_and_mutations() {
    smoke("rewrite", 300, rewrite);
}

#[test]
fn parsing_survives_seeds_regressions_and_mutations() {
    smoke_on("text_parse", &texts(), mutate::text, 900, text_parse);
}

#[test]
fn text_is_read_back_from_seeds_regressions_and_mutations() {
    smoke("text_round_trip", 600, text_round_trip);
}

#[test]
fn comparing_survives_seeds_regressions_and_mutations() {
    smoke("diff", 300, diff);
}

#[test]
fn seeds_without_weights_are_still_rewritten() {
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    let edited = |seed| {
        let model = posenc_onnx::Model::from_bytes(seed).ok()?;
        let done = model.plan(request.clone()).ok()?.apply().ok()?;
        (!done.report().edits.is_empty()).then_some(())
    };
    let edited = seeds().into_iter().filter_map(edited).count();
    assert!(edited >= 8, "{edited} seeds are rewritten");
}

#[test]
fn a_body_that_panics_is_noticed() {
    let body = |_: &[u8]| panic!("on purpose");
    let said = panicked(|| smoke("decode", 1, body));
    assert!(said.starts_with("decode panicked on "), "{said}");
}

/// The message of the panic of `f`.
fn panicked(f: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
    *panic.downcast().expect("a formatted message")
}

#[test]
fn a_payload_from_outside_is_noticed_wherever_it_is_stored() {
    let (safe, leaking) = (Folder::new(), Folder::leaking());
    let models = [
        ("an initializer", planted(|g, t, _| g.initializer.push(t))),
        (
            "a constant",
            planted(|g, t, _| g.node.push(with_tensor("Constant", t))),
        ),
        (
            "an attribute",
            planted(|g, t, _| g.node.push(with_tensor("Fill", t))),
        ),
        (
            "a body",
            planted(|g, t, _| g.node.push(around(with_tensor("Fill", t)))),
        ),
        (
            "a function",
            planted(|_, t, functions| {
                functions.push(FunctionProto {
                    name: Some("f".into()),
                    domain: Some("own".into()),
                    node: vec![with_tensor("Fill", t)],
                    ..Default::default()
                });
            }),
        ),
    ];
    for (place, model) in models {
        let bytes = model.encode_to_vec();
        external(&safe, &bytes);
        let said = panicked(|| external(&leaking, &bytes));
        let want = "data.bin was read from outside of the folder";
        assert_eq!(said, want, "{place}");
    }
}

/// A model with an external tensor, which `put` stores.
fn planted(put: fn(&mut GraphProto, TensorProto, &mut Vec<FunctionProto>)) -> ModelProto {
    let tensor = TensorProto {
        name: Some("t".into()),
        dims: vec![2],
        data_type: Some(1),
        data_location: Some(1),
        external_data: vec![StringStringEntryProto {
            key: Some("location".into()),
            value: Some("data.bin".into()),
        }],
        ..Default::default()
    };
    let (mut graph, mut functions) = (GraphProto::default(), vec![]);
    put(&mut graph, tensor, &mut functions);
    ModelProto {
        ir_version: Some(8),
        graph: Some(graph),
        functions,
        ..Default::default()
    }
}

/// A node with a tensor as attribute.
fn with_tensor(op: &str, tensor: TensorProto) -> NodeProto {
    NodeProto {
        op_type: Some(op.into()),
        output: vec!["held".into()],
        attribute: vec![AttributeProto {
            name: Some("value".into()),
            t: Some(tensor),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// A node with a subgraph of one node.
fn around(inner: NodeProto) -> NodeProto {
    let body = GraphProto {
        node: vec![inner],
        ..Default::default()
    };
    NodeProto {
        op_type: Some("If".into()),
        output: vec!["around".into()],
        attribute: vec![AttributeProto {
            name: Some("then_branch".into()),
            g: Some(Box::new(body)),
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[test]
fn mutations_differ_from_their_seed_and_mostly_stay_messages() {
    let (mut same, mut messages, mut models) = (0, 0, 0);
    let seeds = seeds();
    for i in 0..500 {
        let seed = &seeds[i % seeds.len()];
        let changed = mutate::model(seed, LIMIT, &mut Random::new(i as u64));
        same += usize::from(changed == *seed);
        messages += usize::from(Message::parse(Kind::Model, &changed).is_some());
        models += usize::from(Model::from_bytes(changed).is_ok());
    }
    assert!(same < 100, "{same} of 500 are unchanged");
    assert!(messages > 350, "{messages} of 500 are messages");
    assert!(models > 150, "{models} of 500 are models");
}

#[test]
fn a_message_that_moved_is_noticed() {
    use posenc_tests::fuzz::rewrite::moved;
    use posenc_tests::fuzz::tree::{Field, Style, Value};
    let seed = fs::read(root().join("fuzz/seeds/model/llama-dynamo23.onnx")).unwrap();
    assert!(moved(&seed, &seed).is_empty());
    let extra = Field {
        number: 999,
        value: Value::Varint(1),
    };
    let tree = Message::parse(Kind::Model, &seed).unwrap();
    let (mut in_model, mut in_node) = (tree.clone(), tree.clone());
    in_model.fields.push(extra.clone());
    let node = (0..tree.count()).find(|n| {
        let message = in_node.nth_mut(*n);
        message.is_some_and(|m| m.kind == Kind::Node)
    });
    in_node.nth_mut(node.unwrap()).unwrap().fields.push(extra);
    for damaged in [in_model, in_node] {
        assert!(!moved(&seed, &damaged.encode(Style::Canonical)).is_empty());
    }
}
