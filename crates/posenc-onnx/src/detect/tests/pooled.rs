//! Inputs of lengths that also pool, hide features, or count the tokens of another stack.

use super::*;
use crate::graph::ports::Role;

/// What is made of the result of a layer, places and lengths.
type Pool = fn(&mut Sketch, [&str; 3]) -> String;

/// A layer whose keys lengths hide, and what is made of its result.
fn pooled(pool: Pool) -> Found {
    let mut s = Sketch::default();
    let x = s.embedded();
    let n = s.input("n", DType::I64, &["batch"]);
    let (at, column) = (s.range(), s.unsqueeze(&n, &[1]));
    let seen = s.op("Less", &[&at, &column]);
    let seen = s.unsqueeze(&seen, &[1, 2]);
    let [scores, v] = s.scored(&x, &x);
    let hidden = s.float(-1e9);
    let scores = s.op("Where", &[&seen, &scores, &hidden]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    let y = pool(&mut s, [&y, &at, &n]);
    found(&s.model(17, &[&y]))
}

/// The sum along an axis.
fn summed(s: &mut Sketch, x: &str, axis: i64) -> String {
    let axis = s.int(axis);
    s.with("ReduceSum", &[x, &axis], &[("keepdims", A::Int(0))])
}

/// 0, 1, … for the sequences of a batch, of which there is a number each.
fn sequences(s: &mut Sketch, n: &str) -> String {
    let (count, zero, one) = (s.op("Size", &[n]), s.int(0), s.int(1));
    s.op("Range", &[&zero, &count, &one])
}

#[test]
fn lengths_may_pool_what_attention_has_made() {
    let mean: Pool = |s, [y, _, n]| {
        let n = s.cast(n, DType::F32);
        let (n, sum) = (s.unsqueeze(&n, &[1]), summed(s, y, 1));
        s.op("Div", &[&sum, &n])
    };
    let last: Pool = |s, [y, _, n]| {
        let one = s.int(1);
        let at = s.op("Sub", &[n, &one]);
        s.gather(y, &at, 1)
    };
    // Rows of all sequences are counted on.
    let last_of_all: Pool = |s, [y, _, n]| {
        let (flat, width) = (s.reshape(y, &[-1, HIDDEN as i64]), s.int(14));
        let sequences = sequences(s, n);
        let first = s.op("Mul", &[&sequences, &width]);
        let row = s.op("Add", &[&first, n]);
        s.gather(&flat, &row, 0)
    };
    let pairs: Pool = |s, [y, _, n]| {
        let sequences = sequences(s, n);
        let [of, at] = [&sequences, n].map(|v| s.unsqueeze(v, &[1]));
        let index = s.concat(&[&of, &at], 1);
        s.with("GatherND", &[y, &index], &[])
    };
    for pool in [mean, last, last_of_all, pairs] {
        let found = pooled(pool);
        assert!(found.ports.first(Role::Counts).is_some());
        assert!(found.attention[0].mask.padding);
        assert!(found.not_evaluated.is_empty());
    }
    // Rows of a table, and numbers of no tokens.
    let row: Pool = |s, [y, _, n]| {
        let table = s.weights(&[64, HIDDEN]);
        let row = s.gather(&table, n, 0);
        let row = s.unsqueeze(&row, &[1]);
        s.op("Add", &[y, &row])
    };
    let both: Pool = |s, [y, at, n]| {
        let sum = s.op("Add", &[at, n]);
        let sum = s.cast(&sum, DType::F32);
        let sum = s.unsqueeze(&sum, &[0, 2]);
        let scaled = s.op("Mul", &[y, &sum]);
        s.output(&scaled);
        summed(s, &sum, 0)
    };
    // What no attention has made, and sums.
    let features: Pool = |s, [y, _, n]| {
        let other = s.input("features", DType::F32, &["batch", "4"]);
        let n = s.cast(n, DType::F32);
        let n = s.unsqueeze(&n, &[1]);
        let divided = s.op("Div", &[&other, &n]);
        s.output(&divided);
        s.op("Identity", &[y])
    };
    let added: Pool = |s, [y, _, n]| {
        let n = s.cast(n, DType::F32);
        let n = s.unsqueeze(&n, &[1, 2]);
        s.op("Add", &[y, &n])
    };
    let waves: Pool = |s, [y, _, n]| {
        let n = s.cast(n, DType::F32);
        let n = s.unsqueeze(&n, &[1, 2]);
        let wave = s.op("Sin", &[&n]);
        s.op("Mul", &[y, &wave])
    };
    for pool in [row, both, features, added, waves] {
        assert!(pooled(pool).ports.first(Role::Counts).is_none());
    }
}

#[test]
fn features_that_lengths_hide_follow_no_positions() {
    /// Where features of tokens at these places are zero, of an input.
    type KeptOf = fn(&mut Sketch, [&str; 2]) -> String;
    let late = |kept: KeptOf| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let n = s.input("n", DType::I64, &["batch"]);
        let (at, n) = (s.range(), s.unsqueeze(&n, &[1]));
        let kept = kept(&mut s, [&at, &n]);
        let kept = s.cast(&kept, DType::F32);
        let kept = s.unsqueeze(&kept, &[2]);
        let x = s.op("Mul", &[&x, &kept]);
        let y = s.attends(&x, &x);
        let y = s.op("Mul", &[&y, &kept]);
        let found = found(&s.model(17, &[&y]));
        assert!(found.ports.first(Role::Counts).is_some());
        found.later.len()
    };
    assert_eq!(late(|s, [at, n]| s.op("Less", &[at, n])), 0);
    let first = late(|s, [at, n]| {
        let limit = s.int(300);
        let [counts, is_early] = [n, &limit].map(|n| s.op("Less", &[at, n]));
        s.op("And", &[&counts, &is_early])
    });
    assert!(first > 0, "control");
}

