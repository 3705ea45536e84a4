//! Rotations in the bodies of `Scan`, `Loop` and `If` get another layout with the weights outside of them.

use std::path::Path;

use posenc_ir::{DType, Model, Tensor};
use posenc_tests::binary;

use crate::logits::load;
use crate::runtime::onnxruntime;

/// Two layers as trips of a node, or chosen by a condition, with keys that leave the body.
const MODELS: [(&str, &str); 4] = [
    (
        "Scan",
        "y, keys = Scan <num_scan_inputs = 2, body = layer
           (float[1, s, 8] h, float[8, 8] wq, float[8, 8] wk) => (float[1, s, 8] out, float[1, 2, s, 4] k_out)
           { LAYER k_out = Identity (kr) }> (x, queries, keys_of)",
    ),
    (
        "Loop",
        "y, keys = Loop <body = layer
           (int64 trip, bool goes_on, float[1, s, 8] h)
           => (bool goes_on_too, float[1, s, 8] out, float[1, 2, s, 4] k_out)
           {
             wq = Gather <axis = 0> (queries, trip)
             wk = Gather <axis = 0> (keys_of, trip)
             LAYER
             k_out = Identity (kr)
             goes_on_too = Identity (goes_on)
           }> (trips, always, x)",
    ),
    (
        "If",
        "wq = Gather <axis = 0> (queries, zero)
         wk = Gather <axis = 0> (keys_of, zero)
         h = Identity (x)
         y, keys = If (chosen)
           <then_branch = layer () => (float[1, s, 8] out, float[1, 2, s, 4] k_out) { LAYER k_out = Identity (kr) },
            else_branch = none () => (float[1, s, 8] same, float[1, 2, s, 4] no_keys)
            {
              same = Identity (h)
              all = MatMul (h, wk)
              apart = Reshape (all, heads)
              no_keys = Transpose <perm = [0, 2, 1, 3]> (apart)
            }>",
    ),
    (
        "If of weights",
        "h = Identity (x)
         wk, wq = If (chosen)
           <then_branch = first () => (float[8, 8] k0, float[8, 8] q0)
            { k0 = Gather <axis = 0> (keys_of, zero) q0 = Gather <axis = 0> (queries, zero) },
            else_branch = second () => (float[8, 8] k1, float[8, 8] q1)
            { k1 = Gather <axis = 0> (keys_of, one) q1 = Gather <axis = 0> (queries, one) }>
         LAYER
         y = Identity (out)
         keys = Identity (kr)",
    ),
];

/// Attention over `h` with its rotated keys `kr`.
const LAYER: &str = "
    q = MatMul (h, wq)
    k = MatMul (h, wk)
    qh = Reshape (q, heads)
    kh = Reshape (k, heads)
    vh = Reshape (h, heads)
    qt = Transpose <perm = [0, 2, 1, 3]> (qh)
    kt = Transpose <perm = [0, 2, 1, 3]> (kh)
    vt = Transpose <perm = [0, 2, 1, 3]> (vh)
    qa, qb = Split <axis = 3, num_outputs = 2> (qt)
    qn = Neg (qb)
    qo = Concat <axis = 3> (qn, qa)
    qc = Mul (qt, cos)
    qs = Mul (qo, sin)
    qr = Add (qc, qs)
    ka, kb = Split <axis = 3, num_outputs = 2> (kt)
    kn = Neg (kb)
    ko = Concat <axis = 3> (kn, ka)
    kc = Mul (kt, cos)
    ks = Mul (ko, sin)
    kr = Add (kc, ks)
    turned = Transpose <perm = [0, 1, 3, 2]> (kr)
    product = MatMul (qr, turned)
    scores = Mul (product, half)
    weights = Softmax <axis = -1> (scores)
    mixed = MatMul (weights, vt)
    back = Transpose <perm = [0, 2, 1, 3]> (mixed)
    joined = Reshape (back, hidden)
    out = Add (h, joined)
";

