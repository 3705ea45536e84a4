//! Rotations of other pairs of features compute what PyTorch computes, in ONNX Runtime.

mod bodies;

use posenc_tests::binary;
use posenc_tests::fixture::Fixture;

use crate::form::{far, made, tolerance};
use crate::logits::{TOLERANCE, distance, in_pieces, load};
use crate::runtime::onnxruntime;

/// Exports, and the layout that they get.
const EXPORTS: [(&str, &str); 8] = [
    ("llama/torchscript", "interleaved"),
    ("llama/dynamo", "interleaved"),
    ("llama/dynamo23", "interleaved"),
    ("llama/fp16", "interleaved"),
    ("gpt_neox/torchscript", "interleaved"),
    ("phi3/torchscript", "interleaved"),
    ("gemma3-text/dynamo", "interleaved"),
    ("gptj/dynamo", "half"),
];

#[test]
fn every_layout_computes_what_pytorch_computes() {
    let backend = onnxruntime();
    for (name, layout) in EXPORTS {
        let fixture = Fixture::named(name);
        let runs: Vec<_> = fixture.runs().into_values().collect();
        let flags = [
            &["--layout", layout][..],
            &["--layout", layout, "--form", "contrib"],
        ];
        for flags in &flags {
            let made = made(&fixture.model(), flags);
            assert_eq!(made.report["guarantee"], "rounding", "{name} {flags:?}");
            let edits = made.report["edits"].as_array().expect("edits");
            let layouts = edits.iter().map(|edit| &edit["to"]["params"]["layout"]);
            assert!(edits.len() >= 2, "{name} {flags:?}");
            assert!(
                layouts.into_iter().all(|own| *own == layout),
                "{name} {flags:?}"
            );
            let far = far(&backend, &made.model(), &runs);
            assert!(far <= tolerance(&fixture), "{name} {flags:?}: {far}");
        }
    }
}

#[test]
fn another_layout_of_the_same_weights_is_another_function() {
    let backend = onnxruntime();
    let fixture = Fixture::named("llama/torchscript");
    let runs: Vec<_> = fixture.runs().into_values().collect();
    let made = made(
        &fixture.model(),
        &["--to", "rope", "--layout", "interleaved"],
    );
    assert_eq!(made.report["guarantee"], "new-function");
    assert!(far(&backend, &made.model(), &runs) > 100.0 * TOLERANCE);
}

#[test]
fn caches_hold_keys_in_the_other_order() {
    let backend = onnxruntime();
    for name in ["llama/optimum", "gpt_neox/optimum"] {
        let fixture = Fixture::named(name);
        let made = made(&fixture.model(), &["--layout", "interleaved"]);
        let warnings = made.report["warnings"].to_string();
        assert!(
            warnings.contains("caches of the model before do not fit"),
            "{warnings}"
        );
        let oracle = fixture.oracle("yarn");
        let ids = oracle.runs["long"].inputs["input_ids"].to_i64s().unwrap();
        let (first, rest) = (ids.len() - 6, 6);
        let mut session = load(&backend, &made.model());
        let pieces = std::iter::once(first).chain(std::iter::repeat_n(1, rest));
        let got = in_pieces(&mut *session, &ids, pieces).unwrap();
        let mut session = load(&backend, &fixture.model());
        let want = in_pieces(&mut *session, &ids, [ids.len()]).unwrap();
        let far = distance(&got, &want).unwrap();
        assert!(far <= TOLERANCE, "{name}: {far}");
        let [old, new] = [fixture.model(), made.model()].map(|path| path.display().to_string());
        let same = binary::run(["verify", &new, &old]);
        assert_eq!(same.code, 0, "{name}: {}{}", same.stdout, same.stderr);
    }
}

#[test]
fn what_has_no_layout_is_refused() {
    let cases = [
        (
            &["--layout", "half"][..],
            "bloom/dynamo",
            4,
            "only rotations have a layout",
        ),
        (
            &[
                "--layout",
                "interleaved",
                "--scale",
                "yarn",
                "--factor",
                "4",
            ],
            "llama/dynamo",
            4,
            "give --layout alone first",
        ),
    ];
    for (flags, name, code, says) in cases {
        let model = Fixture::named(name).model().display().to_string();
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.onnx");
        let path = out.display().to_string();
        let ran = binary::run(["rewrite", &model, "-o", &path].iter().chain(flags));
        assert_eq!(ran.code, code, "{name} {flags:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(says),
            "{name} {flags:?}: {}",
            ran.stderr
        );
        assert!(!out.exists());
    }
}
