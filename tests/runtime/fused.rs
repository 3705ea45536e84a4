//! Cases of fused operators: rotations, attention, and the others that ONNX Runtime's tools write.

use posenc_ir::{DType, Tensor};

use super::cases::{Case, f32s, once, want};
use super::models::{Attr, Graph};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        contrib_rotary(
            "com.microsoft RotaryEmbedding",
            &["b", "s"],
            &[1, 2],
            &[0, 1],
        ),
        contrib_rotary(
            "com.microsoft RotaryEmbedding from an offset",
            &["1"],
            &[1],
            &[0],
        ),
        contrib_interleaved_rotary(),
        contrib_attention(),
        contrib_multi_head_attention("com.microsoft MultiHeadAttention", 0),
        contrib_multi_head_attention("com.microsoft MultiHeadAttention, causal", 1),
        group_query("com.microsoft GroupQueryAttention", -1, 0),
        group_query("com.microsoft GroupQueryAttention with a window of 2", 2, 0),
        group_query("com.microsoft GroupQueryAttention that rotates", -1, 1),
        group_query_with_past(),
        contrib_activations(),
        skip_layer_normalization(),
        skip_simplified_layer_normalization(),
        onnx_rotary(),
        onnx_rotary_with_one_cache_for_the_batch(),
        onnx_attention_with_float_mask(),
        onnx_attention_with_bool_mask(),
    ]
}

/// cos and sin of the positions 0 and 1 for one pair, as tables of these dimensions.
fn tables(dims: &[usize]) -> (Tensor, Tensor) {
    let (cos, sin) = ([1.0, 1f64.cos()], [0.0, 1f64.sin()]);
    (f32s(dims, &cos), f32s(dims, &sin))
}

/// [1 2] at position 0 and [3 −1] at position 1, for one head of size 2, and their rotations.
fn rotated() -> ([f64; 4], [f64; 4]) {
    let (c, s) = (1f64.cos(), 1f64.sin());
    ([1.0, 2.0, 3.0, -1.0], [1.0, 2.0, 3.0 * c + s, 3.0 * s - c])
}

fn contrib_rotary(name: &'static str, dims: &[&str], shape: &[usize], positions: &[i64]) -> Case {
    let (cos, sin) = tables(&[2, 1]);
    let model = Graph::new()
        .input("x", DType::F32, &["b", "h", "s", "2"])
        .input("position", DType::I64, dims)
        .init("cos", &cos)
        .init("sin", &sin)
        .contrib(
            "RotaryEmbedding",
            &["x", "position", "cos", "sin"],
            &["y"],
            vec![],
        )
        .output("y", DType::F32, &["b", "h", "s", "2"]);
    let (x, y) = rotated();
    Case {
        name,
        model: model.model(17),
        runs: once(
            vec![
                ("x", f32s(&[1, 1, 2, 2], &x)),
                ("position", Tensor::from_i64(shape, positions)),
            ],
            want("y", DType::F32, &[1, 1, 2, 2], &y),
        ),
        bound: 1e-6,
    }
}

/// The pairs (x₀, x₁) and (x₂, x₃) at position 1, by the angles 1 and 1/2.
fn contrib_interleaved_rotary() -> Case {
    let (a, b) = (1f64, 0.5f64);
    let model = Graph::new()
        .input("x", DType::F32, &["b", "h", "s", "4"])
        .input("position", DType::I64, &["b", "s"])
        .init("cos", &f32s(&[2, 2], &[1.0, 1.0, a.cos(), b.cos()]))
        .init("sin", &f32s(&[2, 2], &[0.0, 0.0, a.sin(), b.sin()]))
        .contrib(
            "RotaryEmbedding",
            &["x", "position", "cos", "sin"],
            &["y"],
            vec![("interleaved", Attr::Int(1))],
        )
        .output("y", DType::F32, &["b", "h", "s", "4"]);
    let y = [
        a.cos() - 2.0 * a.sin(),
        a.sin() + 2.0 * a.cos(),
        3.0 * b.cos() + b.sin(),
        3.0 * b.sin() - b.cos(),
    ];
    Case {
        name: "com.microsoft RotaryEmbedding, interleaved",
        model: model.model(17),
        runs: once(
            vec![
                ("x", f32s(&[1, 1, 1, 4], &[1.0, 2.0, 3.0, -1.0])),
                ("position", Tensor::from_i64(&[1, 1], &[1])),
            ],
            want("y", DType::F32, &[1, 1, 1, 4], &y),
        ),
        bound: 1e-6,
    }
}

