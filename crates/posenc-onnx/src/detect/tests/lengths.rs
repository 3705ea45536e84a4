//! Lengths of the trial run.

use super::*;
use crate::report::LimitCause;

/// Attention with a mask whose length the graph names apart from that of the tokens.
fn masked(s: &mut Sketch, q: &str, k: &str, v: &str) -> String {
    let scores = scores(s, q, k);
    let mask = s.input("attention_mask", DType::F32, &["batch", "mask"]);
    let mask = s.unsqueeze(&mask, &[1, 2]);
    let scores = s.op("Add", &[&scores, &mask]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    s.op("MatMul", &[&weights, v])
}

#[test]
fn inputs_of_two_stacks_are_of_one_length_where_the_graph_needs_it() {
    let model = model(&Form {
        attend: masked,
        embed: |s, x| {
            let ids = s.input("decoder_input_ids", DType::I64, &["batch", "other"]);
            let table = s.weights(&[30, HIDDEN]);
            s.op("Gather", &[&table, &ids]);
            x
        },
        ..Form::default()
    });
    let ports = Ports::of(model.graph(), &Default::default());
    assert_eq!(ports.others().len(), 1, "control");
    assert_eq!(found(&model).attention.len(), 1);
}

/// The same with a shape for the masked scores that does not depend on the mask.
fn masked_and_reshaped(s: &mut Sketch, q: &str, k: &str, v: &str) -> String {
    let scores = scores(s, q, k);
    let shape = s.op("Shape", &[&scores]);
    let mask = s.input("attention_mask", DType::F32, &["batch", "mask"]);
    let mask = s.unsqueeze(&mask, &[1, 2]);
    let scores = s.op("Add", &[&scores, &mask]);
    let scores = s.op("Reshape", &[&scores, &shape]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    s.op("MatMul", &[&weights, v])
}

#[test]
fn lengths_that_do_not_fit_are_noticed_before_sizes_that_are_known_again() {
    let model = model(&Form {
        attend: masked_and_reshaped,
        embed: |s, x| {
            let ids = s.input("decoder_input_ids", DType::I64, &["batch", "other"]);
            let table = s.weights(&[30, HIDDEN]);
            s.op("Gather", &[&table, &ids]);
            x
        },
        ..Form::default()
    });
    let found = found(&model);
    assert_eq!(found.attention.len(), 1, "{:?}", found.no_attention);
}

#[test]
fn a_table_that_two_stacks_cut_ends_where_its_rows_do() {
    // A class token before the tokens of the encoder has a row.
    for (has_class, expected) in [(false, vec![40]), (true, vec![39, 40])] {
        let mut s = Sketch::default();
        let table = s.weights(&[40, HIDDEN]);
        let words = s.weights(&[30, HIDDEN]);
        let placed = |s: &mut Sketch, ids: &str, has_class: bool| {
            let mut x = s.gather(&words, ids, 0);
            if has_class {
                let class = s.weights(&[1, 1, HIDDEN]);
                x = s.concat(&[&class, &x], 1);
            }
            let shape = s.op("Shape", &[&x]);
            let [zero, one, two] = [0, 1, 2].map(|n| s.ints(&[n]));
            let length = s.op("Slice", &[&shape, &one, &two]);
            let rows = s.op("Slice", &[&table, &zero, &length, &zero]);
            s.op("Add", &[&x, &rows])
        };
        let source = s.input("input_ids", DType::I64, &["1", "source"]);
        let target = s.input("decoder_input_ids", DType::I64, &["1", "target"]);
        let memory = placed(&mut s, &source, has_class);
        let memory = s.attends(&memory, &memory);
        let x = placed(&mut s, &target, false);
        let x = s.attends(&x, &x);
        let y = s.attends(&x, &memory);
        let limits = found(&s.model(17, &[&y])).limits.into_iter();
        assert_eq!(Vec::from_iter(limits.map(|limit| limit.length)), expected);
    }
}

/// Rows of a table that is added, picked by a product.
fn picked(s: &mut Sketch, x: String) -> String {
    let at = s.range();
    let (depth, values) = (s.int(50), s.floats(&[2], [0.0, 1.0]));
    let choice = s.op("OneHot", &[&at, &depth, &values]);
    let table = s.weights(&[50, HIDDEN]);
    let p = s.op("MatMul", &[&choice, &table]);
    s.op("Add", &[&x, &p])
}

#[test]
fn rows_that_a_product_picks_end() {
    assert_eq!(limiting(picked), [50]);
    assert!(limiting(|_, x| x).is_empty());
}

/// A weight that is cut to the width of the stream, or one to the number of tokens.
fn cut(s: &mut Sketch, x: String, axis: i64) -> String {
    let shape = s.op("Shape", &[&x]);
    let at = s.ints(&[axis]);
    let count = s.gather(&shape, &at, 0);
    let (first, axes) = (s.ints(&[0]), s.ints(&[0]));
    let rows = s.weights(&[3 * HIDDEN, HIDDEN]);
    let part = s.op("Slice", &[&rows, &first, &count, &axes]);
    match axis {
        1 => s.op("Add", &[&x, &part]),
        _ => s.op("MatMul", &[&x, &part]),
    }
}

#[test]
fn a_weight_that_is_cut_to_a_width_is_no_limit() {
    assert!(limiting(|s, x| cut(s, x, 2)).is_empty());
    assert_eq!(limiting(|s, x| cut(s, x, 1)), [3 * HIDDEN]);
}

/// Rows that are made for the tokens at hand and some more, picked by place.
fn spare(s: &mut Sketch, x: String, has_more: bool) -> String {
    let at = s.range();
    let (table, last) = (s.weights(&[50, HIDDEN]), s.ints(&[49]));
    let mut rows = s.gather(&table, &at, 0);
    if has_more {
        let more = s.gather(&table, &last, 0);
        rows = s.concat(&[&rows, &more], 0);
    }
    let own = s.gather(&rows, &at, 0);
    s.op("Add", &[&x, &own])
}

#[test]
fn rows_that_grow_with_the_tokens_do_not_end() {
    assert_eq!(limiting(|s, x| spare(s, x, false)), [50]);
    assert_eq!(limiting(|s, x| spare(s, x, true)), [50]);
}

#[test]
fn one_step_of_a_process_is_no_length() {
    let limits = |steps: &str| {
        let mut s = Sketch::default();
        let x = s.input("x", DType::F32, &["1", "length", "24"]);
        let step = s.input("step", DType::I64, &[steps]);
        let step = s.cast(&step, DType::F32);
        let step = s.unsqueeze(&step, &[1]);
        let wave = s.op("Sin", &[&step]);
        let x = s.op("Add", &[&x, &wave]);
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let scores = scores(&mut s, &q, &k);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let lengths = found(&s.model(17, &[&y])).limits.into_iter();
        lengths.map(|limit| limit.length).collect::<Vec<_>>()
    };
    assert_eq!(limits("1"), [0; 0]);
    assert_eq!(limits("9"), [9], "positions of nine tokens");
}

/// Keys are hidden that are farther than a number of the input, which has no name of the batch.
#[test]
fn one_token_is_no_length_that_a_trace_wrote_down() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let table = s.weights(&[64, HIDDEN]);
    let at = s.range();
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let n = s.input("n", DType::I64, &["other"]);
    let n = s.unsqueeze(&n, &[1, 2, 3]);
    let distance = s.distance();
    let distance = s.op("Abs", &[&distance]);
    let is_near = s.op("Less", &[&distance, &n]);
    let [scores, v] = s.scored(&x, &x);
    let hidden = s.float(-1e9);
    let scores = s.op("Where", &[&is_near, &scores, &hidden]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.transpose(&y, &[0, 2, 1, 3]);
    let shape = s.op("Shape", &[&x]);
    let y = s.op("Reshape", &[&y, &shape]);
    let y = s.attends(&y, &y);
    let read = found(&s.model(17, &[&y]));
    assert_eq!(read.ports.fixed_sequence(), None);
    assert!(!read.no_attention.is_empty(), "what is not read is named");
}

/// Attention behind tables of these many rows, which are added one after the other.
fn added(rows: &[usize]) -> Found {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    for rows in rows {
        let table = s.weights(&[*rows, HIDDEN]);
        x = s.op("Add", &[&x, &table]);
    }
    let y = s.attends(&x, &x);
    found(&s.model(17, &[&y]))
}

#[test]
fn ids_are_as_long_as_a_table_that_is_added_whole() {
    let read = added(&[24]);
    assert_eq!(read.attention.len(), 1);
    assert_eq!(read.lengths.sequence, 24);
    assert_eq!(read.findings[0].max_length, Some(24));
    assert_eq!(read.ports.fixed_sequence(), Some(24));
    // No length fits both.
    assert_eq!(added(&[24, 20]).attention.len(), 0);
}

/// Attention over embeddings that are put into a shape of these sizes behind the batch.
fn reshaped(sizes: [i64; 2]) -> Found {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    let shape = s.op("Shape", &["input_ids"]);
    let batch = s.slice(&shape, 0, [0, 1, 1]);
    let sizes = s.ints(&sizes);
    let sizes = s.concat(&[&batch, &sizes], 0);
    x = s.op("Reshape", &[&x, &sizes]);
    let y = s.attends(&x, &x);
    found(&s.model(17, &[&y]))
}

#[test]
fn a_length_that_a_trace_wrote_into_a_shape_is_the_only_one() {
    let width = HIDDEN as i64;
    let read = reshaped([40, width]);
    assert_eq!(read.attention.len(), 1);
    assert_eq!(read.ports.fixed_sequence(), Some(40));
    let causes: Vec<LimitCause> = read.limits.iter().map(|limit| limit.cause).collect();
    assert_eq!(causes, [LimitCause::StaticShape]);
    // No length has as many elements.
    assert_eq!(reshaped([7, width - 1]).attention.len(), 0);
    // A trace of one sequence wrote that down too.
    let mut s = Sketch::default();
    let x = s.embedded();
    let x = s.reshape(&x, &[1, 40, width]);
    let y = s.attends(&x, &x);
    let read = found(&s.model(17, &[&y]));
    assert_eq!(read.attention.len(), 1);
    assert_eq!(read.ports.fixed_sequence(), Some(40));
    assert_eq!(read.lengths.batch, 1);
}

/// The limits of attention to frames of sound, of which each is made of five samples, with a bias of the
/// distance that is clipped here.
fn of_sound(clip: i64) -> Vec<(usize, LimitCause)> {
    let mut s = Sketch::default();
    let sound = s.input("sound", DType::F32, &["batch", "samples"]);
    let sound = s.unsqueeze(&sound, &[1]);
    let taps = s.weights(&[HIDDEN, 1, 5]);
    let x = s.with("Conv", &[&sound, &taps], &[("strides", A::Ints(&[5]))]);
    let x = s.transpose(&x, &[0, 2, 1]);
    let (shape, one, zero, step) = (s.op("Shape", &[&x]), s.int(1), s.int(0), s.int(1));
    let frames = s.gather(&shape, &one, 0);
    let at = s.op("Range", &[&zero, &frames, &step]);
    let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    let distance = s.op("Sub", &[&columns, &rows]);
    let (low, high, up) = (s.int(-clip), s.int(clip), s.int(100));
    let index = s.op("Clip", &[&distance, &low, &high]);
    let index = s.op("Add", &[&index, &up]);
    let table = s.weights(&[201, HEADS]);
    let bias = s.gather(&table, &index, 0);
    let bias = s.transpose(&bias, &[2, 0, 1]);
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let scores = s.op("Add", &[&scores, &bias]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let model = s.model(17, &[&y]);
    let all = limits::all(model.graph(), &found(&model));
    all.into_iter().map(|l| (l.length, l.cause)).collect()
}

#[test]
fn rows_of_frames_are_looked_for_in_as_many_samples() {
    assert_eq!(of_sound(100), [], "rows for every distance");
    assert_eq!(of_sound(150), [(101, LimitCause::Table)], "control");
}

/// The limits of a model that looks rows up, by position, in a table that it makes or chooses.
fn limits_with(table: fn(&mut Sketch) -> String) -> Vec<usize> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let at = s.range();
    let table = table(&mut s);
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let y = s.attends(&x, &x);
    let model = s.model(17, &[&y]);
    found(&model).limits.iter().map(|l| l.length).collect()
}

/// Whether the sequence is longer than `tokens`.
fn longer_than(s: &mut Sketch, tokens: i64) -> String {
    let (one, tokens) = (s.int(1), s.int(tokens));
    let shape = s.op("Shape", &["input_ids"]);
    let length = s.gather(&shape, &one, 0);
    s.op("Greater", &[&length, &tokens])
}

#[test]
fn a_table_that_is_chosen_for_longer_sequences_ends_too() {
    let chosen = |s: &mut Sketch| {
        let is_longer = longer_than(s, 32);
        s.choice(
            &is_longer,
            [|s| s.weights(&[96, HIDDEN]), |s| s.weights(&[32, HIDDEN])],
        )
    };
    assert_eq!(limits_with(chosen), [96]);
    let plain = |s: &mut Sketch| s.weights(&[32, HIDDEN]);
    assert_eq!(limits_with(plain), [32]);
    // Rows that are made for all tokens end nowhere.
    let made = |s: &mut Sketch| {
        let (at, axis) = (s.range(), s.ints(&[1]));
        let at = s.cast(&at, DType::F32);
        let at = s.op("Unsqueeze", &[&at, &axis]);
        let scale = s.weights(&[1, HIDDEN]);
        let rows = s.op("MatMul", &[&at, &scale]);
        let more = s.weights(&[40, HIDDEN]);
        s.concat(&[&rows, &more], 0)
    };
    assert!(limits_with(made).is_empty());
}

#[test]
fn sound_beside_ids_has_more_samples_than_there_are_tokens() {
    let mut s = Sketch::default();
    let sound = s.input("sound", DType::F32, &["batch", "samples"]);
    let (sound, kernel) = (s.unsqueeze(&sound, &[1]), s.weights(&[HIDDEN, 1, 127]));
    let strides = [("strides", A::Ints(&[64]))];
    let frames = s.with("Conv", &[&sound, &kernel], &strides);
    let frames = s.transpose(&frames, &[0, 2, 1]);
    let frames = s.attends(&frames, &frames);
    let x = s.embedded();
    let x = s.attends(&x, &x);
    let y = s.attends(&x, &frames);
    let found = found(&s.model(17, &[&y]));
    let cross: Vec<bool> = found.attention.iter().map(|site| site.cross).collect();
    assert_eq!(cross.len(), 3, "{cross:?}");
    assert_eq!(cross.iter().filter(|cross| **cross).count(), 1);
}
