//! Vectors for the distances within a window, with none beyond, as in the text encoder of VITS: tables
//! that zeros fill up to all distances, and planes that are turned from distances to keys by padding.

use super::*;

/// How many tokens a table reaches to either side.
type Reach = i64;

/// The number of tokens, a vector of one.
fn length(s: &mut Sketch) -> String {
    let shape = s.op("Shape", &["input_ids"]);
    let one = s.ints(&[1]);
    s.gather(&shape, &one, 0)
}

/// `[1, 2 · length − 1, size]`: a table with a row for each distance, zeros beyond its reach.
fn filled(s: &mut Sketch, reach: Reach) -> String {
    let table = s.weights(&[1, 2 * reach as usize + 1, SIZE]);
    let (length, rows, zero) = (length(s), s.ints(&[reach + 1]), s.ints(&[0]));
    let more = s.op("Sub", &[&length, &rows]);
    let pads = s.concat(&[&zero, &more, &zero, &zero, &more, &zero], 0);
    s.op("Pad", &[&table, &pads])
}

/// Adds so many zeros in front of or behind the last axis.
fn pad(s: &mut Sketch, x: &str, rank: usize, [front, behind]: [&str; 2]) -> String {
    let none = s.ints(&vec![0; rank - 1]);
    let pads = s.concat(&[&none, front, &none, behind], 0);
    s.op("Pad", &[x, &pads])
}

/// `[batch, heads, query, distance]` to `[batch, heads, query, key]`.
fn to_keys(s: &mut Sketch, x: &str) -> String {
    let (length, zero, one, two) = (length(s), s.ints(&[0]), s.ints(&[1]), s.ints(&[2]));
    let x = pad(s, x, 4, [&zero, &one]);
    let x = s.reshape(&x, &[0, 0, -1]);
    let less = s.op("Sub", &[&length, &one]);
    let x = pad(s, &x, 3, [&zero, &less]);
    let (keep, more) = (s.ints(&[0, 0]), s.op("Add", &[&length, &one]));
    let twice = s.op("Mul", &[&length, &two]);
    let width = s.op("Sub", &[&twice, &one]);
    let dims = s.concat(&[&keep, &more, &width], 0);
    let x = s.op("Reshape", &[&x, &dims]);
    let x = s.op("Slice", &[&x, &zero, &length, &two]);
    let (end, last) = (s.ints(&[i64::MAX]), s.ints(&[3]));
    s.op("Slice", &[&x, &less, &end, &last])
}

/// `[batch, heads, query, key]` to `[batch, heads, query, distance]`.
fn to_distances(s: &mut Sketch, x: &str) -> String {
    let (length, zero, one, two) = (length(s), s.ints(&[0]), s.ints(&[1]), s.ints(&[2]));
    let less = s.op("Sub", &[&length, &one]);
    let x = pad(s, x, 4, [&zero, &less]);
    let x = s.reshape(&x, &[0, 0, -1]);
    let x = pad(s, &x, 3, [&length, &zero]);
    let twice = s.op("Mul", &[&length, &two]);
    let keep = s.ints(&[0, 0]);
    let dims = s.concat(&[&keep, &length, &twice], 0);
    let x = s.op("Reshape", &[&x, &dims]);
    s.slice(&x, 3, [1, i64::MAX, 1])
}

fn keys(s: &mut Sketch, scores: &str, q: &str, reach: Reach) -> String {
    let vectors = filled(s, reach);
    let vectors = s.transpose(&vectors, &[0, 2, 1]);
    let vectors = s.unsqueeze(&vectors, &[0]);
    let met = s.op("MatMul", &[q, &vectors]);
    let met = to_keys(s, &met);
    s.op("Add", &[scores, &met])
}

fn values(s: &mut Sketch, weights: &str, weighted: &str, reach: Reach) -> String {
    let weights = to_distances(s, weights);
    let vectors = filled(s, reach);
    let vectors = s.unsqueeze(&vectors, &[0]);
    let met = s.op("MatMul", &[&weights, &vectors]);
    s.op("Add", &[weighted, &met])
}

fn none(_: &mut Sketch, scores: &str, _: &str, _: &str) -> String {
    scores.to_owned()
}

#[test]
fn vectors_within_a_window_are_found_and_bound_no_length() {
    let with_keys: Term = |s, scores, q, _| keys(s, scores, q, CLIP);
    for (term, key, value) in [
        (none as Term, false, true),
        (with_keys, true, false),
        (with_keys, true, true),
    ] {
        let after = if value {
            |s: &mut Sketch, w: &str, y: &str| values(s, w, y, CLIP)
        } else {
            |_: &mut Sketch, _: &str, y: &str| y.to_owned()
        };
        let found = found_after(term, after);
        assert_eq!(reported(&found), shaw(json!(4), [key, value, false]));
        assert_eq!(found.findings[0].max_length, None);
    }
}

#[test]
fn windows_of_keys_and_values_that_differ_are_unknown() {
    let found = found_after(
        |s, scores, q, _| keys(s, scores, q, CLIP),
        |s, weights, weighted| values(s, weights, weighted, CLIP - 1),
    );
    assert!(is_unknown(&found));
}

#[test]
fn vectors_that_some_pairs_of_a_distance_lack_are_unknown() {
    let found = found_after(
        |s, scores, q, _| {
            let met = keys(s, scores, q, CLIP);
            let met = s.op("Sub", &[&met, scores]);
            // The first query meets none.
            let at = s.range();
            let zero = s.int(0);
            let later = s.op("Greater", &[&at, &zero]);
            let later = s.cast(&later, DType::F32);
            let later = s.unsqueeze(&later, &[1]);
            let met = s.op("Mul", &[&met, &later]);
            s.op("Add", &[scores, &met])
        },
        |_, _, weighted| weighted.to_owned(),
    );
    assert!(is_unknown(&found));
}

#[test]
fn values_of_the_next_distance_are_unknown_beside_keys() {
    let found = found_after(
        |s, scores, q, _| keys(s, scores, q, CLIP),
        |s, weights, weighted| {
            // The weights come one place later.
            let ends = s.ints(&[0, 0, 0, 1, 0, 0, 0, -1]);
            let later = s.op("Pad", &[weights, &ends]);
            values(s, &later, weighted, CLIP)
        },
    );
    let kinds: Vec<Kind> = reported(&found).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::Shaw, Kind::Unknown]);
}