/// x = [0; 1], q = k = v = x, d = 1: scores [0 0; 0 1], so y = [1/2, e/(1 + e)].
fn contrib_attention() -> Case {
    let model = Graph::new()
        .input("x", DType::F32, &["b", "s", "1"])
        .init("w", &f32s(&[1, 3], &[1.0, 1.0, 1.0]))
        .init("bias", &f32s(&[3], &[0.0, 0.0, 0.0]))
        .contrib(
            "Attention",
            &["x", "w", "bias"],
            &["y"],
            vec![("num_heads", Attr::Int(1))],
        )
        .output("y", DType::F32, &["b", "s", "1"]);
    let e = 1f64.exp();
    Case {
        name: "com.microsoft Attention",
        model: model.model(17),
        runs: once(
            vec![("x", f32s(&[1, 2, 1], &[0.0, 1.0]))],
            want("y", DType::F32, &[1, 2, 1], &[0.5, e / (1.0 + e)]),
        ),
        bound: 1e-6,
    }
}

/// The same attention on separate q, k and v; causal, the first row sees itself alone.
fn contrib_multi_head_attention(name: &'static str, unidirectional: i64) -> Case {
    let dims = ["b", "s", "1"];
    let attributes = vec![
        ("num_heads", Attr::Int(1)),
        ("unidirectional", Attr::Int(unidirectional)),
    ];
    let model = Graph::new()
        .input("q", DType::F32, &dims)
        .input("k", DType::F32, &dims)
        .input("v", DType::F32, &dims)
        .contrib("MultiHeadAttention", &["q", "k", "v"], &["y"], attributes)
        .output("y", DType::F32, &dims);
    let e = 1f64.exp();
    let first = if unidirectional == 0 { 0.5 } else { 0.0 };
    let x = f32s(&[1, 2, 1], &[0.0, 1.0]);
    Case {
        name,
        model: model.model(17),
        runs: once(
            vec![("q", x.clone()), ("k", x.clone()), ("v", x)],
            want("y", DType::F32, &[1, 2, 1], &[first, e / (1.0 + e)]),
        ),
        bound: 1e-6,
    }
}

/// The head size of the grouped attention; only the first component of each head is not zero.
const SIZE: usize = 16;

/// Each value as the first component of a head.
fn heads(values: &[f64]) -> Vec<f64> {
    let zeros = [0.0; SIZE - 1];
    let head = |x: &f64| [&[*x][..], &zeros].concat();
    values.iter().flat_map(head).collect()
}

