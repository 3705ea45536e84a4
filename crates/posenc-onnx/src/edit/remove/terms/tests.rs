//! Terms that are removed, with the biases of Transformer-XL, and refusals.

use super::*;
use crate::edit::remove::testing::{Analyzed, Heads, layers, product, scaled, softmax};
use crate::graph::sketch::{A, HEADS, HIDDEN, SIZE, Sketch};
use crate::request::Request;
use crate::rewrite::rewrite;
use posenc_encodings::kind::Kind;

/// The largest distance in the tables of these tests.
const CLIP: i64 = 4;
const ROWS: usize = 2 * CLIP as usize + 1;

/// The weighted values of a layer; terms are multiplied by a factor.
type Layer = fn(&mut Sketch, &Heads, f64) -> String;

fn model(layer: Layer, factor: f64) -> Analyzed {
    let mut s = Sketch::default();
    let y = layers(&mut s, &|s, heads| layer(s, heads, factor));
    Analyzed::new(s.model(17, &[&y]))
}

/// The row of each pair, `[query, key]`.
fn rows(s: &mut Sketch) -> String {
    let at = s.range();
    let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    let distance = s.op("Sub", &[&columns, &rows]);
    let (low, high) = (s.int(-CLIP), s.int(CLIP));
    let at = s.op("Clip", &[&distance, &low, &high]);
    s.op("Add", &[&at, &high])
}

/// Vectors of each pair, `[query, key, size]`.
fn vectors(s: &mut Sketch, factor: f64) -> String {
    let table = s.weights(&[ROWS, SIZE]);
    let rows = rows(s);
    let vectors = s.gather(&table, &rows, 0);
    let factor = s.float(factor);
    s.op("Mul", &[&vectors, &factor])
}

fn meet(s: &mut Sketch, equation: &str, content: &str, vectors: &str) -> String {
    let equation = [("equation", A::Text(equation))];
    s.with("Einsum", &[content, vectors], &equation)
}

const QUERY: &str = "bhid,ijd->bhij";
const KEY: &str = "bhjd,ijd->bhij";
const VALUE: &str = "bhij,ijd->bhid";

fn weighted(s: &mut Sketch, scores: &str, heads: &Heads) -> String {
    let scores = scaled(s, scores);
    let weights = softmax(s, &scores);
    s.op("MatMul", &[&weights, &heads.v])
}

/// `sin ‖ cos` of every distance `query − key`, from the last key's to the first's, `[2n − 1, hidden]`.
fn waves(s: &mut Sketch, factor: f64) -> String {
    let shape = s.op("Shape", &["input_ids"]);
    let (one, two) = (s.int(1), s.int(2));
    let n = s.gather(&shape, &one, 0);
    let all = s.op("Mul", &[&n, &two]);
    let all = s.op("Sub", &[&all, &one]);
    let zero = s.int(0);
    let at_all = s.op("Range", &[&zero, &all, &one]);
    let last = s.op("Sub", &[&n, &one]);
    let d = s.op("Sub", &[&last, &at_all]);
    let d = s.cast(&d, posenc_ir::DType::F32);
    let d = s.unsqueeze(&d, &[1]);
    let half = HIDDEN / 2;
    let f = |i: usize| 10000f64.powf(-2.0 * i as f64 / HIDDEN as f64);
    let f = s.floats(&[1, half], (0..half).map(f));
    let angles = s.op("Mul", &[&d, &f]);
    let (sin, cos) = (s.op("Sin", &[&angles]), s.op("Cos", &[&angles]));
    let code = s.concat(&[&sin, &cos], -1);
    let factor = s.float(factor);
    s.op("Mul", &[&code, &factor])
}

