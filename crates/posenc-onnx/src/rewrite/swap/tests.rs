//! Requests against a small causal model without any encoding: two layers of three heads.

use std::path::PathBuf;

use posenc_ir::Model;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::json;

use super::branch::swap;
use crate::detect::context::Context;
use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, SIZE, Sketch};
use crate::plan::numbers::{Init, Numbers};
use crate::plan::swap::spec::EncodingSpec;
use crate::plan::swap::{self, SwapPlan};
use crate::prove::swap::Proof;
use crate::request::{Request, Tensors};
use crate::rewrite::rewrite;
use posenc_encodings::families::alibi;
use posenc_encodings::families::sinusoidal::SinusoidalTerm;
use posenc_encodings::kind::{Kind, Stack};
use posenc_encodings::param::{Given, Value};

fn model() -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    for _ in 0..2 {
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let scale = s.float((SIZE as f64).powf(-0.5));
        let scores = s.op("Mul", &[&scores, &scale]);
        let at = s.range();
        let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
        let later = s.op("Greater", &[&columns, &rows]);
        let low = s.float(-1e9);
        let scores = s.op("Where", &[&later, &low, &scores]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        x = s.op("Add", &[&x, &y]);
    }
    s.model(17, &[&x])
}

/// What a request for a kind means.
fn means(kind: Kind, change: impl Fn(&mut Request)) -> Result<Option<SwapPlan>, String> {
    let model = model();
    let found = detect(&model, &Options::default());
    let context = Context {
        model: &model,
        found: &found,
    };
    let mut request = Request {
        to: Some(kind),
        ..Request::default()
    };
    change(&mut request);
    swap::plan(&context, &request).map_err(|e| e.to_string())
}

/// A file of tensors that count up from 1.
fn file(tensors: &[(&str, &[usize])]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.safetensors");
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, dims)| {
            let count: usize = dims.iter().product();
            let bytes = (1..=count).flat_map(|i| (i as f32).to_le_bytes());
            ((*name).to_owned(), dims.to_vec(), bytes.collect())
        })
        .collect();
    let views = data.iter().map(|(name, dims, bytes)| {
        let view = TensorView::new(Dtype::F32, dims.clone(), bytes).unwrap();
        (name.clone(), view)
    });
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
    (folder, path)
}

#[test]
fn nothing_to_remove_is_nothing_to_do() {
    assert!(means(Kind::None, |_| {}).unwrap().is_none());
}

