//! Attention whose tokens have no position, but for what a mask lets through.

use super::*;

#[test]
fn an_encoder() {
    without(2, |s| {
        let mut x = s.embedded();
        for _ in 0..2 {
            x = s.attends(&x, &x);
            x = forward(s, &x);
        }
        x
    });
}

#[test]
fn a_causal_decoder() {
    without(2, |s| {
        let mut x = s.embedded();
        for _ in 0..2 {
            x = attending(s, &x, &x, |s, scores| causal(s, &scores));
            x = forward(s, &x);
        }
        x
    });
}

#[test]
fn a_window_of_neighbors() {
    without(1, |s| {
        let x = s.embedded();
        attending(s, &x, &x, |s, scores| {
            let at = s.range();
            let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
            let far = s.op("Sub", &[&rows, &columns]);
            let far = s.op("Abs", &[&far]);
            let most = s.int(4);
            let far = s.op("Greater", &[&far, &most]);
            let low = s.float(-1e9);
            s.op("Where", &[&far, &low, &scores])
        })
    });
}

#[test]
fn a_mask_of_padding() {
    without(1, |s| {
        let x = s.embedded();
        s.input("attention_mask", DType::I64, &["batch", "sequence"]);
        attending(s, &x, &x, |s, scores| {
            let mask = s.unsqueeze("attention_mask", &[1, 2]);
            let mask = s.cast(&mask, DType::F32);
            let (one, low) = (s.float(1.0), s.float(-1e4));
            let mask = s.op("Sub", &[&one, &mask]);
            let mask = s.op("Mul", &[&mask, &low]);
            s.op("Add", &[&scores, &mask])
        })
    });
}

#[test]
fn an_encoder_and_a_decoder() {
    without(3, |s| {
        let source = s.embedded();
        let source = s.attends(&source, &source);
        let ids = s.input("decoder_input_ids", DType::I64, &["batch", "target"]);
        let table = s.weights(&[30, HIDDEN]);
        let x = s.gather(&table, &ids, 0);
        let x = s.attends(&x, &x);
        s.attends(&x, &source)
    });
}

#[test]
fn fused_attention() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| linear(&mut s, &x, HIDDEN, HIDDEN));
    let heads = HEADS as i64;
    let attrs = [
        ("q_num_heads", A::Int(heads)),
        ("kv_num_heads", A::Int(heads)),
        ("is_causal", A::Int(1)),
    ];
    let y = s.with("Attention", &[&q, &k, &v], &attrs);
    let y = linear(&mut s, &y, HIDDEN, HIDDEN);
    let y = s.op("Add", &[&x, &y]);
    assert_eq!(faults(&s.model(23, &[&y]), 1, &[]), [""; 0]);
}

/// A query that is a weight is none of a token.
#[test]
fn pooling_by_one_learned_query() {
    without(0, |s| {
        let x = sequence(s);
        let query = expanded(s, &x, 1);
        attending(s, &query, &x, |_, scores| scores)
    });
}

/// The points read the tokens, and the tokens read the points.
#[test]
fn inducing_points() {
    without(2, |s| {
        let x = sequence(s);
        let points = expanded(s, &x, 4);
        let points = attending(s, &points, &x, |_, scores| scores);
        let points = forward(s, &points);
        attending(s, &x, &points, |_, scores| scores)
    });
}

#[test]
fn vectors_in_front_of_the_tokens() {
    without(1, |s| {
        let x = s.embedded();
        let prompt = expanded(s, &x, 5);
        let x = s.concat(&[&prompt, &x], 1);
        s.attends(&x, &x)
    });
}

/// Features attend to features over all tokens.
fn of_channels(s: &mut Sketch, x: &str) -> String {
    let [q, k, v] = [0; 3].map(|_| {
        let q = s.projected(x);
        s.transpose(&q, &[0, 2, 3, 1])
    });
    let unit = |s: &mut Sketch, q: &str| {
        let length = kept(s, "ReduceL2", q, &[-1]);
        s.op("Div", &[q, &length])
    };
    let (q, k) = (unit(s, &q), unit(s, &k));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let scale = s.weights(&[HEADS, 1, 1]);
    let scores = s.op("Mul", &[&scores, &scale]);
    let weights = softmax(s, &scores, -1);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.transpose(&y, &[0, 3, 1, 2]);
    let y = s.reshape(&y, &[0, 0, HIDDEN as i64]);
    let y = linear(s, &y, HIDDEN, HIDDEN);
    s.op("Add", &[x, &y])
}

#[test]
fn attention_of_channels() {
    warned("Softmax", |s| {
        let x = sequence(s);
        of_channels(s, &x)
    });
}

#[test]
fn attention_of_channels_of_a_fixed_number_of_tokens() {
    warned("Softmax", |s| {
        let x = s.input("x", DType::F32, &["batch", "64", "24"]);
        of_channels(s, &x)
    });
}

#[test]
fn queries_and_keys_of_unit_length_with_a_temperature_of_each_head() {
    without(1, |s| {
        let x = s.embedded();
        let [q, k] = [0; 2].map(|_| {
            let q = s.headed(&x);
            let length = kept(s, "ReduceL2", &q, &[-1]);
            s.op("Div", &[&q, &length])
        });
        let v = s.headed(&x);
        let scores = scores(s, &q, &k);
        let scale = s.weights(&[HEADS, 1, 1]);
        let scores = s.op("Mul", &[&scores, &scale]);
        let weights = softmax(s, &scores, -1);
        let y = s.op("MatMul", &[&weights, &v]);
        s.merged(&y)
    });
}

#[test]
fn a_bias_of_each_head() {
    without(1, |s| {
        let x = s.embedded();
        attending(s, &x, &x, |s, scores| {
            let bias = s.weights(&[HEADS, 1, 1]);
            s.op("Add", &[&scores, &bias])
        })
    });
}

/// A score of no token, whose weight is left out.
#[test]
fn a_sink_next_to_the_scores() {
    without(1, |s| {
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let scores = scores(s, &q, &k);
        let sink = s.weights(&[1, HEADS, 1, 1]);
        let shape = s.op("Shape", &[&scores]);
        let rows = s.slice(&shape, 0, [0, 3, 1]);
        let one = s.ints(&[1]);
        let shape = s.concat(&[&rows, &one], 0);
        let sink = s.op("Expand", &[&sink, &shape]);
        let scores = s.concat(&[&scores, &sink], 3);
        let weights = softmax(s, &scores, -1);
        let weights = s.slice(&weights, 3, [0, -1, 1]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.merged(&y)
    });
}

#[test]
fn learned_keys_next_to_those_of_tokens() {
    without(1, |s| {
        let x = s.embedded();
        let stored = expanded(s, &x, 1);
        let keys = s.concat(&[&x, &stored], 1);
        attending(s, &x, &keys, |_, scores| scores)
    });
}

#[test]
fn scores_with_a_soft_limit() {
    without(1, |s| {
        let x = s.embedded();
        attending(s, &x, &x, |s, scores| {
            let most = s.float(50.0);
            let scores = s.op("Div", &[&scores, &most]);
            let scores = s.op("Tanh", &[&scores]);
            let scores = s.op("Mul", &[&scores, &most]);
            causal(s, &scores)
        })
    });
}

#[test]
fn tables_of_an_encoder_and_of_a_decoder_are_found() {
    with_table(|s| {
        let x = s.embedded();
        let x = placed(s, &x);
        s.attends(&x, &x)
    });
    with_table(|s| {
        let x = s.embedded();
        let x = placed(s, &x);
        attending(s, &x, &x, |s, scores| causal(s, &scores))
    });
}
