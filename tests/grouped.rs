//! Rotations within GroupQueryAttention, written before it, compute the same in ONNX Runtime.

use std::path::{Path, PathBuf};

use posenc_ir::{Model, Tensor};
use posenc_tests::binary::{self, Ran};
use tempfile::TempDir;

use crate::logits::load;
use crate::runtime::onnxruntime;

/// Grouped queries, keys and values apart; the operator rotates by tables of 64 rows that the graph computes.
const APART: &str = r#"
<ir_version: 10, opset_import: ["" : 17, "com.microsoft" : 1]>
grouped (
  float[batch, sequence, 64] q, float[batch, sequence, 32] k, float[batch, sequence, 32] v,
  int64[batch, total] attention_mask,
  float[batch, 2, past, 16] past_key, float[batch, 2, past, 16] past_value
) => (
  float[batch, sequence, 64] y,
  float[batch, 2, total, 16] present_key, float[batch, 2, total, 16] present_value
)
<
  int64[1] axis = {1}, int64 first = {0}, int64 one = {1}, int64 rows = {64}, int64[2] column = {64, 1},
  float[1, 8] frequency = {1, 0.31, 0.1, 0.031, 0.01, 0.0031, 0.001, 0.00031}, float[1] half = {0.5}
>
{
  counted = ReduceSum <keepdims = 0> (attention_mask, axis)
  last = Sub (counted, one)
  last_index = Cast <to = 6> (last)
  mask_dims = Shape (attention_mask)
  all = Gather (mask_dims, one)
  total_length = Cast <to = 6> (all)
  numbers = Range (first, rows, one)
  floats = Cast <to = 1> (numbers)
  positions = Reshape (floats, column)
  angles = Mul (positions, frequency)
  cos = Cos (angles)
  sin = Sin (angles)
  query = Mul (q, half)
  key = Mul (k, half)
  value = Mul (v, half)
  y, present_key, present_value =
    com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, do_rotary = 1>
      (query, key, value, past_key, past_value, last_index, total_length, cos, sin)
}"#;

/// The same, packed, with neighbors in pairs.
fn packed() -> String {
    let joined = "packed = Concat <axis = 2> (query, key, value)\n  y, present_key";
    APART
        .replace(
            "y, present_key, present_value =",
            &format!("{joined}, present_value ="),
        )
        .replace("(query, key, value, past_key,", "(packed, , , past_key,")
        .replace("do_rotary = 1", "do_rotary = 1, rotary_interleaved = 1")
}

/// The same, with a position for each token.
fn placed() -> String {
    APART
        .replace("cos, sin)\n}", "cos, sin, position_ids)\n}")
        .replace(
            "int64[batch, total]",
            "int64[batch, sequence] position_ids, int64[batch, total]",
        )
}

/// The same with queries and keys that are normalized first, with another epsilon than usual: by the operator, which
/// does so on CUDA alone, or before it.
fn normed(text: &str, before: bool) -> String {
    let weights = |first: f64| {
        let weight = |n: usize| format!("{}", first + 0.125 * n as f64);
        let all: Vec<String> = (0..16).map(weight).collect();
        all.join(", ")
    };
    let weights = format!(
        "float[16] of_queries = {{{}}}, float[16] of_keys = {{{}}}, int64[4] heads = {{0, 0, -1, 16}}, \
         int64[3] hidden = {{0, 0, -1}}, int64[1] axis",
        weights(0.5),
        weights(-1.0)
    );
    let text = text.replace("int64[1] axis", &weights);
    if !before {
        return text
            .replace(
                "cos, sin)\n}",
                "cos, sin, , , , , , of_queries, of_keys)\n}",
            )
            .replace("do_rotary = 1", "do_rotary = 1, qk_norm_epsilon = 0.05");
    }
    let norm = |side: &str, weight: &str| {
        format!(
            "{side}_apart = Reshape ({side}_whole, heads)\n  \
             {side}_unit = SimplifiedLayerNormalization <axis = -1, epsilon = 0.05, stash_type = 1> \
             ({side}_apart, {weight})\n  {side} = Reshape ({side}_unit, hidden)"
        )
    };
    let norms = [norm("query", "of_queries"), norm("key", "of_keys")].join("\n  ");
    text.replace("query = Mul", "query_whole = Mul")
        .replace("key = Mul", "key_whole = Mul")
        .replace("value = Mul", &format!("{norms}\n  value = Mul"))
}

