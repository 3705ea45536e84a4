//! An Attention that rotates queries and keys itself, which ONNX Runtime does on CUDA alone, written as operators that
//! it runs anywhere: they compute the formula, in f64 here.

use std::path::Path;

use posenc_ir::{DType, Model, Tensor};
use posenc_tests::binary;

use crate::logits::{load, try_load};
use crate::runtime::onnxruntime;

const HEADS: usize = 2;
const WIDTH: usize = 32;
const HEAD: usize = WIDTH / HEADS;

/// Numbers that look random, and are the same in every run.
fn numbers(count: usize, seed: usize) -> Vec<f64> {
    let number = |n: usize| (((n + seed * 7919) * 2_654_435_761) % 1_000_003) as f64 / 5e5 - 1.0;
    let f32s = (0..count).map(|n| f64::from(number(n) as f32));
    f32s.collect()
}

/// Causal attention with these attributes.
fn model(attributes: &str) -> Vec<u8> {
    let list = |count, seed| {
        let all = numbers(count, seed).into_iter().map(|n| format!("{n:?}"));
        all.collect::<Vec<_>>().join(", ")
    };
    let (weights, bias) = (list(3 * WIDTH * WIDTH, 1), list(3 * WIDTH, 2));
    let text = format!(
        r#"<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        rotating (float[batch, sequence, {WIDTH}] x, float[2, batch, {HEADS}, past, {HEAD}] past)
        => (float[batch, sequence, {WIDTH}] y, float[2, batch, {HEADS}, total, {HEAD}] present)
        <float[{WIDTH}, {}] weights = {{{weights}}}, float[{}] bias = {{{bias}}}>
        {{
          [attend] y, present = com.microsoft.Attention
            <num_heads = {HEADS}, unidirectional = 1{attributes}> (x, weights, bias, , past)
        }}"#,
        3 * WIDTH,
        3 * WIDTH,
    );
    Model::parse(&text).unwrap().to_bytes().unwrap()
}

/// `x` of one sequence, projected, rotated in halves of so many features with θ = 10,000, and attended to: softmax of
/// q·k / √d over the keys up to each query.
fn formula(x: &[f64], rotary_dim: usize) -> Vec<f64> {
    let tokens = x.len() / WIDTH;
    let (weights, bias) = (numbers(3 * WIDTH * WIDTH, 1), numbers(3 * WIDTH, 2));
    let projected = |token: usize, column: usize| {
        let row = x[token * WIDTH..][..WIDTH].iter().enumerate();
        let terms = row.map(|(i, x)| x * weights[i * 3 * WIDTH + column]);
        terms.sum::<f64>() + bias[column]
    };
    let half = rotary_dim / 2;
    let rotated = |token: usize, first: usize| -> Vec<f64> {
        let mut head: Vec<f64> = (0..HEAD).map(|i| projected(token, first + i)).collect();
        for i in 0..half {
            let frequency = 10_000f64.powf(-(2.0 * i as f64) / rotary_dim as f64);
            let (sin, cos) = (token as f64 * frequency).sin_cos();
            let (a, b) = (head[i], head[half + i]);
            (head[i], head[half + i]) = (a * cos - b * sin, b * cos + a * sin);
        }
        head
    };
    let mut y = vec![0.0; tokens * WIDTH];
    for head in 0..HEADS {
        let first = head * HEAD;
        let all = |offset: usize| -> Vec<Vec<f64>> {
            (0..tokens).map(|t| rotated(t, offset + first)).collect()
        };
        let (queries, keys) = (all(0), all(WIDTH));
        for (token, query) in queries.iter().enumerate() {
            let score = |key: &Vec<f64>| {
                let product: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                (product / (HEAD as f64).sqrt()).exp()
            };
            let weights: Vec<f64> = keys[..=token].iter().map(score).collect();
            let total: f64 = weights.iter().sum();
            for i in 0..HEAD {
                let value = |t: usize| projected(t, 2 * WIDTH + first + i);
                let terms = weights.iter().enumerate();
                let sum: f64 = terms.map(|(t, weight)| weight * value(t)).sum();
                y[token * WIDTH + first + i] = sum / total;
            }
        }
    }
    y
}

