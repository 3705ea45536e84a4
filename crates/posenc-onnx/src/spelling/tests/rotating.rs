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