#[test]
fn tables_start_from_zeros_and_with_a_seed_from_numbers() {
    let of = |seed: Option<u64>| {
        let planned = means(Kind::T5Bias, |r| r.parameters.seed = seed)
            .unwrap()
            .unwrap();
        assert_eq!((planned.sites.len(), planned.groups.len()), (2, 1));
        match planned.groups[0].new.clone() {
            EncodingSpec::ScoreBias(spec) => {
                let params = spec.bias.params();
                assert_eq!(params["num_buckets"], 32);
                assert_eq!(params["bidirectional"], false);
                spec.tensors[0].values(&[32, HEADS]).unwrap()
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(of(None).iter().all(|v| *v == 0.0));
    assert!(of(Some(1)).iter().all(|v| *v != 0.0));
    assert_eq!(of(Some(1)), of(Some(1)));
    assert_ne!(of(Some(1)), of(Some(2)));
    // Layers whose vectors are their own start elsewhere each.
    let planned = means(Kind::Shaw, |r| r.parameters.seed = Some(1))
        .unwrap()
        .unwrap();
    assert_eq!(planned.groups.len(), 2);
}

#[test]
fn zeros_are_proven_by_other_numbers() {
    let planned = means(Kind::RelativeBias, |_| {}).unwrap().unwrap();
    let EncodingSpec::ScoreBias(spec) = &planned.groups[0].new else {
        panic!()
    };
    assert_eq!(spec.tensors, [Numbers::Start(Init::Zero)]);
    let random = planned.with_random_values();
    assert_ne!(random, planned.groups);
    let given = planned.with(random);
    assert_eq!(given.with_random_values(), given.groups);
}

#[test]
fn values_of_a_layer_win_over_those_of_all() {
    let (_folder, path) = file(&[
        ("relative_bias", &[5, HEADS]),
        ("layers.1.relative_bias", &[7, HEADS]),
    ]);
    let planned = means(Kind::RelativeBias, |r| {
        r.params = Some(Tensors::open(&path).unwrap())
    });
    let planned = planned.unwrap().unwrap();
    let clips: Vec<(Option<u64>, Vec<usize>)> = planned
        .groups
        .iter()
        .map(|g| match &g.new {
            EncodingSpec::ScoreBias(spec) => {
                let clip = spec.bias.params()["max_distance"].as_u64();
                (clip, g.sites.clone())
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(clips, [(Some(2), vec![0]), (Some(3), vec![1])]);
}

#[test]
fn tensors_of_some_layers_are_refused_where_others_have_none() {
    let (_folder, path) = file(&[("layers.1.relative_bias", &[7, HEADS])]);
    let of = |layers: Option<&str>| {
        means(Kind::RelativeBias, |r| {
            r.params = Some(Tensors::open(&path).unwrap());
            r.layers = layers.map(|list| list.parse().unwrap());
        })
    };
    let error = of(None).map(|_| ()).unwrap_err().to_string();
    let want = "layers.1.relative_bias is given, but layer 0 has no relative_bias";
    assert!(error.contains(want), "{error}");
    assert_eq!(of(Some("1")).unwrap().unwrap().sites, [1]);
}

#[test]
fn layers_are_chosen_by_their_place() {
    let planned = means(Kind::Alibi, |r| r.layers = Some("1".parse().unwrap()));
    assert_eq!(planned.unwrap().unwrap().sites, [1]);
}

#[test]
fn requests_that_do_not_fit_are_refused_with_what_to_do() {
    let refused = |kind, change: &dyn Fn(&mut Request)| means(kind, change).unwrap_err();
    let layers = |list: &'static str| move |r: &mut Request| r.layers = Some(list.parse().unwrap());
    let cases: Vec<(String, &str)> = vec![
        (
            refused(Kind::Alibi, &layers("0-2")),
            "`layers` names layer 2",
        ),
        (
            refused(Kind::Learned, &layers("0")),
            "`layers` cannot be used",
        ),
        (refused(Kind::Learned, &|_| {}), "give `max-length`"),
        (
            refused(Kind::Alibi, &|r| r.stack = Some(Stack::Encoder)),
            "remove `stack` encoder",
        ),
        (
            refused(Kind::Alibi, &|r| {
                let slopes = Value::Numbers(vec![0.5; 2]);
                r.parameters.family.set(&alibi::FAMILY.params[0], slopes)
            }),
            "`slopes` has 2 numbers, but attention has 3 heads",
        ),
        (
            refused(Kind::T5Bias, &|r| {
                r.parameters.family = Given::from_iter([("max-distance", Value::Count(8))])
            }),
            "leave nothing between",
        ),
        (
            refused(Kind::Rope, &|r| r.parameters.rotary_dim = Some(SIZE + 2)),
            "rotary width must be even",
        ),
        (refused(Kind::Disentangled, &|_| {}), "found, not written"),
    ];
    for (why, wanted) in cases {
        assert!(why.contains(wanted), "{why:?} has no {wanted:?}");
    }
}

#[test]
fn files_that_do_not_fit_are_refused_by_name() {
    type Listed = &'static [(&'static str, &'static [usize])];
    let cases: [(Kind, Listed, &str); 5] = [
        (Kind::Alibi, &[("slope", &[HEADS])], "no tensor named slope"),
        (
            Kind::Alibi,
            &[("slopes", &[HEADS + 1])],
            "slopes of `params` has shape [4]",
        ),
        (
            Kind::RelativeBias,
            &[("relative_bias", &[6, HEADS])],
            "has 6 rows",
        ),
        (
            Kind::T5Bias,
            &[("layers.7.relative_attention_bias", &[32, HEADS])],
            "no tensor named layers.7",
        ),
        (
            Kind::Shaw,
            &[("encoder.relative_key", &[5, SIZE])],
            "no tensor named encoder.relative_key",
        ),
    ];
    for (kind, tensors, wanted) in cases {
        let (_folder, path) = file(tensors);
        let why = means(kind, |r| r.params = Some(Tensors::open(&path).unwrap())).unwrap_err();
        assert!(why.contains(wanted), "{why:?} has no {wanted:?}");
    }
}

#[test]
fn half_precision_is_read_and_integers_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.safetensors");
    let write = |dtype, bytes: &[u8]| {
        let view = TensorView::new(dtype, vec![HEADS], bytes).unwrap();
        let all = safetensors::serialize([("slopes", view)], None).unwrap();
        std::fs::write(&path, all).unwrap();
    };
    let slopes = || {
        means(Kind::Alibi, |r| {
            r.params = Some(Tensors::open(&path).unwrap())
        })
    };
    write(Dtype::F16, &[0x00, 0x38, 0x00, 0x34, 0x00, 0x30]);
    match slopes().unwrap().unwrap().groups[0].new.clone() {
        EncodingSpec::ScoreBias(spec) => {
            assert_eq!(spec.bias.params()["slopes"], json!([0.5, 0.25, 0.125]));
        }
        other => panic!("{other:?}"),
    }
    write(Dtype::U8, &[1, 2, 3]);
    assert!(slopes().unwrap_err().contains("give float32"));
    write(Dtype::F16, &[0x00, 0x7c, 0x00, 0x34, 0x00, 0x30]);
    assert!(slopes().unwrap_err().contains("not finite"));
    std::fs::write(&path, b"\x02\0\0\0\0\0\0\0{}").unwrap();
    assert!(slopes().unwrap_err().contains("contains no tensor"));
    std::fs::write(&path, b"no such thing").unwrap();
    assert!(slopes().unwrap_err().contains("not a safetensors file"));
}

/// What was inserted into the small model, and the proof that it matches the request.
fn proof(kind: Kind) -> Proof {
    let model = model();
    let options = Options::default();
    let mut request = Request {
        to: Some(kind),
        ..Request::default()
    };
    request.parameters.seed = Some(5);
    request.parameters.max_length = Some(64);
    let found = detect(&model, &options);
    let done = swap(&model, &found, &request, &options);
    done.unwrap().unwrap().proof
}

/// Another encoding of the same kind, not far off.
fn other(new: &mut EncodingSpec) {
    match new {
        EncodingSpec::ScoreBias(spec) if spec.tensors.is_empty() => {
            spec.bias = spec.bias.times(1.001);
        }
        EncodingSpec::InputTerm(spec) if spec.tensors.is_empty() => {
            let term = (&*spec.term as &dyn std::any::Any).downcast_ref::<SinusoidalTerm>();
            let mut term = term.unwrap().clone();
            term.base *= 1.01;
            spec.term = Box::new(term);
        }
        _ => {
            for numbers in new.numbers() {
                *numbers = Numbers::Start(Init::Normal { std: 0.01, seed: 9 });
            }
        }
    }
}

#[test]
fn the_proof_is_of_what_was_inserted_and_of_nothing_else() {
    let kinds = Kind::targets().filter(|k| !matches!(k, Kind::None | Kind::Rope));
    for kind in kinds {
        let mut proof = proof(kind);
        let checks = proof.evaluate().unwrap();
        assert!(
            !checks.is_empty() && checks.iter().all(|c| c.ok),
            "{kind}: {checks:?}"
        );
        for group in &mut proof.plan.groups {
            other(&mut group.new);
        }
        let missed = proof.evaluate().unwrap();
        let mut numbers = missed.iter().filter(|c| c.quantity != "mask");
        assert!(numbers.all(|c| !c.ok), "{kind}: {missed:?}");
    }
}

#[test]
fn a_convolution_under_a_causal_mask_is_warned_of() {
    let mut open = Sketch::default();
    let x = open.embedded();
    let x = open.attends(&x, &x);
    let open = open.model(17, &[&x]);
    for (mut model, kind, warned) in [
        (model(), Kind::Conv, true),
        (model(), Kind::Alibi, false),
        (open, Kind::Conv, false),
    ] {
        let request = Request {
            to: Some(kind),
            ..Request::default()
        };
        let warnings = rewrite(&mut model, &request).unwrap().report.warnings;
        let is_said = warnings.iter().any(|w| w.contains("causal mask hides"));
        assert_eq!(is_said, warned, "{kind} {warnings:?}");
    }
}
