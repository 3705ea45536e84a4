//! Networks that mix tokens by weights, sums or long kernels in place of attention.

use super::*;

/// Tokens of the networks of a fixed length.
const TOKENS: usize = 16;

fn ids(s: &mut Sketch) -> String {
    let ids = s.input("input_ids", DType::I64, &["batch", "16"]);
    let table = s.weights(&[30, HIDDEN]);
    s.gather(&table, &ids, 0)
}

#[test]
fn layers_over_patches_and_over_channels() {
    without(0, |s| {
        let x = pixels(s);
        let w = s.weights(&[HIDDEN, 3, 8, 8]);
        let x = s.with("Conv", &[&x, &w], &[("strides", A::Ints(&[8, 8]))]);
        let x = s.reshape(&x, &[0, HIDDEN as i64, -1]);
        let mut x = s.transpose(&x, &[0, 2, 1]);
        for _ in 0..2 {
            let y = normed(s, &x);
            let y = s.transpose(&y, &[0, 2, 1]);
            let y = linear(s, &y, TOKENS, 32);
            let y = s.op("Relu", &[&y]);
            let y = linear(s, &y, 32, TOKENS);
            let y = s.transpose(&y, &[0, 2, 1]);
            x = s.op("Add", &[&x, &y]);
            x = forward(s, &x);
        }
        reduced(s, "ReduceMean", &x, &[1])
    });
}

/// Half of the features gate the others after `mix` has mixed their tokens.
fn gated(s: &mut Sketch, x: &str, mix: fn(&mut Sketch, &str) -> String) -> String {
    let y = normed(s, x);
    let y = linear(s, &y, HIDDEN, 2 * HIDDEN);
    let y = s.op("Relu", &[&y]);
    let parts = split(s, &y, &[HIDDEN as i64, HIDDEN as i64], -1);
    let gate = normed(s, &parts[1]);
    let gate = mix(s, &gate);
    let y = s.op("Mul", &[&parts[0], &gate]);
    let y = linear(s, &y, HIDDEN, HIDDEN);
    s.op("Add", &[x, &y])
}

#[test]
fn a_gate_of_weighted_tokens() {
    without(0, |s| {
        let x = ids(s);
        let x = gated(s, &x, |s, gate| {
            let gate = s.transpose(gate, &[0, 2, 1]);
            let gate = linear(s, &gate, TOKENS, TOKENS);
            s.transpose(&gate, &[0, 2, 1])
        });
        linear(s, &x, HIDDEN, 30)
    });
}

#[test]
fn a_gate_of_tokens_as_channels_of_a_convolution() {
    without(0, |s| {
        let x = ids(s);
        let x = gated(s, &x, |s, gate| convolved(s, gate, &[TOKENS, TOKENS, 1], 1));
        linear(s, &x, HIDDEN, 30)
    });
}

/// The cosines or sines of a transform of `n` numbers.
fn transform(s: &mut Sketch, n: usize, wave: fn(f64) -> f64) -> String {
    let turn = std::f64::consts::TAU / n as f64;
    let cells = (0..n * n).map(|i| wave(turn * (i / n * (i % n)) as f64));
    s.floats(&[n, n], cells)
}

#[test]
fn stored_waves_that_transform_tokens_and_features() {
    without(0, |s| {
        let x = ids(s);
        let mut x = normed(s, &x);
        let tokens = [f64::cos, f64::sin].map(|wave| transform(s, TOKENS, wave));
        let features = [f64::cos, f64::sin].map(|wave| transform(s, HIDDEN, wave));
        for _ in 0..2 {
            let parts = [0, 1].map(|i| {
                let y = s.op("MatMul", &[&x, &features[i]]);
                s.op("MatMul", &[&tokens[i], &y])
            });
            let y = s.op("Sub", &[&parts[0], &parts[1]]);
            x = s.op("Add", &[&x, &y]);
            x = forward(s, &x);
        }
        linear(s, &x, HIDDEN, 30)
    });
}

#[test]
fn means_of_neighbors() {
    without(0, |s| {
        let x = pixels(s);
        let w = s.weights(&[16, 3, 4, 4]);
        let mut x = s.with("Conv", &[&x, &w], &[("strides", A::Ints(&[4, 4]))]);
        for _ in 0..2 {
            let attrs = [
                ("kernel_shape", A::Ints(&[3, 3])),
                ("pads", A::Ints(&[1, 1, 1, 1])),
            ];
            let y = s.with("AveragePool", &[&x], &attrs);
            let y = s.op("Sub", &[&y, &x]);
            x = s.op("Add", &[&x, &y]);
            let y = convolved(s, &x, &[16, 16, 1, 1], 1);
            x = s.op("Add", &[&x, &y]);
        }
        s.op("GlobalAveragePool", &[&x])
    });
}

