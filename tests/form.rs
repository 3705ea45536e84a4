//! Rotations in another form compute what PyTorch computes, in ONNX Runtime.

use std::fs;
use std::path::{Path, PathBuf};

use posenc_runtime::Backend;
use posenc_tests::binary;
use posenc_tests::fixture::{self, Fixture};
use serde_json::Value;
use tempfile::TempDir;

use crate::logits::{TOLERANCE, distance, in_pieces, load, logits};
use crate::runtime::onnxruntime;

/// The largest accepted error of logits of a model in half precision.
const HALF_TOLERANCE: f64 = 2e-2;

/// The exports whose rotations consist of other operators than those asked for, with their form.
const EXPORTS: [(&str, &str); 9] = [
    ("llama-posids/torchscript", "ops"),
    ("llama/torchscript", "ops"),
    ("llama/dynamo", "ops"),
    ("llama/fp16", "ops"),
    ("llama/dynamo23", "onnx"),
    ("gptj/dynamo", "ops"),
    ("gpt_neox/torchscript", "ops"),
    ("phi3/torchscript", "ops"),
    ("gemma3-text/dynamo", "ops"),
];

/// What `rewrite` makes of a model, and its report.
pub(crate) struct Made {
    folder: TempDir,
    pub(crate) report: Value,
}

impl Made {
    pub(crate) fn model(&self) -> PathBuf {
        self.folder.path().join("out.onnx")
    }

    /// The form of each rotation.
    fn forms(&self) -> Vec<String> {
        let model = self.model().display().to_string();
        let report = binary::run(["inspect", &model, "--json"]).json();
        let all = report["encodings"].as_array().expect("encodings").iter();
        let ropes = all.filter(|e| e["kind"] == "rope");
        ropes
            .map(|e| e["form"].as_str().expect("a form").to_owned())
            .collect()
    }
}

pub(crate) fn made(model: &Path, flags: &[&str]) -> Made {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.onnx").display().to_string();
    let model = model.display().to_string();
    let own = ["rewrite", &model, "-o", &out, "--json"];
    let ran = binary::run(own.iter().chain(flags));
    assert_eq!(ran.code, 0, "{model} {flags:?}: {}", ran.stderr);
    Made {
        report: ran.json(),
        folder,
    }
}

/// A config in a folder, and its path.
fn written(config: &Value) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    fs::write(&file, config.to_string()).unwrap();
    (folder, file.display().to_string())
}

/// The largest difference from PyTorch over all runs.
pub(crate) fn far(backend: &dyn Backend, model: &Path, runs: &[fixture::Run]) -> f64 {
    let mut session = load(backend, model);
    let each = runs.iter().map(|run| {
        let got = logits(&mut *session, &run.inputs).unwrap();
        distance(&got, &run.outputs["logits"]).unwrap()
    });
    each.fold(0.0, f64::max)
}

pub(crate) fn tolerance(fixture: &Fixture) -> f64 {
    match fixture.exporter == "fp16" {
        true => HALF_TOLERANCE,
        false => TOLERANCE,
    }
}

/// The forms that an export is given, one after another. The last one raises its opset, where that is needed.
fn forms(first: &str) -> [&'static str; 3] {
    match first {
        "onnx" => ["ops", "contrib", "onnx"],
        _ => ["contrib", "ops", "onnx"],
    }
}

#[test]
fn every_form_computes_what_pytorch_computes() {
    let backend = onnxruntime();
    for (name, first) in EXPORTS {
        let fixture = Fixture::named(name);
        let runs: Vec<_> = fixture.runs().into_values().collect();
        let mut before = (fixture.model(), first);
        let mut kept = vec![];
        for form in forms(first) {
            let made = made(&before.0, &["--form", form]);
            assert_eq!(made.report["guarantee"], "rounding", "{name} {form}");
            assert_eq!(made.report["check"]["ok"], true, "{name} {form}");
            let edit = &made.report["edits"][0];
            assert_eq!(
                (&edit["from"]["form"], &edit["to"]["form"]),
                (&before.1.into(), &form.into()),
                "{name}"
            );
            let forms = made.forms();
            assert!(
                !forms.is_empty() && forms.iter().all(|own| own == form),
                "{name} {form}: {forms:?}"
            );
            let far = far(&backend, &made.model(), &runs);
            assert!(far <= tolerance(&fixture), "{name} {form}: {far}");
            before = (made.model(), form);
            kept.push(made);
        }
    }
}

