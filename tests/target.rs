//! Results for a runtime run there, or are refused.

use std::fs;
use std::path::Path;

use posenc_ir::{Model, Tensor};
use posenc_runtime::{Backend, Dim, TractBackend};
use posenc_tests::binary::{self, Ran};
use posenc_tests::fixture::Fixture;
use tempfile::TempDir;

use crate::logits::{TOLERANCE, distance, load, logits, try_load};
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
    for (name, target, form, is_chosen) in [
        ("llama/dynamo23", "portable", Some("ops"), true),
        // It keeps its form; cosines of one sequence are repeated for all.
        ("llama/dynamo23", "tract", Some("onnx"), false),
        ("llama/dynamo", "tract", None, false),
        ("gpt_neox/torchscript", "ort-cpu", None, false),
        ("bloom/dynamo", "ort-cpu", None, false),
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
        assert_eq!(is_told, is_chosen, "{name} {target}");
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

/// Operators with and without a kernel on the processor: the table says what the runtime does.
#[test]
fn the_kernels_that_are_known_are_those_of_the_runtime() {
    let backend = onnxruntime();
    for (graph, why) in [
        (
            "(float16[2, 4, 32] q, float16[2, 4, 32] k, float16[2, 4, 32] v) => (float16[2, 4, 32] y) \
             { y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v) }",
            None,
        ),
        (
            "(bfloat16[2, 4, 32] q, bfloat16[2, 4, 32] k, bfloat16[2, 4, 32] v) => (bfloat16[2, 4, 32] y) \
             { y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v) }",
            Some("no MultiHeadAttention of bfloat16 for the processor"),
        ),
        (
            // With a mask of one axis or two, it is written as operators that the runtime has.
            "(float[2, 4, 64] x, float[64, 192] w, float[192] b, int32[2, 1, 4, 4] m) => (float[2, 4, 64] y) \
             { y = com.microsoft.Attention <num_heads = 2, do_rotary = 1> (x, w, b, m) }",
            Some("no Attention for the processor that rotates"),
        ),
        (
            "(float[2, 4, 64] x, float[64, 192] w, float[192] b) => (float[2, 4, 64] y) \
             { y = com.microsoft.Attention <num_heads = 2> (x, w, b) }",
            None,
        ),
        (
            "(float16[32, 2] table, int64[1] n) => (float16[1, 2, 4, 4] y) \
             { y = com.microsoft.RelativePositionBias <max_distance = 128> (table, n, n) }",
            Some("no RelativePositionBias for the processor"),
        ),
        (
            "(bfloat16[2, 2, 4, 16] x, int64[2, 4] p, bfloat16[8, 8] c, bfloat16[8, 8] s) => (bfloat16[2, 2, 4, 16] y) \
             { y = com.microsoft.RotaryEmbedding (x, p, c, s) }",
            Some("no RotaryEmbedding of bfloat16 for the processor"),
        ),
    ] {
        let text =
            format!("<ir_version: 10, opset_import: [\"\" : 21, \"com.microsoft\" : 1]> g {graph}");
        let folder = tempfile::tempdir().unwrap();
        let [model, out] = ["model.onnx", "out.onnx"].map(|name| folder.path().join(name));
        fs::write(&model, Model::parse(&text).unwrap().to_bytes().unwrap()).unwrap();
        let [from, to] = [&model, &out].map(|path| path.display().to_string());
        let ran = binary::run(["rewrite", &from, "-o", &to, "--target", "ort-cpu"]);
        let ours = why.map_or(ran.code == 0, |why| {
            ran.code == 4 && ran.stderr.contains(why)
        });
        assert!(ours, "{graph}: {} {}", ran.code, ran.stderr);
        assert_eq!(runs(&backend, &model), why.is_none(), "{graph}");
    }
}

/// Whether a runtime loads a model of fixed shapes and runs it with zeros.
fn runs(backend: &dyn Backend, model: &Path) -> bool {
    let Ok(mut session) = try_load(backend, model) else {
        return false;
    };
    let fixed = |dim: &Dim| dim.size().expect("a fixed size");
    let feeds: Vec<(String, Tensor)> = session
        .inputs()
        .iter()
        .map(|port| {
            let dims: Vec<usize> = port.dims.iter().flatten().map(fixed).collect();
            let zeros = vec![0.0; dims.iter().product()];
            (
                port.name.clone(),
                Tensor::from_f64(port.dtype.expect("a type"), &dims, &zeros),
            )
        })
        .collect();
    let feeds: Vec<(&str, Tensor)> = feeds
        .iter()
        .map(|(name, t)| (name.as_str(), t.clone()))
        .collect();
    session.run(&feeds, &[]).is_ok()
}
