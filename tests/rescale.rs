//! Scaled models compared with PyTorch: the logits of Hugging Face's eager models with the same
//! weights and that `rope_scaling`, in both runtimes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use posenc_ir::{DType, Tensor};
use posenc_runtime::{Backend, TractBackend};
use posenc_tests::binary;
use posenc_tests::fixture::{self, Fixture, Run};
use tempfile::TempDir;

use crate::logits::{TOLERANCE, distance, empty_cache, load, logits, run_all};
use crate::runtime::onnxruntime;

/// The largest accepted error of logits of a model in half precision.
const HALF_TOLERANCE: f64 = 2e-2;

/// The oracles of each family.
const ORACLES: &[(&str, &[&str])] = &[
    (
        "llama",
        &[
            "base",
            "linear",
            "dynamic",
            "yarn",
            "yarn_attn",
            "yarn_beta",
            "longrope",
            "llama3",
            "theta1e6",
        ],
    ),
    (
        "gpt_neox",
        &["linear", "dynamic", "yarn", "longrope", "llama3"],
    ),
    ("phi3", &["dynamic", "yarn", "longrope"]),
];

/// A model in a temporary folder.
struct Scaled {
    folder: TempDir,
}

impl Scaled {
    fn model(&self) -> PathBuf {
        self.folder.path().join("out.onnx")
    }
}

/// The model that `rewrite --hf-config` makes from a fixture.
fn scaled(fixture: &Fixture, config: &serde_json::Value) -> Scaled {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.json");
    fs::write(&file, config.to_string()).unwrap();
    let out = folder.path().join("out.onnx");
    let [model, config, out] = [&fixture.model(), &file, &out].map(|p| p.display().to_string());
    let flags = ["--to", "rope", "--hf-config", &config, "-o", &out, "--json"];
    let ran = binary::run(["rewrite", &model].into_iter().chain(flags));
    let report = ran.json();
    // Without edits, nothing is checked.
    let is_unchanged = report["edits"].as_array().is_some_and(Vec::is_empty);
    let is_checked = report["check"]["ok"] == true;
    assert!(is_checked || is_unchanged, "{}: {report}", fixture.name());
    Scaled { folder }
}

/// The first sequence of a batch.
fn first(tensor: &Tensor) -> Tensor {
    let one = tensor.bytes().len() / tensor.dims()[0];
    let dims = [&[1], &tensor.dims()[1..]].concat();
    Tensor::new(tensor.dtype(), dims, tensor.bytes().slice(..one)).expect("a part of a tensor")
}

/// The inputs of a run of an export, and its logits. The caches of rotary operators in opset-23 exports have
/// batch 1, and ONNX Runtime refuses other batches before a rewrite.
fn untouched(fixture: &Fixture, run: &Run) -> (BTreeMap<String, Tensor>, Tensor) {
    let (inputs, want) = (run.inputs.clone(), &run.outputs["logits"]);
    if fixture.exporter == "dynamo23" {
        let inputs = inputs.iter().map(|(n, t)| (n.clone(), first(t)));
        (inputs.collect(), first(want))
    } else {
        (inputs, want.clone())
    }
}

fn tolerance(fixture: &Fixture) -> f64 {
    if fixture.exporter == "fp16" {
        HALF_TOLERANCE
    } else {
        TOLERANCE
    }
}

/// The fixtures without a fixed length whose family has oracles, with each oracle.
fn oracles() -> Vec<(Fixture, &'static str)> {
    let mut found = vec![];
    for fixture in fixture::all() {
        let names = ORACLES.iter().find(|(family, _)| *family == fixture.family);
        if let Some((_, names)) = names
            && fixture.exporter != "dynamo-static"
        {
            found.extend(names.iter().map(|name| (fixture.clone(), *name)));
        }
    }
    assert!(found.len() >= 79, "{} oracles", found.len());
    found
}

