//! Faults in biases and terms of the scores, and in what is added to the embeddings.

use super::faults::{At, Change, Fault};

pub(super) const FAULTS: [Fault; 46] = [
    Fault {
        of: "alibi",
        what: "a first layer that is no attention",
        change: Change::Text(&[(
            "softmax = Softmax <axis = -1>(add_1)",
            "softmax = Hardmax <axis = -1>(add_1)",
        )]),
        at: At::First,
    },
    Fault {
        of: "alibi",
        what: "the slope of one head",
        change: Change::Values("posenc/slopes_0", |mut v| {
            v[2] /= 2.0;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "alibi",
        what: "the slopes of two heads exchanged",
        change: Change::Values("posenc/slopes_0", |mut v| {
            v.swap(0, 1);
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "alibi",
        what: "the sign of slopes",
        change: Change::Values("posenc/slopes_0", |v| v.iter().map(|s| -s).collect()),
        at: At::Both,
    },
    Fault {
        of: "alibi",
        what: "the direction",
        change: Change::Text(&[(
            "\"posenc/sub_0\" = Sub(\"posenc/range_0\", \"posenc/reshape_0\")",
            "\"posenc/sub_0\" = Sub(\"posenc/reshape_0\", \"posenc/range_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "alibi",
        what: "missing in one layer",
        change: Change::Text(&[(
            "add_1 = Add(div, \"posenc/add_0\")",
            "add_1 = Add(div, add)",
        )]),
        at: At::First,
    },
    Fault {
        of: "alibi",
        what: "twice in one layer",
        change: Change::Text(&[(
            "add_4 = Add(div_1, \"posenc/add_0\")",
            "once = Add(div_1, \"posenc/mul_0\")\n  add_4 = Add(once, \"posenc/add_0\")",
        )]),
        at: At::Second,
    },
    Fault {
        of: "alibi",
        what: "distances end",
        change: Change::Text(&[(
            "\"posenc/cast_0\" = Cast <to = 1>(\"posenc/sub_0\")",
            "least = Constant <value = int64 {-8}>()\n  near = Max(\"posenc/sub_0\", least)\n  \"posenc/cast_0\" = Cast <to = 1>(near)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "alibi",
        what: "the mask is lost with the bias",
        change: Change::Text(&[(
            "\"posenc/add_0\" = Add(add, \"posenc/mul_0\")",
            "zeros = Sub(add, add)\n  \"posenc/add_0\" = Add(zeros, \"posenc/mul_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "symmetric alibi",
        what: "the sign of later keys",
        change: Change::Text(&[(
            "\"posenc/cast_0\" = Cast <to = 1>(\"posenc/abs_0\")",
            "\"posenc/cast_0\" = Cast <to = 1>(\"posenc/sub_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "symmetric alibi",
        what: "the slopes of two heads exchanged",
        change: Change::Values("posenc/slopes_0", |mut v| {
            v.swap(1, 2);
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "t5-bias",
        what: "buckets shifted by one",
        change: Change::Values("posenc/buckets_0", |mut v| {
            v.rotate_right(1);
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "t5-bias",
        what: "one bucket",
        change: Change::Values("posenc/buckets_0", |mut v| {
            v[100] = 31.0;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "t5-bias",
        what: "distances end early",
        change: Change::Values("posenc/clip_0", |_| vec![-20.0]),
        at: At::Both,
    },
    Fault {
        of: "t5-bias",
        what: "the direction",
        change: Change::Text(&[(
            "\"posenc/sub_0\" = Sub(\"posenc/range_0\", \"posenc/reshape_0\")",
            "\"posenc/sub_0\" = Sub(\"posenc/reshape_0\", \"posenc/range_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "t5-bias",
        what: "a row of the table",
        change: Change::Values("posenc/relative_attention_bias_0", |mut v| {
            v[3 * 3 + 1] += 0.25;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "t5-bias",
        what: "missing in one layer",
        change: Change::Text(&[(
            "add_4 = Add(div_1, \"posenc/add_1\")",
            "add_4 = Add(div_1, add)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "relative-bias",
        what: "a row of the table",
        change: Change::Values("posenc/relative_bias_0", |mut v| {
            v[120 * 3 + 1] += 0.25;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "relative-bias",
        what: "distances end early",
        change: Change::Values("posenc/clip_0", |_| vec![-5.0]),
        at: At::Both,
    },
    Fault {
        of: "relative-bias",
        what: "the direction",
        change: Change::Text(&[(
            "\"posenc/sub_0\" = Sub(\"posenc/range_0\", \"posenc/reshape_0\")",
            "\"posenc/sub_0\" = Sub(\"posenc/reshape_0\", \"posenc/range_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "kerple",
        what: "the parameter of one head",
        change: Change::Values("posenc/r2_0", |mut v| {
            v[1] *= 2.0;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "kerple",
        what: "the logarithm is missing",
        change: Change::Text(&[(
            "\"posenc/log_0\" = Log(\"posenc/add_0\")",
            "\"posenc/log_0\" = Identity(\"posenc/add_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "shaw",
        what: "a row of the table",
        change: Change::Values("posenc/relative_key_0", |mut v| {
            v[14 * 8 + 1] += 0.25;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "alibi",
        what: "two rows of the embeddings exchanged",
        change: Change::Values("embed.weight", |mut v| {
            (0..24).for_each(|c| v.swap(5 * 24 + c, 6 * 24 + c));
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "alibi",
        what: "the embeddings shifted by one row",
        change: Change::Values("embed.weight", |mut v| {
            v.rotate_right(24);
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "shaw",
        what: "distances end early",
        change: Change::Values("posenc/clip_0", |_| vec![-4.0]),
        at: At::Both,
    },
    Fault {
        of: "shaw",
        what: "no vectors for the scores of one layer",
        change: Change::Text(&[(
            "div = Div(\"posenc/add_1\", val_62)",
            "div = Div(matmul, val_62)",
        )]),
        at: At::First,
    },
    Fault {
        of: "shaw",
        what: "no vectors for the values of one layer",
        change: Change::Text(&[(
            "<perm = [0, 2, 1, 3]>(\"posenc/add_2\")",
            "<perm = [0, 2, 1, 3]>(matmul_1)",
        )]),
        at: At::First,
    },
    Fault {
        of: "shaw",
        what: "vectors of the keys for the values",
        change: Change::Text(&[(
            "\"posenc/einsum_3\" = Einsum <equation = \"ced,abcd->abce\">(\"posenc/transpose_0\", softmax_1)",
            "other = Neg(\"posenc/transpose_0\")\n  \"posenc/einsum_3\" = Einsum <equation = \"ced,abcd->abce\">(other, softmax_1)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "half of shaw",
        what: "what a layer that stays weights twice, and no vectors",
        change: Change::Text(&[(
            "add_12 = Add(matmul_3, einsum_3)",
            "add_12 = Add(matmul_3, matmul_3)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "half of shaw",
        what: "vectors of the values twice in a layer that stays",
        change: Change::Text(&[(
            "add_12 = Add(matmul_3, einsum_3)",
            "add_12 = Add(einsum_3, einsum_3)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "transformer-xl",
        what: "the content's bias is missing",
        change: Change::Text(&[(
            "matmul = MatMul(\"posenc/add_0\", transpose)",
            "matmul = MatMul(permute, transpose)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "transformer-xl",
        what: "the direction",
        change: Change::Text(&[(
            "\"posenc/cast_0\" = Cast <to = 1>(\"posenc/range_0\")",
            "back = Neg(\"posenc/range_0\")\n  \"posenc/cast_0\" = Cast <to = 1>(back)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "transformer-xl",
        what: "sines and cosines exchanged",
        change: Change::Text(&[(
            "Concat <axis = 0>(\"posenc/sin_0\", \"posenc/cos_0\")",
            "Concat <axis = 0>(\"posenc/cos_0\", \"posenc/sin_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "transformer-xl",
        what: "one element of the projection",
        change: Change::Values("posenc/position_projection_0", |mut v| {
            v[40] += 0.125;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "learned",
        what: "a row of the table",
        change: Change::Values("posenc/positions_0", |mut v| {
            v[9 * 24 + 1] += 0.25;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "sinusoidal",
        what: "two frequencies exchanged",
        change: Change::Values("posenc/frequencies_0", |mut v| {
            v.swap(5, 7);
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "sinusoidal",
        what: "frequencies shifted by one",
        change: Change::Values("posenc/frequencies_0", |mut v| {
            v.rotate_right(1);
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "learned",
        what: "NaN in the last row",
        change: Change::Values("posenc/positions_0", |mut v| {
            v[63 * 24] = f64::NAN;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "learned",
        what: "not added",
        change: Change::Text(&[(
            "\"posenc/add_0\" = Add(embedding, \"posenc/slice_0\")",
            "\"posenc/add_0\" = Identity(embedding)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "learned",
        what: "added twice",
        change: Change::Text(&[(
            "\"posenc/add_0\" = Add(embedding, \"posenc/slice_0\")",
            "once = Add(embedding, \"posenc/slice_0\")\n  \"posenc/add_0\" = Add(once, \"posenc/slice_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "sinusoidal",
        what: "sines and cosines exchanged",
        change: Change::Text(&[(
            "Concat <axis = 2>(\"posenc/sin_0\", \"posenc/cos_0\")",
            "Concat <axis = 2>(\"posenc/cos_0\", \"posenc/sin_0\")",
        )]),
        at: At::Both,
    },
    Fault {
        of: "sinusoidal",
        what: "positions shifted by one",
        change: Change::Text(&[(
            "\"posenc/cast_0\" = Cast <to = 1>(\"posenc/range_0\")",
            "shifted = Add(\"posenc/range_0\", \"posenc/one_0\")\n  \"posenc/cast_0\" = Cast <to = 1>(shifted)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "sinusoidal",
        what: "one frequency",
        change: Change::Values("posenc/frequencies_0", |mut v| {
            v[4] *= 1.01;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "conv",
        what: "a tap of the kernel",
        change: Change::Values("posenc/weight_0", |mut v| {
            v[10] += 0.5;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "conv",
        what: "another activation",
        change: Change::Text(&[(
            "\"posenc/gelu_0\" = Gelu(\"posenc/conv_0\")",
            "\"posenc/gelu_0\" = Relu(\"posenc/conv_0\")",
        )]),
        at: At::Both,
    },
];
