//! Biases that are removed, masks that are kept, and what cannot be separated.

mod fused;
mod tokens;
mod written;

use posenc_ir::DType;

use super::*;
use crate::edit::remove::testing::{Analyzed, layers, product, scaled, softmax};
use crate::graph::sketch::{A, HEADS, SIZE, Sketch};
use posenc_encodings::kind::Kind;

/// Tokens where the length is fixed.
const FIXED: usize = 14;

/// The values that enter the scores, made once for all layers; the bias is multiplied by a factor.
type Made = fn(&mut Sketch, f64) -> Vec<String>;

/// Adds the values to the scores of a layer.
type Joined = fn(&mut Sketch, &str, &[String]) -> String;

fn model(made: Made, joined: Joined, factor: f64) -> Analyzed {
    let mut s = Sketch::default();
    s.input("attention_mask", DType::I64, &["batch", "sequence"]);
    // Ids are the first input: ports expect no order.
    let all = std::cell::RefCell::new(None);
    let y = layers(&mut s, &|s, heads| {
        let mut all = all.borrow_mut();
        let entering = all.get_or_insert_with(|| made(s, factor)).clone();
        let scores = product(s, &heads.q, &heads.k);
        let scores = joined(s, &scores, &entering);
        let weights = softmax(s, &scores);
        s.op("MatMul", &[&weights, &heads.v])
    });
    Analyzed::new(s.model(17, &[&y]))
}

/// A linear bias, `[1, heads, query, key]`.
fn line(s: &mut Sketch, factor: f64) -> String {
    let d = s.distance();
    let d = s.cast(&d, DType::F32);
    let slopes = s.floats(
        &[1, HEADS, 1, 1],
        [0.25, 0.0625, 0.015625].map(|m| m * factor),
    );
    s.op("Mul", &[&slopes, &d])
}

/// That times a gate of each query `[batch, heads, query, size]`.
fn gated_line(s: &mut Sketch, q: &str) -> String {
    let weight = s.weights(&[SIZE, 1]);
    let gate = s.op("MatMul", &[q, &weight]);
    let gate = s.op("Sigmoid", &[&gate]);
    let line = line(s, 1.0);
    s.op("Mul", &[&gate, &line])
}

/// `(1 − mask) · low`, `[batch, 1, 1, key]`.
fn padding(s: &mut Sketch, low: f64) -> String {
    let mask = s.unsqueeze("attention_mask", &[1, 2]);
    let mask = s.cast(&mask, DType::F32);
    let (one, low) = (s.float(1.0), s.float(low));
    let absent = s.op("Sub", &[&one, &mask]);
    s.op("Mul", &[&absent, &low])
}

/// `low` for later keys, else 0, `[query, key]`.
fn causal(s: &mut Sketch, low: f64) -> String {
    let later = later(s);
    let (low, zero) = (s.float(low), s.float(0.0));
    s.op("Where", &[&later, &low, &zero])
}

fn later(s: &mut Sketch) -> String {
    let d = s.distance();
    let zero = s.int(0);
    s.op("Greater", &[&d, &zero])
}

fn added(s: &mut Sketch, scores: &str, entering: &[String]) -> String {
    let mut scores = scaled(s, scores);
    for one in entering {
        scores = s.op("Add", &[&scores, one]);
    }
    scores
}

/// The numbers of a constant `[1, heads, query, key]`.
fn table(s: &mut Sketch, cell: impl Fn(usize, i64) -> f64) -> String {
    let places = (0..HEADS).flat_map(|h| {
        (0..FIXED).flat_map(move |i| (0..FIXED).map(move |j| (h, j as i64 - i as i64)))
    });
    let cells: Vec<f64> = places.map(|(h, d)| cell(h, d)).collect();
    s.floats(&[1, HEADS, FIXED, FIXED], cells)
}

/// A linear bias, of which the second sequence hides what is between its halves.
fn windows(s: &mut Sketch, factor: f64) -> String {
    let cell = move |g: usize, h: usize, i: usize, j: usize| {
        let slope = factor / 4.0_f64.powi(h as i32 + 1);
        let is_apart = g == 1 && (i < FIXED / 2) != (j < FIXED / 2);
        slope * (j as f64 - i as f64) - if is_apart { 100.0 } else { 0.0 }
    };
    let dims = [2, HEADS, FIXED, FIXED];
    let cells = ndarray::Array4::from_shape_fn(dims, |(g, h, i, j)| cell(g, h, i, j));
    s.floats(&dims, cells.into_iter().collect::<Vec<f64>>())
}

