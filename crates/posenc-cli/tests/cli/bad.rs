//! Broken and hostile files: an answer or one sentence, and nothing written.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::run::{Folder, Ran, run};
use super::shared::{root, shared};

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// What a collection says of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// Every command refuses it.
    Refused,
    /// It can be read.
    Read,
    /// Both are right.
    Either,
}

/// Runs `inspect`, `rewrite` and `print` on a file. None of them may panic, print more than one line
/// of error, or leave an output after an error.
fn answers(model: &str, expected: Expected) -> [Ran; 2] {
    let folder = Folder::new();
    let output = folder.path().join("out.onnx");
    let output = output.to_str().unwrap();
    let inspected = run(["inspect", model, "--json"]);
    let rewritten = run(["rewrite", model, "--to", "none", "-o", output]);
    let printed = run(["print", model]);
    for ran in [&inspected, &rewritten, &printed] {
        assert!(!ran.err.contains("panicked"), "{model}: {}", ran.err);
        assert!([0, 1, 3, 4].contains(&ran.code), "{model}: {}", ran.code);
        if ran.code != 0 {
            let lines = ran.err.trim_end().lines().count();
            assert_eq!(lines, 1, "{model}: {}", ran.err);
            assert!(ran.err.contains(model), "{model}: {}", ran.err);
        }
    }
    if rewritten.code != 0 {
        assert!(folder.names().is_empty(), "{model}: {:?}", folder.names());
    }
    for ran in [&inspected, &rewritten] {
        match expected {
            Expected::Refused => assert!([3, 4].contains(&ran.code), "{model} is accepted"),
            Expected::Read => assert_ne!(ran.code, 3, "{model}: {}", ran.err),
            Expected::Either => {}
        }
    }
    [inspected, rewritten]
}

#[test]
fn every_bad_fixture_gets_its_answer() {
    let folder = root().join("fixtures/bad");
    let expected = json(&folder.join("expect.json"));
    let expected = expected.as_object().unwrap();
    let files = fs::read_dir(&folder).unwrap();
    let files = files.map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<String> = files.filter(|f| f.ends_with(".onnx")).collect();
    files.sort();
    let named: Vec<String> = expected.keys().map(|k| format!("{k}.onnx")).collect();
    assert_eq!(files, named, "the table names every file");
    for (name, want) in expected {
        let path = folder.join(format!("{name}.onnx"));
        let model = path.to_str().unwrap();
        let says = want["says"].as_str();
        let is_refused = says.is_some();
        let expected = if is_refused {
            Expected::Refused
        } else {
            Expected::Read
        };
        let [inspected, rewritten] = answers(model, expected);
        let exit = want["exit"].as_i64().unwrap();
        assert_eq!(i64::from(inspected.code), exit, "{name}: {}", inspected.err);
        match says {
            Some(says) => {
                for ran in [&inspected, &rewritten] {
                    ran.failed(exit as i32, name);
                    let sentence = format!("error: {model}: {says}\n");
                    assert_eq!(ran.err, sentence, "{name}");
                }
            }
            None => {
                let report: Value = serde_json::from_str(&inspected.out).unwrap();
                let none = Value::Array(vec![]);
                let warns = want.get("warns").unwrap_or(&none);
                assert_eq!(report["warnings"], *warns, "{name}");
            }
        }
    }
}

/// The larger collection makes the same assertions as the fixtures, without exact sentences.
#[test]
fn every_shared_bad_file_gets_an_answer() {
    let Some(folder) = shared("bad") else { return };
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let case = entry.unwrap().path();
        let expect = case.join("expect.json");
        if !expect.is_file() {
            continue;
        }
        seen += 1;
        let want = json(&expect);
        let model = case.join(want["file"].as_str().unwrap());
        let expected = if want["debatable"] == true {
            Expected::Either
        } else if want["expect"] == "error" {
            Expected::Refused
        } else {
            Expected::Read
        };
        answers(model.to_str().unwrap(), expected);
    }
    assert!(seen > 70, "{seen} cases");
}

#[test]
fn a_broken_model_is_printed_with_a_warning() {
    let path = root().join("fixtures/bad/attr-missing.onnx");
    let ran = run(["print", path.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.contains("y = Cast(x)"), "{}", ran.out);
    assert!(ran.err.starts_with("warning: "), "{}", ran.err);
    assert!(
        ran.err.contains("attribute to of Cast is missing"),
        "{}",
        ran.err
    );
}

#[test]
fn a_rewrite_warns_of_what_is_unusual() {
    let folder = Folder::new();
    let model = {
        let mut model = super::run::addition();
        let graph = model.graph.as_mut().unwrap();
        graph.node[0].op_type = Some("Frobnicate".into());
        folder.file("m.onnx", super::run::bytes(&model))
    };
    let output = folder.path().join("out.onnx");
    let ran = run(["rewrite", &model, "--sort", "-o", output.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let want = format!(
        "warning: {model}: g/sum: ai.onnx has no operator Frobnicate; the node is not checked\n"
    );
    assert_eq!(ran.err, want);
}

#[test]
fn sort_puts_nodes_in_order_without_touching_them() {
    let folder = Folder::new();
    let mut proto = super::run::addition();
    let graph = proto.graph.as_mut().unwrap();
    let mut early = graph.node[0].clone();
    early.name = Some("early".into());
    early.input = vec!["y".into(), "w".into()];
    early.output = vec!["z".into()];
    graph.node.insert(0, early);
    let model = folder.file("m.onnx", super::run::bytes(&proto));
    let output = folder.path().join("out.onnx");
    let output = output.to_str().unwrap();
    let ran = run(["rewrite", &model, "--sort", "--json", "-o", output]);
    assert_eq!(ran.code, 0, "{}", ran.err);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["sorted"], 1);
    assert_eq!(report["guarantee"], "bits");
    proto.graph.as_mut().unwrap().node.reverse();
    assert_eq!(fs::read(output).unwrap(), super::run::bytes(&proto));
    let ran = run(["inspect", output, "--json"]);
    let report: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(report["warnings"], Value::Array(vec![]));
}
