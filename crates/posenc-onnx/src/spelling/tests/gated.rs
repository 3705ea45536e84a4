//! Biases of the scores that content scales.

use super::*;

/// Outputs of the linear map that the gates come of.
const GATES: usize = 4;

/// Numbers that differ.
fn numbers(count: usize, seed: f64) -> Vec<f64> {
    let number = |i: usize| (1.3 * i as f64 + seed).cos();
    (0..count).map(number).collect()
}

/// A model that gives a gated bias, what it comes of, and the bias before.
fn gated(op: &str, heads: usize, outputs: usize, offset: bool) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let query_bias = s.floats(&[HIDDEN], numbers(HIDDEN, 0.1));
    let d = s.distance();
    let d = s.cast(&d, DType::F32);
    let slopes = s.floats(&[1, HEADS, 1, 1], [0.5, 0.25, 2.0]);
    let relative = s.op("Mul", &[&slopes, &d]);
    let weight = s.floats(&[SIZE, outputs], numbers(SIZE * outputs, 0.2));
    let bias = s.floats(&[outputs], numbers(outputs, 0.3));
    let a = s.floats(&[1, HEADS, 1, 1], [1.0, 0.5, 2.0]);
    let mut inputs = vec![&*x, &query_bias, &relative, &weight, &bias, &a];
    if offset {
        s.input("token_offset", DType::I32, &["batch", "sequence"]);
        inputs.push("token_offset");
    }
    let y = s.with(op, &inputs, &[("num_heads", A::Int(heads as i64))]);
    s.model(17, &[&y, &x])
}

#[test]
fn a_gate_is_what_wavlm_computes() {
    let model = gated("ms.GatedRelativePositionBias", HEADS, GATES, false);
    let plain = plain(&model, &BTreeMap::new()).expect("it is replaced");
    let dims = [2, 5];
    let got = output(&plain, dims);
    assert_eq!(got.shape(), [2, HEADS, 5, 5]);
    let mut x = model.clone();
    let mut out = x.graph().emitter(x.graph().main(), "x");
    let last = x.graph().scope(x.graph().main()).outputs()[1];
    let first = x.graph().scope(x.graph().main()).outputs()[0];
    let same = out.op("Identity", &[last]);
    out.redirect(first, same).unwrap();
    let patch = out.finish();
    x.commit(patch).unwrap();
    let x = output(&x, dims);
    let (of_query, weight) = (numbers(HIDDEN, 0.1), numbers(SIZE * GATES, 0.2));
    let bias = numbers(GATES, 0.3);
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    for batch in 0..2 {
        for (head, (slope, a)) in [(0.5, 1.0), (0.25, 0.5), (2.0, 2.0)]
            .into_iter()
            .enumerate()
        {
            for query in 0..5 {
                let feature = |i: usize| {
                    let at = head * SIZE + i;
                    x[[batch, query, at]] + of_query[at]
                };
                let linear = |o: usize| {
                    let products = (0..SIZE).map(|i| feature(i) * weight[i * GATES + o]);
                    products.sum::<f64>() + bias[o]
                };
                let [u, r] = [[0, 1], [2, 3]].map(|o| sigmoid(linear(o[0]) + linear(o[1])));
                for key in 0..5 {
                    let distance = key as f64 - query as f64;
                    let want = (u * (r * a - 1.0) + 2.0) * slope * distance;
                    let near = (got[[batch, head, query, key]] - want).abs() < 1e-6;
                    assert!(near, "{batch} {head} {query} {key}");
                }
            }
        }
    }
}

#[test]
fn other_gates_stay() {
    for (op, heads, outputs, offset) in [
        ("GatedRelativePositionBias", HEADS, GATES, false),
        // Tokens without their padding.
        ("ms.GatedRelativePositionBias", HEADS, GATES, true),
        // Outputs that are not of two gates.
        ("ms.GatedRelativePositionBias", HEADS, 3, false),
        ("ms.GatedRelativePositionBias", 0, GATES, false),
    ] {
        let model = gated(op, heads, outputs, offset);
        let is_kept = |made: Model| {
            let left = operators(&made);
            left.contains(&"GatedRelativePositionBias".to_owned())
        };
        let made = plain(&model, &BTreeMap::new());
        assert!(made.is_none_or(is_kept), "{op} {heads} {outputs} {offset}");
    }
}
