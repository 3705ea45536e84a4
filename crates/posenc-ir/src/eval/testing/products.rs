//! Products, normalizations, rotations and quantization.

use super::*;

fn close(got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len());
    for (g, w) in got.iter().zip(want) {
        assert!((g - w).abs() < 1e-12, "{got:?} is not {want:?}");
    }
}

#[test]
fn matrix_products_follow_numpy() {
    let a = floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = floats(&[2, 2], &[5.0, 6.0, 7.0, 8.0]);
    let v = floats(&[2], &[1.0, -1.0]);
    let want = vec![19.0, 22.0, 43.0, 50.0];
    assert_eq!(
        op("MatMul").numbers(&[a.clone(), b.clone()]),
        (vec![2, 2], want)
    );
    assert_eq!(
        op("MatMul").numbers(&[a.clone(), v.clone()]),
        (vec![2], vec![-1.0, -1.0])
    );
    assert_eq!(
        op("MatMul").numbers(&[v.clone(), a.clone()]),
        (vec![2], vec![-2.0, -2.0])
    );
    assert_eq!(
        op("MatMul").numbers(&[v.clone(), v.clone()]),
        (vec![], vec![2.0])
    );
    for (x, y, dims) in [
        (&[5, 1, 2, 3][..], &[4, 3, 6][..], Some(&[5, 4, 2, 6][..])),
        (&[7, 2, 3], &[3], Some(&[7, 2])),
        (&[2, 3], &[2, 3], None),
        (&[2, 2, 3], &[3, 3, 3], None),
        (&[], &[3], None),
    ] {
        let out = op("MatMul").run(&[content(x), content(y)]);
        assert_eq!(
            out.ok().and_then(|v| v.dims).as_deref(),
            dims,
            "{x:?} {y:?}"
        );
    }
    let gemm = op("Gemm")
        .int("transB", 1)
        .float("alpha", 2.0)
        .float("beta", 10.0);
    let got = gemm.numbers(&[a.clone(), b.clone(), v]);
    assert_eq!(got.1, [44.0, 36.0, 88.0, 96.0]);
    let fused = contrib("FusedMatMul").int("transA", 1).float("alpha", 0.5);
    assert_eq!(fused.numbers(&[a, b]).1, [13.0, 15.0, 19.0, 22.0]);
}

#[test]
fn convolutions_weigh_what_their_window_covers() {
    // Numbers of the groups and the strides by hand.
    let x = count(&[1, 2, 4]);
    let w = floats(&[2, 1, 3], &[1.0, 10.0, 100.0, 0.0, 0.0, 1.0]);
    let bias = floats(&[2], &[0.5, 0.0]);
    let depthwise = op("Conv").int("group", 2);
    let same = depthwise.clone().ints("pads", &[1, 1]);
    let (dims, got) = same.numbers(&[x.clone(), w.clone(), bias]);
    assert_eq!(dims, [1, 2, 4]);
    assert_eq!(got, [100.5, 210.5, 321.5, 32.5, 5.0, 6.0, 7.0, 0.0]);
    let sparse = depthwise.ints("dilations", &[2]).ints("pads", &[2, 2]);
    let sparse = sparse.ints("strides", &[3]);
    let got = sparse.numbers(&[x.clone(), w]).1;
    assert_eq!(got, [200.0, 31.0, 6.0, 0.0]);
    let all = floats(&[1, 2, 2], &[1.0, 10.0, 100.0, 1000.0]);
    assert_eq!(op("Conv").numbers(&[x, all]).1, [5410.0, 6521.0, 7632.0]);
    let plane = floats(&[1, 1, 2, 2], &[1.0, 10.0, 100.0, 1000.0]);
    let got = op("Conv").numbers(&[count(&[1, 1, 3, 3]), plane]);
    assert_eq!(
        got,
        (vec![1, 1, 2, 2], vec![4310.0, 5421.0, 7643.0, 8754.0])
    );
}