/// Products of keys and values come before those with queries: no token meets another.
#[test]
fn linear_attention() {
    warned("this MatMul mixes tokens", |s| {
        let x = s.embedded();
        let positive = |s: &mut Sketch| {
            let q = s.headed(&x);
            let q = s.op("Elu", &[&q]);
            let one = s.float(1.0);
            s.op("Add", &[&q, &one])
        };
        let (q, k, v) = (positive(s), positive(s), s.headed(&x));
        let turned = s.transpose(&k, &[0, 1, 3, 2]);
        let memory = s.op("MatMul", &[&turned, &v]);
        let y = s.op("MatMul", &[&q, &memory]);
        let sum = kept(s, "ReduceSum", &k, &[2]);
        let sum = s.transpose(&sum, &[0, 1, 3, 2]);
        let sum = s.op("MatMul", &[&q, &sum]);
        let y = s.op("Div", &[&y, &sum]);
        let y = s.merged(&y);
        s.op("Add", &[&x, &y])
    });
}

/// 0, 1, … as floats `[TOKENS, 1]`.
fn times(s: &mut Sketch) -> String {
    let (zero, end, one) = (s.int(0), s.int(TOKENS as i64), s.int(1));
    let at = s.op("Range", &[&zero, &end, &one]);
    let at = s.cast(&at, DType::F32);
    s.unsqueeze(&at, &[1])
}

/// `[batch, HIDDEN, TOKENS]` with a kernel `[HIDDEN, 1, TOKENS]` over all earlier tokens.
fn long(s: &mut Sketch, x: &str, kernel: &str) -> String {
    let attrs = [
        ("group", A::Int(HIDDEN as i64)),
        ("pads", A::Ints(&[TOKENS as i64 - 1, 0])),
    ];
    s.with("Conv", &[x, kernel], &attrs)
}

#[test]
fn long_kernels_that_a_network_of_times_gives() {
    without(0, |s| {
        let x = s.input("x", DType::F32, &["batch", "24", "16"]);
        let parts = convolved(s, &x, &[3 * HIDDEN, HIDDEN, 1], 1);
        let parts = split(s, &parts, &[HIDDEN as i64; 3], 1);
        let at = times(s);
        let f = s.floats(&[1, PAIRS], (0..PAIRS).map(frequency));
        let angles = s.op("Mul", &[&at, &f]);
        let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
        let waves = s.concat(&[&at, &cos, &sin], 1);
        let kernel = linear(s, &waves, 2 * PAIRS + 1, HIDDEN);
        let kernel = s.op("Sin", &[&kernel]);
        let kernel = s.transpose(&kernel, &[1, 0]);
        let kernel = s.unsqueeze(&kernel, &[1]);
        let y = s.op("Mul", &[&parts[0], &parts[1]]);
        let y = long(s, &y, &kernel);
        let y = s.op("Mul", &[&y, &parts[2]]);
        s.op("Add", &[&x, &y])
    });
}

/// Kernels that decay exponentially.
fn decays(s: &mut Sketch) -> String {
    let at = times(s);
    let rates = s.floats(&[1, HIDDEN], (1..=HIDDEN).map(|i| -0.1 * i as f64));
    let kernel = s.op("Mul", &[&at, &rates]);
    let kernel = s.op("Exp", &[&kernel]);
    s.transpose(&kernel, &[1, 0])
}

#[test]
fn depthwise_kernels_that_decay() {
    without(0, |s| {
        let mut x = s.input("x", DType::F32, &["batch", "24", "16"]);
        for _ in 0..2 {
            let kernel = decays(s);
            let kernel = s.unsqueeze(&kernel, &[1]);
            let y = long(s, &x, &kernel);
            let direct = s.weights(&[HIDDEN, 1]);
            let own = s.op("Mul", &[&x, &direct]);
            let y = s.op("Add", &[&y, &own]);
            let y = convolved(s, &y, &[HIDDEN, HIDDEN, 1], 1);
            x = s.op("Add", &[&x, &y]);
        }
        x
    });
}

#[test]
fn kernels_that_decay_as_a_matrix_of_distances() {
    without(0, |s| {
        let x = s.input("x", DType::F32, &["batch", "16", "24"]);
        let kernel = decays(s);
        let cells = (0..TOKENS * TOKENS).map(|i| [i / TOKENS, i % TOKENS]);
        let far = cells.clone().map(|[i, j]| i.saturating_sub(j) as f64);
        let far = s.typed(DType::I64, &[TOKENS, TOKENS], far);
        let kernel = s.gather(&kernel, &far, 1);
        let earlier = cells.map(|[i, j]| f64::from(u8::from(i >= j)));
        let earlier = s.floats(&[TOKENS, TOKENS], earlier);
        let kernel = s.op("Mul", &[&kernel, &earlier]);
        let y = s.transpose(&x, &[0, 2, 1]);
        let y = s.unsqueeze(&y, &[3]);
        let y = s.op("MatMul", &[&kernel, &y]);
        let axes = s.ints(&[3]);
        let y = s.op("Squeeze", &[&y, &axes]);
        let y = s.transpose(&y, &[0, 2, 1]);
        s.op("Add", &[&x, &y])
    });
}

#[test]
fn a_table_before_attention_behind_a_mixer_is_found() {
    with_table(|s| {
        let x = ids(s);
        let x = gated(s, &x, |s, gate| convolved(s, gate, &[TOKENS, TOKENS, 1], 1));
        let x = placed(s, &x);
        s.attends(&x, &x)
    });
}
