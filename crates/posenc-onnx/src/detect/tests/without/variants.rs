//! Further forms of attention, without position.

use super::*;

#[test]
fn a_learned_first_token() {
    without(1, |s| {
        let x = s.embedded();
        let first = expanded(s, &x, 1);
        let x = s.concat(&[&first, &x], 1);
        let x = s.attends(&x, &x);
        let zero = s.int(0);
        let y = s.gather(&x, &zero, 1);
        linear(s, &y, HIDDEN, 5)
    });
}

#[test]
fn a_decoder_with_earlier_keys() {
    without(1, |s| {
        let x = s.embedded();
        let [past_k, past_v] = ["key", "value"].map(|what| {
            let name = format!("past_key_values.0.{what}");
            s.input(&name, DType::F32, &["batch", "3", "past", "8"])
        });
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let (k, v) = (s.concat(&[&past_k, &k], 2), s.concat(&[&past_v, &v], 2));
        let scores = scores(s, &q, &k);
        let shape = s.op("Shape", &[&past_k]);
        let (zero, one, two) = (s.int(0), s.int(1), s.int(2));
        let past = s.gather(&shape, &two, 0);
        let shape = s.op("Shape", &["input_ids"]);
        let length = s.gather(&shape, &one, 0);
        let all = s.op("Add", &[&past, &length]);
        let columns = s.op("Range", &[&zero, &all, &one]);
        let rows = s.op("Range", &[&past, &all, &one]);
        let (rows, columns) = (s.unsqueeze(&rows, &[1]), s.unsqueeze(&columns, &[0]));
        let later = s.op("Greater", &[&columns, &rows]);
        let low = s.float(-1e9);
        let scores = s.op("Where", &[&later, &low, &scores]);
        let weights = softmax(s, &scores, -1);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        s.output(&k);
        s.output(&v);
        y
    });
}

#[test]
fn a_prefix_that_all_tokens_see() {
    without(1, |s| {
        let x = s.embedded();
        s.input("prefix", DType::I64, &["1"]);
        attending(s, &x, &x, |s, scores| {
            let at = s.range();
            let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
            let earlier = s.op("LessOrEqual", &[&columns, &rows]);
            let within = s.op("Less", &[&columns, "prefix"]);
            let seen = s.op("Or", &[&earlier, &within]);
            let low = s.float(-1e9);
            s.op("Where", &[&seen, &scores, &low])
        })
    });
}

#[test]
fn an_operator_for_all_heads() {
    without(1, |s| {
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| linear(s, &x, HIDDEN, HIDDEN));
        let heads = [("num_heads", A::Int(HEADS as i64))];
        let y = s.with("ms.MultiHeadAttention", &[&q, &k, &v], &heads);
        s.op("Add", &[&x, &y])
    });
}

#[test]
fn hidden_tokens() {
    without(1, |s| {
        let x = sequence(s);
        let x = linear(s, &x, 24, HIDDEN);
        let hidden = s.input("hidden", DType::Bool, &["batch", "sequence"]);
        let hidden = s.unsqueeze(&hidden, &[2]);
        let other = s.weights(&[HIDDEN]);
        let x = s.op("Where", &[&hidden, &other, &x]);
        s.attends(&x, &x)
    });
}

#[test]
fn a_bias_of_the_queries() {
    without(1, |s| {
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let bias = s.weights(&[HEADS, 1, SIZE]);
        let q = s.op("Add", &[&q, &bias]);
        let y = attend(s, &q, &k, &v);
        s.merged(&y)
    });
}

