//! Experts, messages along edges and products that are no attention.

use super::*;

#[test]
fn rounds_of_routing() {
    without(0, |s| {
        let x = s.input("x", DType::F32, &["batch", "36", "8"]);
        let w = s.weights(&[1, 10, 36, 6, 8]);
        let x = s.unsqueeze(&x, &[1, 4]);
        let x = s.op("MatMul", &[&w, &x]);
        let axes = s.ints(&[4]);
        let votes = s.op("Squeeze", &[&x, &axes]);
        let zero = s.float(0.0);
        let mut logits = kept(s, "ReduceSum", &votes, &[-1]);
        logits = s.op("Mul", &[&logits, &zero]);
        let mut y = String::new();
        for _ in 0..3 {
            let shares = softmax(s, &logits, 1);
            let all = s.op("Mul", &[&shares, &votes]);
            y = kept(s, "ReduceSum", &all, &[2]);
            y = s.op("Tanh", &[&y]);
            let agree = s.op("Mul", &[&votes, &y]);
            let agree = kept(s, "ReduceSum", &agree, &[-1]);
            logits = s.op("Add", &[&logits, &agree]);
        }
        y
    });
}

/// The weights of the two best of 8 experts for each token, added to the residual stream.
fn experts(s: &mut Sketch, x: &str) -> String {
    let logits = linear(s, x, HIDDEN, 8);
    let shares = softmax(s, &logits, -1);
    let two = s.ints(&[2]);
    let best = s.many("TopK", &[&shares, &two], &[], 2);
    let experts = s.weights(&[8, HIDDEN, HIDDEN]);
    let experts = s.gather(&experts, &best[1], 0);
    let y = s.unsqueeze(x, &[2, 3]);
    let y = s.op("MatMul", &[&y, &experts]);
    let axes = s.ints(&[3]);
    let y = s.op("Squeeze", &[&y, &axes]);
    let shares = s.unsqueeze(&best[0], &[3]);
    let y = s.op("Mul", &[&y, &shares]);
    let y = reduced(s, "ReduceSum", &y, &[2]);
    s.op("Add", &[x, &y])
}

#[test]
fn experts_of_tokens() {
    without(0, |s| {
        let x = s.embedded();
        experts(s, &x)
    });
}

#[test]
fn nodes_with_places() {
    without(0, |s| {
        let x = s.input("x", DType::F32, &["nodes", "24"]);
        let at = s.input("pos", DType::F32, &["nodes", "3"]);
        let edges = s.input("edges", DType::I64, &["2", "edges"]);
        let (first, second) = (s.int(0), s.int(1));
        let (from, to) = (s.gather(&edges, &first, 0), s.gather(&edges, &second, 0));
        let (a, b) = (s.gather(&at, &from, 0), s.gather(&at, &to, 0));
        let apart = s.op("Sub", &[&a, &b]);
        let sent = s.gather(&x, &from, 0);
        let sent = s.concat(&[&sent, &apart], 1);
        let sent = linear(s, &sent, 27, 24);
        let to = s.unsqueeze(&to, &[1]);
        let zero = s.float(0.0);
        let empty = s.op("Mul", &[&x, &zero]);
        s.with(
            "ScatterND",
            &[&empty, &to, &sent],
            &[("reduction", A::Text("add"))],
        )
    });
}

#[test]
fn neighbors_weighed_by_scattered_sums() {
    without(0, |s| {
        let x = s.input("nodes", DType::F32, &["nodes", "24"]);
        let edges = s.input("edges", DType::I64, &["2", "edges"]);
        let (first, second) = (s.int(0), s.int(1));
        let (from, to) = (s.gather(&edges, &first, 0), s.gather(&edges, &second, 0));
        let h = linear(s, &x, 24, 8);
        let (a, b) = (linear(s, &h, 8, 1), linear(s, &h, 8, 1));
        let (a, b) = (s.gather(&a, &from, 0), s.gather(&b, &to, 0));
        let scores = s.op("Add", &[&a, &b]);
        let scores = s.op("LeakyRelu", &[&scores]);
        let e = s.op("Exp", &[&scores]);
        let to = s.unsqueeze(&to, &[1]);
        let zero = s.float(0.0);
        let empty = s.op("Mul", &[&h, &zero]);
        let add = || [("reduction", A::Text("add"))];
        let sum = s.with("ScatterND", &[&empty, &to, &e], &add());
        let sent = s.gather(&h, &from, 0);
        let sent = s.op("Mul", &[&sent, &e]);
        let y = s.with("ScatterND", &[&empty, &to, &sent], &add());
        s.op("Div", &[&y, &sum])
    });
}

/// Decays between tokens by what they say, and no softmax.
#[test]
fn products_that_decay_by_content() {
    warned("this MatMul mixes tokens", |s| {
        let x = s.embedded();
        let [b, c] = [0; 2].map(|_| linear(s, &x, HIDDEN, SIZE));
        let step = linear(s, &x, HIDDEN, 1);
        let step = s.op("Softplus", &[&step]);
        let axis = s.int(1);
        let sum = s.op("CumSum", &[&step, &axis]);
        let turned = s.transpose(&sum, &[0, 2, 1]);
        let decay = s.op("Sub", &[&turned, &sum]);
        let decay = causal(s, &decay);
        let decay = s.op("Exp", &[&decay]);
        let b = s.transpose(&b, &[0, 2, 1]);
        let scores = s.op("MatMul", &[&c, &b]);
        let scores = s.op("Mul", &[&scores, &decay]);
        let y = s.op("MatMul", &[&scores, &x]);
        s.op("Add", &[&x, &y])
    });
}

#[test]
fn scores_without_a_softmax() {
    warned("this MatMul mixes tokens", |s| {
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let scores = scores(s, &q, &k);
        let weights = s.op("Relu", &[&scores]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.merged(&y)
    });
}

#[test]
fn a_table_before_experts_and_attention_is_found() {
    with_table(|s| {
        let x = s.embedded();
        let x = placed(s, &x);
        let x = experts(s, &x);
        s.attends(&x, &x)
    });
}
