//! Inputs and outputs with names that say nothing: what reads an input tells what it is for.

use posenc_ir::proto::{GraphProto, ModelProto};
use posenc_tests::binary::{self, Ran};
use posenc_tests::fixture::{self, Fixture};
use prost::Message;
use rustc_hash::FxHashMap;
use serde_json::Value;

/// The model with every input and output called by a number.
fn renamed(fixture: &Fixture) -> Vec<u8> {
    let bytes = std::fs::read(fixture.model()).unwrap();
    let mut model = ModelProto::decode(&*bytes).unwrap();
    let graph = model.graph.as_mut().unwrap();
    let inputs = graph.input.iter().enumerate();
    let outputs = graph.output.iter().enumerate();
    let stored: Vec<&str> = graph.initializer.iter().map(|t| t.name()).collect();
    let names: FxHashMap<String, String> = inputs
        .filter(|(_, input)| !stored.contains(&input.name()))
        .map(|(i, input)| (input.name().to_owned(), format!("alpha.{i}")))
        .chain(outputs.map(|(i, output)| (output.name().to_owned(), format!("beta.{i}"))))
        .collect();
    rename(graph, &names);
    model.encode_to_vec()
}

fn rename(graph: &mut GraphProto, names: &FxHashMap<String, String>) {
    let change = |name: &mut String| {
        if let Some(new) = names.get(name) {
            name.clone_from(new);
        }
    };
    let lists = [&mut graph.input, &mut graph.output, &mut graph.value_info];
    for value in lists.into_iter().flatten() {
        value.name.as_mut().into_iter().for_each(change);
    }
    for node in &mut graph.node {
        node.input
            .iter_mut()
            .chain(&mut node.output)
            .for_each(change);
        let bodies = node.attribute.iter_mut().filter_map(|a| a.g.as_mut());
        bodies.for_each(|body| rename(body, names));
    }
}

/// What `inspect` says, but for the file.
fn said(report: &Value) -> Value {
    let mut said = report.clone();
    said.as_object_mut().unwrap().remove("model");
    said
}

fn inspect(model: &[u8], options: &[&str]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, model).unwrap();
    let path = path.display().to_string();
    let ran: Ran = binary::run([&["inspect", &path, "--json"], options].concat());
    said(&ran.json())
}

#[test]
fn a_wrong_role_is_seen() {
    for (name, role) in [
        ("bloom/dynamo", "alpha.1=content"),
        ("llama-posids/torchscript", "alpha.2=content"),
    ] {
        let model = renamed(&Fixture::named(name));
        let [right, wrong] = [&[][..], &["--input-role", role]].map(|own| inspect(&model, own));
        assert_ne!(right, wrong, "{name} {role}");
    }
}

/// Without the rotations, nothing tells that the input contained positions.
#[test]
fn positions_are_read_after_what_told_them_is_gone() {
    let fixture = Fixture::named("llama-posids/torchscript");
    let folder = tempfile::tempdir().unwrap();
    let named = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(named("in.onnx"), renamed(&fixture)).unwrap();
    let swap = [
        "rewrite",
        &named("in.onnx"),
        "-o",
        &named("out.onnx"),
        "--to",
        "sinusoidal",
    ];
    let ran = binary::run(swap);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let model = ModelProto::decode(&*std::fs::read(named("out.onnx")).unwrap()).unwrap();
    let nodes = &model.graph.as_ref().unwrap().node;
    let is_read = |name: &str| {
        nodes
            .iter()
            .any(|node| node.input.iter().any(|i| i == name))
    };
    assert!(is_read("alpha.2"));
    let ran = binary::run(["verify", &named("out.onnx"), "--provider", "tract"]);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    // Positions that are counted instead would be another model.
    let given = ["--input-role", "alpha.2=content"];
    let ran = binary::run(swap.iter().chain(&given));
    assert_ne!(ran.code, 0);
}

#[test]
fn inputs_are_told_by_what_reads_them() {
    let mut compared = 0;
    for fixture in fixture::all() {
        let model = renamed(&fixture);
        let bytes = std::fs::read(fixture.model()).unwrap();
        let want = inspect(&bytes, &[]);
        if fixture.name() == "gpt2/optimum" {
            // Ids and positions pick rows of a table each.
            let report = inspect(&model, &[]);
            let why = report["warnings"].to_string();
            assert!(
                why.contains("whether the input alpha.0 contains positions"),
                "{why}"
            );
            assert!(
                why.contains("whether the input alpha.6 contains positions"),
                "{why}"
            );
            let given = inspect(&model, &["--input-role", "alpha.6=position"]);
            assert_eq!(given, want);
            continue;
        }
        assert_eq!(inspect(&model, &[]), want, "{}", fixture.name());
        compared += 1;
    }
    assert!(compared >= 40, "{compared} of the fixtures");
}
