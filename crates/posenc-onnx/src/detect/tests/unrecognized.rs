//! Inputs whose sizes have to be equal, and sizes that stay unknown.

use super::*;

/// Attention over ids, with a term of another input, whose sizes are named `names`.
fn with_boxes(names: &[&str]) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let boxes = s.input("boxes", DType::F32, names);
    let w = s.weights(&[4, HIDDEN]);
    let more = s.op("MatMul", &[&boxes, &w]);
    let x = s.op("Add", &[&x, &more]);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let y = attend(&mut s, &q, &k, &v);
    s.model(23, &[&y])
}

#[test]
fn sizes_of_other_names_may_have_to_be_equal() {
    for names in [["batch", "sequence", "4"], ["batch", "boxes", "4"]] {
        let found = found(&with_boxes(&names));
        assert_eq!(found.attention.len(), 1, "{names:?}");
        assert!(found.no_attention.is_empty(), "{names:?}");
    }
}

#[test]
fn a_softmax_of_unknown_sizes_is_warned_of() {
    let found = found(&with_boxes(&["batch", "3", "4"]));
    assert!(found.attention.is_empty());
    assert!(matches!(&found.no_attention[..], [w] if w.contains("softmax") && w.contains("Add")));
}

#[test]
fn an_operator_of_attention_without_sizes_is_warned_of() {
    let fused = |dims: &[&str]| {
        let mut s = Sketch::default();
        let x = s.input("x", DType::F32, dims);
        let x = s.op("own.Unknown", &[&x]);
        let heads = [("num_heads", A::Int(2))];
        let y = s.many("com.microsoft.MultiHeadAttention", &[&x, &x, &x], &heads, 1);
        found(&s.model(17, &[&y[0]]))
    };
    let found = fused(&["batch", "sequence", "24"]);
    assert!(found.attention.is_empty());
    let why = "the output of this com.microsoft.Unknown has unknown sizes, so that an operator of attention is";
    assert!(
        matches!(&found.no_attention[..], [w] if w.contains(why)),
        "{:?}",
        found.no_attention
    );
}

/// Attention as one operator.
fn as_one(op: &str, attributes: &[(&str, i64)]) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let attributes: Vec<(&str, A)> = attributes.iter().map(|(n, v)| (*n, A::Int(*v))).collect();
    let y = s.many(op, &[&q, &k, &v], &attributes, 1);
    found(&s.model(25, &[&y[0]]))
}

#[test]
fn the_window_of_the_standard_operator_is_read() {
    for (left, right, is_causal, causal, window) in [
        (-1, -1, 0, None, None),
        (-1, 0, 0, Some(true), None),
        (2, 0, 0, Some(true), Some(3)),
        (2, -1, 1, Some(true), Some(3)),
        (2, 2, 0, None, Some(3)),
    ] {
        let sides = [
            ("left_window_size", left),
            ("right_window_size", right),
            ("is_causal", is_causal),
        ];
        let found = as_one("Attention", &sides);
        assert_eq!(found.no_attention, [""; 0]);
        let mask = &found.attention[0].mask;
        assert_eq!((mask.causal, mask.window), (causal, window), "{sides:?}");
    }
}

#[test]
fn an_operator_of_attention_in_a_form_that_is_not_read_is_warned_of() {
    let window = |left, right| {
        let sides = [("left_window_size", left), ("right_window_size", right)];
        as_one("Attention", &sides)
    };
    let masked = "DecoderMaskedSelfAttention";
    for (found, op) in [
        (window(2, 1), "Attention".to_owned()),
        (window(2, -1), "Attention".to_owned()),
        (window(-1, 2), "Attention".to_owned()),
        (
            as_one(&format!("ms.{masked}"), &[("num_heads", HEADS as i64)]),
            format!("com.microsoft.{masked}"),
        ),
    ] {
        let why = format!("this {op} has a form that is not read");
        let warnings = &found.no_attention;
        assert!(
            matches!(&warnings[..], [one] if one.contains(&why)),
            "{op}: {warnings:?}"
        );
    }
}

