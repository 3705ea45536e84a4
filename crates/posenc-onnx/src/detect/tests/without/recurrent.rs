//! Recurrences, whether an operator, a scan or plain operators compute them.

use super::*;

/// The outputs of a recurrent operator for tokens `[batch, sequence, HIDDEN]`, which keep that shape.
fn recurred(s: &mut Sketch, op: &str, x: &str) -> String {
    let gates = if op == "LSTM" { 4 } else { 3 };
    let x = s.transpose(x, &[1, 0, 2]);
    let [w, r] = [0; 2].map(|_| s.weights(&[1, gates * HIDDEN, HIDDEN]));
    let all = s.many(
        op,
        &[&x, &w, &r],
        &[("hidden_size", A::Int(HIDDEN as i64))],
        2,
    );
    let axes = s.ints(&[1]);
    let y = s.op("Squeeze", &[&all[0], &axes]);
    s.transpose(&y, &[1, 0, 2])
}

#[test]
fn a_tagger_that_reads_both_ways() {
    without(0, |s| {
        let x = s.embedded();
        let x = s.transpose(&x, &[1, 0, 2]);
        let (w, r) = (s.weights(&[2, 64, HIDDEN]), s.weights(&[2, 64, 16]));
        let attrs = [
            ("hidden_size", A::Int(16)),
            ("direction", A::Text("bidirectional")),
        ];
        let all = s.many("LSTM", &[&x, &w, &r], &attrs, 3);
        let y = s.transpose(&all[0], &[2, 0, 1, 3]);
        let y = s.reshape(&y, &[0, 0, 32]);
        let y = linear(s, &y, 32, 5);
        softmax(s, &y, -1)
    });
}

#[test]
fn a_language_model_whose_outputs_share_the_embeddings() {
    without(0, |s| {
        let ids = s.input("input_ids", DType::I64, &["batch", "sequence"]);
        let table = s.weights(&[30, HIDDEN]);
        let x = s.gather(&table, &ids, 0);
        let y = recurred(s, "GRU", &x);
        let turned = s.transpose(&table, &[1, 0]);
        s.op("MatMul", &[&y, &turned])
    });
}

#[test]
fn hours_and_days_that_are_fed() {
    without(0, |s| {
        let x = sequence(s);
        let mut x = linear(s, &x, 24, HIDDEN);
        for (name, rows) in [("hour", 24), ("weekday", 7)] {
            let at = s.input(name, DType::I64, &["batch", "sequence"]);
            let table = s.weights(&[rows, HIDDEN]);
            let rows = s.gather(&table, &at, 0);
            x = s.op("Add", &[&x, &rows]);
        }
        recurred(s, "GRU", &x)
    });
}

#[test]
fn tokens_mixed_with_the_one_before() {
    without(0, |s| {
        let x = s.embedded();
        let y = normed(s, &x);
        let pads = s.ints(&[0, 1, 0, 0, -1, 0]);
        let before = s.op("Pad", &[&y, &pads]);
        let mixed = |s: &mut Sketch| {
            let (share, one) = (s.weights(&[HIDDEN]), s.float(1.0));
            let rest = s.op("Sub", &[&one, &share]);
            let (own, other) = (s.op("Mul", &[&y, &share]), s.op("Mul", &[&before, &rest]));
            let y = s.op("Add", &[&own, &other]);
            linear(s, &y, HIDDEN, HIDDEN)
        };
        let (gate, y) = (mixed(s), mixed(s));
        let gate = s.op("Sigmoid", &[&gate]);
        let y = s.op("Relu", &[&y]);
        let y = s.op("Mul", &[&gate, &y]);
        s.op("Add", &[&x, &y])
    });
}

