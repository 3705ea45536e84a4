//! Operators of ONNX Runtime that rotate, against the formula in f64: an Attention that rotates queries and keys itself,
//! which CUDA alone runs, and a rotation by three positions of a token.

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

/// Attention of so many tokens: softmax of q·k / √d over all keys, or those up to each query. `rotated` gives the
/// features of a head, from the first of them on, of the queries, side 0, and of the keys, side 1.
fn attended(
    tokens: usize,
    is_causal: bool,
    rotated: impl Fn(usize, usize, usize) -> Vec<f64>,
    value: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let mut y = vec![0.0; tokens * WIDTH];
    for first in (0..WIDTH).step_by(HEAD) {
        let all =
            |side| -> Vec<Vec<f64>> { (0..tokens).map(|t| rotated(side, t, first)).collect() };
        let (queries, keys) = (all(0), all(1));
        for (token, query) in queries.iter().enumerate() {
            let score = |key: &Vec<f64>| {
                let product: f64 = query.iter().zip(key).map(|(q, k)| q * k).sum();
                (product / (HEAD as f64).sqrt()).exp()
            };
            let seen = if is_causal { token + 1 } else { tokens };
            let weights: Vec<f64> = keys[..seen].iter().map(score).collect();
            let total: f64 = weights.iter().sum();
            for i in first..first + HEAD {
                let terms = weights.iter().enumerate();
                let sum: f64 = terms.map(|(t, weight)| weight * value(t, i)).sum();
                y[token * WIDTH + i] = sum / total;
            }
        }
    }
    y
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
    let side = |side, token, first| rotated(token, side * WIDTH + first);
    let value = |token, column| projected(token, 2 * WIDTH + column);
    attended(tokens, true, side, value)
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

/// Where ONNX Runtime's operator for three positions of a token reads them: each pair of features.
const STREAMS: [usize; HEAD / 2] = [0, 0, 1, 1, 1, 2, 2, 2];

/// Rows of its tables.
const ROWS: usize = 64;

/// Scores of queries with keys `[1, head, token, token]`, both rotated by three positions of each token.
fn by_three_positions() -> Vec<u8> {
    let list = |numbers: Vec<f64>| {
        let all = numbers.into_iter().map(|n| format!("{n:?}"));
        all.collect::<Vec<_>>().join(", ")
    };
    let table = |of: fn(f64) -> f64| {
        let rows = 0..ROWS * HEAD / 2;
        list(
            rows.map(|at| f64::from(of(angle(at / (HEAD / 2), at % (HEAD / 2))) as f32))
                .collect(),
        )
    };
    let weights = |seed| list(numbers(WIDTH * WIDTH, seed));
    let rotation = |name: &str| {
        format!(
            "[rotate_{name}] {name}_rotated = com.microsoft.MRotaryEmbedding
               <mrope_section = [2, 3, 3], num_heads = {HEADS}> ({name}, position_ids, cos, sin)"
        )
    };
    let text = format!(
        r#"<ir_version: 8, opset_import: ["" : 17, "com.microsoft" : 1]>
        rotating (float[batch, sequence, {WIDTH}] x, int64[3, batch, sequence] position_ids)
        => (float[batch, sequence, {WIDTH}] y)
        <float[{WIDTH}, {WIDTH}] wq = {{{}}}, float[{WIDTH}, {WIDTH}] wk = {{{}}},
         float[{ROWS}, {half}] cos = {{{}}}, float[{ROWS}, {half}] sin = {{{}}}>
        {{
          q = MatMul (x, wq)
          k = MatMul (x, wk)
          {}
          {}
          [attend] y = com.microsoft.MultiHeadAttention <num_heads = {HEADS}> (q_rotated, k_rotated, x)
        }}"#,
        weights(1),
        weights(2),
        table(f64::cos),
        table(f64::sin),
        rotation("q"),
        rotation("k"),
        half = HEAD / 2,
    );
    Model::parse(&text).unwrap().to_bytes().unwrap()
}

fn angle(position: usize, pair: usize) -> f64 {
    position as f64 * 10_000f64.powf(-(2.0 * pair as f64) / HEAD as f64)
}

/// The same attention by its formula, with positions divided by a factor, or without a rotation.
fn formula_of_three(x: &[f64], positions: &[Vec<usize>; 3], factor: Option<f64>) -> Vec<f64> {
    let tokens = x.len() / WIDTH;
    let rotated = |seed, token: usize, first: usize| {
        let weights = numbers(WIDTH * WIDTH, seed);
        let projected = |column: usize| -> f64 {
            let row = x[token * WIDTH..][..WIDTH].iter().enumerate();
            row.map(|(i, x)| x * weights[i * WIDTH + column]).sum()
        };
        let mut head: Vec<f64> = (0..HEAD).map(|i| projected(first + i)).collect();
        for (pair, stream) in STREAMS.into_iter().enumerate() {
            let Some(factor) = factor else { continue };
            let (sin, cos) = (angle(positions[stream][token], pair) / factor).sin_cos();
            let (a, b) = (head[pair], head[HEAD / 2 + pair]);
            head[pair] = a * cos - b * sin;
            head[HEAD / 2 + pair] = b * cos + a * sin;
        }
        head
    };
    let side = |side, token, first| rotated(1 + side, token, first);
    attended(tokens, false, side, |token, column| {
        x[token * WIDTH + column]
    })
}

#[test]
fn a_rotation_by_three_positions_is_rescaled_removed_and_respelled() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["model.onnx", "out.onnx"].map(|name| folder.path().join(name));
    std::fs::write(&from, by_three_positions()).unwrap();
    let paths = [&from, &to].map(|path| path.display().to_string());
    let tokens = 11;
    let x = numbers(tokens * WIDTH, 3);
    let positions = [3, 5, 7].map(|step| (0..tokens).map(|t| (t * step + step) % 40).collect());
    let run = |model: &Path| {
        let mut session = load(&onnxruntime(), model);
        let ids = positions.iter().flatten().map(|at: &usize| *at as i64);
        let ids = Tensor::from_i64(&[3, 1, tokens], &ids.collect::<Vec<_>>());
        let x = Tensor::from_f64(DType::F32, &[1, tokens, WIDTH], &x);
        let outputs = session.run(&[("x", x), ("position_ids", ids)], &[]);
        outputs.unwrap_or_else(|e| panic!("{e}"))[0]
            .1
            .to_f64s()
            .unwrap()
    };
    let plain = formula_of_three(&x, &positions, Some(1.0));
    let far = distance(&run(&from), &plain);
    assert!(far < 2e-5, "{far:e}");
    for (options, factor) in [
        (&["--form", "ops"][..], Some(1.0)),
        (&["--form", "onnx"], Some(1.0)),
        (&["--layout", "interleaved"], Some(1.0)),
        (&["--scale", "linear", "--factor", "2"], Some(2.0)),
        (&["--to", "none"], None),
    ] {
        let mut arguments = vec!["rewrite", &paths[0], "-o", &paths[1]];
        arguments.extend(options);
        let ran = binary::run(arguments);
        assert_eq!(ran.code, 0, "{options:?}: {}", ran.stderr);
        let want = formula_of_three(&x, &positions, factor);
        let far = distance(&run(&to), &want);
        assert!(far < 2e-5, "{options:?}: {far:e}");
        if factor != Some(1.0) {
            assert!(distance(&want, &plain) > 0.1, "{options:?}");
        }
    }
}