#[test]
fn convolutions_between_attention_and_layers() {
    without(2, |s| {
        let x = sequence(s);
        let mut x = linear(s, &x, 24, HIDDEN);
        for _ in 0..2 {
            x = forward(s, &x);
            x = s.attends(&x, &x);
            let y = normed(s, &x);
            let y = s.transpose(&y, &[0, 2, 1]);
            let y = convolved(s, &y, &[2 * HIDDEN, HIDDEN, 1], 1);
            let parts = split(s, &y, &[HIDDEN as i64; 2], 1);
            let gate = s.op("Sigmoid", &[&parts[1]]);
            let y = s.op("Mul", &[&parts[0], &gate]);
            let y = convolved(s, &y, &[HIDDEN, 1, 7], HIDDEN);
            let y = s.op("Relu", &[&y]);
            let y = convolved(s, &y, &[HIDDEN, HIDDEN, 1], 1);
            let y = s.transpose(&y, &[0, 2, 1]);
            x = s.op("Add", &[&x, &y]);
        }
        x
    });
}

/// Attention in a form that is not read, with a warning.
#[test]
fn mixed_heads() {
    warned("this MatMul mixes tokens", |s| {
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let scores = scores(s, &q, &k);
        let scores = convolved(s, &scores, &[HEADS, HEADS, 1, 1], 1);
        let weights = softmax(s, &scores, -1);
        let weights = convolved(s, &weights, &[HEADS, HEADS, 1, 1], 1);
        let y = s.op("MatMul", &[&weights, &v]);
        s.merged(&y)
    });
}

#[test]
fn alignment_both_ways() {
    without(2, |s| {
        let x = s.embedded();
        let ids = s.input("decoder_input_ids", DType::I64, &["batch", "target"]);
        let table = s.weights(&[30, HIDDEN]);
        let y = s.gather(&table, &ids, 0);
        let turned = s.transpose(&y, &[0, 2, 1]);
        let scores = s.op("MatMul", &[&x, &turned]);
        let weights = softmax(s, &scores, -1);
        let of_x = s.op("MatMul", &[&weights, &y]);
        let scores = s.transpose(&scores, &[0, 2, 1]);
        let weights = softmax(s, &scores, -1);
        let of_y = s.op("MatMul", &[&weights, &x]);
        let (a, b) = (
            reduced(s, "ReduceMax", &of_x, &[1]),
            reduced(s, "ReduceMax", &of_y, &[1]),
        );
        s.concat(&[&a, &b], 1)
    });
}

#[test]
fn points_whose_places_are_called_positions() {
    without(1, |s| {
        let x = s.input("positions", DType::F32, &["batch", "points", "3"]);
        let x = linear(s, &x, 3, HIDDEN);
        s.attends(&x, &x)
    });
}

#[test]
fn the_difference_of_two_softmaxes() {
    warned("Softmax of", |s| {
        let x = s.embedded();
        let v = s.headed(&x);
        let [a, b] = [0; 2].map(|_| {
            let (q, k) = (s.headed(&x), s.headed(&x));
            let scores = scores(s, &q, &k);
            softmax(s, &scores, -1)
        });
        let weights = s.op("Sub", &[&a, &b]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.merged(&y)
    });
}

#[test]
fn neighbors_that_attend() {
    without(1, |s| {
        let x = s.input("nodes", DType::F32, &["nodes", "24"]);
        let edges = s.input("adjacency", DType::Bool, &["nodes", "nodes"]);
        let [q, k, v] = [0; 3].map(|_| linear(s, &x, 24, 8));
        let k = s.transpose(&k, &[1, 0]);
        let scores = s.op("MatMul", &[&q, &k]);
        let low = s.float(-1e9);
        let scores = s.op("Where", &[&edges, &scores, &low]);
        let weights = softmax(s, &scores, -1);
        s.op("MatMul", &[&weights, &v])
    });
}

#[test]
fn a_table_under_an_operator_for_all_heads_is_found() {
    with_table(|s| {
        let x = s.embedded();
        let x = placed(s, &x);
        let [q, k, v] = [0; 3].map(|_| linear(s, &x, HIDDEN, HIDDEN));
        let heads = [("num_heads", A::Int(HEADS as i64))];
        let y = s.with("ms.MultiHeadAttention", &[&q, &k, &v], &heads);
        s.op("Add", &[&x, &y])
    });
}