/// Two query heads over one key head, causal: query i sees the last `window` keys up to i, all of
/// them where the window is −1. Rotation changes the first components by their position, so that the
/// score of i and j is q·k·cos(i − j).
fn group_query(name: &'static str, window: i64, rotary: i64) -> Case {
    let dims = ["b", "s", ""];
    let attributes = vec![
        ("num_heads", Attr::Int(2)),
        ("kv_num_heads", Attr::Int(1)),
        ("scale", Attr::Float(1.0)),
        ("local_window_size", Attr::Int(window)),
        ("do_rotary", Attr::Int(rotary)),
    ];
    let mut inputs = vec!["q", "k", "v", "", "", "last", "total"];
    if rotary != 0 {
        inputs.extend(["cos", "sin"]);
    }
    let table = |first: fn(f64) -> f64, rest: f64| {
        let row = |position: usize| [vec![first(position as f64)], vec![rest; SIZE / 2 - 1]];
        let rows: Vec<f64> = (0..3).flat_map(|p| row(p).concat()).collect();
        f32s(&[3, SIZE / 2], &rows)
    };
    let model = Graph::new()
        .input("q", DType::F32, &dims)
        .input("k", DType::F32, &dims)
        .input("v", DType::F32, &dims)
        .init("last", &Tensor::from_f64(DType::I32, &[1], &[2.0]))
        .init("total", &Tensor::from_f64(DType::I32, &[], &[3.0]))
        .init("cos", &table(f64::cos, 1.0))
        .init("sin", &table(f64::sin, 0.0))
        .contrib(
            "GroupQueryAttention",
            &inputs,
            &["y", "pk", "pv"],
            attributes,
        )
        .output("y", DType::F32, &dims);
    let (q, k, v) = (
        [[0.5, -1.0f64], [1.0, 2.0], [-0.5, 0.25]],
        [1.0, -2.0, 0.5],
        [3.0, 5.0, -7.0],
    );
    let cosine = |i: usize, j: usize| {
        let distance = if rotary == 0 { 0 } else { i - j };
        (distance as f64).cos()
    };
    let mut y = Vec::new();
    for (i, row) in q.iter().enumerate() {
        let first = usize::try_from(window).map_or(0, |window| (i + 1).saturating_sub(window));
        for q in row {
            let score = |j: usize| q * k[j] * cosine(i, j);
            let weights: Vec<f64> = (first..=i).map(|j| score(j).exp()).collect();
            let sum: f64 = weights.iter().sum();
            let mixed: f64 = weights.iter().zip(&v[first..]).map(|(w, v)| w * v).sum();
            y.push(mixed / sum);
        }
    }
    Case {
        name,
        model: model.model(17),
        runs: once(
            vec![
                ("q", f32s(&[1, 3, 2 * SIZE], &heads(q.as_flattened()))),
                ("k", f32s(&[1, 3, SIZE], &heads(&k))),
                ("v", f32s(&[1, 3, SIZE], &heads(&v))),
            ],
            want("y", DType::F32, &[1, 3, 2 * SIZE], &heads(&y)),
        ),
        bound: 2e-6,
    }
}

/// One new key after a cache of two rows, of which the first of the batch has filled one alone: its
/// new key is the second, and the row after it is not used. All scores are 0.
fn group_query_with_past() -> Case {
    let dims = ["b", "s", ""];
    let cache = ["b", "1", "p", ""];
    let attributes = vec![("num_heads", Attr::Int(1)), ("kv_num_heads", Attr::Int(1))];
    let model = Graph::new()
        .input("x", DType::F32, &dims)
        .input("v", DType::F32, &dims)
        .input("past_k", DType::F32, &cache)
        .input("past_v", DType::F32, &cache)
        .init("last", &Tensor::from_f64(DType::I32, &[2], &[1.0, 2.0]))
        .init("total", &Tensor::from_f64(DType::I32, &[], &[3.0]))
        .contrib(
            "GroupQueryAttention",
            &["x", "x", "v", "past_k", "past_v", "last", "total"],
            &["y", "pk", "pv"],
            attributes,
        )
        .output("y", DType::F32, &dims);
    Case {
        name: "com.microsoft GroupQueryAttention with a past",
        model: model.model(17),
        runs: once(
            vec![
                ("x", f32s(&[2, 1, SIZE], &heads(&[0.0, 0.0]))),
                ("v", f32s(&[2, 1, SIZE], &heads(&[3.0, 6.0]))),
                ("past_k", f32s(&[2, 1, 2, SIZE], &heads(&[0.0; 4]))),
                (
                    "past_v",
                    f32s(&[2, 1, 2, SIZE], &heads(&[1.0, 99.0, 1.0, 2.0])),
                ),
            ],
            // (1 + 3) / 2 and (1 + 2 + 6) / 3
            want("y", DType::F32, &[2, 1, SIZE], &heads(&[2.0, 3.0])),
        ),
        bound: 1e-6,
    }
}