#[test]
fn lengths_count_tokens_of_the_stack_whose_places_they_are_compared_with() {
    let mut s = Sketch::default();
    let ids = s.input("ids", DType::I64, &["batch", "source"]);
    let other = s.input("decoder_input_ids", DType::I64, &["batch", "target"]);
    let n = s.input("n", DType::I64, &["batch"]);
    let [table, places] = [0; 2].map(|_| s.weights(&[64, HIDDEN]));
    let [x, y] = [&ids, &other].map(|ids| s.gather(&table, ids, 0));
    let (shape, one) = (s.op("Shape", &[&ids]), s.int(1));
    let length = s.gather(&shape, &one, 0);
    let (zero, step) = (s.int(0), s.int(1));
    let at = s.op("Range", &[&zero, &length, &step]);
    let n = s.unsqueeze(&n, &[1]);
    let counts = s.op("Less", &[&at, &n]);
    let counts = s.cast(&counts, DType::I64);
    let positions = s.op("Mul", &[&at, &counts]);
    let rows = s.gather(&places, &positions, 0);
    let x = s.op("Add", &[&x, &rows]);
    let x = s.attends(&x, &x);
    let y = s.attends(&y, &x);
    let found = found(&s.model(17, &[&y]));
    assert!(found.ports.first(Role::Counts).is_some());
    assert_eq!(kinds(&found), [Kind::Learned]);
    let limits: Vec<usize> = found.limits.iter().map(|limit| limit.length).collect();
    assert_eq!(limits, [64]);
}

#[test]
fn a_role_of_padding_makes_lengths_of_numbers_that_places_are_compared_with() {
    let roles = |dims: &[&str], is_compared: bool| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let n = s.input("n", DType::I64, dims);
        let (at, table) = (s.range(), s.weights(&[64, HIDDEN]));
        // It picks rows too, so that its use does not say what it is.
        let row = s.gather(&table, &n, 0);
        s.output(&row);
        if is_compared {
            let seen = s.op("Less", &[&at, &n]);
            s.output(&seen);
        }
        let y = s.attends(&x, &x);
        let model = s.model(17, &[&y]);
        let given = [("n".to_owned(), Role::Padding)].into();
        let ports = Ports::of(model.graph(), &given);
        let port = ports
            .iter()
            .find(|port| model.graph().name(port.value) == "n");
        port.map(|port| port.role)
    };
    assert_eq!(roles(&["batch"], true), Some(Role::Counts));
    assert_eq!(roles(&["batch"], false), Some(Role::Padding), "control");
    assert_eq!(roles(&["batch", "sequence"], true), Some(Role::Padding));
}
