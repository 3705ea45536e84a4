//! The bias of T5 as one operator.

use super::*;
use crate::spelling::with_plain_buckets;

/// Buckets of the table.
const ROWS: usize = 8;

/// A model that gives the bias of all pairs of its tokens: `[1, heads, sequence, sequence]`.
fn biased(op: &str, maximum: i64, both: i64) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let table = s.floats(&[ROWS, HEADS], (0..ROWS * HEADS).map(|n| n as f64));
    let shape = s.op("Shape", &[&x]);
    let length = s.slice(&shape, 0, [1, 2, 1]);
    let attributes = [
        ("max_distance", A::Int(maximum)),
        ("is_bidirectional", A::Int(both)),
    ];
    let y = s.with(op, &[&table, &length, &length], &attributes);
    s.model(17, &[&y, &x])
}

#[test]
fn buckets_are_the_rows_of_a_table() {
    for (maximum, both) in [(20, 1), (20, 0), (9, 1), (12, 0)] {
        let model = biased("ms.RelativePositionBias", maximum, both);
        let made = with_plain_buckets(&model, &BTreeMap::new(), false).expect("it is replaced");
        assert!(!operators(&made).contains(&"RelativePositionBias".to_owned()));
        // The evaluator knows the operator by a formula of its own.
        assert_eq!(difference(&model, &made), 0.0, "{maximum} {both}");
        let another = biased("ms.RelativePositionBias", maximum + 60, both);
        assert!(difference(&another, &made) > 0.5, "control");
    }
}

#[test]
fn the_numbers_of_a_head_follow_each_other() {
    let model = biased("ms.RelativePositionBias", 20, 1);
    let made = with_plain_buckets(&model, &BTreeMap::new(), false).unwrap();
    let bias = output(&made, [1, 2]);
    for head in 0..HEADS {
        let own = [(0, 0, 0), (0, 1, 5), (1, 0, 1), (1, 1, 0)];
        for (query, key, bucket) in own {
            let want = (head * ROWS + bucket) as f64;
            assert_eq!(bias[[0, head, query, key]], want, "{head} {query} {key}");
        }
    }
}

#[test]
fn other_operators_stay() {
    for op in ["RelativePositionBias", "ms.RelativePositionBiases"] {
        let model = biased(op, 20, 1);
        assert!(with_plain_buckets(&model, &BTreeMap::new(), false).is_none());
    }
    // A table of no known size.
    let mut s = Sketch::default();
    let x = s.embedded();
    let table = s.input("table", DType::F32, &["rows", "heads"]);
    let shape = s.op("Shape", &[&x]);
    let length = s.slice(&shape, 0, [1, 2, 1]);
    let y = s.op("ms.RelativePositionBias", &[&table, &length, &length]);
    let model = s.model(17, &[&y, &x]);
    assert!(with_plain_buckets(&model, &BTreeMap::new(), false).is_none());
    // The usual spelling keeps the operator.
    let model = biased("ms.RelativePositionBias", 20, 1);
    assert!(plain(&model, &BTreeMap::new()).is_none());
}

#[test]
fn attention_beside_them_gets_zeros_for_a_processor() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let table = s.weights(&[ROWS, HEADS]);
    let shape = s.op("Shape", &[&x]);
    let length = s.slice(&shape, 0, [1, 2, 1]);
    let bias = s.op("ms.RelativePositionBias", &[&table, &length, &length]);
    let weights = s.weights(&[HIDDEN, 3 * HIDDEN]);
    let heads = [("num_heads", A::Int(HEADS as i64))];
    let y = s.with("ms.Attention", &[&x, &weights, "", "", "", &bias], &heads);
    let model = s.model(17, &[&y]);
    for for_processor in [false, true] {
        let made = with_plain_buckets(&model, &BTreeMap::new(), for_processor).unwrap();
        let (_, node) = made
            .graph()
            .nodes()
            .find(|(_, n)| n.op() == "Attention")
            .unwrap();
        assert_eq!(node.input(2).is_some(), for_processor);
        assert!(node.input(5).is_some());
    }
}