/// Numbers that look random, and are the same in every run.
fn numbers(dims: &[usize], seed: usize) -> Tensor {
    let number = |n: usize| (((n + seed * 7919) * 2_654_435_761) % 1_000_003) as f64 / 5e5 - 1.0;
    let count = dims.iter().product();
    let all: Vec<f64> = (0..count).map(number).collect();
    Tensor::from_f64(posenc_ir::DType::F32, dims, &all)
}

/// The outputs for so many sequences and tokens, behind others, of which the first sequence lacks some.
fn outputs(model: &Path, [batch, tokens, past]: [usize; 3], lacks: usize) -> Vec<Vec<f64>> {
    let mut session = load(&onnxruntime(), model);
    let mut mask = vec![1; batch * (past + tokens)];
    mask[..lacks].fill(0);
    let feeds = [
        ("q", numbers(&[batch, tokens, 64], 1)),
        ("k", numbers(&[batch, tokens, 32], 2)),
        ("v", numbers(&[batch, tokens, 32], 3)),
        (
            "attention_mask",
            Tensor::from_i64(&[batch, past + tokens], &mask),
        ),
        ("past_key", numbers(&[batch, 2, past, 16], 4)),
        ("past_value", numbers(&[batch, 2, past, 16], 5)),
    ];
    // None follows from the others, as the operator may read or count them.
    let ids = (0..batch * tokens).map(|i| (past + 2 * (i % tokens) + 5 * (i / tokens) + 3) as i64);
    let ids = Tensor::from_i64(&[batch, tokens], &ids.collect::<Vec<_>>());
    let reads_ids = Model::open(model)
        .unwrap()
        .graph()
        .text()
        .contains("position_ids");
    let mut feeds = feeds.to_vec();
    feeds.extend(reads_ids.then_some(("position_ids", ids)));
    let outputs = session.run(&feeds, &[]).unwrap_or_else(|e| panic!("{e}"));
    outputs.iter().map(|(_, y)| y.to_f64s().unwrap()).collect()
}