#[test]
fn a_softmax_of_unknown_sizes_that_only_leaves_the_model_is_not() {
    let warnings = |last: fn(&mut Sketch, &str) -> String| {
        let mut s = Sketch::default();
        let x = s.embedded();
        // As many tokens as are not zero.
        let kept = s.op("NonZero", &[&x]);
        let kept = s.cast(&kept, DType::F32);
        let turned = s.transpose(&kept, &[1, 0]);
        let scores = s.op("MatMul", &[&turned, &kept]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = last(&mut s, &weights);
        found(&s.model(17, &[&y])).no_attention.len()
    };
    let best = |s: &mut Sketch, w: &str| s.with("ArgMax", &[w], &[("axis", A::Int(-1))]);
    assert_eq!(warnings(|_, w| w.to_owned()), 0);
    assert_eq!(warnings(best), 0);
    assert_eq!(warnings(|s, w| s.op("Mul", &[w, w])), 1);
    assert_eq!(
        warnings(|s, w| {
            let turned = s.transpose(w, &[1, 0]);
            s.op("MatMul", &[w, &turned])
        }),
        1
    );
}

#[test]
fn an_einsum_with_an_ellipsis_is_a_product() {
    let attend = |equations: [&str; 2]| {
        let form = |s: &mut Sketch| {
            let x = s.embedded();
            let [q, k, v] = [0; 3].map(|_| s.projected(&x));
            let scores = s.with("Einsum", &[&q, &k], &[("equation", A::Text(equations[0]))]);
            let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
            let equation = [("equation", A::Text(equations[1]))];
            s.with("Einsum", &[&weights, &v], &equation)
        };
        let mut s = Sketch::default();
        let y = form(&mut s);
        let found = found(&s.model(23, &[&y]));
        found
            .attention
            .iter()
            .map(|a| (a.heads, a.head_dim, a.cross))
            .collect::<Vec<_>>()
    };
    let want = [(Some(HEADS), Some(SIZE), false)];
    assert_eq!(attend(["bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"]), want);
    assert_eq!(
        attend(["...qhd,...khd->...hqk", "...hqk,...khd->...qhd"]),
        want
    );
}

#[test]
fn windows_that_were_merged_with_heads_are_no_heads() {
    let mut s = Sketch::default();
    let x = s.input("pixels", DType::F32, &["batch", "4", "9", "24"]);
    let x = s.reshape(&x, &[-1, 9, HIDDEN as i64]);
    let [q, k, v] = [0; 3].map(|_| {
        let q = s.headed(&x);
        s.reshape(&q, &[-1, 9, SIZE as i64])
    });
    let k = s.transpose(&k, &[0, 2, 1]);
    let scores = s.op("MatMul", &[&q, &k]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let found = found(&s.model(23, &[&y]));
    assert_eq!(found.attention[0].heads, Some(HEADS));
}

#[test]
fn a_batch_of_one_that_was_written_down_halves_no_heads() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        let q = s.op("MatMul", &[&x, &w]);
        let q = s.reshape(&q, &[1, -1, HEADS as i64, SIZE as i64]);
        s.transpose(&q, &[0, 2, 1, 3])
    });
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let found = found(&s.model(23, &[&y]));
    let site = &found.attention[0];
    assert_eq!((site.heads, site.kv_heads), (Some(HEADS), Some(HEADS)));
}

#[test]
fn a_softmax_of_products_that_is_read_as_no_attention_is_warned_of() {
    let warned = |picked: fn(&mut Sketch, &str) -> String, last: bool| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let scores = scores(&mut s, &q, &k);
        let scores = picked(&mut s, &scores);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = if last {
            s.op("Relu", &[&weights])
        } else {
            s.op("MatMul", &[&weights, &v])
        };
        let found = found(&s.model(23, &[&y]));
        (found.attention.len(), found.no_attention.len())
    };
    let plain: fn(&mut Sketch, &str) -> String = |_, scores| scores.to_owned();
    // Keys in another order.
    let moved: fn(&mut Sketch, &str) -> String = |s, scores| {
        let at = s.range();
        let last = s.int(13);
        let at = s.op("Sub", &[&last, &at]);
        s.gather(scores, &at, 3)
    };
    assert_eq!(warned(moved, false), (0, 1));
    assert_eq!(warned(plain, false), (1, 0), "a site");
    assert_eq!(warned(moved, true), (0, 0), "weights of nothing");
}

