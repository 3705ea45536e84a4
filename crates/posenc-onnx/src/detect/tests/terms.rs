//! Vectors by distance that meet queries, keys or weights, and what is none.

use serde_json::{Value, json};

use super::*;
use crate::graph::mixing::Mixing;
use posenc_encodings::kind::Kind;

mod waves;
mod window;

/// Vectors to either side in the tables of these tests.
const CLIP: i64 = 4;
const ROWS: usize = 2 * CLIP as usize + 1;

/// What is done to the scores `[batch, heads, query, key]`, given queries and keys.
type Term = fn(&mut Sketch, &str, &str, &str) -> String;

/// A layer whose scores have a term, scaled and softmaxed, with plain values.
fn found_with(term: Term) -> Found {
    found_after(term, |s, _, weighted| weighted_only(s, weighted))
}

fn weighted_only(_: &mut Sketch, weighted: &str) -> String {
    weighted.to_owned()
}

/// The same with something done to the weighted values, given the weights.
fn found_after(term: Term, after: fn(&mut Sketch, &str, &str) -> String) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let transposed = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &transposed]);
    let scores = term(&mut s, &scores, &q, &k);
    let scale = s.float(0.3);
    let scores = s.op("Mul", &[&scores, &scale]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = after(&mut s, &weights, &y);
    let y = s.merged(&y);
    let model = s.model(23, &[&y]);
    found(&model)
}

/// What is reported: kind and parameters of each finding.
fn reported(found: &Found) -> Vec<(Kind, Value)> {
    let findings = found.findings.iter();
    let one = |f: &crate::detect::finding::Finding| {
        (f.encoding.kind(), Value::Object(f.encoding.params()))
    };
    findings.map(one).collect()
}

fn shaw(distance: Value, [key, value, query]: [bool; 3]) -> Vec<(Kind, Value)> {
    let params = json!({"max_distance": distance, "key": key, "value": value, "query": query});
    vec![(Kind::Shaw, params)]
}

fn is_unknown(found: &Found) -> bool {
    let all = reported(found);
    all.len() == 1 && all[0].0 == Kind::Unknown && !found.findings[0].evidence.is_empty()
}

fn clipped(s: &mut Sketch, [low, high]: [i64; 2], offset: i64) -> String {
    let distance = s.distance();
    let (low, high, offset) = (s.int(low), s.int(high), s.int(offset));
    let at = s.op("Clip", &[&distance, &low, &high]);
    s.op("Add", &[&at, &offset])
}

/// A term of a side's content with vectors picked by `index`.
fn meets(s: &mut Sketch, scores: &str, content: &str, index: &str, equation: &str) -> String {
    let table = s.weights(&[ROWS, SIZE]);
    let vectors = s.gather(&table, index, 0);
    let term = s.with(
        "Einsum",
        &[content, &vectors],
        &[("equation", A::Text(equation))],
    );
    s.op("Add", &[scores, &term])
}

const QUERY: &str = "bhid,ijd->bhij";
const KEY: &str = "bhjd,ijd->bhij";

#[test]
fn queries_that_meet_vectors_by_clipped_distance_are_shaw() {
    let found = found_with(|s, scores, q, _| {
        let index = clipped(s, [-CLIP, CLIP], CLIP);
        meets(s, scores, q, &index, QUERY)
    });
    assert_eq!(reported(&found), shaw(json!(4), [true, false, false]));
}

#[test]
fn keys_are_distinguished_from_queries_and_both_are_one_encoding() {
    let found = found_with(|s, scores, _, k| {
        let index = clipped(s, [-CLIP, CLIP], CLIP);
        meets(s, scores, k, &index, KEY)
    });
    assert_eq!(reported(&found), shaw(json!(4), [false, false, true]));
    let found = found_with(|s, scores, q, k| {
        let index = clipped(s, [-CLIP, CLIP], CLIP);
        let scores = meets(s, scores, q, &index, QUERY);
        meets(s, &scores, k, &index, KEY)
    });
    assert_eq!(reported(&found), shaw(json!(4), [true, false, true]));
}