/// `(q + v)·r`, shifted so that each key gets the product for its distance.
fn positions(s: &mut Sketch, heads: &Heads, factor: f64) -> String {
    let code = waves(s, factor);
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let r = s.op("MatMul", &[&code, &w]);
    let r = s.reshape(&r, &[-1, HEADS as i64, SIZE as i64]);
    let r = s.transpose(&r, &[1, 2, 0]);
    let v = s.weights(&[HEADS, 1, SIZE]);
    let q = s.op("Add", &[&heads.q, &v]);
    let met = s.op("MatMul", &[&q, &r]);
    // The column of pair (i, j) is n − 1 − i + j.
    let at = s.range();
    let (i, j) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    let d = s.op("Sub", &[&j, &i]);
    let shape = s.op("Shape", &["input_ids"]);
    let one = s.int(1);
    let n = s.gather(&shape, &one, 0);
    let last = s.op("Sub", &[&n, &one]);
    let column = s.op("Add", &[&d, &last]);
    let shape = s.op("Shape", &[&heads.q]);
    let lead = s.slice(&shape, 0, [0, 2, 1]);
    let n = s.unsqueeze(&n, &[0]);
    let shape = s.concat(&[&lead, &n, &n], 0);
    let column = s.op("Expand", &[&column, &shape]);
    s.with("GatherElements", &[&met, &column], &[("axis", A::Int(3))])
}

/// A vector of each head, `[heads, 1, size]`.
fn bias(s: &mut Sketch, factor: f64) -> String {
    let cells = (0..HEADS * SIZE).map(|i| factor * (1.1 * i as f64).sin());
    s.floats(&[HEADS, 1, SIZE], cells)
}

/// Pairs of which the key is not later.
fn seen(s: &mut Sketch) -> String {
    let at = s.range();
    let (i, j) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    let later = s.op("Greater", &[&j, &i]);
    s.op("Not", &[&later])
}

/// Attention of biased queries with positions in a mask, and a product of queries with vectors that
/// contain `other` in every feature, expanded to the sequence.
fn in_a_mask(s: &mut Sketch, heads: &Heads, factor: f64, other: &str) -> String {
    let u = bias(s, factor);
    let q = s.op("Add", &[&heads.q, &u]);
    let k = s.transpose(&heads.k, &[0, 1, 3, 2]);
    let shape = s.op("Shape", &[&k]);
    let same = s.op("Expand", &[other, &shape]);
    let extra = s.op("MatMul", &[&q, &same]);
    let term = positions(s, heads, factor);
    let term = s.op("Add", &[&extra, &term]);
    let term = scaled(s, &term);
    let (seen, low) = (seen(s), s.float(-1e9));
    let mask = s.op("Where", &[&seen, &term, &low]);
    let scores = product(s, &q, &heads.k);
    let scores = scaled(s, &scores);
    let scores = s.op("Add", &[&scores, &mask]);
    let weights = softmax(s, &scores);
    s.op("MatMul", &[&weights, &heads.v])
}

const REMOVED: &[(&str, Kind, Layer)] = &[
    ("queries meet vectors", Kind::Shaw, |s, heads, f| {
        let scores = product(s, &heads.q, &heads.k);
        let vectors = vectors(s, f);
        let term = meet(s, QUERY, &heads.q, &vectors);
        let scores = s.op("Add", &[&scores, &term]);
        weighted(s, &scores, heads)
    }),
    (
        "both terms in a sum of their own",
        Kind::Shaw,
        |s, heads, f| {
            let scores = product(s, &heads.q, &heads.k);
            let vectors = vectors(s, f);
            let zero = s.float(0.0);
            let term = meet(s, QUERY, &heads.q, &vectors);
            let term = s.op("Add", &[&term, &zero]);
            let other = meet(s, KEY, &heads.k, &vectors);
            let two = s.float(2.0);
            let other = s.op("Div", &[&other, &two]);
            let terms = s.op("Add", &[&term, &other]);
            let scores = s.op("Add", &[&terms, &scores]);
            weighted(s, &scores, heads)
        },
    ),
    ("weights gather vectors", Kind::Shaw, |s, heads, f| {
        let scores = product(s, &heads.q, &heads.k);
        let scores = scaled(s, &scores);
        let weights = softmax(s, &scores);
        let y = s.op("MatMul", &[&weights, &heads.v]);
        let vectors = vectors(s, f);
        let term = meet(s, VALUE, &weights, &vectors);
        s.op("Add", &[&y, &term])
    }),
    (
        "u and v added to queries",
        Kind::TransformerXl,
        |s, heads, f| {
            let u = bias(s, f);
            let q = s.op("Add", &[&u, &heads.q]);
            let scores = product(s, &q, &heads.k);
            let term = positions(s, heads, f);
            let scores = s.op("Add", &[&scores, &term]);
            weighted(s, &scores, heads)
        },
    ),
    (
        "u in a product of its own",
        Kind::TransformerXl,
        |s, heads, f| {
            let u = bias(s, f);
            let scores = product(s, &heads.q, &heads.k);
            let own = product(s, &u, &heads.k);
            let scores = s.op("Add", &[&scores, &own]);
            let term = positions(s, heads, f);
            let scores = s.op("Add", &[&scores, &term]);
            weighted(s, &scores, heads)
        },
    ),
    (
        "positions in a mask, with a product with zeros",
        Kind::TransformerXl,
        |s, heads, f| {
            let zero = s.float(0.0);
            in_a_mask(s, heads, f, &zero)
        },
    ),
];

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9)
}

