//! Operators that rotate and attend by themselves, and other ways to attend.

use super::*;

/// One operator that rotates.
pub(crate) fn native() -> Vec<Case> {
    vec![
        rotated(
            "the operator of com.microsoft on merged heads",
            |s, x, _| {
                let w = s.weights(&[HIDDEN, HIDDEN]);
                let q = s.op("MatMul", &[x, &w]);
                let at = s.range();
                let at = s.unsqueeze(&at, &[0]);
                let (cos, sin) = (table(s, 64, f64::cos), table(s, 64, f64::sin));
                let heads = [("num_heads", A::Int(HEADS as i64))];
                let q = s.with("ms.RotaryEmbedding", &[&q, &at, &cos, &sin], &heads);
                let q = s.reshape(&q, &[0, 0, HEADS as i64, SIZE as i64]);
                s.transpose(&q, &[0, 2, 1, 3])
            },
        ),
        rotated("the standard operator on merged heads", |s, x, _| {
            let w = s.weights(&[HIDDEN, HIDDEN]);
            let q = s.op("MatMul", &[x, &w]);
            let angles = angles(s);
            let angles = s.unsqueeze(&angles, &[0]);
            let (cos, sin) = (s.op("Cos", &[&angles]), s.op("Sin", &[&angles]));
            let heads = [("num_heads", A::Int(HEADS as i64))];
            let q = s.with("RotaryEmbedding", &[&q, &cos, &sin], &heads);
            let q = s.reshape(&q, &[0, 0, HEADS as i64, SIZE as i64]);
            s.transpose(&q, &[0, 2, 1, 3])
        }),
        interleaved("the standard operator on pairs, by rows", |s, x, _| {
            let q = s.headed(x);
            let at = s.range();
            let at = s.unsqueeze(&at, &[0]);
            let (cos, sin) = (table(s, 64, f64::cos), table(s, 64, f64::sin));
            let how = [("interleaved", A::Int(1))];
            s.with("RotaryEmbedding", &[&q, &cos, &sin, &at], &how)
        }),
    ]
}

/// How queries and keys meet.
pub(crate) fn attentions() -> Vec<Case> {
    vec![
        attended("scores by Einsum", |s, q, k, v| {
            let equation = [("equation", A::Text("bhqd,bhkd->bhqk"))];
            let scores = s.with("Einsum", &[q, k], &equation);
            let scores = causal(s, &scores);
            let weights = s.op("Softmax", &[&scores]);
            s.op("MatMul", &[&weights, v])
        }),
        attended("scores with keys first", |s, q, k, v| {
            let q = s.transpose(q, &[0, 1, 3, 2]);
            let scores = s.op("MatMul", &[k, &q]);
            let at = s.range();
            let (queries, keys) = (s.unsqueeze(&at, &[0]), s.unsqueeze(&at, &[1]));
            let later = s.op("Greater", &[&keys, &queries]);
            let low = s.float(-1e9);
            let scores = s.op("Where", &[&later, &low, &scores]);
            let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-2))]);
            let weights = s.transpose(&weights, &[0, 1, 3, 2]);
            s.op("MatMul", &[&weights, v])
        }),
        attended("a softmax in parts", |s, q, k, v| {
            let scores = scores(s, q, k);
            let scores = causal(s, &scores);
            let last = s.ints(&[-1]);
            let most = s.op("ReduceMax", &[&scores, &last]);
            let scores = s.op("Sub", &[&scores, &most]);
            let above = s.op("Exp", &[&scores]);
            let below = s.op("ReduceSum", &[&above, &last]);
            let weights = s.op("Div", &[&above, &below]);
            s.op("MatMul", &[&weights, v])
        }),
        attended("scores under a soft cap", |s, q, k, v| {
            let scores = scores(s, q, k);
            let cap = s.float(30.0);
            let scores = s.op("Div", &[&scores, &cap]);
            let scores = s.op("Tanh", &[&scores]);
            let scores = s.op("Mul", &[&scores, &cap]);
            let scores = causal(s, &scores);
            let weights = s.op("Softmax", &[&scores]);
            s.op("MatMul", &[&weights, v])
        }),
        attended("a sink next to the keys", |s, q, k, v| {
            let scores = scores(s, q, k);
            let scores = causal(s, &scores);
            let first = s.slice(&scores, -1, [0, 1, 1]);
            let zero = s.float(0.0);
            let sink = s.op("Mul", &[&first, &zero]);
            let scores = s.concat(&[&scores, &sink], -1);
            let weights = s.op("Softmax", &[&scores]);
            let weights = s.slice(&weights, -1, [0, -1, 1]);
            s.op("MatMul", &[&weights, v])
        }),
        attended("heads folded into the batch", |s, q, k, v| {
            let (q, k, v) = (fold(s, q), fold(s, k), fold(s, v));
            let k = s.transpose(&k, &[0, 2, 1]);
            let scores = s.op("MatMul", &[&q, &k]);
            let scores = causal(s, &scores);
            let weights = s.op("Softmax", &[&scores]);
            let y = s.op("MatMul", &[&weights, &v]);
            unfold(s, &y)
        }),
        attended("the standard operator", |s, q, k, v| {
            let causal = [("is_causal", A::Int(1))];
            s.with("Attention", &[q, k, v], &causal)
        }),
        attended("the operator of com.microsoft", |s, q, k, v| {
            let mut merge = |x: &str| {
                let x = s.transpose(x, &[0, 2, 1, 3]);
                s.reshape(&x, &[0, 0, HIDDEN as i64])
            };
            let (q, k, v) = (merge(q), merge(k), merge(v));
            let how = [
                ("num_heads", A::Int(HEADS as i64)),
                ("unidirectional", A::Int(1)),
            ];
            let y = s.with("ms.MultiHeadAttention", &[&q, &k, &v], &how);
            let y = s.reshape(&y, &[0, 0, HEADS as i64, SIZE as i64]);
            s.transpose(&y, &[0, 2, 1, 3])
        }),
    ]
}