#[test]
fn inputs_of_no_numbers_or_too_many_are_not_made_up() {
    for (dtype, length) in [
        (DType::String, "sequence"),
        (DType::U4, "sequence"),
        (DType::F8E5M2, "sequence"),
        (DType::I64, "1099511627776"),
        (DType::I64, "9223372036854775807"),
    ] {
        let mut s = Sketch::default();
        s.input("attention_mask", dtype, &["4", length]);
        s.input("position_ids", dtype, &["4", length]);
        let y = s.op("Neg", &["position_ids"]);
        let model = s.model(17, &[&y]);
        assert_eq!(detect(&model, &Options::default()).attention.len(), 0);
    }
}

/// The warnings about attention of which `weigh` makes the weights of the scores.
fn warned(weigh: &str) -> Vec<String> {
    let text = format!(
        "<ir_version: 9, opset_import: [\"\" : 18]>\n\
         test (float[sequence,8] x) => (float[] y) {{\n\
         axes = Constant<value_ints = [0]>()\n last = Constant<value_ints = [-1]>()\n \
         keys = Transpose<perm: ints = [1, 0]>(x)\n\
         scores = MatMul(x, keys)\n{weigh}\n}}\n"
    );
    found(&Model::parse(&text).unwrap()).no_attention
}

#[test]
fn a_softmax_in_a_body_that_runs_is_warned_of() {
    let scan = |product: &str| {
        format!(
            "all = Unsqueeze(scores, axes)\n ones = Constant<value_floats = [1.0]>()\n\
             weights = Scan <num_scan_inputs: int = 1, body: graph = step \
             (float[] own) => (float[] out) {{\n \
             halves = Split<num_outputs: int = 1>(own)\n out = Softmax(halves) }}> (all)\n\
             flat = Squeeze(weights, axes)\n y = {product}"
        )
    };
    assert!(matches!(&warned(&scan("MatMul(flat, x)"))[..], [w] if w.contains("softmax")));
    assert!(warned(&scan("Mul(flat, ones)")).is_empty());
}

#[test]
fn a_softmax_that_weights_a_table_by_position_is_warned_of() {
    let with = |x: &str| {
        format!(
            "weights = Softmax(scores)\n zero = Constant<value: tensor = int64 {{0}}>()\n \
             one = Constant<value: tensor = int64 {{1}}>()\n shape = Shape(x)\n \
             length = Gather(shape, zero)\n at = Range(zero, length, one)\n \
             numbers = Cast<to: int = 1>(at)\n column = Unsqueeze(numbers, last)\n y = {x}"
        )
    };
    let column = with("MatMul(weights, column)");
    assert!(matches!(&warned(&column)[..], [w] if w.contains("softmax")));
    assert!(warned(&with("Mul(weights, weights)")).is_empty());
}

#[test]
fn attention_in_the_body_of_an_operator_that_is_no_control_flow_is_warned_of() {
    let warnings = |op: &str| {
        let text = format!(
            "<ir_version: 10, opset_import: [\"\" : 17, \"com.microsoft\" : 1]> \
             g (int64[batch, sequence] input_ids) => (int64[batch, more] y) {{ \
             y = com.microsoft.GreedySearch <decoder = d (float[batch, sequence, 8] a) => (float[batch, sequence, 8] b) \
             {{ b = {op} (a) }}> (input_ids) }}"
        );
        found(&Model::parse(&text).unwrap()).no_attention
    };
    let why = "this com.microsoft.GreedySearch runs a model of its own";
    for op in ["Softmax", "com.microsoft.Attention"] {
        let warnings = warnings(op);
        assert!(
            matches!(&warnings[..], [one] if one.contains(why)),
            "{op}: {warnings:?}"
        );
    }
    assert_eq!(warnings("Neg"), [""; 0]);
}

#[test]
fn a_mask_of_queries_and_keys_alone_is_read() {
    let causal = |op: &str, axes: &[i64]| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let places = s.range();
        let [row, column] = [[1], [0]].map(|axis| s.unsqueeze(&places, &axis));
        let mut mask = s.op(op, &[&row, &column]);
        if !axes.is_empty() {
            mask = s.unsqueeze(&mask, axes);
        }
        let y = s.op("Attention", &[&q, &k, &v, &mask]);
        found(&s.model(23, &[&y])).attention[0].mask.causal
    };
    for axes in [&[][..], &[0], &[0, 1]] {
        assert_eq!(causal("GreaterOrEqual", axes), Some(true), "{axes:?}");
        for other in ["LessOrEqual", "NotEqual"] {
            assert_ne!(causal(other, axes), Some(true), "{other} {axes:?}");
        }
    }
}