#[test]
fn without_terms_only_the_product_of_queries_and_keys_is_left() {
    for (name, kind, layer) in REMOVED {
        let known = model(*layer, 1.0);
        assert_eq!(known.kinds(), [*kind], "{name}");
        let bare = known
            .without_encodings()
            .unwrap_or_else(|why| panic!("{name}: {why}"));
        let plain = model(*layer, 0.0).output();
        assert!(!near(&known.output(), &plain), "{name}");
        assert!(near(&bare.output(), &plain), "{name}");
        assert_eq!(bare.kinds(), [], "{name}");
    }
}

#[test]
fn a_product_with_anything_but_zeros_is_one_more_term() {
    let known = model(
        |s, heads, f| {
            let at = s.range();
            let at = s.cast(&at, posenc_ir::DType::F32);
            in_a_mask(s, heads, f, &at)
        },
        1.0,
    );
    assert!(
        known.kinds().contains(&Kind::Unknown),
        "{:?}",
        known.kinds()
    );
}

#[test]
fn a_mask_loses_the_term_that_it_selects() {
    let (.., layer) = REMOVED[REMOVED.len() - 1];
    let bare = model(layer, 1.0).without_encodings().unwrap();
    let count = |op: &str| bare.operators().iter().filter(|o| **o == op).count();
    assert_eq!(
        (count("Where"), count("Expand"), count("GatherElements")),
        (2, 0, 0)
    );
}

#[test]
fn fused_attention_loses_a_term_that_is_its_mask() {
    let layer: Layer = |s, heads, f| {
        let term = positions(s, heads, f);
        let attrs = [
            ("q_num_heads", A::Int(HEADS as i64)),
            ("kv_num_heads", A::Int(HEADS as i64)),
        ];
        s.with("Attention", &[&heads.q, &heads.k, &heads.v, &term], &attrs)
    };
    let mut s = Sketch::default();
    let y = layers(&mut s, &|s, heads| layer(s, heads, 1.0));
    let known = Analyzed::new(s.model(23, &[&y]));
    assert_eq!(known.kinds(), [Kind::Unknown]);
    let bare = known.without_encodings().unwrap();
    assert_eq!(bare.kinds(), []);
    let context = bare.context();
    let nodes = context.graph().nodes();
    let fused: Vec<usize> = nodes
        .filter(|(_, node)| node.is("Attention"))
        .map(|(_, node)| node.inputs().len())
        .collect();
    assert_eq!(fused, [3, 3], "queries, keys and values alone");
    assert!(!bare.operators().contains(&"Range"));
}

#[test]
fn removing_one_layer_at_a_time_gives_the_same() {
    let (_, kind, layer) = REMOVED[1];
    let known = model(layer, 1.0);
    let plain = model(layer, 0.0).output();
    let first = known.without_sites(&[1]).unwrap();
    assert_eq!(first.kinds(), [kind]);
    assert!(!near(&first.output(), &plain));
    assert!(near(&first.without_sites(&[0]).unwrap().output(), &plain));
}

#[test]
fn the_bias_of_the_projection_is_kept() {
    let layer: Layer = |s, heads, f| {
        let own = bias(s, 1.0);
        let q = s.op("Add", &[&heads.q, &own]);
        let scores = product(s, &q, &heads.k);
        let heads = Heads {
            q,
            k: heads.k.clone(),
            v: heads.v.clone(),
        };
        let term = positions(s, &heads, f);
        let scores = s.op("Add", &[&scores, &term]);
        weighted(s, &scores, &heads)
    };
    let known = model(layer, 1.0);
    assert_eq!(known.kinds(), [Kind::TransformerXl]);
    let bare = known.without_encodings().unwrap();
    assert!(near(&bare.output(), &model(layer, 0.0).output()));
}