/// The output for all tokens at once, and for so many and each that follows them with a cache.
fn outputs(model: &Path, x: &[f64], prompt: usize) -> [Vec<f64>; 2] {
    let mut session = load(&onnxruntime(), model);
    let mut run = |x: &[f64], past: &Tensor| {
        let x = Tensor::from_f64(DType::F32, &[1, x.len() / WIDTH, WIDTH], x);
        let outputs = session.run(&[("x", x), ("past", past.clone())], &[]);
        let outputs = outputs.unwrap_or_else(|e| panic!("{e}"));
        (outputs[0].1.to_f64s().unwrap(), outputs[1].1.clone())
    };
    let none = Tensor::from_f64(DType::F32, &[2, 1, HEADS, 0, HEAD], &[]);
    let (whole, _) = run(x, &none);
    let (mut steps, mut cache) = run(&x[..prompt * WIDTH], &none);
    for token in x[prompt * WIDTH..].chunks(WIDTH) {
        let (y, next) = run(token, &cache);
        steps.extend(y);
        cache = next;
    }
    [whole, steps]
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let pairs = a.iter().zip(b);
    pairs.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn an_attention_that_rotates_is_written_for_the_processor() {
    let x = numbers(21 * WIDTH, 3);
    for (attributes, rotary_dim) in [("", HEAD), (", rotary_embedding_dim = 8", 8)] {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["model.onnx", "out.onnx"].map(|name| folder.path().join(name));
        std::fs::write(&from, model(&format!(", do_rotary = 1{attributes}"))).unwrap();
        let paths = [&from, &to].map(|path| path.display().to_string());
        for option in [["--form", "ops"], ["--target", "ort-cpu"]] {
            let ran = binary::run(["rewrite", &paths[0], "-o", &paths[1], option[0], option[1]]);
            assert_eq!(ran.code, 0, "{}", ran.stderr);
            let want = formula(&x, rotary_dim);
            for got in outputs(&to, &x, 9) {
                let far = distance(&got, &want);
                assert!(far < 2e-5, "{option:?}, {rotary_dim} features: {far:e}");
            }
            // Without positions, or with another share of the features, it is another function.
            for other in [2, HEAD + 8 - rotary_dim] {
                assert!(distance(&formula(&x, other), &want) > 0.1, "{other}");
            }
        }
        assert!(try_run(&from, &x).is_err(), "this runtime rotates itself");
    }
}

/// Runs a model without a cache.
fn try_run(model: &Path, x: &[f64]) -> Result<(), String> {
    let mut session = try_load(&onnxruntime(), model)?;
    let x = Tensor::from_f64(DType::F32, &[1, x.len() / WIDTH, WIDTH], x);
    let none = Tensor::from_f64(DType::F32, &[2, 1, HEADS, 0, HEAD], &[]);
    let ran = session.run(&[("x", x), ("past", none)], &[]);
    ran.map(|_| ()).map_err(|e| e.to_string())
}

#[test]
fn the_encoding_is_named_and_other_rewrites_start_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["model.onnx", "out.onnx"].map(|name| folder.path().join(name));
    std::fs::write(&from, model(", do_rotary = 1")).unwrap();
    let paths = [&from, &to].map(|path| path.display().to_string());
    let report = binary::run(["inspect", "--json", &paths[0]]).json();
    let [rope] = &report["encodings"].as_array().unwrap()[..] else {
        panic!("{report}");
    };
    assert_eq!(
        [
            &rope["kind"],
            &rope["form"],
            &report["attention"][0]["name"]
        ],
        ["rope", "contrib", "attend"]
    );
    assert_eq!(rope["params"]["theta"], 10_000.0);
    let ran = binary::run([
        "rewrite", &paths[0], "-o", &paths[1], "--scale", "linear", "--factor", "2",
    ]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let report = binary::run(["inspect", "--json", &paths[1]]).json();
    assert_eq!(report["encodings"][0]["params"]["scaling"]["factor"], 2.0);
}