/// The operators that mix tokens and are no attention, where a part of a packed projection meets vectors
/// as keys do: 0 is that of queries, 1 that of keys, 2 that of values.
fn mixing_of_packed(part: usize) -> Vec<Mixing> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let size = SIZE as i64;
    let w = s.weights(&[HIDDEN, 3 * HIDDEN]);
    let packed = s.op("MatMul", &[&x, &w]);
    let packed = s.reshape(&packed, &[0, 0, HEADS as i64, 3 * size]);
    let packed = s.transpose(&packed, &[0, 2, 1, 3]);
    let all = [0, 1, 2].map(|part| s.slice(&packed, 3, [part * size, (part + 1) * size, 1]));
    let [q, k, v] = &all;
    let transposed = s.transpose(k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[q, &transposed]);
    let index = clipped(&mut s, [-CLIP, CLIP], CLIP);
    let scores = meets(&mut s, &scores, &all[part], &index, KEY);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, v]);
    let y = s.merged(&y);
    let found = found(&s.model(23, &[&y]));
    found.mixers.iter().map(|mixer| mixer.mixing).collect()
}

#[test]
fn keys_of_a_packed_projection_that_meet_vectors_are_part_of_attention() {
    assert_eq!(mixing_of_packed(1), []);
    for part in [0, 2] {
        assert!(mixing_of_packed(part).contains(&Mixing::Other), "{part}");
    }
}

#[test]
fn values_by_distance_are_found() {
    let found = found_after(|_, scores, _, _| scores.to_owned(), by_distance);
    assert_eq!(reported(&found), shaw(json!(4), [false, true, false]));
}

/// Weighted values, and rows of a table by the distance that the weights gather.
fn by_distance(s: &mut Sketch, weights: &str, weighted: &str) -> String {
    let index = clipped(s, [-CLIP, CLIP], CLIP);
    let table = s.weights(&[ROWS, SIZE]);
    let vectors = s.gather(&table, &index, 0);
    let equation = [("equation", A::Text("bhij,ijd->bhid"))];
    let more = s.with("Einsum", &[weights, &vectors], &equation);
    s.op("Add", &[weighted, &more])
}

/// Rows of a table that a product with lines of `ones` picks.
fn picked_by_product(s: &mut Sketch, index: &str, ones: [f64; 2]) -> String {
    let (depth, values) = (s.int(ROWS as i64), s.floats(&[2], ones));
    let lines = s.op("OneHot", &[index, &depth, &values]);
    let table = s.weights(&[ROWS, SIZE]);
    s.op("MatMul", &[&lines, &table])
}

#[test]
fn rows_that_lines_of_ones_pick_are_found() {
    let keys = found_with(|s, scores, q, _| {
        let index = clipped(s, [-CLIP, CLIP], CLIP);
        let vectors = picked_by_product(s, &index, [0.0, 1.0]);
        let equation = [("equation", A::Text(QUERY))];
        let term = s.with("Einsum", &[q, &vectors], &equation);
        s.op("Add", &[scores, &term])
    });
    assert_eq!(reported(&keys), shaw(json!(4), [true, false, false]));
    type After = fn(&mut Sketch, &str, &str) -> String;
    let values = |after: After| found_after(|_, scores, _, _| scores.to_owned(), after);
    let found = values(|s, weights, weighted| {
        let index = clipped(s, [-CLIP, CLIP], CLIP);
        let vectors = picked_by_product(s, &index, [0.0, 1.0]);
        let equation = [("equation", A::Text("bhij,ijd->bhid"))];
        let more = s.with("Einsum", &[weights, &vectors], &equation);
        s.op("Add", &[weighted, &more])
    });
    assert_eq!(reported(&found), shaw(json!(4), [false, true, false]));
    let found = values(|s, weights, weighted| {
        let index = clipped(s, [-CLIP, CLIP], CLIP);
        let vectors = picked_by_product(s, &index, [0.25, 1.0]);
        let equation = [("equation", A::Text("bhij,ijd->bhid"))];
        let more = s.with("Einsum", &[weights, &vectors], &equation);
        s.op("Add", &[weighted, &more])
    });
    assert!(
        is_unknown(&found),
        "lines of several: {:?}",
        reported(&found)
    );
}

#[test]
fn what_weights_gather_and_cannot_be_read_is_unknown() {
    type After = fn(&mut Sketch, &str, &str) -> String;
    // A vector for each pair, and rows that are picked by a product with numbers 0 and 1.
    let waves: After = |s, weights, weighted| {
        let distance = s.distance();
        let distance = s.cast(&distance, DType::F32);
        let distance = s.unsqueeze(&distance, &[-1]);
        let f = s.floats(&[SIZE], (0..SIZE).map(frequency));
        let angles = s.op("Mul", &[&distance, &f]);
        let vectors = s.op("Sin", &[&angles]);
        let equation = [("equation", A::Text("bhij,ijd->bhid"))];
        let more = s.with("Einsum", &[weights, &vectors], &equation);
        s.op("Add", &[weighted, &more])
    };
    let twice: After = |s, weights, weighted| {
        (0..2).fold(weighted.to_owned(), |sum, _| by_distance(s, weights, &sum))
    };
    for (after, why) in [
        (waves, "but not by distance"),
        (twice, "gather vectors twice"),
    ] {
        let found = found_after(|_, scores, _, _| scores.to_owned(), after);
        assert!(is_unknown(&found), "{:?}", reported(&found));
        let evidence = &found.findings[0].evidence[0];
        assert!(evidence.ends_with(why), "{evidence}");
    }
}

