//! Biases and terms in the layouts and with the masks that exporters write. Every swap compares its
//! result with the formula in f64 at each site, so `Ok` implies that.

use posenc_ir::{DType, Model};

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::request::{Parameters, Request};
use crate::rewrite::swap::branch::{Swapped, swap};
use posenc_encodings::family::Entry;
use posenc_encodings::kind::Kind;

/// Every kind that acts on scores.
pub(crate) fn kinds() -> impl Iterator<Item = Kind> {
    let acts = |kind: &Kind| {
        let entry = kind.family().map(|family| &family.entry);
        matches!(entry, Some(Entry::ScoreBias(_) | Entry::ScoreTerm(_)))
    };
    Kind::targets().filter(acts)
}

/// Every kind of bias.
pub(crate) fn biases() -> impl Iterator<Item = Kind> {
    let is_bias = |kind: &Kind| {
        let entry = kind.family().map(|family| &family.entry);
        matches!(entry, Some(Entry::ScoreBias(_)))
    };
    Kind::targets().filter(is_bias)
}

/// Whether a key is later than its query, `[token, token]`.
pub(crate) fn later(s: &mut Sketch) -> String {
    let at = s.range();
    let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    s.op("Greater", &[&columns, &rows])
}

/// A mask of later keys, to be added.
pub(crate) fn low(s: &mut Sketch, lowest: f64) -> String {
    let later = later(s);
    let (low, zero) = (s.float(lowest), s.float(0.0));
    s.op("Where", &[&later, &low, &zero])
}

pub(crate) fn scaled(s: &mut Sketch, scores: &str) -> String {
    let scale = s.float((SIZE as f64).powf(-0.5));
    s.op("Mul", &[scores, &scale])
}

pub(crate) fn softmax(s: &mut Sketch, scores: &str, axis: i64) -> String {
    s.with("Softmax", &[scores], &[("axis", A::Int(axis))])
}

/// Weighted values `[batch, head, token, feature]` joined to the residual stream.
fn joined(s: &mut Sketch, x: &str, y: &str) -> String {
    let y = s.transpose(y, &[0, 2, 1, 3]);
    let y = s.reshape(&y, &[0, 0, HIDDEN as i64]);
    s.op("Add", &[x, &y])
}

