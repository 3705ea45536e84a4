//! Runs the programs under `examples/`.
// The examples are read as modules here, where nothing outside can reach their functions.
#![allow(unreachable_pub)]

use std::path::{Path, PathBuf};

#[path = "../examples/inspect_json.rs"]
mod inspect_json;
#[path = "../examples/rescale.rs"]
mod rescale;
#[path = "../examples/snapshot.rs"]
mod snapshot;
#[path = "../examples/swap.rs"]
mod swap;

fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    fixtures.join(name).join("model.onnx")
}

#[test]
fn rescale_extends_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("long.onnx");
    let plan = rescale::rescale(&fixture("gptj/torchscript"), &output).unwrap();
    assert!(plan.contains("yarn factor=4 original_length=64"), "{plan}");
    assert!(plan.contains("original-length = 64, from "), "{plan}");
    let report = inspect_json::inspect(&output).unwrap();
    assert!(report.contains(r#""type": "yarn""#), "{report}");
}

#[test]
fn swap_replaces_an_encoding() {
    let model = std::fs::read(fixture("mini/rope")).unwrap();
    let swapped = swap::swap(&model).unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("alibi.onnx");
    std::fs::write(&path, swapped).unwrap();
    let found = snapshot::encodings(&path).unwrap();
    assert!(found.starts_with("alibi in 2 sites"), "{found}");
    // A model without attention.
    let empty = std::fs::read(fixture("mini/rope").with_file_name("../../bad/passthrough.onnx"));
    assert!(swap::swap(&empty.unwrap()).unwrap().is_none());
}
