//! Runs the programs under `examples/`.
// The examples are read as modules here, where nothing outside can reach their functions.
#![allow(unreachable_pub)]

use std::path::{Path, PathBuf};

use posenc_onnx::encodings::bias::ReadFrom;
use posenc_onnx::encodings::family::{Entry, Family};
use posenc_onnx::{Kind, Model, Swap, Value};

#[path = "../examples/custom.rs"]
mod custom;
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
fn a_custom_encoding_is_inserted_found_and_removed() {
    let model = std::fs::read(fixture("mini/rope")).unwrap();
    let with = custom::insert(&model, 12.0).unwrap();
    let found = custom::found(&with).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with("levelling "), "{found:?}");
    assert!(found[0].contains(r#""length": Number(12.0)"#), "{found:?}");
    assert!(custom::found(&model).unwrap()[0].starts_with("rope "));

    let with = Model::from_bytes(with).unwrap();
    let unknown = with.inspect().encodings[0].kind;
    assert_eq!(
        unknown,
        Kind::Unknown,
        "a model that was not told the family"
    );
    let with = with.with_family(&custom::FAMILY).unwrap();
    let done = with.plan(
        Swap::to(&custom::FAMILY)
            .parameter("length", Value::Number(12.0))
            .unwrap(),
    );
    assert!(done.unwrap().edits().is_empty(), "it is what was asked for");
    let bare = with.plan(Swap::remove()).unwrap().apply().unwrap();
    assert!(
        Model::checked(bare.into_ir())
            .unwrap()
            .inspect()
            .encodings
            .is_empty()
    );
}

#[test]
fn a_custom_family_with_a_known_word_or_another_way_of_entry_is_refused() {
    let family = |word, entry| {
        Box::leak(Box::new(Family {
            word,
            about: "",
            adds: "",
            params: &[],
            common: &[],
            tensors: &[],
            starts: ["", ""],
            learned: &[],
            describe: |_| {},
            entry,
        }))
    };
    let levelling = Entry::score_bias::<custom::Levelling>(ReadFrom::FewTokens);
    let reasons = [
        (
            &*family("alibi", levelling),
            "a family named alibi exists already",
        ),
        (
            &*family("other", Entry::FoundOnly),
            "the custom family other is not a score bias, which is not supported yet",
        ),
    ];
    let model = Model::open(fixture("mini/rope")).unwrap();
    for (family, reason) in reasons {
        let refused = model.plan(Swap::to(family)).unwrap_err();
        assert_eq!(refused.to_string(), reason);
        let refused = model.clone().with_family(family).unwrap_err();
        assert_eq!(refused.to_string(), reason);
    }
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
