//! Shapes that were written for one sequence in a batch.

use super::*;

/// A layer with a table of positions, whose heads are split and merged by these shapes.
fn written(split: [i64; 4], merge: [i64; 3]) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let table = s.weights(&[40, HIDDEN]);
    let at = s.range();
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let [q, k, v] = [0; 3].map(|_| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let y = s.op("MatMul", &[&x, &w]);
        let y = s.reshape(&y, &split);
        s.transpose(&y, &[0, 2, 1, 3])
    });
    let scores = scores(&mut s, &q, &k);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.transpose(&y, &[0, 2, 1, 3]);
    let y = s.reshape(&y, &merge);
    let w = s.weights(&[HIDDEN, HIDDEN]);
    let y = s.op("MatMul", &[&y, &w]);
    let y = s.op("Add", &[&x, &y]);
    s.model(17, &[&y])
}

#[test]
fn a_batch_of_one_is_seen_under_a_symbol() {
    let (heads, hidden) = (HEADS as i64, HIDDEN as i64);
    for (split, merge, batch) in [
        ([1, -1, heads, SIZE as i64], [1, -1, hidden], 1),
        ([0, 0, heads, SIZE as i64], [0, 0, hidden], 2),
    ] {
        let read = found(&written(split, merge));
        assert_eq!(read.lengths.batch, batch);
        assert!(read.mixers.is_empty(), "{:?}", read.mixers);
        let heads: Vec<_> = read.attention.iter().map(|s| s.heads).collect();
        assert_eq!(heads, [Some(HEADS)]);
        assert_eq!(kinds(&read), [Kind::Learned]);
    }
}

#[test]
fn what_mixes_tokens_of_one_sequence_is_not_explained_by_the_batch() {
    let hidden = HIDDEN as i64;
    // Features of neighboring tokens change places.
    let mixed = found(&written(
        [0, -1, SIZE as i64, HEADS as i64],
        [0, -1, hidden],
    ));
    assert_eq!(mixed.lengths.batch, 2);
}