fn distance(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

/// A model in a folder.
fn written(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("grouped.onnx");
    std::fs::write(&path, Model::parse(text).unwrap().to_bytes().unwrap()).unwrap();
    path
}

/// What `rewrite --form` makes of a model, and where.
fn reformed(folder: &TempDir, model: &Path, form: &str) -> (Ran, PathBuf) {
    let out = folder.path().join("out.onnx");
    let [from, to] = [model, &out].map(|path| path.display().to_string());
    let ran = binary::run(["rewrite", &from, "-o", &to, "--form", form]);
    assert_eq!(out.exists(), ran.code == 0, "{form}: {}", ran.stderr);
    (ran, out)
}

#[test]
fn rotations_before_the_operator_compute_what_it_computed() {
    // Sequences that end earlier, a token behind earlier ones, and several behind those of one sequence.
    let runs = [([2, 7, 0], 2), ([2, 1, 6], 3), ([1, 4, 5], 0)];
    for text in [APART.to_owned(), packed(), placed()] {
        let folder = tempfile::tempdir().unwrap();
        let model = written(&folder, &text);
        let before = runs.map(|(at, lacks)| outputs(&model, at, lacks));
        let far = |model: &Path| {
            let each = runs.iter().zip(&before);
            let each = each.map(|((at, lacks), want)| distance(want, &outputs(model, *at, *lacks)));
            each.fold(0.0, f64::max)
        };
        for form in ["ops", "onnx"] {
            let (ran, out) = reformed(&folder, &model, form);
            assert_eq!(ran.code, 0, "{form}: {}", ran.stderr);
            let again = Model::open(&out).unwrap();
            let mut nodes = again.graph().nodes().map(|(_, node)| node);
            let attends = nodes.find(|node| node.op() == "GroupQueryAttention");
            assert_eq!(
                attends.unwrap().int("do_rotary").unwrap(),
                Some(0),
                "{form}"
            );
            assert!(far(&out) < 1e-5, "{form}: {}", far(&out));
        }
        let other = written(&folder, &text.replace("0.31,", "0.32,"));
        assert!(far(&other) > 1e-3, "another frequency is seen");
    }
}

#[test]
fn norms_within_the_operator_are_written_before_it() {
    let folder = tempfile::tempdir().unwrap();
    let runs = [([2, 7, 0], 2), ([2, 1, 6], 3)];
    let of = |model: &Path| runs.map(|(at, lacks)| outputs(model, at, lacks));
    let far = |want: &[Vec<Vec<f64>>; 2], model: &Path| {
        let each = want.iter().zip(of(model));
        each.map(|(a, b)| distance(a, &b)).fold(0.0, f64::max)
    };
    for text in [APART, &packed()] {
        let want = of(&written(&folder, &normed(text, true)));
        let model = written(&folder, &normed(text, false));
        for form in ["ops", "onnx"] {
            let (ran, out) = reformed(&folder, &model, form);
            assert_eq!(ran.code, 0, "{form}: {}", ran.stderr);
            assert!(far(&want, &out) < 1e-5, "{form}: {}", far(&want, &out));
        }
        let other = normed(text, false).replace("epsilon = 0.05", "epsilon = 0.5");
        let (_, out) = reformed(&folder, &written(&folder, &other), "ops");
        assert!(far(&want, &out) > 1e-3, "another epsilon is seen");
    }
}

/// Caches of eight tokens, in which the newest take the places of the oldest.
#[test]
fn a_cache_of_a_window_is_run_at_its_size() {
    let text = APART.replace(
        "do_rotary = 1",
        "do_rotary = 1, local_window_size = 8, sliding_window_cache = 1",
    );
    let folder = tempfile::tempdir().unwrap();
    let [model, out] = [written(&folder, &text), folder.path().join("out.onnx")];
    let [from, to] = [&model, &out].map(|path| path.display().to_string());
    let ran = binary::run([
        "rewrite", &from, "-o", &to, "--form", "ops", "--target", "ort-cpu",
    ]);
    // ONNX Runtime takes prompts of one sequence where there are caches.
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    // A prompt that is longer than the window, and tokens one by one behind it.
    let stepped = |model: &Path| {
        let mut session = load(&onnxruntime(), model);
        let mut caches = [4, 5].map(|seed| numbers(&[1, 2, 8, 16], seed));
        let mut all = vec![];
        for (from, tokens) in [(0, 11), (11, 1), (12, 1), (13, 1)] {
            let [key, value] = caches;
            let feeds = [
                ("q", numbers(&[1, tokens, 64], 10 + from)),
                ("k", numbers(&[1, tokens, 32], 20 + from)),
                ("v", numbers(&[1, tokens, 32], 30 + from)),
                (
                    "attention_mask",
                    Tensor::from_i64(&[1, from + tokens], &vec![1; from + tokens]),
                ),
                ("past_key", key),
                ("past_value", value),
            ];
            let outputs = session.run(&feeds, &[]).unwrap_or_else(|e| panic!("{e}"));
            all.push(outputs[0].1.to_f64s().unwrap());
            caches = [1, 2].map(|at| outputs[at].1.clone());
        }
        all
    };
    let want = stepped(&model);
    let far = distance(&want, &stepped(&out));
    assert!(far < 1e-5, "{far}");
    let other = written(&folder, &text.replace("0.31,", "0.32,"));
    assert!(
        distance(&stepped(&other), &want) > 1e-4,
        "another frequency is seen"
    );
}

/// The lengths of the first sequence alone, of which the operator wants those of all.
#[test]
fn a_result_for_one_sequence_is_told() {
    let first = APART.replace(
        "counted = ReduceSum <keepdims = 0> (attention_mask, axis)",
        "row = Slice (attention_mask, start, end)\n  counted = ReduceSum <keepdims = 0> (row, axis)",
    );
    let first = first.replace(
        "int64[1] axis",
        "int64[1] start = {0}, int64[1] end = {1}, int64[1] axis",
    );
    for (text, is_told) in [(first.as_str(), true), (APART, false)] {
        let folder = tempfile::tempdir().unwrap();
        let [model, out] = [written(&folder, text), folder.path().join("out.onnx")];
        let [from, to] = [&model, &out].map(|path| path.display().to_string());
        let ran = binary::run(["rewrite", &from, "-o", &to, "--target", "ort-cpu", "--json"]);
        let report = ran.json();
        let warnings = report["warnings"].as_array().cloned().unwrap_or_default();
        let mut warnings = warnings.iter().filter_map(|warning| warning.as_str());
        let told = warnings.any(|why| why.contains("one sequence at a time"));
        assert_eq!(told, is_told, "{report}");
    }
}
