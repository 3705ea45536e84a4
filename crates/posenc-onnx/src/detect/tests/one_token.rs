//! Graphs that take one token at a time.

use super::*;

/// Whether one token is said to tell too little.
fn is_told(found: &Found) -> bool {
    let mut all = found.not_evaluated.iter();
    all.any(|why| why.contains("takes one token at a time"))
}

/// A layer with a cache, on so many tokens at once.
fn cached(tokens: &str, is_rotated: bool) -> Found {
    let mut s = Sketch::default();
    let table = s.weights(&[30, HIDDEN]);
    let ids = s.input("input_ids", DType::I64, &["batch", tokens]);
    let x = s.gather(&table, &ids, 0);
    let [mut q, mut new, v] = [0; 3].map(|_| s.headed(&x));
    if is_rotated {
        let at = s.input("position_ids", DType::I64, &["batch", tokens]);
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[1, 3]);
        let frequencies = s.floats(&[SIZE / 2], (0..SIZE / 2).map(frequency));
        let angles = s.op("Mul", &[&at, &frequencies]);
        let [cos, sin] = ["Cos", "Sin"].map(|wave| s.op(wave, &[&angles]));
        [q, new] = [q, new].map(|x| {
            let half = SIZE as i64 / 2;
            let a = s.slice(&x, 3, [0, half, 1]);
            let b = s.slice(&x, 3, [half, 2 * half, 1]);
            let [ac, as_] = [&cos, &sin].map(|wave| s.op("Mul", &[&a, wave]));
            let [bc, bs] = [&cos, &sin].map(|wave| s.op("Mul", &[&b, wave]));
            let (first, second) = (s.op("Sub", &[&ac, &bs]), s.op("Add", &[&bc, &as_]));
            s.concat(&[&first, &second], 3)
        });
    }
    let [k, v] = [(new, "key"), (v, "value")].map(|(new, name)| {
        let name = format!("past_{name}");
        let past = s.input(&name, DType::F32, &["batch", "3", "past", "8"]);
        s.concat(&[&past, &new], 2)
    });
    let y = s.weighted(&q, &k, &v);
    found(&s.model(17, &[&y]))
}

#[test]
fn what_one_token_does_not_tell_is_said() {
    for is_rotated in [false, true] {
        let found = cached("1", is_rotated);
        assert!(found.attention[0].past, "control");
        assert!(found.rotary.is_empty() && is_told(&found), "{is_rotated}");
        for tokens in ["2", "sequence"] {
            let found = cached(tokens, is_rotated);
            assert_eq!(found.rotary.len(), usize::from(is_rotated), "{tokens}");
            assert!(!is_told(&found), "{tokens}");
        }
    }
}

/// A layer on one token, whose keys and values are written into buffers of so many others, with a row of a table and
/// with ALiBi.
fn written(places: &str, is_added: bool, is_biased: bool) -> Found {
    let mut s = Sketch::default();
    let table = s.weights(&[30, HIDDEN]);
    let ids = s.input("input_ids", DType::I64, &["batch", "1"]);
    let mut x = s.gather(&table, &ids, 0);
    let at = s.input("pos", DType::I64, &["1"]);
    if is_added {
        let rows = s.weights(&[64, HIDDEN]);
        let row = s.gather(&rows, &at, 0);
        x = s.op("Add", &[&x, &row]);
    }
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let [k, v] = [(k, "k0"), (v, "v0")].map(|(new, name)| {
        let buffer = s.input(name, DType::F32, &["batch", "3", places, "8"]);
        let shape = s.op("Shape", &[&new]);
        let at = s.unsqueeze(&at, &[1]);
        let index = s.op("Expand", &[&at, &shape]);
        s.with(
            "ScatterElements",
            &[&buffer, &index, &new],
            &[("axis", A::Int(2))],
        )
    });
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let mut scores = s.op("MatMul", &[&q, &k]);
    if is_biased {
        let keys = s.ints(&Vec::from_iter(0..24));
        let distance = s.op("Sub", &[&keys, &at]);
        let distance = s.cast(&distance, DType::F32);
        let slopes = s.floats(&[3, 1, 1], [0.5, 0.25, 0.125]);
        let bias = s.op("Mul", &[&distance, &slopes]);
        scores = s.op("Add", &[&scores, &bias]);
    }
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    found(&s.model(17, &[&y]))
}

#[test]
fn one_token_beside_a_buffer_does_not_tell_its_position() {
    for is_added in [false, true] {
        assert!(is_told(&written("24", is_added, false)), "{is_added}");
    }
    assert!(
        !is_told(&written("1", false, false)),
        "no other token is seen"
    );
    // A bias is read, and says nothing of a row besides.
    let biased = written("24", false, true);
    assert_eq!(kinds(&biased), [Kind::Alibi]);
    assert!(!is_told(&biased), "control");
    assert!(is_told(&written("24", true, true)));
}

#[test]
fn one_query_of_several_tokens_is_no_single_token() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let first = s.slice(&x, 1, [0, 1, 1]);
    let y = s.attends(&first, &x);
    assert!(!is_told(&found(&s.model(17, &[&y]))));
}