/// The error function at 1/√2, 2/√2 and 3/√2: the part of a normal distribution within one, two and
/// three standard deviations.
const ERF: [f64; 3] = [
    0.682_689_492_137_085_9,
    0.954_499_736_103_641_6,
    0.997_300_203_936_739_8,
];

fn contrib_activations() -> Case {
    let dims = ["n"];
    let model = Graph::new()
        .input("x", DType::F32, &dims)
        .init("one", &f32s(&[2], &[1.0, 1.0]))
        .contrib("Gelu", &["x"], &["gelu"], vec![])
        .contrib("BiasGelu", &["x", "one"], &["bias"], vec![])
        .contrib("FastGelu", &["x"], &["fast"], vec![])
        .contrib(
            "QuickGelu",
            &["x"],
            &["quick"],
            vec![("alpha", Attr::Float(1.5))],
        )
        .output("gelu", DType::F32, &dims)
        .output("bias", DType::F32, &dims)
        .output("fast", DType::F32, &dims)
        .output("quick", DType::F32, &dims);
    let x = [1.0, 2.0f64];
    let gelu = |x: f64, erf: f64| x / 2.0 * (1.0 + erf);
    let fast = |x: f64| {
        let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        x / 2.0 * (1.0 + inner.tanh())
    };
    let quick = |x: f64| x / (1.0 + (-1.5 * x).exp());
    let both = |name, values: [f64; 2]| want(name, DType::F32, &[2], &values);
    let mut runs = once(
        vec![("x", f32s(&[2], &x))],
        both("gelu", [gelu(1.0, ERF[0]), gelu(2.0, ERF[1])]),
    );
    runs[0]
        .want
        .push(both("bias", [gelu(2.0, ERF[1]), gelu(3.0, ERF[2])]));
    runs[0].want.push(both("fast", x.map(fast)));
    runs[0].want.push(both("quick", x.map(quick)));
    Case {
        name: "com.microsoft activations",
        model: model.model(17),
        runs,
        bound: 1e-6,
    }
}

/// [1 2] + [0 4] = [1 6], of mean 7/2 and variance 25/4: normalized [−1 1], times [2 3], plus
/// [0 1].
fn skip_layer_normalization() -> Case {
    let dims = ["b", "s", "2"];
    let model = Graph::new()
        .input("x", DType::F32, &dims)
        .input("skip", DType::F32, &dims)
        .init("gamma", &f32s(&[2], &[2.0, 3.0]))
        .init("beta", &f32s(&[2], &[0.0, 1.0]))
        .contrib(
            "SkipLayerNormalization",
            &["x", "skip", "gamma", "beta"],
            &["y"],
            vec![("epsilon", Attr::Float(0.0))],
        )
        .output("y", DType::F32, &dims);
    Case {
        name: "com.microsoft SkipLayerNormalization",
        model: model.model(17),
        runs: once(
            vec![
                ("x", f32s(&[1, 1, 2], &[1.0, 2.0])),
                ("skip", f32s(&[1, 1, 2], &[0.0, 4.0])),
            ],
            want("y", DType::F32, &[1, 1, 2], &[-2.0, 4.0]),
        ),
        bound: 1e-6,
    }
}

/// [1 3] + [2 1] = [3 4], of root mean square 5/√2, times [2 3].
fn skip_simplified_layer_normalization() -> Case {
    let dims = ["b", "s", "2"];
    let model = Graph::new()
        .input("x", DType::F32, &dims)
        .input("skip", DType::F32, &dims)
        .init("gamma", &f32s(&[2], &[2.0, 3.0]))
        .contrib(
            "SkipSimplifiedLayerNormalization",
            &["x", "skip", "gamma"],
            &["y"],
            vec![("epsilon", Attr::Float(0.0))],
        )
        .output("y", DType::F32, &dims);
    let root = 5.0 / 2f64.sqrt();
    Case {
        name: "com.microsoft SkipSimplifiedLayerNormalization",
        model: model.model(17),
        runs: once(
            vec![
                ("x", f32s(&[1, 1, 2], &[1.0, 3.0])),
                ("skip", f32s(&[1, 1, 2], &[2.0, 1.0])),
            ],
            want("y", DType::F32, &[1, 1, 2], &[6.0 / root, 12.0 / root]),
        ),
        bound: 1e-6,
    }
}