/// A model around these nodes.
fn model(nodes: &str) -> Vec<u8> {
    // The keys of trips have an axis more.
    let keys = match nodes.contains("If (chosen)") {
        true => "1, 2, s, 4",
        false => "2, 1, 2, s, 4",
    };
    let list = |seed: usize| {
        let numbers = (0..128).map(|n| ((n * 7919 + seed * 104_729) % 1009) as f64 / 1009.0 - 0.5);
        let numbers: Vec<String> = numbers.map(|n| format!("{n:?}")).collect();
        numbers.join(", ")
    };
    let text = format!(
        r#"<ir_version: 8, opset_import: ["" : 18]>
        bodies (float[1, s, 8] x, bool chosen) => (float[1, s, 8] y, float[{keys}] keys)
        <float[2, 8, 8] queries = {{{}}}, float[2, 8, 8] keys_of = {{{}}}, float[2] frequencies = {{1.0, 0.01}},
         int64[4] heads = {{0, 0, 2, 4}}, int64[3] hidden = {{0, 0, 8}}, float half = {{0.5}}, int64 zero = {{0}},
         int64 one = {{1}}, int64[1] last = {{1}}, int64 trips = {{2}}, bool always = {{1}}>
        {{
          dims = Shape (x)
          length = Gather <axis = 0> (dims, one)
          range = Range (zero, length, one)
          column = Unsqueeze (range, last)
          at = Cast <to = 1> (column)
          angles = Mul (at, frequencies)
          all_angles = Concat <axis = -1> (angles, angles)
          cos = Cos (all_angles)
          sin = Sin (all_angles)
          {}
        }}"#,
        list(1),
        list(2),
        nodes.replace("LAYER", LAYER),
    );
    Model::parse(&text).unwrap().to_bytes().unwrap()
}

/// Both outputs.
fn outputs(model: &Path, chosen: bool) -> [Vec<f64>; 2] {
    let mut session = load(&onnxruntime(), model);
    let x: Vec<f64> = (0..7 * 8)
        .map(|n| ((n * 37) % 29) as f64 / 15.0 - 1.0)
        .collect();
    let x = Tensor::from_f64(DType::F32, &[1, 7, 8], &x);
    let feeds = [("x", x), ("chosen", Tensor::from_bool(&[], &[chosen]))];
    let outputs = session.run(&feeds, &[]).unwrap_or_else(|e| panic!("{e}"));
    [0, 1].map(|i| outputs[i].1.to_f64s().unwrap())
}

fn far(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn weights_outside_of_bodies_follow_the_rotations_in_them() {
    for (name, nodes) in MODELS {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["model.onnx", "out.onnx"].map(|name| folder.path().join(name));
        std::fs::write(&from, model(nodes)).unwrap();
        let paths = [&from, &to].map(|path| path.display().to_string());
        let rewrite = |flags: &[&str]| {
            let mut arguments = vec!["rewrite", &paths[0], "-o", &paths[1]];
            arguments.extend(flags);
            binary::run(arguments)
        };
        let ran = rewrite(&["--layout", "interleaved"]);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        for chosen in [true, false] {
            let [before, keys] = outputs(&from, chosen);
            let [after, moved] = outputs(&to, chosen);
            assert!(far(&before, &after) < 1e-5, "{name}, {chosen}");
            let in_order: Vec<f64> = moved
                .chunks(4)
                .flat_map(|head| [head[0], head[2], head[1], head[3]])
                .collect();
            assert!(far(&keys, &in_order) < 1e-5, "{name}, {chosen}");
            assert!(far(&keys, &moved) > 0.1, "{name}, {chosen}");
        }
        // Without the weights, it is another function.
        let other = rewrite(&["--to", "rope", "--layout", "interleaved"]);
        assert_eq!(other.code, 0, "{name}: {}", other.stderr);
        let [before, after] = [&from, &to].map(|path| outputs(path, true));
        assert!(far(&before[0], &after[0]) > 1e-3, "{name}");
    }
}
