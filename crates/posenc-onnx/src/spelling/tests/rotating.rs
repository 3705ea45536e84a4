//! Attention that rotates queries and keys itself.

use super::*;
use crate::detect::{Options, detect};

/// Attention with these attributes and further inputs.
fn attention(op: &str, attributes: &[(&str, i64)], more: &[&str]) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    for (name, dims) in [
        ("rows", &["batch", "sequence"][..]),
        ("lengths", &["batch"]),
        ("square", &["batch", "1", "sequence", "sequence"]),
    ] {
        if more.contains(&name) {
            s.input(name, DType::I32, dims);
        }
    }
    let weights = s.weights(&[HIDDEN, 3 * HIDDEN]);
    let bias = s.weights(&[3 * HIDDEN]);
    let inputs: Vec<&str> = [&x, &weights, &bias]
        .into_iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    let heads = [("num_heads", A::Int(HEADS as i64))].into_iter();
    let given = attributes.iter().map(|(name, n)| (*name, A::Int(*n)));
    let attributes: Vec<(&str, A)> = heads.chain(given).collect();
    let y = s.with(op, &inputs, &attributes);
    let y = s.op("Add", &[&x, &y]);
    s.model(17, &[&y])
}

#[test]
fn it_is_a_rotation_before_attention() {
    for more in [&[][..], &["rows"]] {
        let model = attention("ms.Attention", &[("do_rotary", 1)], more);
        let plain = plain(&model, &BTreeMap::new()).expect("it is replaced");
        let left = operators(&plain);
        assert!(
            !left.contains(&"Attention".to_owned())
                && left.contains(&"MultiHeadAttention".to_owned()),
            "{left:?}"
        );
        let found = detect(&plain, &Options::default());
        let [rotation] = &found.rotary[..] else {
            panic!("{:?}", found.not_rotary);
        };
        assert_eq!(rotation.query.rotation.rope.rotary_dim, HIDDEN / HEADS);
        assert_eq!(found.attention[0].heads, Some(HEADS));
    }
}

#[test]
fn other_attention_stays() {
    let width = (HIDDEN / HEADS) as i64;
    for (op, attributes, more) in [
        ("ms.Attention", &[][..], &[][..]),
        ("ms.Attention", &[("do_rotary", 0)], &[]),
        // ONNX Runtime rotates for 1 alone.
        ("ms.Attention", &[("do_rotary", 2)], &[]),
        ("ms.Attention", &[("do_rotary", -1)], &[]),
        ("ms.Attentions", &[("do_rotary", 1)], &[]),
        // Slots of a buffer do not tell how many of them are in use.
        (
            "ms.Attention",
            &[("do_rotary", 1), ("past_present_share_buffer", 1)],
            &[],
        ),
        // Masks that are others in another operator.
        ("ms.Attention", &[("do_rotary", 1)], &["lengths"]),
        ("ms.Attention", &[("do_rotary", 1)], &["square"]),
        // Features that do not pair, or are more than those of a head.
        (
            "ms.Attention",
            &[("do_rotary", 1), ("rotary_embedding_dim", 3)],
            &[],
        ),
        (
            "ms.Attention",
            &[("do_rotary", 1), ("rotary_embedding_dim", width + 2)],
            &[],
        ),
        (
            "ms.Attention",
            &[("do_rotary", 1), ("rotary_embedding_dim", -2)],
            &[],
        ),
    ] {
        let model = attention(op, attributes, more);
        let plain = plain(&model, &BTreeMap::new());
        let kept = |plain: Model| {
            operators(&plain)
                .iter()
                .any(|op| op.starts_with("Attention"))
        };
        assert!(plain.is_none_or(kept), "{op} {attributes:?} {more:?}");
    }
}

/// Queries and keys that an operator rotates by angles, and the angles of the first features.
fn by_angles(op: &str) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let at = s.range();
    let at = s.cast(&at, DType::F32);
    let at = s.unsqueeze(&at, &[0, 2]);
    let frequency = |i: usize| 100_f64.powf(-((i % (SIZE / 2)) as f64) / (SIZE / 2) as f64);
    let frequencies = s.floats(&[SIZE], (0..SIZE).map(frequency));
    let angles = s.op("Mul", &[&at, &frequencies]);
    let mut inputs = vec![angles];
    for _ in 0..2 {
        let x = s.headed(&x);
        let half = SIZE as i64 / 2;
        let first = s.slice(&x, 3, [0, half, 1]);
        let second = s.slice(&x, 3, [half, 2 * half, 1]);
        let second = s.op("Neg", &[&second]);
        inputs.push(x);
        inputs.push(s.concat(&[&second, &first], 3));
    }
    let v = s.headed(&x);
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    let rotated = s.many(op, &inputs, &[], 2);
    let y = s.weighted(&rotated[0], &rotated[1], &v);
    s.model(17, &[&y])
}

#[test]
fn angles_that_an_operator_takes_are_those_of_cosines_and_sines() {
    let plain = plain(&by_angles("ms.GemmaRotaryEmbedding"), &BTreeMap::new());
    let plain = plain.expect("it is replaced");
    let found = detect(&plain, &Options::default());
    let [rotation] = &found.rotary[..] else {
        panic!("{:?}", found.not_rotary);
    };
    let rope = &rotation.query.rotation.rope;
    assert_eq!(rope.rotary_dim, SIZE);
    assert!((rope.inv_freq[1] - 100_f64.powf(-0.25)).abs() < 1e-6);
    let other = by_angles("GemmaRotaryEmbedding");
    let is_kept = |made: Model| operators(&made).contains(&"GemmaRotaryEmbedding".to_owned());
    assert!(super::plain(&other, &BTreeMap::new()).is_none_or(is_kept));
}
