//! Hostile nodes: results or errors, without panics and within the budget.

use proptest::prelude::*;

use super::*;
use crate::eval::table::operators;

/// Attributes that some operator reads as an integer.
const NUMBERS: &[&str] = &[
    "axis",
    "keepdims",
    "batch_dims",
    "to",
    "dtype",
    "k",
    "exclusive",
    "blocksize",
    "group",
    "num_heads",
    "kv_num_heads",
    "q_num_heads",
    "hidden_size",
    "block_size",
    "start",
    "end",
    "K",
    "N",
    "rotary_embedding_dim",
    "interleaved",
    "ceil_mode",
    "allowzero",
    "transA",
    "transB",
    "upper",
    "noop_with_empty_axes",
    "num_outputs",
    "layout",
    "channels_last",
    "fmod",
];

/// Attributes that some operator reads as a list.
const LISTS: &[&str] = &[
    "axes",
    "perm",
    "split",
    "starts",
    "ends",
    "steps",
    "pads",
    "kernel_shape",
    "strides",
    "dilations",
    "output_shape",
    "output_padding",
    "shape",
    "qkv_hidden_sizes",
];

fn number() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => -4i64..5,
        1 => prop::sample::select(vec![
            i64::MIN, i64::MIN + 1, i64::MAX, i64::MAX - 1, 1 << 32, -(1 << 32), 1 << 61, 7, 10, 11,
        ]),
    ]
}

fn dims() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0usize..4, 0..5)
}

fn input() -> impl Strategy<Value = Value> {
    let far = prop::collection::vec(
        prop::sample::select(vec![0, 1, 3, 1 << 31, 1 << 62, isize::MAX as usize]),
        0..5,
    );
    prop_oneof![
        Just(left_out()),
        Just(Value::shaped(Some(DType::F32), None)),
        far.prop_map(|d| content(&d)),
        dims().prop_map(|d| content(&d)),
        dims().prop_map(|d| count(&d)),
        prop::collection::vec(number(), 0..5).prop_map(|all| list(&all)),
        prop::collection::vec(number(), 0..5).prop_map(|all| stored(&[all.len()], &all)),
        number().prop_map(|n| ints(&[], &[n])),
        (dims(), prop::collection::vec(number(), 256)).prop_map(|(d, all)| {
            let n = d.iter().product();
            ints(&d, &all[..n])
        }),
        dims().prop_map(|d| bools(&d, &vec![true; d.iter().product()])),
        prop::sample::select(vec![f64::NAN, f64::INFINITY, -0.0, 1e300, -1e-300, 2.5])
            .prop_map(|v| floats(&[1], &[v])),
    ]
}

fn text() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "SAME_UPPER",
        "VALID",
        "reflect",
        "wrap",
        "add",
        "ij,jk->ik",
        "...i->...",
        "i.j->",
        ",->",
        "...,...",
        "not_larger",
        "bidirectional",
        "",
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..Default::default() })]

    #[test]
    fn no_operator_panics_on_any_input(
        (domain, name) in prop::sample::select(operators().collect::<Vec<_>>()),
        opset in prop::sample::select(vec![1, 9, 11, 13, 18, 23]),
        inputs in prop::collection::vec(input(), 0..8),
        numbers in prop::collection::vec((prop::sample::select(NUMBERS), number()), 0..12),
        lists in prop::collection::vec(
            (prop::sample::select(LISTS), prop::collection::vec(number(), 0..6)), 0..6),
        words in prop::collection::vec(
            (prop::sample::select(vec!["auto_pad", "mode", "reduction", "equation",
                "keep_aspect_ratio_policy", "direction"]), text()), 0..3),
        outputs in 1usize..5,
    ) {
        let mut node = of(domain, name).opset(opset).outputs(outputs);
        for (name, n) in numbers {
            node = node.int(name, n);
        }
        for (name, all) in &lists {
            node = node.ints(name, all);
        }
        for (name, word) in words {
            node = node.text(name, word);
        }
        if let Ok(all) = node.all(&inputs) {
            prop_assert_eq!(all.len(), outputs);
            for value in all {
                let Some(data) = value.data.clone() else { continue };
                let filled = match &*data {
                    crate::eval::Data::Float(a) => a.shape().to_vec(),
                    crate::eval::Data::Int(a) => a.shape().to_vec(),
                    crate::eval::Data::Bool(a) => a.shape().to_vec(),
                    crate::eval::Data::Stored(t) => t.dims().to_vec(),
                };
                prop_assert!(value.dtype.is_some());
                prop_assert_eq!(value.dims, Some(filled));
            }
        }
    }
}
