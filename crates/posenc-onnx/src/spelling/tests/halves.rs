//! Features in turn that are rotated into halves.

use super::*;

/// The even features of a value, and the odd ones.
fn turns(s: &mut Sketch, x: &str) -> [String; 2] {
    [0, 1].map(|begin| s.slice(x, 3, [begin, i64::MAX, 2]))
}

/// A sum of two products with numbers.
fn sum(s: &mut Sketch, op: &str, [a, b]: [&str; 2]) -> String {
    let [c, d] = [0.6, 0.8].map(|x| s.float(x));
    let (a, b) = (s.op("Mul", &[a, &c]), s.op("Mul", &[b, &d]));
    s.op(op, &[&a, &b])
}

fn rotated(s: &mut Sketch, [a, b]: [&str; 2]) -> [String; 2] {
    [sum(s, "Sub", [a, b]), sum(s, "Add", [b, a])]
}

#[test]
fn features_in_turn_are_put_into_halves_before_they_are_rotated_into_halves() {
    let alone: Spelling = |s, q, _| {
        let [a, b] = turns(s, q);
        let [a, b] = rotated(s, [&a, &b]);
        s.concat(&[&a, &b], -1)
    };
    let beside_others: Spelling = |s, q, k| {
        let [a, b] = turns(s, q);
        let [a, b] = rotated(s, [&a, &b]);
        s.concat(&[k, &a, &b], -1)
    };
    for spelling in [alone, beside_others] {
        put_into_halves(spelling);
    }
}

fn put_into_halves(spelling: Spelling) {
    let model = model(spelling);
    let plain = plain(&model, &BTreeMap::new()).expect("another spelling");
    assert!(operators(&plain).iter().filter(|op| *op == "Slice").count() == 2);
    assert_eq!(difference(&model, &plain), 0.0);
}

#[test]
fn features_that_stay_in_turn_or_are_others_stay() {
    let spellings: [Spelling; 4] = [
        // Back in turn.
        |s, q, _| {
            let [a, b] = turns(s, q);
            let [a, b] = rotated(s, [&a, &b]).map(|x| s.unsqueeze(&x, &[4]));
            let both = s.concat(&[&a, &b], 4);
            s.reshape(&both, &[0, 0, 0, SIZE as i64])
        },
        // Of two values.
        |s, q, k| {
            let ([a, _], [_, b]) = (turns(s, q), turns(s, k));
            let [a, b] = rotated(s, [&a, &b]);
            s.concat(&[&a, &b], -1)
        },
        // Each half of one turn alone.
        |s, q, _| {
            let [a, b] = turns(s, q);
            let (a, b) = (sum(s, "Sub", [&a, &a]), sum(s, "Add", [&b, &b]));
            s.concat(&[&a, &b], -1)
        },
        // Halves from the beginning.
        |s, q, _| {
            let half = SIZE as i64 / 2;
            let [a, b] = [0, half].map(|at| s.slice(q, 3, [at, at + half, 1]));
            let [a, b] = rotated(s, [&a, &b]);
            s.concat(&[&a, &b], -1)
        },
    ];
    let layouts = |model: &Model| {
        operators(model)
            .iter()
            .filter(|op| *op == "Transpose")
            .count()
    };
    for spelling in spellings {
        let model = model(spelling);
        let plain = plain(&model, &BTreeMap::new());
        assert!(plain.is_none_or(|plain| layouts(&plain) == layouts(&model)));
    }
}