/// A layer whose scores `[batch, head, query, key]` pass `to_softmax`.
pub(crate) fn plain(
    s: &mut Sketch,
    x: &str,
    to_softmax: impl Fn(&mut Sketch, &str) -> String,
) -> String {
    let [q, k, v] = [0; 3].map(|_| s.headed(x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let scores = to_softmax(s, &scores);
    let weights = softmax(s, &scores, -1);
    let y = s.op("MatMul", &[&weights, &v]);
    joined(s, x, &y)
}

/// A model of two equal layers.
pub(crate) fn model(layer: impl Fn(&mut Sketch, &str) -> String) -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    for _ in 0..2 {
        x = layer(&mut s, &x);
    }
    s.model(17, &[&x])
}

pub(crate) fn swapped(model: &Model, kind: Kind) -> Result<Option<Swapped>, String> {
    let request = Request {
        to: Some(kind),
        parameters: Parameters {
            seed: Some(3),
            ..Parameters::default()
        },
        ..Request::default()
    };
    let options = Options::default();
    let before = detect(model, &options);
    swap(model, &before, &request, &options).map_err(|e| e.to_string())
}

/// Inserts every kind, and detects it at every site.
fn inserts_all(name: &str, model: &Model) {
    for kind in kinds() {
        inserts(name, model, kind);
    }
}

pub(crate) fn inserts(name: &str, model: &Model, kind: Kind) -> Swapped {
    let done = swapped(model, kind).unwrap_or_else(|e| panic!("{name} to {kind}: {e}"));
    let done = done.unwrap_or_else(|| panic!("{name} to {kind}: nothing was done"));
    let sites = done.found.attention.len();
    for site in 0..sites {
        let own = |f: &&crate::detect::finding::Finding| f.sites.contains(&site);
        let found: Vec<Kind> = done
            .found
            .findings
            .iter()
            .filter(own)
            .map(|f| f.encoding.kind())
            .collect();
        assert_eq!(found, [kind], "{name} to {kind} at {site}");
    }
    done
}

#[test]
fn all_kinds_can_be_added_with_every_kind_of_mask() {
    type Masked = fn(&mut Sketch, &str) -> String;
    let forms: [(&str, Masked); 9] = [
        ("no mask", |s, x| scaled(s, x)),
        ("an additive mask", |s, x| {
            let (x, mask) = (scaled(s, x), low(s, -1e9));
            s.op("Add", &[&x, &mask])
        }),
        ("a mask of the lowest number", |s, x| {
            let (x, mask) = (scaled(s, x), low(s, f64::from(f32::MIN)));
            s.op("Add", &[&x, &mask])
        }),
        ("a choice", |s, x| {
            let (x, later, low) = (scaled(s, x), later(s), s.float(-1e4));
            s.op("Where", &[&later, &low, &x])
        }),
        ("a choice, then padding", |s, x| {
            let (x, later, low) = (scaled(s, x), later(s), s.float(f64::NEG_INFINITY));
            let x = s.op("Where", &[&later, &low, &x]);
            let padding = s.floats(&[1, 1, 1, 1], [0.0]);
            s.op("Add", &[&x, &padding])
        }),
        ("a scale after the mask", |s, x| {
            let mask = low(s, -1e9);
            let x = s.op("Add", &[x, &mask]);
            scaled(s, &x)
        }),
        ("a soft cap", |s, x| {
            let (x, cap) = (scaled(s, x), s.float(5.0));
            let x = s.op("Div", &[&x, &cap]);
            let x = s.op("Tanh", &[&x]);
            let x = s.op("Mul", &[&x, &cap]);
            let mask = low(s, -1e9);
            s.op("Add", &[&x, &mask])
        }),
        ("a product with ones and zeros", |s, x| {
            let (x, later, zero, one) = (scaled(s, x), later(s), s.float(0.0), s.float(1.0));
            let seen = s.op("Where", &[&later, &zero, &one]);
            let x = s.op("Mul", &[&x, &seen]);
            let mask = low(s, -1e4);
            s.op("Add", &[&x, &mask])
        }),
        ("a floor", |s, x| {
            let (x, mask, floor) = (scaled(s, x), low(s, -1e9), s.float(-3e38));
            let x = s.op("Add", &[&x, &mask]);
            s.op("Max", &[&x, &floor])
        }),
    ];
    for (name, to_softmax) in forms {
        let model = model(|s, x| plain(s, x, to_softmax));
        match name {
            // The cap changes the terms, so the formula does not apply.
            "a soft cap" => biases().for_each(|kind| {
                inserts(name, &model, kind);
            }),
            _ => inserts_all(name, &model),
        }
    }
}

#[test]
fn heads_may_be_any_axis() {
    type Layer = fn(&mut Sketch, &str) -> String;
    let forms: [(&str, Layer); 6] = [
        ("heads in the batch", |s, x| {
            let [q, k, v] = [0; 3].map(|_| {
                let y = s.headed(x);
                let y = s.transpose(&y, &[0, 1, 2, 3]);
                let shape = s.ints(&[-1, 0, SIZE as i64]);
                let flat = s.reshape(&y, &[0, 0, 0, SIZE as i64]);
                let _ = shape;
                let rows = s.op("Shape", &[&y]);
                let two = s.ints(&[2]);
                let tokens = s.gather(&rows, &two, 0);
                let (first, last) = (s.ints(&[-1]), s.ints(&[SIZE as i64]));
                let shape = s.concat(&[&first, &tokens, &last], 0);
                s.op("Reshape", &[&flat, &shape])
            });
            let k = s.transpose(&k, &[0, 2, 1]);
            let scores = s.op("MatMul", &[&q, &k]);
            let scores = scaled(s, &scores);
            let mask = low(s, -1e9);
            let scores = s.op("Add", &[&scores, &mask]);
            let weights = softmax(s, &scores, -1);
            let y = s.op("MatMul", &[&weights, &v]);
            let rows = s.op("Shape", &[x]);
            let ends = s.ints(&[0]);
            let batch = s.gather(&rows, &ends, 0);
            let one = s.ints(&[1]);
            let tokens = s.gather(&rows, &one, 0);
            let (heads, size) = (s.ints(&[HEADS as i64]), s.ints(&[SIZE as i64]));
            let shape = s.concat(&[&batch, &heads, &tokens, &size], 0);
            let y = s.op("Reshape", &[&y, &shape]);
            joined(s, x, &y)
        }),
        ("queries and keys first", |s, x| {
            let [q, k, v] = [0; 3].map(|_| {
                let y = s.projected(x);
                s.transpose(&y, &[1, 0, 2, 3])
            });
            let scores = s.with(
                "Einsum",
                &[&q, &k],
                &[("equation", A::Text("ibnd,jbnd->ijbn"))],
            );
            let scores = scaled(s, &scores);
            let weights = softmax(s, &scores, 1);
            let y = s.with(
                "Einsum",
                &[&weights, &v],
                &[("equation", A::Text("ijbn,jbnd->ibnd"))],
            );
            let y = s.transpose(&y, &[1, 2, 0, 3]);
            joined(s, x, &y)
        }),
        ("heads between queries and keys", |s, x| {
            let [q, k, v] = [0; 3].map(|_| s.projected(x));
            let scores = s.with(
                "Einsum",
                &[&q, &k],
                &[("equation", A::Text("bqhd,bkhd->bqhk"))],
            );
            let scores = scaled(s, &scores);
            let weights = softmax(s, &scores, 3);
            let y = s.with(
                "Einsum",
                &[&weights, &v],
                &[("equation", A::Text("bqhk,bkhd->bhqd"))],
            );
            joined(s, x, &y)
        }),
        ("an ellipsis", |s, x| {
            let [q, k, v] = [0; 3].map(|_| s.projected(x));
            let scores = s.with(
                "Einsum",
                &[&q, &k],
                &[("equation", A::Text("...qhd,...khd->...hqk"))],
            );
            let scores = scaled(s, &scores);
            let weights = softmax(s, &scores, 3);
            let y = s.with(
                "Einsum",
                &[&weights, &v],
                &[("equation", A::Text("...hqk,...khd->...hqd"))],
            );
            joined(s, x, &y)
        }),
        ("keys before queries", |s, x| {
            let [q, k, v] = [0; 3].map(|_| s.headed(x));
            let q = s.transpose(&q, &[0, 1, 3, 2]);
            let scores = s.op("MatMul", &[&k, &q]);
            let scores = scaled(s, &scores);
            let weights = softmax(s, &scores, 2);
            let weights = s.transpose(&weights, &[0, 1, 3, 2]);
            let y = s.op("MatMul", &[&weights, &v]);
            joined(s, x, &y)
        }),
        ("one group of heads", |s, x| {
            let [q, k, v] = [0; 3].map(|_| {
                let y = s.headed(x);
                s.unsqueeze(&y, &[1])
            });
            let k = s.transpose(&k, &[0, 1, 2, 4, 3]);
            let scores = s.op("MatMul", &[&q, &k]);
            let scores = scaled(s, &scores);
            let weights = softmax(s, &scores, -1);
            let y = s.op("MatMul", &[&weights, &v]);
            let one = s.ints(&[1]);
            let y = s.op("Squeeze", &[&y, &one]);
            joined(s, x, &y)
        }),
    ];
    for (name, layer) in forms {
        inserts_all(name, &model(layer));
    }
}

/// A layer with a learned key beside those of the tokens, before or behind them.
fn with_learned_key(s: &mut Sketch, x: &str, is_first: bool) -> String {
    let [q, k, v] = [(); 3].map(|()| s.headed(x));
    let (shape, first) = (s.op("Shape", &["input_ids"]), s.ints(&[0]));
    let batch = s.gather(&shape, &first, 0);
    let rest = s.ints(&[HEADS as i64, 1, SIZE as i64]);
    let dims = s.concat(&[&batch, &rest], 0);
    let [k, v] = [k, v].map(|tokens| {
        let own = s.weights(&[1, HEADS, 1, SIZE]);
        let own = s.op("Expand", &[&own, &dims]);
        match is_first {
            true => s.concat(&[&own, &tokens], 2),
            false => s.concat(&[&tokens, &own], 2),
        }
    });
    let y = s.weighted(&q, &k, &v);
    let y = s.merged(&y);
    s.op("Add", &[x, &y])
}

#[test]
fn a_learned_key_has_no_place_among_the_tokens() {
    for is_first in [false, true] {
        let model = model(|s, x| with_learned_key(s, x, is_first));
        for kind in [Kind::Alibi, Kind::RelativeBias] {
            let why = swapped(&model, kind).unwrap_err();
            assert!(why.contains("its keys are 1 more than its tokens"), "{why}");
        }
    }
}

/// A layer in which half of the heads see earlier tokens and the others later ones.
fn both_ways(s: &mut Sketch, x: &str) -> String {
    let [q, k, v] = [(); 3].map(|()| s.headed(x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let d = s.distance();
    let sides = s.floats(
        &[1, HEADS, 1, 1],
        (0..HEADS).map(|h| if h == 0 { 1.0 } else { -1.0 }),
    );
    let d = s.cast(&d, DType::F32);
    let d = s.op("Mul", &[&d, &sides]);
    let (zero, low) = (s.float(0.0), s.float(-1e9));
    let hidden = s.op("Greater", &[&d, &zero]);
    let scores = s.op("Where", &[&hidden, &low, &scores]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.op("Add", &[x, &y])
}

#[test]
fn heads_that_hide_other_keys_have_no_mask_in_common() {
    let found = detect(&model(both_ways), &Options::default());
    let masks = found
        .attention
        .iter()
        .map(|site| (site.mask.causal, site.mask.window));
    assert_eq!(masks.collect::<Vec<_>>(), [(None, None); 2]);
}