/// Operators between a term and the scores that do not map zeros to zeros.
const REFUSED: &[(&str, Layer)] = &[
    ("an exponential", |s, heads, f| {
        let vectors = vectors(s, f);
        let term = meet(s, QUERY, &heads.q, &vectors);
        let term = s.op("Exp", &[&term]);
        let scores = product(s, &heads.q, &heads.k);
        let scores = s.op("Add", &[&scores, &term]);
        weighted(s, &scores, heads)
    }),
    ("a pad with ones", |s, heads, f| {
        let vectors = vectors(s, f);
        let term = meet(s, QUERY, &heads.q, &vectors);
        let (pads, one) = (s.ints(&[0, 0, 0, 1, 0, 0, 0, 0]), s.float(1.0));
        let term = s.op("Pad", &[&term, &pads, &one]);
        let term = s.slice(&term, 3, [1, 1 << 40, 1]);
        let scores = product(s, &heads.q, &heads.k);
        let scores = s.op("Add", &[&scores, &term]);
        weighted(s, &scores, heads)
    }),
    ("a subtrahend", |s, heads, f| {
        let vectors = vectors(s, f);
        let term = meet(s, QUERY, &heads.q, &vectors);
        let scores = product(s, &heads.q, &heads.k);
        let scores = s.op("Sub", &[&term, &scores]);
        weighted(s, &scores, heads)
    }),
    ("a norm", |s, heads, f| {
        let scores = product(s, &heads.q, &heads.k);
        let scores = scaled(s, &scores);
        let weights = softmax(s, &scores);
        let y = s.op("MatMul", &[&weights, &heads.v]);
        let vectors = vectors(s, f);
        let term = meet(s, VALUE, &weights, &vectors);
        let one = s.floats(&[SIZE], [1.0; SIZE]);
        let term = s.op("LayerNormalization", &[&term, &one, &one]);
        s.op("Add", &[&y, &term])
    }),
];

#[test]
fn terms_through_unsupported_operators_are_refused() {
    for (name, layer) in REFUSED {
        let known = model(*layer, 1.0);
        let context = known.context();
        let entries: Vec<posenc_ir::Use> = known
            .context()
            .graph()
            .nodes()
            .filter(|(_, node)| node.is("Einsum"))
            .map(|(id, _)| posenc_ir::Use::new(id, 1))
            .take(1)
            .collect();
        let mut out = known.emitter();
        let mut zeros = ZeroPropagation::new(&context);
        zeros.add_zeros(&entries);
        let error = zeros.finish(&mut out).expect_err(name);
        let why = "cannot remove the encoding through";
        assert!(error.to_string().contains(why), "{name}: {error}");
    }
}

#[test]
fn warnings_name_what_could_not_be_evaluated() {
    for warned in [true, false] {
        let mut s = Sketch::default();
        let y = layers(&mut s, &|s, heads| {
            let mask = if warned {
                product(s, &heads.q, &heads.k)
            } else {
                s.floats(&[1, 1, 1, 1], [0.0])
            };
            let attrs = [
                ("q_num_heads", A::Int(HEADS as i64)),
                ("kv_num_heads", A::Int(HEADS as i64)),
            ];
            s.with("Attention", &[&heads.q, &heads.k, &heads.v, &mask], &attrs)
        });
        let model = s.model(23, &[&y]);
        for kind in [Kind::None, Kind::Sinusoidal] {
            let mut request = Request {
                to: Some(kind),
                ..Request::default()
            };
            if warned {
                let refused = rewrite(&mut model.clone(), &request).unwrap_err();
                assert!(refused.to_string().contains("mixes tokens"), "{refused}");
            }
            request.allowances.allow_unread = warned;
            let done = rewrite(&mut model.clone(), &request).unwrap();
            let named = |w: &String| w.contains("could not evaluate");
            assert_eq!(done.report.warnings.iter().any(named), warned, "{kind}");
        }
    }
}
