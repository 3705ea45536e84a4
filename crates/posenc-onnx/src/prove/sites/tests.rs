use std::sync::atomic::Ordering;

use posenc_ir::DType;
use serde_json::{Value, json};

use super::*;
use crate::detect::detect;
use crate::graph::sketch::Sketch;
use crate::prove::error::Reason;
use crate::prove::expectations;
use crate::prove::expected::ExpectedFrequencies;
use crate::prove::testing::{Evaluator, Fault, fixture};
use crate::report::Check;
use crate::request::{LawName, Parameters, Request};
use crate::rewrite::rewrite;
use posenc_encodings::kind::Kind;
use posenc_encodings::param::Given;
use posenc_encodings::param::Value::Numbers;

/// Every form of a rotation among the fixtures, with the number of rotary sites.
const FIXTURES: &[(&str, usize)] = &[
    ("llama/torchscript", 2),
    ("llama/dynamo", 2),
    ("llama/dynamo23", 2),
    ("llama/dynamo-noopt", 2),
    ("llama/dynamo-static", 2),
    ("llama/fp16", 2),
    ("llama/optimum", 2),
    ("llama/ort-O2", 2),
    ("llama-llama3/torchscript", 2),
    ("llama-posids/torchscript", 2),
    ("llama-yarn/torchscript", 2),
    ("gemma3-text/dynamo", 2),
    ("gemma3-text/optimum", 2),
    ("gpt_neox/torchscript", 2),
    ("gpt_neox/optimum", 2),
    ("gptj/dynamo", 2),
    ("gptj/torchscript", 2),
    ("gptj/optimum", 2),
    ("phi3/torchscript", 2),
    ("phi3-longrope/optimum", 2),
    ("smollm3/dynamo", 1),
];

fn check(
    model: &Model,
    change: impl Fn(&mut Expected),
    backend: &dyn Backend,
) -> Result<Vec<SiteCheck>, VerifyError> {
    let found = detect(model, &Default::default());
    let mut expected = expectations(model, &found).unwrap();
    expected.iter_mut().for_each(change);
    check_rope(model, &found, &expected, backend).map(|all| all.checks)
}