/// Biases that are removed: the masks that are left are those of the same model with a bias of
/// zero.
const REMOVED: &[(&str, Made, Joined)] = &[
    ("a bias alone", |s, f| vec![line(s, f)], added),
    (
        "a bias and the masks of windows in one constant",
        |s, f| vec![windows(s, f)],
        added,
    ),
    (
        "a bias before the scale",
        |s, f| vec![line(s, f), padding(s, -1e4)],
        |s, scores, e| {
            let scores = s.op("Add", &[&e[0], scores]);
            let scores = scaled(s, &scores);
            s.op("Add", &[&scores, &e[1]])
        },
    ),
    (
        "a bias that is subtracted",
        |s, f| {
            let line = line(s, f);
            vec![s.op("Neg", &[&line]), causal(s, f64::NEG_INFINITY)]
        },
        |s, scores, e| {
            let scores = s.op("Sub", &[scores, &e[0]]);
            s.op("Add", &[&e[1], &scores])
        },
    ),
    (
        "a bias and two masks in one sum",
        |s, f| vec![line(s, f), padding(s, -3.4e38), causal(s, -1e4)],
        |s, scores, e| s.op("Sum", &[&e[1], scores, &e[0], &e[2]]),
    ),
    (
        "two biases and a mask in one sum",
        |s, f| vec![line(s, f), line(s, f), causal(s, -1e4)],
        |s, scores, e| s.op("Sum", &[&e[0], scores, &e[1], &e[2]]),
    ),
    (
        "a bias in one sum with a sum of a bias and a mask",
        |s, f| {
            let (one, other, mask) = (line(s, f), line(s, f), padding(s, -1e4));
            vec![one, s.op("Add", &[&mask, &other])]
        },
        |s, scores, e| {
            let zero = s.op("Sub", &[scores, scores]);
            s.op("Sum", &[scores, &e[0], &e[1], &zero])
        },
    ),
    (
        "a bias in a sum of a sum with another bias",
        |s, f| vec![line(s, f), line(s, f), causal(s, -1e4)],
        |s, scores, e| {
            let scores = s.op("Add", &[&e[0], scores]);
            s.op("Sum", &[&e[1], &scores, &e[2]])
        },
    ),
    (
        "a bias joined with padding",
        |s, f| {
            let (line, mask) = (line(s, f), padding(s, -1e4));
            vec![s.op("Add", &[&line, &mask])]
        },
        added,
    ),
    (
        "a bias less a mask that is large",
        |s, f| {
            let (line, mask) = (line(s, f), padding(s, 1e6));
            vec![s.op("Sub", &[&line, &mask])]
        },
        added,
    ),
    (
        "a choice between a bias and minus infinity",
        |s, f| {
            let (line, later) = (line(s, f), later(s));
            let low = s.float(f64::NEG_INFINITY);
            vec![s.op("Where", &[&later, &low, &line])]
        },
        added,
    ),
    (
        "a bias joined with masks, scaled and moved",
        |s, f| {
            let (line, mask, causal) = (line(s, f), padding(s, -4e4), causal(s, -4e4));
            let four = s.float(4.0);
            let line = s.op("Mul", &[&four, &line]);
            let all = s.op("Add", &[&mask, &line]);
            let all = s.op("Add", &[&all, &causal]);
            let all = s.op("Div", &[&all, &four]);
            let all = s.transpose(&all, &[0, 2, 1, 3]);
            let all = s.op("Identity", &[&all]);
            let all = s.transpose(&all, &[0, 2, 1, 3]);
            vec![s.slice(&all, 1, [0, HEADS as i64, 1])]
        },
        added,
    ),
    (
        "a mask that all heads share, shaped with the heads",
        |s, f| {
            let (line, mask) = (line(s, f), padding(s, -1e4));
            let causal = causal(s, -1e4);
            let mask = s.op("Add", &[&mask, &causal]);
            let all = s.op("Add", &[&line, &mask]);
            let shape = s.op("Shape", &[&all]);
            let flat = s.reshape(&all, &[0, 0, -1]);
            vec![s.op("Reshape", &[&flat, &shape])]
        },
        added,
    ),
    (
        "a window that the trial run is too short to see",
        |s, f| {
            let (line, d) = (line(s, f), s.distance());
            let (d, far) = (s.op("Abs", &[&d]), s.int(300));
            let (near, low) = (s.op("Less", &[&d, &far]), s.float(-1e9));
            vec![s.op("Where", &[&near, &line, &low])]
        },
        added,
    ),
    (
        "numbers that an operator joins with a mask",
        |s, f| {
            let d = s.distance();
            let d = s.op("Abs", &[&d]);
            let d = s.cast(&d, DType::F32);
            let slopes = s.floats(&[1, HEADS, 1, 1], [0.25, 0.0625, 0.015625].map(|m| -m * f));
            let line = s.op("Mul", &[&slopes, &d]);
            let mask = causal(s, -1e9);
            vec![s.op("Min", &[&line, &mask])]
        },
        added,
    ),
    (
        "one constant for bias and mask",
        |s, f| {
            let cell = |h: usize, d: i64| {
                if d > 0 {
                    -1e9
                } else {
                    f * 0.25f64.powi(h as i32 + 1) * d as f64
                }
            };
            let all = table(s, cell);
            let at = s.range();
            let all = s.gather(&all, &at, 2);
            vec![s.gather(&all, &at, 3)]
        },
        added,
    ),
];

