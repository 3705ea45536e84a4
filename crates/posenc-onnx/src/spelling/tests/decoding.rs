//! Attention for one new token after a cache.

use super::*;
use crate::detect::{Options, detect};

/// Queries, keys and values of tokens, the first two rotated, and a cache of them.
fn decoder(op: &str, shares: i64, more: &[&str], outputs: usize) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let places = ["batch", "3", "past", "8"];
    for (name, dtype, dims) in [
        ("position_ids", DType::I64, &["batch", "sequence"][..]),
        ("past_key", DType::F32, &places),
        ("past_value", DType::F32, &places),
        ("attention_mask", DType::I32, &["batch", "total"]),
        ("past_sequence_length", DType::I32, &["1"]),
        ("beam_width", DType::I32, &["1"]),
        ("cache_indirection", DType::I32, &["batch", "beam", "past"]),
    ] {
        s.input(name, dtype, dims);
    }
    let [cos, sin] = [f64::cos, f64::sin].map(|wave| {
        let angle = |n: usize| (n / 4) as f64 * 10_000f64.powf(-((n % 4) as f64) / 4.0);
        s.floats(&[64, 4], (0..256).map(|n| wave(angle(n))))
    });
    let [q, k, v] = [0; 3].map(|_| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        s.op("MatMul", &[&x, &w])
    });
    let heads = || [("num_heads", A::Int(HEADS as i64))];
    let [q, k] = [q, k].map(|x| {
        s.with(
            "ms.RotaryEmbedding",
            &[&x, "position_ids", &cos, &sin],
            &heads(),
        )
    });
    let mut inputs = vec![&*q, &k, &v, "attention_mask", "", "past_key", "past_value"];
    inputs.extend(more);
    let [num_heads] = heads();
    let attributes = [num_heads, ("past_present_share_buffer", A::Int(shares))];
    let y = s.many(op, &inputs, &attributes, outputs);
    let all: Vec<&str> = y.iter().map(String::as_str).collect();
    s.model(17, &all)
}

const DECODER: &str = "ms.DecoderMaskedMultiHeadAttention";

#[test]
fn it_is_attention_of_a_query_that_sees_all_earlier_keys() {
    for (shares, more) in [(0, &[][..]), (1, &["past_sequence_length"])] {
        let model = decoder(DECODER, shares, more, 3);
        let plain = plain(&model, &BTreeMap::new()).expect("it is replaced");
        let graph = plain.graph();
        let (_, node) = graph
            .nodes()
            .find(|(_, n)| n.op() == "MultiHeadAttention")
            .unwrap();
        let name = |slot: usize| node.input(slot).map(|v| graph.value(v).name());
        assert_eq!(name(4), Some("attention_mask"));
        assert_eq!([name(6), name(7)], [Some("past_key"), Some("past_value")]);
        assert_eq!(name(8), more.first().copied());
        let found = detect(&plain, &Options::default());
        assert_eq!(found.rotary.len(), 1, "{:?}", found.not_rotary);
        assert_eq!(found.attention[0].mask.causal, Some(true));
        assert!(found.attention[0].past);
    }
}

#[test]
fn a_bias_of_projections_takes_its_slot() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [k, v] = ["k", "v"].map(|name| s.input(name, DType::F32, &["batch", "3", "keys", "8"]));
    let bias = s.weights(&[3 * HIDDEN]);
    let inputs = [&x, &k, &v, "", "", "", "", "", "", "", &bias];
    let y = s.with(DECODER, &inputs, &[("num_heads", A::Int(HEADS as i64))]);
    let plain = plain(&s.model(17, &[&y]), &BTreeMap::new()).unwrap();
    let mut nodes = plain.graph().nodes();
    let (_, node) = nodes.find(|(_, n)| n.op() == "MultiHeadAttention").unwrap();
    assert!(node.input(3).is_some() && node.inputs().len() == 4);
    // The keys of another sequence are all seen.
    assert_eq!(node.int("unidirectional"), Ok(Some(0)));
}

#[test]
fn beams_and_buffers_of_unknown_use_stay() {
    for (op, shares, more, outputs) in [
        ("DecoderMaskedMultiHeadAttention", 0, &[][..], 3),
        // A buffer without the number of its slots in use, and that number without a buffer.
        (DECODER, 1, &[], 3),
        (DECODER, 0, &["past_sequence_length"], 3),
        // Keys of several beams.
        (DECODER, 1, &["past_sequence_length", "beam_width"], 3),
        (
            DECODER,
            1,
            &["past_sequence_length", "", "cache_indirection"],
            3,
        ),
        // The weights, which the other operator gives otherwise.
        (DECODER, 0, &[], 4),
    ] {
        let model = decoder(op, shares, more, outputs);
        let made = plain(&model, &BTreeMap::new());
        let is_kept = |made: Model| operators(&made).iter().any(|op| op.starts_with("Decoder"));
        assert!(made.is_none_or(is_kept), "{op} {shares} {more:?} {outputs}");
    }
}

/// Attention that projects its input, for one new token.
fn projecting(op: &str, attributes: &[(&str, i64)], more: &[&str]) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    s.input("past", DType::F32, &["2", "batch", "3", "past", "8"]);
    s.input("length", DType::I32, &["1"]);
    let weights = s.weights(&[HIDDEN, 3 * HIDDEN]);
    let bias = s.weights(&[3 * HIDDEN]);
    let mut inputs = vec![&*x, &weights, &bias, "", "past"];
    inputs.extend(more);
    let given = attributes.iter().map(|(name, n)| (*name, A::Int(*n)));
    let attributes: Vec<(&str, A)> = given.chain([("num_heads", A::Int(3))]).collect();
    let y = s.many(op, &inputs, &attributes, 2);
    s.model(17, &[&y[0], &y[1]])
}

#[test]
fn it_may_project_and_rotate_too() {
    let op = "ms.DecoderMaskedSelfAttention";
    let plain_of = |attributes: &[(&str, i64)], more: &[&str]| {
        plain(&projecting(op, attributes, more), &BTreeMap::new())
    };
    let found = detect(&plain_of(&[], &[]).unwrap(), &Options::default());
    assert_eq!(found.attention[0].mask.causal, Some(true));
    assert!(found.rotary.is_empty());
    let found = detect(
        &plain_of(&[("do_rotary", 1)], &[]).unwrap(),
        &Options::default(),
    );
    assert_eq!(found.rotary.len(), 1);
    let picks = ["", "length", "length"];
    assert!(plain_of(&[], &picks).is_none());
    let other = projecting("DecoderMaskedSelfAttention", &[], &[]);
    assert!(plain(&other, &BTreeMap::new()).is_none());
}