/// The runs of an oracle whose logits a backend does not compute.
fn wrong(backend: &dyn Backend, fixture: &Fixture, name: &str, model: &Path) -> Vec<String> {
    let mut session = load(backend, model);
    let mut wrong = vec![];
    let runs = fixture.oracle(name).runs;
    let lengths: Vec<&str> = runs.keys().map(String::as_str).collect();
    assert_eq!(lengths, ["edge", "edge1", "long", "short"], "{name}");
    for (length, run) in runs {
        let found = logits(&mut *session, &run.inputs);
        let found = found.and_then(|got| distance(&got, &run.outputs["logits"]));
        if !found.as_ref().is_ok_and(|d| *d <= tolerance(fixture)) {
            let (fixture, backend) = (fixture.name(), backend.name());
            wrong.push(format!("{fixture} {name} {length} on {backend}: {found:?}"));
        }
    }
    wrong
}

#[test]
fn every_scaling_of_every_export_is_what_pytorch_computes() {
    let backend = onnxruntime();
    let mut bad = vec![];
    for (fixture, name) in oracles() {
        let scaled = scaled(&fixture, &fixture.oracle(name).config);
        bad.extend(wrong(&backend, &fixture, name, &scaled.model()));
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn tract_computes_the_same_scalings() {
    let backend = TractBackend::default();
    let mut bad = vec![];
    let (_, names) = ORACLES[0];
    for fixture in ["llama/dynamo", "llama/torchscript"].map(Fixture::named) {
        for name in names {
            let scaled = scaled(&fixture, &fixture.oracle(name).config);
            bad.extend(wrong(&backend, &fixture, name, &scaled.model()));
        }
    }
    assert!(bad.is_empty(), "{}", bad.join("\n"));
}

#[test]
fn the_logits_of_one_scaling_are_not_those_of_another() {
    let backend = onnxruntime();
    let fixture = Fixture::named("llama/torchscript");
    let (_, names) = ORACLES[0];
    for name in names {
        let scaled = scaled(&fixture, &fixture.oracle(name).config);
        let mut session = load(&backend, &scaled.model());
        for other in names.iter().filter(|other| *other != name) {
            let run = &fixture.oracle(other).runs["long"];
            let got = logits(&mut *session, &run.inputs).unwrap();
            let far = distance(&got, &run.outputs["logits"]).unwrap();
            assert!(far > 100.0 * TOLERANCE, "{name} passes as {other}: {far}");
        }
    }
}

#[test]
fn untouched_fixtures_compute_what_pytorch_computes() {
    let backend = onnxruntime();
    let mut seen = 0;
    for fixture in fixture::all() {
        let mut session = load(&backend, &fixture.model());
        for (name, run) in fixture.runs() {
            let pixels = run.inputs.contains_key("pixel_values");
            if pixels || run.outputs.contains_key("last_hidden_state") {
                continue; // the tests of their encodings run these
            }
            let (inputs, want) = untouched(&fixture, &run);
            let got = logits(&mut *session, &inputs).unwrap();
            let far = distance(&got, &want).unwrap();
            assert!(
                far <= tolerance(&fixture),
                "{} {name}: {far}",
                fixture.name()
            );
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} runs");
}

#[test]
fn a_step_on_the_cache_equals_the_whole_sequence_after_yarn() {
    let backend = onnxruntime();
    for name in ["llama/optimum", "gpt_neox/optimum"] {
        let fixture = Fixture::named(name);
        let oracle = fixture.oracle("yarn");
        let scaled = scaled(&fixture, &oracle.config);
        let mut session = load(&backend, &scaled.model());
        let run = &oracle.runs["long"];
        let ids = run.inputs["input_ids"].to_i64s().unwrap();
        let length = ids.len();
        let feed = |ids: &[i64], total: usize| {
            let token = Tensor::from_i64(&[1, ids.len()], ids);
            let mask = Tensor::from_i64(&[1, total], &vec![1; total]);
            let first = i64::try_from(total - ids.len()).unwrap();
            let places: Vec<i64> = (first..).take(ids.len()).collect();
            let places = Tensor::from_i64(&[1, ids.len()], &places);
            BTreeMap::from([
                ("input_ids".to_owned(), token),
                ("attention_mask".to_owned(), mask),
                ("position_ids".to_owned(), places),
            ])
        };
        let mut inputs = feed(&ids[..length - 1], length - 1);
        for port in session.inputs() {
            let cache = || empty_cache(port, 1);
            inputs.entry(port.name.clone()).or_insert_with(cache);
        }
        let list = |inputs: &BTreeMap<String, Tensor>| -> Vec<(String, Tensor)> {
            inputs.iter().map(|(n, t)| (n.clone(), t.clone())).collect()
        };
        let before = run_all(&mut *session, &list(&inputs)).unwrap();
        let mut step = feed(&ids[length - 1..], length);
        for (name, tensor) in before {
            if let Some(rest) = name.strip_prefix("present") {
                step.insert(format!("past_key_values{rest}"), tensor);
            }
        }
        let got = run_all(&mut *session, &list(&step))
            .unwrap()
            .swap_remove(0)
            .1;
        let want = &run.outputs["logits"];
        let row = want.bytes().len() / length;
        let last = want.bytes().slice(want.bytes().len() - row..);
        let want = Tensor::new(DType::F32, vec![1, 1, want.dims()[2]], last).unwrap();
        let far = distance(&got, &want).unwrap();
        assert!(far <= TOLERANCE, "{name}: {far}");
        // The same token one position early is another token.
        let early = Tensor::from_i64(&[1, 1], &[i64::try_from(length).unwrap() - 2]);
        step.insert("position_ids".into(), early);
        let moved = run_all(&mut *session, &list(&step))
            .unwrap()
            .swap_remove(0)
            .1;
        assert!(
            distance(&moved, &want).unwrap() > 10.0 * TOLERANCE,
            "{name}"
        );
    }
}

#[test]
fn longer_tables_keep_their_rows() {
    let backend = onnxruntime();
    for exporter in ["torchscript", "dynamo", "optimum"] {
        let fixture = Fixture::named(&format!("gptj/{exporter}"));
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.onnx");
        let longer = |length: &str, layers: &str| {
            let [model, out] = [&fixture.model(), &out].map(|p| p.display().to_string());
            let flags = ["--to", "rope", "--layout", "interleaved"];
            let lengths = ["--rotary-dim", "8", "--max-length", length];
            let lengths = lengths.into_iter().chain(["--layers", layers]);
            let to = ["-o", &out, "--json"];
            let all = ["rewrite", &model].into_iter().chain(flags);
            binary::run(all.chain(lengths).chain(to)).json()
        };
        assert_eq!(longer("64", "0-1")["guarantee"], "bits", "{exporter}");
        // More rows for one layer do not change the others that read the same table.
        let of_one = longer("128", "0");
        assert_eq!(of_one["guarantee"], "new-function", "{exporter}");
        let report = longer("128", "0-1");
        let shortest = |which: &str| report["limits"][which][0]["length"].clone();
        assert_eq!(shortest("before"), 64, "{exporter}");
        assert_eq!(shortest("after"), 128, "{exporter}");
        assert_eq!(report["check"]["ok"], true, "{exporter}: {report}");
        let [mut old, mut new] = [fixture.model(), out].map(|path| load(&backend, &path));
        let mut run = |length: usize| {
            let ids: Vec<i64> = (1..).take(length).map(|n| n % 50).collect();
            let ids = Tensor::from_i64(&[1, length], &ids);
            let mask = Tensor::from_i64(&[1, length], &vec![1; length]);
            let inputs = [("input_ids", ids), ("attention_mask", mask)];
            let inputs = BTreeMap::from(inputs.map(|(name, tensor)| (name.to_owned(), tensor)));
            [&mut old, &mut new].map(|session| logits(&mut **session, &inputs))
        };
        let [was, is] = run(60);
        assert_eq!(was.unwrap().bytes(), is.unwrap().bytes(), "{exporter}");
        let [was, is] = run(100);
        let why = was.unwrap_err();
        let is_index = why.contains("out of data bounds") || why.contains("Out of range value");
        assert!(is_index, "{exporter}: {why}");
        assert_eq!(is.unwrap().dims()[..2], [1, 100], "{exporter}");
    }
}