#[test]
fn a_rescale_in_another_form_computes_what_pytorch_computes() {
    let backend = onnxruntime();
    let cases = [
        ("llama/torchscript", "contrib"),
        ("llama/dynamo", "contrib"),
        ("llama/dynamo", "onnx"),
        ("llama/dynamo23", "ops"),
        ("llama/dynamo23", "contrib"),
    ];
    for (name, form) in cases {
        let fixture = Fixture::named(name);
        for law in ["yarn", "dynamic", "longrope"] {
            let oracle = fixture.oracle(law);
            let (_folder, config) = written(&oracle.config);
            let flags = ["--to", "rope", "--hf-config", &config, "--form", form];
            let made = made(&fixture.model(), &flags);
            assert!(made.forms().iter().all(|own| own == form), "{name} {law}");
            let runs: Vec<_> = oracle.runs.into_values().collect();
            let far = far(&backend, &made.model(), &runs);
            assert!(far <= TOLERANCE, "{name} {law} {form}: {far}");
        }
    }
}

/// Models with a cache, written as `RotaryEmbedding`, as operators, for a longer context, and as `RotaryEmbedding`
/// again: twelve tokens, one after another, behind the others.
#[test]
fn steps_on_the_cache_compute_what_pytorch_computes_in_every_form() {
    let backend = onnxruntime();
    for name in ["llama/optimum", "gpt_neox/optimum"] {
        let fixture = Fixture::named(name);
        let oracle = fixture.oracle("yarn");
        let (_folder, config) = written(&oracle.config);
        let run = &oracle.runs["long"];
        let ids = run.inputs["input_ids"].to_i64s().unwrap();
        let steps = 12;
        let pieces = || std::iter::once(ids.len() - steps).chain(std::iter::repeat_n(1, steps));
        let mut before = fixture.model();
        let mut kept = vec![];
        for (flags, is_scaled) in [
            (&["--form", "contrib"][..], false),
            (&["--form", "ops"], false),
            (&["--to", "rope", "--hf-config", &config], true),
            (&["--form", "contrib"], true),
        ] {
            let made = made(&before, flags);
            let mut session = load(&backend, &made.model());
            let got = in_pieces(&mut *session, &ids, pieces()).unwrap();
            let far = distance(&got, &run.outputs["logits"]).unwrap();
            // Without the scaling, it is another function.
            let is_near = far <= TOLERANCE;
            assert_eq!(is_near, is_scaled, "{name} {flags:?}: {far}");
            before = made.model();
            kept.push(made);
        }
    }
}

#[test]
fn another_rotation_in_the_same_form_is_seen() {
    let backend = onnxruntime();
    let fixture = Fixture::named("llama/torchscript");
    let runs: Vec<_> = fixture.runs().into_values().collect();
    let made = made(
        &fixture.model(),
        &["--form", "contrib", "--to", "rope", "--theta", "500"],
    );
    assert!(far(&backend, &made.model(), &runs) > 100.0 * TOLERANCE);
}

#[test]
fn what_has_no_such_form_is_refused() {
    let cases = [
        (
            "bloom/dynamo",
            "contrib",
            "only rotations have another form",
        ),
        ("gpt2/dynamo", "onnx", "only rotations have another form"),
    ];
    for (name, form, says) in cases {
        let model = Fixture::named(name).model().display().to_string();
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.onnx");
        let path = out.display().to_string();
        let ran = binary::run(["rewrite", &model, "--form", form, "-o", &path]);
        assert_eq!(ran.code, 4, "{name} {form}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{name} {form}: {}", ran.stderr);
        assert!(!out.exists());
    }
}