#[test]
fn a_selective_scan_by_sums_and_exponentials() {
    without(0, |s| {
        let x = s.embedded();
        let steps = linear(s, &x, HIDDEN, HIDDEN);
        let steps = s.op("Softplus", &[&steps]);
        let axis = s.int(1);
        // What is left of each token when the last one is read.
        let decay = s.op("CumSum", &[&steps, &axis]);
        let grown = s.op("Exp", &[&decay]);
        let y = linear(s, &x, HIDDEN, HIDDEN);
        let y = s.op("Mul", &[&y, &steps]);
        let y = s.op("Mul", &[&y, &grown]);
        let y = s.op("CumSum", &[&y, &axis]);
        let y = s.op("Div", &[&y, &grown]);
        let gate = linear(s, &x, HIDDEN, HIDDEN);
        let gate = s.op("Sigmoid", &[&gate]);
        let y = s.op("Mul", &[&y, &gate]);
        s.op("Add", &[&x, &y])
    });
}

/// A model of float tokens `x`, `[sequence, 8]`, in text.
fn scanned(body: &str) -> Model {
    let text = format!(
        "<ir_version: 9, opset_import: [\"\" : 18]>\n\
         test (float[sequence,8] x, float[other,8] memory) => (float[] y) {{\n\
         axes = Constant<value_ints = [0]>()\n last = Constant<value_ints = [-1]>()\n\
         start = ReduceMax<keepdims: int = 0>(x, axes)\n{body}\n}}\n"
    );
    Model::parse(&text).unwrap()
}

#[test]
fn a_scan_of_the_best_paths() {
    let model = scanned(
        "last_sum, y = Scan <num_scan_inputs: int = 1, body: graph = step \
         (float[8] sum, float[8] row) => (float[8] next, float[8] out) {\n\
         column = Unsqueeze(sum, last)\n both = Add(column, row)\n\
         next = ReduceLogSumExp<keepdims: int = 0>(both, axes)\n out = Identity(next) }> (start, x)",
    );
    assert_eq!(faults(&model, 0, &[]), [""; 0]);
}

#[test]
fn additive_scores_in_a_scan() {
    let model = scanned(
        "w = Constant<value_floats = [0.3, 0.1, 0.2, 0.5, 0.4, 0.7, 0.6, 0.9]>()\n\
         v = Unsqueeze(w, last)\n\
         last_state, y = Scan <num_scan_inputs: int = 1, body: graph = step \
         (float[8] state, float[8] row) => (float[8] next, float[8] out) {\n\
         q = Add(state, row)\n met = Add(memory, q)\n bent = Tanh(met)\n\
         scores = MatMul(bent, v)\n weights = Softmax<axis: int = 0>(scores)\n\
         turned = Transpose<perm: ints = [1, 0]>(weights)\n read = MatMul(turned, memory)\n\
         flat = Squeeze(read, axes)\n sum = Add(flat, row)\n next = Tanh(sum)\n\
         out = Identity(next) }> (start, x)",
    );
    assert_eq!(faults(&model, 0, &[]), [""; 0]);
}

#[test]
fn a_recurrent_decoder_that_attends_to_its_source() {
    without(1, |s| {
        let x = s.embedded();
        let x = recurred(s, "LSTM", &x);
        let ids = s.input("decoder_input_ids", DType::I64, &["batch", "target"]);
        let table = s.weights(&[30, HIDDEN]);
        let y = s.gather(&table, &ids, 0);
        let y = recurred(s, "LSTM", &y);
        let q = linear(s, &y, HIDDEN, HIDDEN);
        let k = s.transpose(&x, &[0, 2, 1]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = softmax(s, &scores, -1);
        let read = s.op("MatMul", &[&weights, &x]);
        let y = s.concat(&[&read, &y], 2);
        linear(s, &y, 2 * HIDDEN, 30)
    });
}

#[test]
fn recurrence_before_attention() {
    without(1, |s| {
        let x = s.embedded();
        let x = recurred(s, "GRU", &x);
        s.attends(&x, &x)
    });
}

#[test]
fn a_table_after_a_recurrence_is_found() {
    with_table(|s| {
        let x = s.embedded();
        let x = recurred(s, "GRU", &x);
        let x = placed(s, &x);
        s.attends(&x, &x)
    });
}
