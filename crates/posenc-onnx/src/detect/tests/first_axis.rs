//! Inputs whose tokens are along the first axis, and attention over what is no tokens.

use super::*;

/// Attention with heads and sequences in one axis, over the first axis of an input of these dimensions.
fn over_the_first(dims: &[&str]) -> Model {
    let mut s = Sketch::default();
    let x = s.input("x", DType::F32, dims);
    let shape = s.op("Shape", &[&x]);
    let mut heads = || {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let y = s.op("MatMul", &[&x, &w]);
        let (first, merged, size) = (s.int(0), s.ints(&[-1]), s.ints(&[SIZE as i64]));
        let length = s.gather(&shape, &first, 0);
        let length = s.unsqueeze(&length, &[0]);
        let dims = s.concat(&[&length, &merged, &size], 0);
        let y = s.op("Reshape", &[&y, &dims]);
        s.transpose(&y, &[1, 0, 2])
    };
    let [q, k, v] = [(); 3].map(|()| heads());
    let k = s.transpose(&k, &[0, 2, 1]);
    let scores = s.op("MatMul", &[&q, &k]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.transpose(&y, &[1, 0, 2]);
    let y = s.op("Reshape", &[&y, &shape]);
    s.model(17, &[&y])
}

#[test]
fn tokens_may_be_along_the_first_axis() {
    for dims in [
        &["length", "batch", "24"][..],
        &["length", "1", "24"],
        &["16", "batch", "24"],
        &["length", "24"],
        &["16", "24"],
    ] {
        let found = found(&over_the_first(dims));
        let heads: Vec<_> = found.attention.iter().map(|site| site.heads).collect();
        assert_eq!(heads, [Some(HEADS)], "{dims:?}: {:?}", found.misplaced);
        assert!(found.misplaced.is_empty(), "{dims:?}");
    }
}

#[test]
fn attention_over_features_is_not_read() {
    let mut s = Sketch::default();
    let x = s.embedded();
    // Features attend to features.
    let [q, k, v] = [0; 3].map(|_| {
        let y = s.projected(&x);
        s.transpose(&y, &[0, 2, 3, 1])
    });
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let found = found(&s.model(17, &[&y]));
    assert!(found.attention.is_empty());
    let why = &found.misplaced[..];
    assert!(
        matches!(why, [why] if why.ends_with("its keys do not stand for tokens")),
        "{why:?}"
    );
}

/// A layer behind rows that positions pick, of inputs with these dimensions; the tokens of the layer are
/// those of the ids.
fn placed(ids: &[&str], positions: &[&str]) -> Model {
    let mut s = Sketch::default();
    let words = s.weights(&[30, HIDDEN]);
    let ids = s.input("input_ids", DType::I64, ids);
    let x = s.gather(&words, &ids, 0);
    let at = s.input("position_ids", DType::I64, positions);
    let at = s.transpose(&at, &[1, 0]);
    let table = s.weights(&[40, HIDDEN]);
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    s.model(17, &[&y])
}

#[test]
fn positions_may_be_along_another_axis_than_ids() {
    for (ids, positions) in [
        (["batch", "sequence"], ["sequence", "batch"]),
        (["s0", "s1"], ["s1", "s0"]),
        (["2", "sequence"], ["sequence", "2"]),
        (["batch", "9"], ["9", "batch"]),
    ] {
        let found = found(&placed(&ids, &positions));
        assert_eq!(kinds(&found), [Kind::Learned], "{ids:?} {positions:?}");
        assert_eq!(found.attention[0].heads, Some(HEADS));
    }
}
