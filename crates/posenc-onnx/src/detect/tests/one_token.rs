//! Graphs that take one token at a time.

use super::*;

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
    let is_told = |found: &Found| {
        let mut all = found.not_evaluated.iter();
        all.any(|why| why.contains("takes one token at a time"))
    };
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
