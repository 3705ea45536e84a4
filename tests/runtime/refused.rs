//! What a runtime refuses, as it would compute something else.

use posenc_ir::Model;
use posenc_runtime::{Backend, Options, TractBackend};

use super::bytes;

/// Cases that a runtime cannot run: (runtime, case, words of its refusal). An entry whose case passes,
/// or fails with other words, fails the suite; a wrong number is never accepted.
pub(super) const KNOWN: &[(&str, &str, &str)] = &[
    ("tract", "bfloat16", "bfloat16"),
    (
        "tract",
        "cumulative sum of a cast mask",
        "TDim is not a number",
    ),
    ("tract", "GatherND from the end", "it panicked"),
    (
        "tract",
        "com.microsoft RotaryEmbedding from an offset",
        "one position a token",
    ),
    (
        "tract",
        "com.microsoft MultiHeadAttention, causal",
        "causal MultiHeadAttention",
    ),
    (
        "tract",
        "com.microsoft GroupQueryAttention with a past",
        "with a past",
    ),
    (
        "tract",
        "com.microsoft GroupQueryAttention with a window of 2",
        "with a window",
    ),
    (
        "tract",
        "com.microsoft Attention",
        "com.microsoft.Attention",
    ),
    (
        "tract",
        "Attention with a bool mask",
        "Mask must be floating point",
    ),
    (
        "onnxruntime",
        "RotaryEmbedding with one cache for a batch of two",
        "expected to have the same shape",
    ),
];

/// tract would attend to all keys, or take new tokens for the first ones.
#[test]
fn tract_refuses_attention_with_a_window_or_a_causal_past() {
    for (left, right, is_refused) in [(-1, -1, false), (2, 0, true), (-1, 0, true), (0, -1, true)] {
        let text = format!(
            "<ir_version: 11, opset_import: [\"\" : 25]> g (float[1, 2, 4, 8] x) => (float[1, 2, 4, 8] y) \
             {{ y = Attention <left_window_size = {left}, right_window_size = {right}> (x, x, x) }}"
        );
        let model = Model::parse(&text).unwrap().to_bytes().unwrap();
        match TractBackend::new().load(bytes(&model), &Options::default()) {
            Ok(_) => assert!(!is_refused, "{left} {right}"),
            Err(why) => assert!(
                is_refused && why.to_string().contains("an Attention with a window"),
                "{left} {right}: {why}"
            ),
        }
    }
    let past = |is_causal: u8| {
        let text = format!(
            "<ir_version: 11, opset_import: [\"\" : 24]> g (float[1, 2, 4, 8] x, float[1, 2, 3, 8] past)
             => (float[1, 2, 4, 8] y, float[1, 2, 7, 8] k, float[1, 2, 7, 8] v)
             {{ y, k, v = Attention <is_causal = {is_causal}> (x, x, x, , past, past) }}"
        );
        let model = Model::parse(&text).unwrap().to_bytes().unwrap();
        let loaded = TractBackend::new().load(bytes(&model), &Options::default());
        loaded.map(|_| ()).map_err(|why| why.to_string())
    };
    assert_eq!(past(0), Ok(()));
    let why = past(1).unwrap_err();
    assert!(why.contains("a causal Attention with a past"), "{why}");
}