#[test]
fn the_first_axis_may_be_before_the_batch_axes() {
    // Numbers of ONNX Runtime 1.31.
    let (a, b) = (count(&[2, 3, 2]), count(&[3, 2, 2]));
    let transposed = contrib("FusedMatMul").int("transBatchA", 1);
    let got = transposed.numbers(&[a.clone(), b.clone()]);
    assert_eq!(got.0, [3, 2, 2]);
    assert_eq!(
        got.1,
        [
            2.0, 3.0, 14.0, 27.0, 26.0, 31.0, 86.0, 103.0, 82.0, 91.0, 190.0, 211.0
        ]
    );
    let both = contrib("FusedMatMul")
        .int("transBatchA", 1)
        .int("transA", 1);
    let got = both.numbers(&[a, b]);
    assert_eq!(got.0, [3, 2, 2]);
    assert_eq!(
        got.1,
        [
            12.0, 18.0, 14.0, 22.0, 56.0, 66.0, 66.0, 78.0, 132.0, 146.0, 150.0, 166.0
        ]
    );
}

#[test]
fn a_convolution_that_would_take_too_long_is_not_computed() {
    let same = op("Conv").text("auto_pad", "SAME_UPPER");
    let long = [count(&[1, 1, 1 << 14]), count(&[256, 1, 5])];
    let wide = [count(&[1, 1, 1 << 14]), count(&[1, 1, 1 << 13])];
    for (op, inputs) in [(op("Conv"), long), (op("Conv"), wide)] {
        assert!(op.run(&inputs).unwrap().data.is_none());
    }
    let small = [count(&[1, 1, 4]), count(&[1, 1, 3])];
    assert!(same.run(&small).unwrap().data.is_none());
    assert!(op("Conv").run(&small).unwrap().data.is_some(), "control");
}

#[test]
fn a_product_that_would_take_too_long_is_not_computed() {
    let (a, b) = (count(&[1 << 15, 1]), count(&[1, 2]));
    assert!(op("MatMul").run(&[a, b]).unwrap().data.is_some());
    let (row, column) = (count(&[1, 1 << 16]), stored(&[1 << 16, 1], &[1; 1 << 16]));
    let over = Budget { elements: 1 << 7 };
    let node = op("MatMul");
    let out = apply(&node.node, 17, &[Some(&row), Some(&column)], &over).unwrap();
    assert_eq!(
        (out[0].dims.as_deref(), out[0].data.is_none()),
        (Some(&[1, 1][..]), true)
    );
}

