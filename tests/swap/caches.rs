//! Swapped decoders with a cache: logits do not depend on how the tokens are split into steps, and
//! are those of the same model without a cache.

use std::path::{Path, PathBuf};

use posenc_ir::Tensor;
use posenc_tests::fixture::Fixture;
use posenc_tests::safetensors;
use tempfile::TempDir;

use super::{Swapped, Wrong, clearly_differ, family, rewritten, swapped};
use crate::logits::{TOLERANCE, distance, in_pieces, load, try_load};
use crate::runtime::onnxruntime;

/// The targets of the mini models with a cache.
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

/// Splits of a sequence: all at once, single steps, uneven pieces.
fn splits(length: usize) -> [Vec<usize>; 3] {
    [vec![length], vec![1; length], vec![length - 8, 1, 5, 2]]
}

/// How far the logits of each split are from these.
fn distances(model: &Path, ids: &[i64], want: &Tensor) -> Result<Vec<(Vec<usize>, f64)>, String> {
    let mut session = try_load(&onnxruntime(), model)?;
    let measured = splits(ids.len()).into_iter().map(|pieces| {
        let got = in_pieces(&mut *session, ids, pieces.iter().copied());
        let far = got.and_then(|got| distance(&got, want));
        let far = far.map_err(|error| format!("in pieces of {pieces:?}: {error}"))?;
        Ok((pieces, far))
    });
    measured.collect()
}

/// The splits whose logits are not these, or the reason why they cannot be compared.
fn wrong(model: &Path, ids: &[i64], want: &Tensor) -> Vec<String> {
    match distances(model, ids, want) {
        Ok(measured) => {
            let wrong = measured.iter().filter(|(_, far)| *far > TOLERANCE);
            let lines = wrong.map(|(pieces, far)| format!("in pieces of {pieces:?}: {far}"));
            lines.collect()
        }
        Err(error) => vec![error],
    }
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
fn other_tokens_and_restarted_positions_are_noticed() {
    let backend = onnxruntime();
    for encoding in ["learned", "rope", "alibi", "t5"] {
        let model = Fixture::named(&format!("mini-cached/{encoding}"));
        let run = &Fixture::named(&format!("mini/{encoding}")).runs()["full"];
        let ids = run.inputs["input_ids"].to_i64s().unwrap();
        let want = &run.outputs["logits"];
        assert_eq!(wrong(&model.model(), &ids, want), [""; 0], "{encoding}");
        let mut other = ids.clone();
        other.rotate_left(1);
        for (pieces, far) in distances(&model.model(), &other, want).unwrap() {
            assert!(far > 100.0 * TOLERANCE, "{encoding}, {pieces:?}: {far}");
        }
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

/// Files for `--params` with values large enough to change the logits.
struct Params {
    folder: TempDir,
}

impl Params {
    fn of(fixture: &Fixture) -> Self {
        let (config, truth) = (fixture.config(), fixture.truth());
        let width = ["hidden_size", "n_embd"].map(|key| config[key].as_u64());
        let width = width.into_iter().flatten().next().unwrap();
        let heads = truth["attention"]["heads"].as_u64().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(format!("{name}.safetensors"));
        safetensors::random(&file("learned"), "position_embedding", [64, width]);
        safetensors::random(&file("t5"), "relative_attention_bias", [32, heads]);
        Self { folder }
    }

    fn path(&self, encoding: &str) -> Option<PathBuf> {
        let path = self.folder.path().join(format!("{encoding}.safetensors"));
        path.is_file().then_some(path)
    }
}

const SWAPS: &[(&str, &str)] = &[
    ("none", "--to none"),
    ("learned", "--to learned"),
    ("rope", "--to rope --theta 500"),
    ("alibi", "--to alibi"),
    ("t5", "--to t5-bias"),
];

/// The logits of a model that is given all tokens at once.
fn at_once(model: &Path, ids: &[i64]) -> Result<Tensor, String> {
    let mut session = try_load(&onnxruntime(), model)?;
    in_pieces(&mut *session, ids, [ids.len()])
}

#[test]
fn swapped_exports_with_a_cache_step_as_those_without_compute_the_whole() {
    let mut bad = Wrong::default();
    for (cached, plain) in PAIRS {
        let [cached, plain] = [cached, plain].map(|name| Fixture::named(name));
        let files = Params::of(&plain);
        let ids: Vec<i64> = (0..21).map(|i| 3 + 11 * i % 90).collect();
        let before = at_once(&plain.model(), &ids).unwrap();
        bad.add(&cached.name(), wrong(&cached.model(), &ids, &before));
        for (encoding, flags) in SWAPS {
            let name = format!("{} to {encoding}", cached.name());
            let params = files.path(encoding);
            let made = |f: &Fixture| rewritten(&f.model(), flags, params.as_deref());
            let whole = made(&plain).and_then(|made| at_once(&made.model(), &ids));
            let both: Result<(Swapped, Tensor), String> =
                made(&cached).and_then(|c| Ok((c, whole?)));
            match both {
                Ok((made, want)) => {
                    bad.add(&name, wrong(&made.model(), &ids, &want));
                    bad.add(
                        &name,
                        clearly_differ(&want, &before, "the unchanged model").err(),
                    );
                }
                Err(why) => bad.add(&name, [why]),
            }
        }
    }
    bad.none();
}
