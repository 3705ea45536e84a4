//! A rescale changes nothing in the file but the frequency constant, the factor on cosine and sine,
//! and the metadata that records it.

use std::fs;
use std::path::{Path, PathBuf};

use posenc_tests::edit::{Added, Edit, Rewired};
use posenc_tests::shared::{collection, fixtures};
use posenc_tests::{binary, fixture, wire};
use serde_json::Value;

/// The models that compute the angles of plain RoPE from frequencies, with their number of thetas.
fn computing_their_frequencies(models: Vec<PathBuf>) -> Vec<(PathBuf, usize)> {
    let mut found = vec![];
    for path in models {
        let truth = fixture::json(&path.with_file_name("truth.json"));
        let ropes = plain_ropes(&truth);
        if ropes > 0 && has_cosine(&fs::read(&path).unwrap()) {
            found.push((path, ropes));
        }
    }
    found
}

/// The number of plain RoPE entries of a truth; 0 where one is scaled.
fn plain_ropes(truth: &Value) -> usize {
    let entries = truth["encodings"]
        .as_array()
        .expect("truth lists encodings");
    let ropes = entries.iter().filter(|e| e["kind"] == "rope");
    let scaling = |e: &Value| e.get("scaling").or(e["params"].get("scaling")).cloned();
    if ropes.clone().any(|e| scaling(e) != Some(Value::Null)) {
        return 0;
    }
    ropes.count()
}

fn has_cosine(model: &[u8]) -> bool {
    wire::all(model, wire::model::GRAPH).any(|graph| {
        wire::all(graph.payload, wire::graph::NODE)
            .any(|node| wire::texts(node.payload, wire::node::OP) == ["Cos"])
    })
}

/// The bytes of a model before and after a rescale by YaRN.
fn yarn(model: &Path) -> (Vec<u8>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.onnx");
    let mut arguments = vec!["rewrite".as_ref(), model.as_os_str(), "-o".as_ref()];
    arguments.push(out.as_os_str());
    let flags = "--to rope --scale yarn --factor 4 --original-length 64 --json";
    arguments.extend(flags.split(' ').map(AsRef::<std::ffi::OsStr>::as_ref));
    let ran = binary::run(arguments);
    assert_eq!(ran.code, 0, "{}: {}", model.display(), ran.stderr);
    (fs::read(model).unwrap(), fs::read(out).unwrap())
}

/// The edit without what repeats the cosines and sines of one sequence for each, which runtimes want of
/// `RotaryEmbedding`.
fn without_repeats(edit: &Edit) -> Edit {
    let mut edit = edit.clone();
    let repeated: Vec<Added> = edit
        .added
        .iter()
        .filter(|n| n.op == "Expand")
        .cloned()
        .collect();
    if repeated.is_empty() {
        return edit;
    }
    let made: Vec<String> = edit.added.iter().flat_map(|n| n.outputs.clone()).collect();
    let is_same = |n: &Added, rewired: &Rewired| {
        let from = &n.inputs[0];
        n.outputs == [rewired.to.clone()] && (*from == rewired.from || made.contains(from))
    };
    let repeats = |r: &Rewired| r.op == "RotaryEmbedding" && repeated.iter().any(|n| is_same(n, r));
    edit.rewired.retain(|rewired| !repeats(rewired));
    let of_shape = ["Shape", "Slice", "Concat", "Expand"];
    let (shapes, rest): (Vec<Added>, Vec<Added>) =
        (edit.added.into_iter()).partition(|node| of_shape.contains(&node.op.as_str()));
    let bounds: Vec<&String> = shapes.iter().flat_map(|node| &node.inputs).collect();
    edit.constants
        .retain(|constant| !bounds.contains(&&constant.name));
    edit.added = rest;
    edit
}

