//! Swapped decoders with a cache: fed at once or in steps, and like the same model without a cache.

use std::fs;
use std::path::{Path, PathBuf};

use posenc_ir::Tensor;
use posenc_runtime::feeds::Random;
use posenc_tests::fixture::Fixture;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Swapped, Wrong, family, rewritten, swapped};
use crate::logits::{TOLERANCE, distance, in_pieces, load, try_load};
use crate::runtime::onnxruntime;

/// What the mini models with a cache are swapped to.
const TARGETS: &[&str] = &[
    "none",
    "learned",
    "sinusoidal",
    "rope",
    "rope-interleaved",
    "rope-partial",
    "alibi",
    "t5",
    "relative-clipped",
    "shaw",
    "transformer-xl",
];

/// How a sequence of this length is fed: at once, in single steps, in uneven pieces.
fn ways(length: usize) -> [Vec<usize>; 3] {
    [vec![length], vec![1; length], vec![length - 8, 1, 5, 2]]
}

/// The ways of feeding a model that give other logits than these.
fn wrong(model: &Path, ids: &[i64], want: &Tensor) -> Vec<String> {
    let mut session = match try_load(&onnxruntime(), model) {
        Ok(session) => session,
        Err(error) => return vec![error],
    };
    let mut bad = vec![];
    for pieces in ways(ids.len()) {
        let got = in_pieces(&mut *session, ids, pieces.iter().copied());
        let far = got.and_then(|got| distance(&got, want));
        if !far.as_ref().is_ok_and(|far| *far <= TOLERANCE) {
            bad.push(format!("in pieces of {pieces:?}: {far:?}"));
        }
    }
    bad
}

#[test]
fn the_mini_models_step_as_pytorch_computes_the_whole() {
    let mut bad = Wrong::default();
    for source in family("mini-cached") {
        for target in TARGETS {
            let target = Fixture::named(&format!("mini/{target}"));
            let name = format!("{} to {}", source.name(), target.exporter);
            match swapped(&source.model(), &target) {
                Ok(made) => {
                    let run = &target.runs()["full"];
                    let ids = run.inputs["input_ids"].to_i64s().unwrap();
                    let want = &run.outputs["logits"];
                    bad.add(&name, wrong(&made.model(), &ids, want));
                }
                Err(why) => bad.add(&name, [why]),
            }
        }
    }
    bad.none();
}

#[test]
fn a_model_that_forgets_or_counts_anew_is_told() {
    let backend = onnxruntime();
    for encoding in ["learned", "rope", "alibi", "t5"] {
        let model = Fixture::named(&format!("mini-cached/{encoding}"));
        let run = &Fixture::named(&format!("mini/{encoding}")).runs()["full"];
        let ids = run.inputs["input_ids"].to_i64s().unwrap();
        let want = &run.outputs["logits"];
        assert_eq!(wrong(&model.model(), &ids, want), [""; 0], "{encoding}");
        let mut other = ids.clone();
        other.rotate_left(1);
        assert_eq!(wrong(&model.model(), &other, want).len(), 3, "{encoding}");
        let mut session = load(&backend, &model.model());
        let alone = in_pieces(&mut *session, &ids[1..], [ids.len() - 1]).unwrap();
        let late = want.bytes().slice(want.bytes().len() / ids.len()..);
        let dims = vec![1, ids.len() - 1, want.dims()[2]];
        let late = Tensor::new(want.dtype(), dims, late).unwrap();
        assert!(distance(&alone, &late).unwrap() > 100.0 * TOLERANCE);
    }
}

/// Exports of one model, with a cache and without.
const PAIRS: &[(&str, &str)] = &[
    ("gpt2/optimum", "gpt2/dynamo"),
    ("llama/optimum", "llama/torchscript"),
    ("gpt_neox/optimum", "gpt_neox/torchscript"),
    ("gptj/optimum", "gptj/torchscript"),
    ("gemma3-text/optimum", "gemma3-text/dynamo"),
];

/// Numbers for these encodings in a file for `--params`, large enough to matter.
struct Numbers {
    folder: TempDir,
}

impl Numbers {
    fn of(fixture: &Fixture) -> Self {
        let (config, truth) = (fixture.config(), fixture.truth());
        let width = ["hidden_size", "n_embd"].map(|key| config[key].as_u64());
        let width = width.into_iter().flatten().next().unwrap();
        let heads = truth["attention"]["heads"].as_u64().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(format!("{name}.safetensors"));
        safetensors(&file("learned"), "position_embedding", [64, width]);
        safetensors(&file("t5"), "relative_attention_bias", [32, heads]);
        Self { folder }
    }

    fn path(&self, encoding: &str) -> Option<PathBuf> {
        let path = self.folder.path().join(format!("{encoding}.safetensors"));
        path.is_file().then_some(path)
    }
}

/// A file of one tensor of numbers in −1 … 1.
fn safetensors(path: &Path, name: &str, dims: [u64; 2]) {
    let count = dims[0] * dims[1];
    let entry = json!({ "dtype": "F32", "shape": dims, "data_offsets": [0, 4 * count] });
    let header = Value::from_iter([(name, entry)]).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    let mut random = Random::new(count);
    for _ in 0..count {
        bytes.extend((random.uniform(-1.0, 1.0) as f32).to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

const SWAPS: &[(&str, &str)] = &[
    ("none", "--to none"),
    ("learned", "--to learned"),
    ("rope", "--to rope --theta 500"),
    ("alibi", "--to alibi"),
    ("t5", "--to t5-bias"),
];

/// The first logits of a model at once.
fn at_once(model: &Path, ids: &[i64]) -> Result<Tensor, String> {
    let mut session = try_load(&onnxruntime(), model)?;
    in_pieces(&mut *session, ids, [ids.len()])
}

#[test]
fn swapped_exports_with_a_cache_step_as_those_without_compute_the_whole() {
    let mut bad = Wrong::default();
    for (cached, plain) in PAIRS {
        let [cached, plain] = [cached, plain].map(|name| Fixture::named(name));
        let numbers = Numbers::of(&plain);
        let ids: Vec<i64> = (0..21).map(|i| 3 + 11 * i % 90).collect();
        let before = at_once(&plain.model(), &ids).unwrap();
        bad.add(&cached.name(), wrong(&cached.model(), &ids, &before));
        for (encoding, flags) in SWAPS {
            let name = format!("{} to {encoding}", cached.name());
            let params = numbers.path(encoding);
            let made = |f: &Fixture| rewritten(&f.model(), flags, params.as_deref());
            let whole = made(&plain).and_then(|made| at_once(&made.model(), &ids));
            let both: Result<(Swapped, Tensor), String> =
                made(&cached).and_then(|c| Ok((c, whole?)));
            match both {
                Ok((made, want)) => {
                    bad.add(&name, wrong(&made.model(), &ids, &want));
                    let far = distance(&before, &want);
                    let same = far.is_ok_and(|far| far < 100.0 * TOLERANCE);
                    bad.add(&name, same.then(|| "changes nothing".to_owned()));
                }
                Err(why) => bad.add(&name, [why]),
            }
        }
    }
    bad.none();
}