/// `[batch, heads, sequence, size]` as `[batch · heads, sequence, size]`.
fn fold(s: &mut Sketch, x: &str) -> String {
    let shape = s.op("Shape", &[x]);
    let tail = s.slice(&shape, 0, [2, 4, 1]);
    let all = s.ints(&[-1]);
    let shape = s.concat(&[&all, &tail], 0);
    s.op("Reshape", &[x, &shape])
}

fn unfold(s: &mut Sketch, x: &str) -> String {
    let shape = s.op("Shape", &[x]);
    let tail = s.slice(&shape, 0, [1, 3, 1]);
    let head = s.ints(&[-1, HEADS as i64]);
    let shape = s.concat(&[&head, &tail], 0);
    s.op("Reshape", &[x, &shape])
}

#[test]
fn heads_that_share_keys_may_have_an_axis_of_their_own() {
    // Queries before, between and behind the axes of heads.
    for (order, equation) in [
        ([0, 2, 3, 1, 4], "bgrqd,bgkd->bgrqk"),
        ([0, 2, 1, 3, 4], "bgqrd,bgkd->bgqrk"),
        ([0, 1, 2, 3, 4], "bqgrd,bgkd->bqgrk"),
    ] {
        let mut s = Sketch::default();
        let x = s.embedded();
        let w = s.weights(&[HIDDEN, 2 * HIDDEN]);
        let q = s.op("MatMul", &[&x, &w]);
        let q = s.reshape(&q, &[0, 0, HEADS as i64, 2, SIZE as i64]);
        let q = s.transpose(&q, &order);
        let (k, v) = (s.headed(&x), s.headed(&x));
        let scores = s.with("Einsum", &[&q, &k], &[("equation", A::Text(equation))]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let back = equation.split("->").nth(1).unwrap();
        let back = format!("{back},bgkd->bqgrd");
        let y = s.with("Einsum", &[&weights, &v], &[("equation", A::Text(&back))]);
        let found = found(&s.model(17, &[&y]));
        let heads = found
            .attention
            .iter()
            .map(|site| (site.heads, site.kv_heads));
        let heads: Vec<_> = heads.collect();
        assert_eq!(heads, [(Some(2 * HEADS), Some(HEADS))], "{equation}");
    }
}
