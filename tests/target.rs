//! Results for a runtime run there, or are refused.

use posenc_runtime::TractBackend;
use posenc_tests::binary::{self, Ran};
use posenc_tests::fixture::Fixture;
use tempfile::TempDir;

use crate::logits::{TOLERANCE, distance, load, logits};
use crate::runtime::onnxruntime;

/// A model rewritten for a target.
fn rewritten(name: &str, flags: &[&str]) -> (TempDir, Ran) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.onnx").display().to_string();
    let model = Fixture::named(name).model().display().to_string();
    let own = ["rewrite", &model, "-o", &out, "--json"];
    let ran = binary::run(own.iter().chain(flags));
    assert_eq!(
        folder.path().join("out.onnx").exists(),
        ran.code == 0,
        "{name} {flags:?}"
    );
    (folder, ran)
}

#[test]
fn a_target_picks_a_form_that_it_runs() {
    for (name, target, form) in [
        ("llama/dynamo23", "portable", Some("ops")),
        ("llama/dynamo23", "tract", None),
        ("llama/dynamo", "tract", None),
        ("gpt_neox/torchscript", "ort-cpu", None),
        ("bloom/dynamo", "ort-cpu", None),
    ] {
        let fixture = Fixture::named(name);
        let (folder, ran) = rewritten(name, &["--target", target]);
        let report = ran.json();
        let edits = report["edits"].as_array().unwrap();
        let written = edits
            .first()
            .map(|edit| edit["to"]["form"].as_str().unwrap());
        assert_eq!(written, form, "{name} {target}");
        let told = report["inferred"].as_array().unwrap();
        let source = format!("target {target}");
        let is_told = told
            .iter()
            .any(|own| own["name"] == "form" && own["source"] == source);
        assert_eq!(is_told, form.is_some(), "{name} {target}");
        let out = folder.path().join("out.onnx");
        let mut session = match target {
            "tract" => load(&TractBackend::new(), &out),
            _ => load(&onnxruntime(), &out),
        };
        for (case, run) in fixture.runs() {
            let got = logits(&mut *session, &run.inputs).unwrap();
            let far = distance(&got, &run.outputs["logits"]).unwrap();
            assert!(far <= TOLERANCE, "{name} {target} {case}: {far}");
        }
    }
}

#[test]
fn what_a_target_lacks_is_refused() {
    let both = ["--target", "portable", "--form", "contrib"];
    for (name, flags, code, says) in [
        (
            "llama/ort-O2",
            &["--target", "portable"][..],
            4,
            "com.microsoft is no operator of ONNX",
        ),
        (
            "mini/transformer-xl",
            &["--target", "tract"],
            4,
            "does not run in tract",
        ),
        ("llama/dynamo", &both, 2, "not portable"),
    ] {
        let (_folder, ran) = rewritten(name, flags);
        assert_eq!(ran.code, code, "{name} {flags:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(says),
            "{name} {flags:?}: {}",
            ran.stderr
        );
    }
}

/// The tests have no CUDA: a result for it is not run, which is told, and refused where it has to be run.
#[test]
fn a_target_that_is_not_there_is_told() {
    let (_folder, ran) = rewritten("llama/dynamo", &["--target", "ort-cuda"]);
    let report = ran.json();
    let warnings = report["warnings"].as_array().unwrap().iter();
    let mut warnings = warnings.filter_map(|warning| warning.as_str());
    let is_told = warnings.any(|why| why.contains("not run for the target ort-cuda"));
    let has_cuda = binary::run([
        "verify",
        "--provider",
        "cuda",
        "fixtures/mini/rope/model.onnx",
    ]);
    assert_eq!(is_told, has_cuda.code == 5, "{}", has_cuda.stderr);
    let (_folder, ran) = rewritten("llama/dynamo", &["--target", "ort-cuda", "--verify"]);
    assert_eq!(ran.code, has_cuda.code, "{}", ran.stderr);
}