fn failing(checks: &[SiteCheck]) -> Vec<&str> {
    let failed = checks.iter().filter(|c| !c.ok);
    let mut all: Vec<&str> = failed.map(|c| c.quantity.as_str()).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn every_export_computes_the_frequencies_that_it_stores() {
    for (name, sites) in FIXTURES {
        let checks = check(&fixture(name), |_| {}, &Evaluator::default()).unwrap();
        assert_eq!(checks.len(), 4 * sites, "{name}");
        assert_eq!(failing(&checks), [""; 0], "{name}: {checks:#?}");
        for check in &checks {
            assert!(check.max_error.unwrap() <= check.bound, "{name}: {check:?}");
        }
    }
}

#[test]
fn a_rotation_other_than_expected_is_reported() {
    fn frequencies(e: &mut Expected) -> (&mut Vec<f64>, &mut f64) {
        match &mut e.law {
            ExpectedFrequencies::Fixed(f) => (&mut f.inv_freq, &mut f.attention_factor),
            ExpectedFrequencies::Scaled { .. } => panic!("the model has no metadata"),
        }
    }
    type Change = fn(&mut Expected);
    let changes: [(&str, Change, &[&str]); 8] = [
        (
            "pairs swapped with neighbors",
            |e| e.pairs.swap(0, 1),
            &["cos", "k", "q", "sin"],
        ),
        (
            "other layout",
            |e| {
                let n = e.pairs.len();
                e.pairs = match e.pairs[0] {
                    (0, 1) => (0..n).map(|i| (i, i + n)).collect(),
                    _ => (0..n).map(|i| (2 * i, 2 * i + 1)).collect(),
                };
            },
            &["cos", "k", "q", "sin"],
        ),
        (
            "other direction",
            |e| e.pairs.iter_mut().for_each(|p| *p = (p.1, p.0)),
            &["k", "q", "sin"],
        ),
        (
            "shifted by one",
            |e| e.first += 1,
            &["cos", "k", "q", "sin"],
        ),
        (
            "one frequency off by a percent",
            |e| frequencies(e).0[3] *= 1.01,
            &["cos", "k", "q", "sin"],
        ),
        (
            "factor off by a thousandth",
            |e| *frequencies(e).1 *= 1.001,
            &["cos", "k", "q", "sin"],
        ),
        (
            "no number",
            |e| frequencies(e).0[0] = f64::NAN,
            &["cos", "k", "q", "sin"],
        ),
        (
            "a pair too few",
            |e| {
                e.pairs.pop();
            },
            &["cos", "k", "q", "sin"],
        ),
    ];
    for model in ["llama/torchscript", "gptj/dynamo", "llama/dynamo23"] {
        let fixture = fixture(model);
        for (name, change, want) in changes {
            let checks = check(&fixture, change, &Evaluator::default()).unwrap();
            assert_eq!(failing(&checks), want, "{model}: {name}: {checks:#?}");
        }
    }
}

#[test]
fn a_runtime_that_computes_something_else_is_reported() {
    // [batch, heads, pos, dim] in this export.
    let faults: [(&str, Fault); 6] = [
        ("heads permuted", |y, d| {
            let head = d[2] * d[3];
            y[..2 * head].rotate_left(head);
        }),
        ("tokens shifted", |y, d| {
            let width = d[3];
            y.rotate_left(width);
        }),
        ("features shifted", |y, _| y.rotate_left(1)),
        ("no number", |y, _| y[5] = f64::NAN),
        ("zeros", |y, _| y.fill(0.0)),
        ("another shape", |_, d| d.swap(1, 2)),
    ];
    let model = fixture("llama/torchscript");
    for (name, fault) in faults {
        let backend = Evaluator {
            fault: Some(fault),
            ..Evaluator::default()
        };
        let checks = check(&model, |_| {}, &backend).unwrap();
        let failed = failing(&checks);
        assert!(
            failed.contains(&"q") && failed.contains(&"k"),
            "{name}: {failed:?}"
        );
    }
}

#[test]
fn equal_rotations_of_many_layers_run_once() {
    let model = fixture("llama/torchscript");
    let found = detect(&model, &Default::default());
    let expected = expectations(&model, &found).unwrap();
    let loads = |expected: &[Expected]| {
        let backend = Evaluator::default();
        check_rope(&model, &found, expected, &backend).unwrap();
        backend.loads.load(Ordering::Relaxed)
    };
    assert_eq!(loads(&expected[..1]), loads(&expected));
    let mut other = expected.clone();
    other[1].max_length /= 2;
    assert!(loads(&other) > loads(&expected), "control");
}

#[test]
fn a_site_that_does_not_rotate_and_an_empty_list_never_pass() {
    let model = fixture("llama/torchscript");
    let found = detect(&model, &Default::default());
    let mut expected = expectations(&model, &found).unwrap();
    expected[1].site = 7;
    let checks = check_rope(&model, &found, &expected, &Evaluator::default()).unwrap();
    let checks = checks.checks;
    assert_eq!(failing(&checks), ["rotation"]);
    assert!(!Check::of(&checks).ok);
    let none = check_rope(&model, &found, &[], &Evaluator::default()).unwrap_err();
    assert_eq!(none.to_string(), "verify: no site to check");
    assert_eq!(none.reason(), Reason::Unsupported);
    assert!(!Check::of(&[]).ok);
}

fn scaled(name: &str, scale: LawName, parameters: Parameters) -> Model {
    let mut model = fixture(name);
    let request = Request {
        scale: Some(scale.into()),
        parameters: Parameters {
            original_length: Some(64),
            max_length: Some(1024),
            ..parameters
        },
        ..Request::default()
    };
    rewrite(&mut model, &request).unwrap();
    model
}

#[test]
fn rewritten_models_compute_what_their_metadata_names_and_nothing_else() {
    let four = || Parameters {
        factor: Some(4.0),
        ..Parameters::default()
    };
    let longrope = |pairs: u32| Parameters {
        law: Given::from_iter([
            ("short-factor", Numbers(vec![1.0; pairs as usize])),
            (
                "long-factor",
                Numbers((0..pairs).map(|i| 1.0 + f64::from(i)).collect()),
            ),
        ]),
        ..four()
    };
    for (name, pairs) in [
        ("llama/torchscript", 8),
        ("llama/optimum", 8),
        ("llama-posids/torchscript", 8),
        ("gptj/dynamo", 4),
        ("gptj/optimum", 4),
        ("gpt_neox/torchscript", 4),
    ] {
        for (scale, parameters) in [
            (LawName::Linear, four()),
            (LawName::Yarn, four()),
            (LawName::Dynamic, four()),
            (LawName::LongRope, longrope(pairs)),
        ] {
            let mut model = scaled(name, scale, parameters);
            let checks = check(&model, |_| {}, &Evaluator::default()).unwrap();
            assert_eq!(failing(&checks), [""; 0], "{name} {scale}: {checks:#?}");
            assert!(Check::of(&checks).ok);
            let entry = model.metadata("posenc.rope").unwrap();
            let mut entry: Value = serde_json::from_str(entry).unwrap();
            let scaling = &mut entry["sites"][0]["scaling"];
            match scale {
                LawName::LongRope => scaling["long_factor"][1] = json!(2.02),
                _ => scaling["factor"] = json!(4.04),
            }
            model.set_metadata("posenc.rope", entry.to_string());
            let checks = check(&model, |_| {}, &Evaluator::default()).unwrap();
            assert!(!Check::of(&checks).ok, "{name} {scale}: control");
        }
    }
}

#[test]
fn a_graph_that_does_not_change_with_the_length_is_reported() {
    let model = scaled(
        "llama/torchscript",
        LawName::Linear,
        Parameters {
            factor: Some(1.0),
            ..Parameters::default()
        },
    );
    let found = detect(&model, &Default::default());
    let mut expected = expectations(&model, &found).unwrap();
    for e in &mut expected {
        e.law = ExpectedFrequencies::Scaled {
            scaling: posenc_encodings::laws::Scaling::Dynamic(
                posenc_encodings::laws::Dynamic::new(4.0, 64).unwrap(),
            ),
            rope: posenc_encodings::laws::Rope::new(1e4, 16, 16).unwrap(),
        };
        e.stored = None;
        e.max_length = 64;
    }
    let run = |e: &[Expected]| {
        let checked = check_rope(&model, &found, e, &Evaluator::default());
        checked.unwrap().checks
    };
    assert!(Check::of(&run(&expected)).ok, "up to the original length");
    expected.iter_mut().for_each(|e| e.max_length = 256);
    assert!(!Check::of(&run(&expected)).ok);
}

#[test]
fn a_picture_of_fewer_tokens_than_a_run_has_one_length() {
    // 4 patches with 4 features; nothing of the graph follows the length of a run.
    let weights = "1, 2, 0, 1, 0, 1, 1, 0, 1, 0, 2, 1, 0, 1, 0, 1";
    let text = format!(
        "<ir_version: 8, opset_import: [\"\" : 17]>\n\
         g (float[1,4,2,2] image) => (float[1,4,4] y)\n\
         <float[4,4] wq = {{{weights}}}, float[4,4] wk = {{{weights}}}, float[4,4] wv = {{{weights}}},\n\
         int64[3] flat = {{1, 4, 4}}, int64[4] heads = {{1, 4, 1, 4}}> {{\n\
         rows = Reshape(image, flat) x = Transpose <perm = [0, 2, 1]> (rows)\n\
         q1 = MatMul(x, wq) q2 = Reshape(q1, heads) q = Transpose <perm = [0, 2, 1, 3]> (q2)\n\
         k1 = MatMul(x, wk) k2 = Reshape(k1, heads) k = Transpose <perm = [0, 2, 3, 1]> (k2)\n\
         v1 = MatMul(x, wv) v2 = Reshape(v1, heads) v = Transpose <perm = [0, 2, 1, 3]> (v2)\n\
         s = MatMul(q, k) p = Softmax <axis = -1> (s) o = MatMul(p, v)\n\
         o1 = Transpose <perm = [0, 2, 1, 3]> (o) y = Reshape(o1, flat)\n}}"
    );
    let mut model = Model::parse(&text).unwrap();
    let request = Request {
        to: Some(Kind::Rope),
        ..Request::default()
    };
    rewrite(&mut model, &request).unwrap();
    let checks = check(&model, |_| {}, &Evaluator::default()).unwrap();
    assert!(Check::of(&checks).ok, "{checks:#?}");
    let other = |e: &mut Expected| e.first += 1;
    let checks = check(&model, other, &Evaluator::default()).unwrap();
    assert_eq!(failing(&checks), ["cos", "k", "q", "sin"], "control");
}

#[test]
fn a_rotation_behind_rounded_queries_and_keys_is_compared_at_all_lengths() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let [q, k] = [q, k].map(|x| {
        let [scale, zero] = [s.float(0.02), s.typed(DType::I8, &[], [0.0])];
        let integers = s.op("QuantizeLinear", &[&x, &scale, &zero]);
        s.op("DequantizeLinear", &[&integers, &scale, &zero])
    });
    let y = s.weighted(&q, &k, &v);
    let mut model = s.model(17, &[&y]);
    let request = Request {
        to: Some(Kind::Rope),
        ..Request::default()
    };
    rewrite(&mut model, &request).unwrap();
    let checks = check(&model, |_| {}, &Evaluator::default()).unwrap();
    assert!(checks.len() >= 4 && Check::of(&checks).ok, "{checks:#?}");
    let other = |e: &mut Expected| e.first += 1;
    let checks = check(&model, other, &Evaluator::default()).unwrap();
    assert_eq!(failing(&checks), ["cos", "k", "q", "sin"], "control");
}