#[test]
fn equations_define_what_is_summed() {
    let a = floats(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let cases = [
        ("ij,jk->ik", 2, vec![7.0, 10.0, 15.0, 22.0]),
        ("ij,kj", 2, vec![5.0, 11.0, 11.0, 25.0]),
        ("ij,ij->", 2, vec![30.0]),
        ("ii->i", 1, vec![1.0, 4.0]),
        ("ij->ji", 1, vec![1.0, 3.0, 2.0, 4.0]),
        ("...j,j...->...", 2, vec![7.0, 22.0]),
    ];
    for (text, n, want) in &cases {
        let got = op("Einsum")
            .text("equation", text)
            .numbers(&vec![a.clone(); *n]);
        assert_eq!(&got.1, want, "{text}");
    }
    let wide = op("Einsum").text("equation", "b...d, dk -> ...kb");
    assert_eq!(
        wide.dims(&[&[2, 3, 4, 5], &[5, 6]]),
        [Some(vec![3, 4, 6, 2])]
    );
    for bad in [
        "ij,jk->iz",
        "ij->ij",
        "ij,jk->ii",
        "i1,jk->i",
        "ijk,jk->i",
        "ij,jk,->i",
    ] {
        let out = op("Einsum")
            .text("equation", bad)
            .run(&[a.clone(), a.clone()]);
        assert!(out.is_err(), "{bad}");
    }
    let clash = op("Einsum").text("equation", "ij,jk->ik");
    assert_eq!(
        clash.why(&[content(&[2, 3]), content(&[2, 3])]),
        Some(Why::Shapes)
    );
}

#[test]
fn softmax_takes_one_axis_or_before_opset_13_all_from_one_on() {
    let x = floats(&[1, 2, 2], &[0.0, 0.0, 3f64.ln(), 0.0]);
    let got = op("Softmax").numbers(std::slice::from_ref(&x)).1;
    close(&got, &[0.5, 0.5, 0.75, 0.25]);
    let got = op("Softmax").opset(12).numbers(std::slice::from_ref(&x)).1;
    close(&got, &[1.0 / 6.0, 1.0 / 6.0, 0.5, 1.0 / 6.0]);
    let got = op("LogSoftmax")
        .int("axis", 1)
        .numbers(std::slice::from_ref(&x))
        .1;
    close(
        &got,
        &[0.25f64.ln(), 0.5f64.ln(), 0.75f64.ln(), 0.5f64.ln()],
    );
    assert_eq!(op("Softmax").int("axis", 3).why(&[x]), Some(Why::Axis));
}

#[test]
fn normalizations_center_and_scale() {
    let x = floats(&[1, 2], &[1.0, 3.0]);
    let scale = floats(&[2], &[2.0, 2.0]);
    let shift = floats(&[2], &[0.0, 1.0]);
    let layer = op("LayerNormalization").float("epsilon", 0.0);
    close(
        &layer.numbers(&[x.clone(), scale.clone(), shift]).1,
        &[-2.0, 3.0],
    );
    let rms = op("RMSNormalization").float("epsilon", 0.0);
    let root = 5f64.sqrt();
    close(
        &rms.numbers(&[x.clone(), scale.clone()]).1,
        &[2.0 / root, 6.0 / root],
    );
    let skip = contrib("SkipSimplifiedLayerNormalization")
        .outputs(4)
        .float("epsilon", 0.0);
    let out = skip.all(&[x.clone(), x, scale]).unwrap();
    close(&numbers(&out[0]).1, &[2.0 / root, 6.0 / root]);
    assert_eq!(numbers(&out[3]).1, [2.0, 6.0]);
    assert_eq!(out[1].dims, Some(vec![1, 1]));
}

#[test]
fn fused_rotations_rotate_pairs_by_the_angle_of_their_row() {
    // A rotation by 90° at position 1, none at 0.
    let cos = floats(&[2, 1], &[1.0, 0.0]);
    let sin = floats(&[2, 1], &[0.0, 1.0]);
    let x = floats(&[1, 1, 2, 4], &[1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
    let partial = |o: Op| o.int("rotary_embedding_dim", 2).int("num_heads", 1);
    let rope = partial(op("RotaryEmbedding"));
    let ids = ints(&[1, 2], &[0, 1]);
    let got = rope.numbers(&[x.clone(), cos.clone(), sin.clone(), ids.clone()]);
    assert_eq!(got.1, [1.0, 2.0, 3.0, 4.0, -2.0, 1.0, 3.0, 4.0]);
    let fused = partial(contrib("RotaryEmbedding"));
    let got = fused.numbers(&[x.clone(), ids, cos.clone(), sin.clone()]);
    assert_eq!(got.1, [1.0, 2.0, 3.0, 4.0, -2.0, 1.0, 3.0, 4.0]);

    let (cos, sin) = (
        floats(&[1, 2, 2], &[1.0, 1.0, 0.0, 1.0]),
        floats(&[1, 2, 2], &[0.0, 0.0, 1.0, 0.0]),
    );
    let halves = op("RotaryEmbedding").numbers(&[x.clone(), cos.clone(), sin.clone()]);
    assert_eq!(halves.1[4..], [-3.0, 2.0, 1.0, 4.0]);
    let adjacent = op("RotaryEmbedding").int("interleaved", 1);
    assert_eq!(
        adjacent.numbers(&[x.clone(), cos, sin]).1[4..],
        [-2.0, 1.0, 3.0, 4.0]
    );

    let wrong = op("RotaryEmbedding").why(&[x.clone(), content(&[2, 3]), content(&[2, 3])]);
    assert_eq!(wrong, Some(Why::Shapes));
    let flat =
        op("RotaryEmbedding").why(&[content(&[1, 2, 4]), content(&[2, 2]), content(&[2, 2])]);
    assert_eq!(flat, Some(Why::Attribute("num_heads")));
    let outside = rope.run(&[
        x,
        content(&[2, 1]),
        content(&[2, 1]),
        ints(&[1, 2], &[0, 2]),
    ]);
    assert!(outside.unwrap().data.is_none());
}

#[test]
fn quantized_numbers_are_restored_by_scale_and_zero_point() {
    let q = ints(&[2, 2], &[0, 1, 2, 3]).with_dtype(DType::I8);
    let zero = ints(&[], &[1]).with_dtype(DType::I8);
    let got = op("DequantizeLinear").numbers(&[q.clone(), floats(&[], &[0.5]), zero]);
    assert_eq!(got.1, [-0.5, 0.0, 0.5, 1.0]);
    let rows = op("DequantizeLinear").int("axis", 0);
    assert_eq!(
        rows.numbers(&[q.clone(), floats(&[2], &[1.0, 10.0])]).1,
        [0.0, 1.0, 20.0, 30.0]
    );
    let columns = op("DequantizeLinear")
        .run(&[q, floats(&[3], &[1.0; 3])])
        .unwrap();
    assert!(columns.data.is_none());
    let x = floats(&[4], &[0.25, 0.75, -9.0, 900.0]);
    let out = op("QuantizeLinear").run(&[x, floats(&[], &[0.5])]).unwrap();
    assert_eq!(
        (out.dtype, numbers(&out).1),
        (Some(DType::U8), vec![0.0, 2.0, 0.0, 255.0])
    );
}

#[test]
fn a_multimodal_rotation_takes_the_angle_of_each_pair_from_one_of_three_positions() {
    // A rotation by 90° at row 1 and by 180° at row 2, none at row 0.
    let cos = floats(&[3, 3], &[1.0, 1.0, 1.0, 0.0, 0.0, 0.0, -1.0, -1.0, -1.0]);
    let sin = floats(&[3, 3], &[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    let x = floats(&[1, 1, 1, 6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let ids = ints(&[3, 1, 1], &[0, 1, 2]);
    let inputs = [x, ids, cos, sin];
    let rope = |sections| contrib("MRotaryEmbedding").ints("mrope_section", sections);
    let numbers = |op: Op| op.numbers(&inputs).1;
    assert_eq!(numbers(rope(&[1, 1, 1])), [1.0, -5.0, -3.0, 4.0, 2.0, -6.0]);
    assert_eq!(numbers(rope(&[0, 3, 0])), [-4.0, -5.0, -6.0, 1.0, 2.0, 3.0]);
    // In turns, the first stream has what the others leave.
    let in_turns = rope(&[1, 2, 0]).int("mrope_layout", 1);
    assert_eq!(numbers(in_turns), [1.0, -5.0, 3.0, 4.0, 2.0, 6.0]);
    let adjacent = rope(&[1, 1, 1]).int("interleaved", 1);
    assert_eq!(numbers(adjacent), [1.0, 2.0, -4.0, 3.0, -5.0, -6.0]);

    for unread in [
        rope(&[1, 1, 2]),
        rope(&[3, -1, 1]),
        rope(&[1, 2]),
        rope(&[1, 1, 1]).int("mrope_layout", 2),
        rope(&[1, 1, 1]).int("is_packed_batching", 1),
        rope(&[1, 1, 1]).float("scale", 2.0),
    ] {
        assert!(unread.run(&inputs).unwrap().data.is_none());
    }
    let outside = ints(&[3, 1, 1], &[0, 1, 3]);
    let [x, _, cos, sin] = inputs.clone();
    let outside = rope(&[1, 1, 1]).run(&[x, outside, cos, sin]);
    assert!(outside.unwrap().data.is_none());
}
