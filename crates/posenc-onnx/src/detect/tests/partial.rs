//! Rotations of some features of a head.

use super::*;

/// Rotates the first half of the features, which are cut from the head as a whole part by part or after
/// it was cut in two. `is_gated`: the others are multiplied with a number of each place.
fn half_rotated(cuts_once: bool, is_gated: bool) -> Model {
    let of = move |s: &mut Sketch, x: &str| {
        let q = s.headed(x);
        let (size, half) = (SIZE as i64, SIZE as i64 / 2);
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[1]);
        let numbers = s.floats(&[1, SIZE / 4], (0..SIZE / 4).map(frequency));
        let angles = s.op("Mul", &[&at, &numbers]);
        let (cos, sin) = waves(s, &angles);
        let first = s.slice(&q, 3, [0, half, 1]);
        let source = if cuts_once { &first } else { &q };
        let (low, high) = (
            s.slice(source, 3, [0, half / 2, 1]),
            s.slice(source, 3, [half / 2, half, 1]),
        );
        let high = s.op("Neg", &[&high]);
        let swapped = s.concat(&[&high, &low], 3);
        let turned = mixed(s, &first, &swapped, &cos, &sin);
        let mut others = s.slice(&q, 3, [half, size, 1]);
        if is_gated {
            others = s.op("Mul", &[&others, &at]);
        }
        s.concat(&[&turned, &others], 3)
    };
    let mut s = Sketch::default();
    let x = s.embedded();
    let (q, k, v) = (of(&mut s, &x), of(&mut s, &x), s.headed(&x));
    let y = attend(&mut s, &q, &k, &v);
    s.model(17, &[&y])
}

#[test]
fn features_may_be_cut_from_the_head_at_once_or_one_by_one() {
    for cuts_once in [true, false] {
        let found = found(&half_rotated(cuts_once, false));
        let [rotary] = &found.rotary[..] else {
            panic!("{cuts_once}: {:?}", found.not_rotary);
        };
        for half in [&rotary.query, &rotary.key] {
            let rope = &half.rotation.rope;
            assert_eq!((rope.rotary_dim, rope.head_dim), (SIZE / 2, SIZE));
            assert!((rope.inv_freq[1] / frequency(1) - 1.0).abs() < 1e-4);
        }
    }
}

#[test]
fn features_that_do_not_rotate_are_as_they_were() {
    for cuts_once in [true, false] {
        let found = found(&half_rotated(cuts_once, true));
        assert_eq!(found.rotary.len(), 0, "{cuts_once}");
        assert!(!found.not_rotary.is_empty(), "{cuts_once}");
    }
}