/// The parts of an edit that a minimal rescale with a factor does not have.
fn excess(edit: &Edit, thetas: usize) -> Vec<String> {
    let edit = &without_repeats(edit);
    let mut found = edit.other.clone();
    let frequencies = edit.revalued.iter().filter(|c| c.elements > 1);
    if frequencies.count() != thetas {
        found.push(format!("{thetas} thetas, but {:?} changed", edit.revalued));
    }
    // The factor is a multiplication by a new number, or another number in an existing
    // multiplication; where others read that number too, the multiplication gets its own.
    let scalar = |name: &String| {
        edit.constants
            .iter()
            .any(|c| c.name == *name && c.elements == 1)
    };
    for node in &edit.added {
        if node.op != "Mul" || node.inputs.iter().filter(|i| scalar(i)).count() != 1 {
            found.push(format!("{node:?} is not a factor"));
        }
    }
    for rewired in &edit.rewired {
        let factor = edit
            .added
            .iter()
            .find(|n| n.outputs == [rewired.to.clone()]);
        let follows = factor.is_some_and(|n| n.inputs.contains(&rewired.from));
        let replaced = rewired.op == "Mul" && scalar(&rewired.to);
        if !follows && !replaced {
            found.push(format!("{rewired:?} is not a factor"));
        }
    }
    if edit.constants.iter().any(|c| c.elements != 1) {
        found.push(format!("new constants {:?}", edit.constants));
    }
    let factors = edit.revalued.iter().filter(|c| c.elements == 1).count();
    if factors + edit.constants.len() == 0 {
        found.push("no factor".into());
    }
    if edit.metadata.is_empty() || edit.metadata.keys().any(|k| !k.starts_with("posenc.")) {
        found.push(format!("metadata {:?}", edit.metadata));
    }
    found
}

fn check(models: Vec<PathBuf>, at_least: usize) {
    let models = computing_their_frequencies(models);
    assert!(models.len() >= at_least, "{} models", models.len());
    let mut bad = vec![];
    for (path, thetas) in models {
        let (before, after) = yarn(&path);
        let excess = excess(&Edit::between(&before, &after), thetas);
        if !excess.is_empty() {
            bad.push(format!("{}: {excess:#?}", path.display()));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn yarn_changes_only_frequencies_factor_and_metadata() {
    check(fixtures(), 14);
    let zoo = collection("zoo");
    if !zoo.is_empty() {
        check(zoo, 26);
    }
}

#[test]
fn a_flipped_bit_a_moved_node_and_a_removed_field_are_noticed() {
    let model = fixture::Fixture::named("llama/dynamo").model();
    let (before, after) = yarn(&model);
    assert_eq!(excess(&Edit::between(&before, &after), 1), [""; 0]);
    for (what, damaged) in [
        ("a flipped bit in a weight", flipped(&after)),
        ("two nodes in the other order", swapped(&after)),
        ("a removed field", shortened(&after)),
        ("no edit at all", before.clone()),
    ] {
        assert_ne!(
            excess(&Edit::between(&before, &damaged), 1),
            [""; 0],
            "{what}"
        );
    }
}

/// The offset of `part` in `whole`.
fn offset(whole: &[u8], part: &[u8]) -> usize {
    part.as_ptr() as usize - whole.as_ptr() as usize
}

fn flipped(model: &[u8]) -> Vec<u8> {
    let graph = wire::all(model, wire::model::GRAPH).next().unwrap();
    let large = wire::all(graph.payload, wire::graph::INITIALIZER)
        .flat_map(|t| wire::all(t.payload, wire::tensor::RAW).collect::<Vec<_>>())
        .max_by_key(|raw| raw.payload.len())
        .unwrap();
    let mut damaged = model.to_vec();
    damaged[offset(model, large.payload)] ^= 1;
    damaged
}

fn swapped(model: &[u8]) -> Vec<u8> {
    let graph = wire::all(model, wire::model::GRAPH).next().unwrap();
    let nodes: Vec<_> = wire::all(graph.payload, wire::graph::NODE).collect();
    let (a, b) = (nodes[0].whole, nodes[1].whole);
    let start = offset(model, a);
    assert_eq!(start + a.len(), offset(model, b), "the nodes touch");
    let mut damaged = model.to_vec();
    damaged[start..start + a.len() + b.len()].copy_from_slice(&[b, a].concat());
    damaged
}

fn shortened(model: &[u8]) -> Vec<u8> {
    let first = wire::fields(model)[0].whole.len();
    model[first..].to_vec()
}