fn onnx_rotary() -> Case {
    let (cos, sin) = tables(&[2, 1]);
    let model = Graph::new()
        .input("x", DType::F32, &["b", "h", "s", "2"])
        .input("position", DType::I64, &["b", "s"])
        .init("cos", &cos)
        .init("sin", &sin)
        .node(
            "RotaryEmbedding",
            &["x", "cos", "sin", "position"],
            &["y"],
            vec![],
        )
        .output("y", DType::F32, &["b", "h", "s", "2"]);
    let (x, y) = rotated();
    Case {
        name: "RotaryEmbedding with positions",
        model: model.model(23),
        runs: once(
            vec![
                ("x", f32s(&[1, 1, 2, 2], &x)),
                ("position", Tensor::from_i64(&[1, 2], &[0, 1])),
            ],
            want("y", DType::F32, &[1, 1, 2, 2], &y),
        ),
        bound: 1e-6,
    }
}

/// Exporters write caches `[1, s, d/2]` for a batch of any size.
fn onnx_rotary_with_one_cache_for_the_batch() -> Case {
    let (cos, sin) = tables(&[1, 2, 1]);
    let model = Graph::new()
        .input("x", DType::F32, &["b", "h", "s", "2"])
        .init("cos", &cos)
        .init("sin", &sin)
        .node("RotaryEmbedding", &["x", "cos", "sin"], &["y"], vec![])
        .output("y", DType::F32, &["b", "h", "s", "2"]);
    let (x, y) = rotated();
    Case {
        name: "RotaryEmbedding with one cache for a batch of two",
        model: model.model(23),
        runs: once(
            vec![("x", f32s(&[2, 1, 2, 2], &[x, x].concat()))],
            want("y", DType::F32, &[2, 1, 2, 2], &[y, y].concat()),
        ),
        bound: 1e-6,
    }
}

fn onnx_attention(name: &'static str, dtype: DType, mask: Tensor) -> Case {
    let dims = ["b", "h", "s", "1"];
    let model = Graph::new()
        .input("q", DType::F32, &dims)
        .input("k", DType::F32, &dims)
        .input("v", DType::F32, &dims)
        .input("mask", dtype, &["s", "s"])
        .node(
            "Attention",
            &["q", "k", "v", "mask"],
            &["y"],
            vec![("scale", Attr::Float(1.0))],
        )
        .output("y", DType::F32, &dims);
    let x = f32s(&[1, 1, 2, 1], &[0.25, 1.0]);
    // Row 0 sees key 0 alone; row 1 has the scores 1/4 and 1.
    let (a, b) = (0.25f64.exp(), 1f64.exp());
    Case {
        name,
        model: model.model(23),
        runs: once(
            vec![("q", x.clone()), ("k", x.clone()), ("v", x), ("mask", mask)],
            want(
                "y",
                DType::F32,
                &[1, 1, 2, 1],
                &[0.25, (0.25 * a + b) / (a + b)],
            ),
        ),
        bound: 1e-6,
    }
}

fn onnx_attention_with_float_mask() -> Case {
    let mask = f32s(&[2, 2], &[0.0, -1e4, 0.0, 0.0]);
    onnx_attention("Attention with a float mask", DType::F32, mask)
}

fn onnx_attention_with_bool_mask() -> Case {
    let mask = Tensor::from_bool(&[2, 2], &[true, false, true, true]);
    onnx_attention("Attention with a bool mask", DType::Bool, mask)
}