#[test]
fn biases_are_removed_and_masks_are_kept() {
    for (name, made, joined) in REMOVED {
        let known = model(*made, *joined, 1.0);
        assert_eq!(known.kinds(), [Kind::Alibi], "{name}");
        let bare = known
            .without_encodings()
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        let plain = model(*made, *joined, 0.0);
        assert_ne!(known.planes(), plain.planes(), "{name}");
        assert_eq!(bare.planes(), plain.planes(), "{name}");
        assert_eq!(bare.kinds(), [], "{name}");
    }
}

/// Masks, and values that are not biases: none of these is changed.
const KEPT: &[(&str, Made, Joined)] = &[
    ("padding of −10,000", |s, _| vec![padding(s, -1e4)], added),
    (
        "padding of −3.4e38",
        |s, _| vec![padding(s, -3.4e38)],
        added,
    ),
    (
        "a causal mask of minus infinity",
        |s, _| vec![causal(s, f64::NEG_INFINITY)],
        added,
    ),
    (
        "a causal mask of −65,504",
        |s, _| vec![causal(s, -65504.0)],
        added,
    ),
    (
        "masks joined",
        |s, _| {
            let (padding, causal) = (padding(s, -1e4), causal(s, -1e4));
            vec![s.op("Add", &[&padding, &causal])]
        },
        added,
    ),
    (
        "a bool mask with a hole",
        |s, _| {
            let d = s.distance();
            let (d, two) = (s.op("Abs", &[&d]), s.int(2));
            vec![s.op("Equal", &[&d, &two])]
        },
        |s, scores, e| {
            let low = s.float(-1e9);
            s.op("Where", &[&e[0], &low, scores])
        },
    ),
    (
        "a mask of windows that hides by −100",
        |s, _| {
            let all = table(s, |_, d| if (3..9).contains(&d) { -100.0 } else { 0.0 });
            vec![all]
        },
        |s, scores, e| {
            let scores = s.reshape(scores, &[-1, HEADS as i64, FIXED as i64, FIXED as i64]);
            added(s, &scores, e)
        },
    ),
    (
        "a window wider than the trial run",
        |s, _| {
            let d = s.distance();
            let (d, far) = (s.op("Abs", &[&d]), s.int(300));
            let near = s.op("Less", &[&d, &far]);
            let (low, zero) = (s.float(-1e9), s.float(0.0));
            vec![s.op("Where", &[&near, &zero, &low])]
        },
        added,
    ),
    (
        "a mask by factors, and what they hide subtracted",
        |s, _| {
            let (d, zero) = (s.distance(), s.int(0));
            let seen = s.op("LessOrEqual", &[&d, &zero]);
            let seen = s.cast(&seen, DType::F32);
            let (one, low) = (s.float(1.0), s.float(1e4));
            let hidden = s.op("Sub", &[&one, &seen]);
            vec![seen, s.op("Mul", &[&hidden, &low])]
        },
        |s, scores, e| {
            let scores = s.op("Mul", &[scores, &e[0]]);
            s.op("Sub", &[&scores, &e[1]])
        },
    ),
    (
        "numbers of each head that are the same for all keys",
        |s, _| vec![s.floats(&[1, HEADS, 1, 1], [0.5, -1.0, 2.0])],
        added,
    ),
    (
        "a number that is the same for all pairs",
        |s, _| vec![s.floats(&[1, 1, FIXED, FIXED], [0.5; FIXED * FIXED])],
        added,
    ),
    (
        "a temperature",
        |s, _| vec![s.floats(&[1, HEADS, 1, 1], [0.5, 1.0, 2.0])],
        |s, scores, e| s.op("Mul", &[scores, &e[0]]),
    ),
];

#[test]
fn masks_are_not_touched() {
    for (name, made, joined) in KEPT {
        let known = model(*made, *joined, 1.0);
        let context = known.context();
        assert_eq!(context.found.attention.len(), 2, "{name}");
        let mut out = known.emitter();
        let (mut zeros, mut biases) = (ZeroPropagation::new(&context), Biases::new(&context));
        for site in &context.found.attention {
            let error = biases.remove(&mut out, &mut zeros, site).unwrap_err();
            let why = "what follows the position here is not added to the scores, and cannot be taken out";
            assert!(error.to_string().contains(why), "{name}: {error}");
        }
        zeros.finish(&mut out).unwrap();
        assert!(out.finish().is_empty(), "{name}");
    }
}

