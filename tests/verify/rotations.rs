//! Faults in rotations, and in what every model has: masks, values, weights, outputs.

use super::faults::{At, Change, Fault};

pub(super) const FAULTS: [Fault; 47] = [
    Fault {
        of: "rope",
        what: "cos alone",
        change: Change::Text(&[("cos = Cos(mul_1)", "cos = Sin(mul_1)")]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "sin alone",
        change: Change::Text(&[(
            "sin = Sin(mul_1)",
            "positive = Sin(mul_1)\n  sin = Neg(positive)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "queries alone are not rotated",
        change: Change::Text(&[(
            "matmul = MatMul(cat, transpose)",
            "matmul = MatMul(permute, transpose)",
        )]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "keys alone are not rotated",
        change: Change::Text(&[(
            "<perm = [0, 1, 3, 2]>(cat_1)",
            "<perm = [0, 1, 3, 2]>(permute_1)",
        )]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "neither is rotated in one layer",
        change: Change::Text(&[
            (
                "matmul_2 = MatMul(cat_2, transpose_2)",
                "matmul_2 = MatMul(permute_3, transpose_2)",
            ),
            (
                "<perm = [0, 1, 3, 2]>(cat_3)",
                "<perm = [0, 1, 3, 2]>(permute_4)",
            ),
        ]),
        at: At::Second,
    },
    Fault {
        of: "rope",
        what: "the factor twice",
        change: Change::Text(&[(
            "mul_1 = Mul(unsqueeze_2, \"enc.inv_freq\")",
            "half = Constant <value = float {0.5}>()\n  once = Mul(unsqueeze_2, \"enc.inv_freq\")\n  mul_1 = Mul(once, half)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "the factor is missing",
        change: Change::Values("enc.inv_freq", |v| v.iter().map(|f| f * 2.0).collect()),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "another theta",
        change: Change::Values("enc.inv_freq", |_| vec![0.5, 0.04, 0.0032, 0.000256]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "another law",
        change: Change::Values("enc.inv_freq", |_| vec![1.0, 0.1, 0.005, 0.0005]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "the slowest frequency by one percent",
        change: Change::Values("enc.inv_freq", |_| vec![0.5, 0.05, 0.005, 0.000505]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "two frequencies exchanged",
        change: Change::Values("enc.inv_freq", |_| vec![0.05, 0.5, 0.005, 0.0005]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "positions shifted by one",
        change: Change::Text(&[(
            "_to_copy_1 = Cast <to = 1>(arange)",
            "shifted = Add(arange, val_8)\n  _to_copy_1 = Cast <to = 1>(shifted)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "positions in reverse",
        change: Change::Text(&[(
            "_to_copy_1 = Cast <to = 1>(arange)",
            "reversed = Neg(arange)\n  _to_copy_1 = Cast <to = 1>(reversed)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "positions that end at the old length",
        change: Change::Text(&[(
            "_to_copy_1 = Cast <to = 1>(arange)",
            "last = Constant <value = int64 {63}>()\n  stopped = Min(arange, last)\n  _to_copy_1 = Cast <to = 1>(stopped)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "positions of padding",
        change: Change::Text(&[(
            "_to_copy_1 = Cast <to = 1>(arange)",
            "seen = ReduceMin <keepdims = 0>(attention_mask, val_68)\n  counted = Mul(arange, seen)\n  _to_copy_1 = Cast <to = 1>(counted)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "NaN beyond the old length",
        change: Change::Text(&[(
            "cos = Cos(mul_1)",
            "old = Constant <value = float {64.0}>()\n  none = Constant <value = float {0.0}>()\n  late = Greater(unsqueeze_2, old)\n  nan = Div(none, none)\n  short = Cos(mul_1)\n  cos = Where(late, nan, short)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "the sign of one product",
        change: Change::Text(&[("sub_1 = Sub(mul_2, mul_3)", "sub_1 = Add(mul_2, mul_3)")]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "the sign of one product in the other layer",
        change: Change::Text(&[("sub_3 = Sub(mul_34, mul_35)", "sub_3 = Add(mul_34, mul_35)")]),
        at: At::Second,
    },
    Fault {
        of: "rope",
        what: "halves exchanged in the queries",
        change: Change::Text(&[(
            "cat = Concat <axis = -1>(sub_1, add_1)",
            "cat = Concat <axis = -1>(add_1, sub_1)",
        )]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "halves exchanged in the keys",
        change: Change::Text(&[(
            "cat_1 = Concat <axis = -1>(sub_2, add_2)",
            "cat_1 = Concat <axis = -1>(add_2, sub_2)",
        )]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "the scale of scores inverted",
        change: Change::Text(&[("div = Div(matmul, val_107)", "div = Mul(matmul, val_107)")]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "the scale of scores in the other layer",
        change: Change::Text(&[(
            "div_1 = Div(matmul_2, val_107)",
            "div_1 = Identity(matmul_2)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "rope",
        what: "no mask in one layer",
        change: Change::Text(&[("add_3 = Add(div, add)", "add_3 = Identity(div)")]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "a future key is seen",
        change: Change::Text(&[(
            "triu = Trilu <upper = 1>(full, val_8)",
            "two = Constant <value = int64 {2}>()\n  triu = Trilu <upper = 1>(full, two)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "a window",
        change: Change::Text(&[(
            "triu = Trilu <upper = 1>(full, val_8)",
            "back = Constant <value = int64 {-4}>()\n  later = Trilu <upper = 1>(full, val_8)\n  early = Trilu <upper = 0>(full, back)\n  triu = Add(later, early)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "padding is seen",
        change: Change::Text(&[(
            "add = Add(mul, triu)",
            "zeros = Sub(mul, mul)\n  add = Add(zeros, triu)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "tokens and padding exchanged",
        change: Change::Text(&[("sub = Sub(val_7, _to_copy)", "sub = Identity(_to_copy)")]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "later keys are seen",
        change: Change::Text(&[(
            "add = Add(mul, triu)",
            "zeros = Sub(triu, triu)\n  add = Add(mul, zeros)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "a mask that is not deep",
        change: Change::Values("val_35", |_| vec![-8.0]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "values rotated",
        change: Change::Text(&[(
            "matmul_1 = MatMul(softmax, permute_2)",
            "matmul_1 = MatMul(softmax, cat_1)",
        )]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "keys in the place of values",
        change: Change::Text(&[(
            "matmul_3 = MatMul(softmax_1, permute_5)",
            "matmul_3 = MatMul(softmax_1, permute_4)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "rope",
        what: "the softmax over queries",
        change: Change::Text(&[(
            "softmax = Softmax <axis = -1>(add_3)",
            "softmax = Softmax <axis = -2>(add_3)",
        )]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "scores that lose digits",
        change: Change::Text(&[(
            "softmax_1 = Softmax <axis = -1>(add_8)",
            "narrow = Cast <to = 10>(add_8)\n  wide = Cast <to = 1>(narrow)\n  softmax_1 = Softmax <axis = -1>(wide)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "rope",
        what: "cosines that lose digits",
        change: Change::Text(&[(
            "cos = Cos(mul_1)",
            "all = Cos(mul_1)\n  narrow = Cast <to = 10>(all)\n  cos = Cast <to = 1>(narrow)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "angles that lose digits",
        change: Change::Text(&[(
            "mul_1 = Mul(unsqueeze_2, \"enc.inv_freq\")",
            "all = Mul(unsqueeze_2, \"enc.inv_freq\")\n  narrow = Cast <to = 10>(all)\n  mul_1 = Cast <to = 1>(narrow)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "another encoding in the embeddings",
        change: Change::Text(&[(
            "embedding = Gather <axis = 0>(\"embed.weight\", input_ids)",
            "tokens = Gather <axis = 0>(\"embed.weight\", input_ids)\n  place = Cast <to = 1>(arange)\n  rows = Unsqueeze(place, val_50)\n  embedding = Add(tokens, rows)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "rope",
        what: "a bias before the second layer is missing",
        change: Change::Text(&[(
            "linear_4 = Add(val_123, \"blocks.0.up.bias\")",
            "linear_4 = Identity(val_123)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "rope",
        what: "the residual is dropped",
        change: Change::Text(&[(
            "add_4 = Add(embedding, linear_3)",
            "add_4 = Identity(linear_3)",
        )]),
        at: At::Second,
    },
    Fault {
        of: "rope",
        what: "queries from the weights of keys",
        change: Change::Text(&[(
            "linear = MatMul(layer_norm, val_44)",
            "linear = MatMul(layer_norm, val_45)",
        )]),
        at: At::First,
    },
    Fault {
        of: "rope",
        what: "one weight of the keys",
        change: Change::Values("val_129", |mut v| {
            v[3] += 1e-3;
            v
        }),
        at: At::Second,
    },
    Fault {
        of: "rope",
        what: "the weights of the logits",
        change: Change::Values("val_209", |mut v| {
            v[3] = -v[3];
            v
        }),
        at: At::Output("logits"),
    },
    Fault {
        of: "rope",
        what: "logits that lose digits",
        change: Change::Text(&[(
            "logits = MatMul(layer_norm_4, val_209)",
            "all = MatMul(layer_norm_4, val_209)\n  narrow = Cast <to = 10>(all)\n  logits = Cast <to = 1>(narrow)",
        )]),
        at: At::Output("logits"),
    },
    Fault {
        of: "to rope",
        what: "the sign of sines",
        change: Change::Values("posenc/signs_0", |v| v.iter().map(|s| -s).collect()),
        at: At::Both,
    },
    Fault {
        of: "to rope",
        what: "a frequency of one half of the features",
        change: Change::Values("posenc/inv_freq_0", |mut v| {
            v[5] = 0.2;
            v
        }),
        at: At::Both,
    },
    Fault {
        of: "to none",
        what: "queries of the other sign",
        change: Change::Text(&[(
            "matmul = MatMul(permute, \"posenc/transpose_0\")",
            "turned = Neg(permute)\n  matmul = MatMul(turned, \"posenc/transpose_0\")",
        )]),
        at: At::First,
    },
    Fault {
        of: "cached",
        what: "positions of the cache",
        change: Change::Text(&[(
            "\"/Cast_output_0\" = Cast <to = 7>(\"/Gather_output_0\")",
            "exact = Cast <to = 7>(\"/Gather_output_0\")\n  \"/Cast_output_0\" = Sub(exact, exact)",
        )]),
        at: At::Both,
    },
    Fault {
        of: "cached",
        what: "the order of outputs",
        change: Change::Text(&[(
            "\"present.0.key\", float[batch,3,total_sequence,8] \"present.0.value\"",
            "\"present.0.value\", float[batch,3,total_sequence,8] \"present.0.key\"",
        )]),
        at: At::Output("outputs"),
    },
];