#[test]
fn values_by_distance_are_found_beside_a_sink() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let sink = s.slice(&scores, -1, [0, 1, 1]);
    let scores = s.concat(&[&scores, &sink], -1);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let weights = s.slice(&weights, -1, [0, -1, 1]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = by_distance(&mut s, &weights, &y);
    let found = found(&s.model(18, &[&y]));
    assert_eq!(reported(&found), shaw(json!(4), [false, true, false]));
}

#[test]
fn values_by_distance_are_found_after_a_softmax_of_their_own() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let [of_values, of_rows] =
        [0; 2].map(|_| s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]));
    let y = s.op("MatMul", &[&of_values, &v]);
    let y = by_distance(&mut s, &of_rows, &y);
    let y = s.merged(&y);
    let found = found(&s.model(23, &[&y]));
    assert_eq!(reported(&found), shaw(json!(4), [false, true, false]));
}

#[test]
fn a_product_that_keeps_the_keys_apart_gathers_nothing() {
    let found = found_after(
        |_, scores, _, _| scores.to_owned(),
        |s, weights, weighted| {
            let heads = s.weights(&[HEADS, HEADS]);
            let equation = [("equation", A::Text("bhij,hg->bgij"))];
            let mixed = s.with("Einsum", &[weights, &heads], &equation);
            let again = s.op("MatMul", &[&mixed, weighted]);
            s.op("Add", &[weighted, &again])
        },
    );
    assert_eq!(reported(&found), []);
}

#[test]
fn other_clips_are_other_reports() {
    let at_three = found_with(|s, scores, q, _| {
        let index = clipped(s, [-3, 3], CLIP);
        meets(s, scores, q, &index, QUERY)
    });
    assert_eq!(reported(&at_three), shaw(json!(3), [true, false, false]));
    let uneven = found_with(|s, scores, q, _| {
        let index = clipped(s, [-4, 2], CLIP);
        meets(s, scores, q, &index, QUERY)
    });
    assert_eq!(reported(&uneven), shaw(json!([4, 2]), [true, false, false]));
    let shifted = found_with(|s, scores, q, _| {
        let distance = s.distance();
        let one = s.int(1);
        let next = s.op("Add", &[&distance, &one]);
        let bounds = [-CLIP, CLIP, CLIP].map(|n| s.int(n));
        let index = s.op("Clip", &[&next, &bounds[0], &bounds[1]]);
        let index = s.op("Add", &[&index, &bounds[2]]);
        meets(s, scores, q, &index, QUERY)
    });
    assert_eq!(
        reported(&shifted),
        shaw(json!([5, 3]), [true, false, false])
    );
}

#[test]
fn keys_and_queries_that_meet_opposite_distances_are_unknown() {
    let found = found_with(|s, scores, q, k| {
        let index = clipped(s, [-CLIP, CLIP], CLIP);
        let scores = meets(s, scores, q, &index, QUERY);
        let index = s.transpose(&index, &[1, 0]);
        meets(s, &scores, k, &index, KEY)
    });
    assert!(is_unknown(&found), "{:?}", reported(&found));
}