/// Biases that cannot be removed, and the reason.
const REFUSED: &[(&str, Made, Joined, &str)] = &[
    (
        "a bias as large as the mask that it is joined with",
        |s, f| {
            let line = line(s, f * 4e3);
            let mask = causal(s, -2e4);
            vec![s.op("Min", &[&line, &mask])]
        },
        added,
        "cannot separate mask and bias",
    ),
    (
        "a bias that content scales before an exponential",
        |s, f| vec![line(s, f)],
        |s, scores, e| {
            let gate = s.with("ReduceMax", &[scores], &[("axes", A::Ints(&[-1]))]);
            let bias = s.op("Mul", &[&gate, &e[0]]);
            let bias = s.op("Exp", &[&bias]);
            s.op("Add", &[scores, &bias])
        },
        "cannot remove the encoding through",
    ),
    (
        "a bias that makes one query many",
        |s, f| vec![line(s, f)],
        |s, scores, e| {
            let first = s.slice(scores, 2, [0, 1, 1]);
            s.op("Add", &[&first, &e[0]])
        },
        "depends on",
    ),
];

#[test]
fn a_mask_takes_the_place_of_a_multiple_of_its_sum_with_a_gated_bias() {
    let gated = |factors: &'static [usize]| {
        let mut s = Sketch::default();
        s.input("attention_mask", DType::I64, &["batch", "sequence"]);
        let y = layers(&mut s, &|s, heads| {
            let (bias, mask) = (gated_line(s, &heads.q), padding(s, -1e4));
            let sum = s.op("Add", &[&bias, &mask]);
            let count = factors.iter().product::<usize>();
            let factor = s.floats(factors, vec![1.0; count]);
            let sum = s.op("Mul", &[&sum, &factor]);
            let scores = product(s, &heads.q, &heads.k);
            let scores = s.op("Add", &[&scores, &sum]);
            let weights = softmax(s, &scores);
            s.op("MatMul", &[&weights, &heads.v])
        });
        Analyzed::new(s.model(17, &[&y]))
    };
    let bare = gated(&[]).without_encodings().unwrap();
    assert_eq!(bare.kinds(), []);
    let context = bare.context();
    assert!(context.found.attention.iter().all(|site| site.mask.padding));
    // A factor for each head gives the product an axis of heads of its own.
    let why = gated(&[HEADS, 1, 1]).without_encodings().map(drop);
    assert!(why.unwrap_err().to_string().contains("shape"));
}

#[test]
fn what_cannot_be_separated_is_refused_with_its_node() {
    for (name, made, joined, why) in REFUSED {
        let known = model(*made, *joined, 1.0);
        let context = known.context();
        let mut out = known.emitter();
        let (mut zeros, mut biases) = (ZeroPropagation::new(&context), Biases::new(&context));
        let error = biases.remove(&mut out, &mut zeros, &context.found.attention[0]);
        let error = error.and_then(|()| zeros.finish(&mut out));
        let error = error.expect_err(name).to_string();
        assert!(error.contains(why), "{name}: {error}");
        assert!(error.starts_with("sketch/"), "{name}: {error}");
    }
}

#[test]
fn other_layers_keep_what_they_share() {
    for at in [2, 5, 7] {
        let (name, made, joined) = REMOVED[at];
        let known = model(made, joined, 1.0);
        let bare = known
            .without_sites(&[1])
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        let plain = model(made, joined, 0.0).planes();
        assert_eq!(bare.planes()[0], known.planes()[0], "{name}");
        assert_eq!(bare.planes()[1], plain[1], "{name}");
        assert_ne!(bare.planes()[0], plain[0], "{name}");
    }
}

#[test]
fn a_bias_that_is_added_to_other_content_first_is_removed() {
    let of = |factor| {
        let made: Made = |s, f| {
            let kinds = s.input("token_type_ids", DType::I64, &["batch", "sequence"]);
            let kinds = s.unsqueeze(&kinds, &[1, 2]);
            let kinds = s.cast(&kinds, DType::F32);
            let (low, line) = (s.float(-1e4), line(s, f));
            let hidden = s.op("Mul", &[&kinds, &low]);
            vec![s.op("Add", &[&hidden, &line])]
        };
        model(made, added, factor)
    };
    let (known, plain) = (of(1.0), of(0.0).output());
    assert_eq!(known.kinds(), [Kind::Alibi]);
    assert_ne!(known.output(), plain);
    assert_eq!(known.without_encodings().unwrap().output(), plain);
}