#[test]
fn vectors_by_no_distance_are_unknown() {
    let cases: [(&str, Term); 4] = [
        ("by key position", |s, scores, q, _| {
            let table = s.weights(&[30, SIZE]);
            let at = s.range();
            let vectors = s.gather(&table, &at, 0);
            let transposed = s.transpose(&vectors, &[1, 0]);
            let term = s.op("MatMul", &[q, &transposed]);
            s.op("Add", &[scores, &term])
        }),
        ("by absolute distance", |s, scores, q, _| {
            let index = s.distance();
            let index = s.op("Abs", &[&index]);
            let last = s.int(ROWS as i64 - 1);
            let index = s.op("Min", &[&index, &last]);
            meets(s, scores, q, &index, QUERY)
        }),
        ("by sums of gates of content", |s, scores, q, _| {
            let table = s.weights(&[SIZE, ROWS]);
            let all = s.op("MatMul", &[q, &table]);
            // Each position counts the keys from it to the query that content lets through.
            let (d, zero) = (s.distance(), s.int(0));
            let sees = s.op("LessOrEqual", &[&d, &zero]);
            let (gates, sees) = (s.op("Sigmoid", &[scores]), s.cast(&sees, DType::F32));
            // Of content that is zero, all of them.
            let gates = s.op("Add", &[&gates, &gates]);
            let gates = s.op("Mul", &[&gates, &sees]);
            let axis = s.int(-1);
            let places = s.with("CumSum", &[&gates, &axis], &[("reverse", A::Int(1))]);
            let last = s.float(ROWS as f64 - 1.0);
            let places = s.op("Min", &[&places, &last]);
            let places = s.cast(&places, DType::I64);
            let term = s.with("GatherElements", &[&all, &places], &[("axis", A::Int(-1))]);
            s.op("Add", &[scores, &term])
        }),
        ("content that acts out of proportion", |s, scores, q, _| {
            let index = clipped(s, [-CLIP, CLIP], CLIP);
            let q = s.op("Tanh", &[q]);
            let term = meets(s, scores, &q, &index, QUERY);
            let table = s.weights(&[ROWS, SIZE]);
            let vectors = s.gather(&table, &index, 0);
            let more = s.with("Einsum", &[&q, &vectors], &[("equation", A::Text(QUERY))]);
            let more = s.op("Sigmoid", &[&more]);
            s.op("Add", &[&term, &more])
        }),
    ];
    for (name, term) in cases {
        let found = found_with(term);
        assert!(is_unknown(&found), "{name}: {:?}", reported(&found));
    }
}

#[test]
fn terms_without_position_are_refused_with_the_reason() {
    let cases: [(&str, Term); 2] = [
        ("a bias of the product", |s, scores, q, _| {
            let vector = s.weights(&[SIZE, 1]);
            let term = s.op("MatMul", &[q, &vector]);
            s.op("Add", &[scores, &term])
        }),
        ("a gate of each query", |s, scores, q, _| {
            let axes = s.ints(&[-1]);
            let gate = s.op("ReduceSum", &[q, &axes]);
            s.op("Add", &[scores, &gate])
        }),
    ];
    for (name, term) in cases {
        let found = found_with(term);
        assert_eq!(reported(&found), [], "{name}");
        assert!(!found.no_encodings.is_empty(), "{name}");
    }
}

/// Queries that meet a table of vectors for each head by the row of `query − key`.
fn by_head(rows: usize, center: i64, step: i64) -> Found {
    by_head_within([0, rows as i64 - 1], rows, center, step)
}

/// The same with the rows clipped to others than the table's.
fn by_head_within([low, high]: [i64; 2], rows: usize, center: i64, step: i64) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let transposed = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &transposed]);
    let table = s.weights(&[HEADS, SIZE, rows]);
    let all = s.op("MatMul", &[&q, &table]);
    let (step, center) = (s.int(step), s.int(center));
    let at = s.distance();
    let at = s.op("Mul", &[&at, &step]);
    let at = s.op("Add", &[&at, &center]);
    let (low, high) = (s.int(low), s.int(high));
    let at = s.op("Clip", &[&at, &low, &high]);
    let shape = s.op("Shape", &[&scores]);
    let at = s.op("Expand", &[&at, &shape]);
    let term = s.with("GatherElements", &[&all, &at], &[("axis", A::Int(3))]);
    let scores = s.op("Add", &[&scores, &term]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let model = s.model(23, &[&y]);
    found(&model)
}

#[test]
fn vectors_of_each_head_are_disentangled_where_a_table_of_even_rows_is_cut_in_two() {
    let kind = |s: Found| reported(&s).iter().map(|t| t.0).collect::<Vec<_>>();
    assert_eq!(kind(by_head(8, 4, -1)), [Kind::Disentangled]);
    assert_eq!(kind(by_head(9, 4, -1)), [Kind::Shaw]);
    assert_eq!(kind(by_head(8, 3, -1)), [Kind::Shaw]);
    assert_eq!(kind(by_head(8, 4, 1)), [Kind::Shaw]);
}

#[test]
fn distances_that_share_other_rows_than_the_last_determine_no_maximum() {
    let farthest = |s: Found| reported(&s)[0].1["max_distance"].clone();
    assert_eq!(farthest(by_head(8, 4, -1)), json!(4));
    assert_eq!(farthest(by_head_within([1, 6], 8, 4, -1)), json!(null));
}
