//! T5 buckets: counts, maxima and directions, and tables that are none.

use super::*;

/// How T5 computes rows, and what a case changes about it.
#[derive(Clone, Copy)]
struct Buckets {
    rows: usize,
    max: f64,
    both: bool,
    sign: i64,
    before: i64,
    after: i64,
}

const T5: Buckets = Buckets {
    rows: 32,
    max: 128.0,
    both: true,
    sign: 1,
    before: 0,
    after: 0,
};

fn bucket_of(s: &mut Sketch, b: Buckets) -> String {
    let d = s.distance();
    bucket_by(s, b, &d)
}

/// The row of each of these distances.
fn bucket_by(s: &mut Sketch, b: Buckets, d: &str) -> String {
    let (sign, before, zero) = (s.int(b.sign), s.int(b.before), s.int(0));
    let d = s.op("Mul", &[d, &sign]);
    let d = s.op("Add", &[&d, &before]);
    let (n, first, d) = if b.both {
        let later = s.op("Greater", &[&d, &zero]);
        let later = s.cast(&later, DType::I64);
        let n = b.rows / 2;
        let half = s.int(n as i64);
        (n, s.op("Mul", &[&later, &half]), s.op("Abs", &[&d]))
    } else {
        let d = s.op("Min", &[&d, &zero]);
        (b.rows, zero, s.op("Neg", &[&d]))
    };
    let e = n / 2;
    let exact = s.int(e as i64);
    let near = s.op("Less", &[&d, &exact]);
    let x = s.cast(&d, DType::F32);
    let [start, scale, rest] =
        [e as f64, (b.max / e as f64).ln(), (n - e) as f64].map(|v| s.float(v));
    let x = s.op("Div", &[&x, &start]);
    let x = s.op("Log", &[&x]);
    let x = s.op("Div", &[&x, &scale]);
    let x = s.op("Mul", &[&x, &rest]);
    let x = s.cast(&x, DType::I64);
    let x = s.op("Add", &[&x, &exact]);
    let last = s.int(n as i64 - 1);
    let x = s.op("Min", &[&x, &last]);
    let row = s.op("Where", &[&near, &d, &x]);
    let row = s.op("Add", &[&row, &first]);
    let after = s.int(b.after);
    s.op("Add", &[&row, &after])
}

/// T5's bias with a table of its own.
fn bucketed(s: &mut Sketch, b: Buckets) -> String {
    let row = bucket_of(s, b);
    // With rows to spare, which are cut off.
    let table = s.weights(&[b.rows + 2, HEADS]);
    let table = s.slice(&table, 0, [0, b.rows as i64, 1]);
    picked(s, &table, &row)
}

#[test]
fn buckets_are_named_with_count_maximum_and_direction() {
    let t5 = |rows: usize, max: &str, both: bool| {
        let params = format!(
            r#"{{"num_buckets":{rows},"max_distance":{max},"bidirectional":{both},"heads":3}}"#
        );
        let read = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
        read(&params)
    };
    let read = |model: &Model| {
        let found = named(model);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, Kind::T5Bias, "{found:?}");
        let mut params: serde_json::Value = serde_json::from_str(&found[0].1).unwrap();
        let map = params.as_object_mut().unwrap();
        map.remove("max_distance_range");
        map.remove("exact");
        params
    };
    assert_eq!(
        read(&bidirectional(|s| bucketed(s, T5))),
        t5(32, "128", true)
    );
    let unidirectional = Buckets { both: false, ..T5 };
    assert_eq!(
        read(&causal_with(|s| bucketed(s, unidirectional))),
        t5(32, "128", false)
    );
    assert_eq!(
        read(&bidirectional(|s| bucketed(s, unidirectional))),
        t5(32, "128", false)
    );
    assert_eq!(read(&causal_with(|s| bucketed(s, T5))), t5(32, "128", true));
    let farther = Buckets {
        max: 800.0,
        rows: 320,
        ..T5
    };
    assert_eq!(
        read(&bidirectional(|s| bucketed(s, farther))),
        t5(320, "800", true)
    );
    let nearer = Buckets { max: 100.0, ..T5 };
    assert_eq!(
        read(&bidirectional(|s| bucketed(s, nearer))),
        t5(32, "100", true)
    );
}

/// T5's bias with a table of 8 bits, in which some buckets next to each other have the same numbers.
fn quantized(s: &mut Sketch, b: Buckets) -> String {
    let row = bucket_of(s, b);
    let number = |row: usize| if [4, 20].contains(&row) { row - 1 } else { row };
    let cells = (0..b.rows).flat_map(|row| {
        (0..HEADS).map(move |head| ((number(row) * 37 + head * 11) % 101) as f64 - 50.0)
    });
    let table = s.typed(DType::I8, &[b.rows, HEADS], cells);
    let rows = s.gather(&table, &row, 0);
    let scale = s.float(0.02);
    let rows = s.op("DequantizeLinear", &[&rows, &scale]);
    let rows = s.transpose(&rows, &[2, 0, 1]);
    s.unsqueeze(&rows, &[0])
}

#[test]
fn buckets_of_equal_numbers_are_told_by_the_rows_they_pick() {
    for both in [true, false] {
        let case = Buckets { both, ..T5 };
        let kinds = |model: &Model| -> Vec<Kind> {
            named(model).into_iter().map(|(kind, _)| kind).collect()
        };
        let model = bidirectional(|s| quantized(s, case));
        assert_eq!(kinds(&model), [Kind::T5Bias], "{both}");
        let other = bidirectional(|s| quantized(s, Buckets { after: 1, ..case }));
        assert!(is_unknown(&other), "{both}: {:?}", named(&other));
    }
}

#[test]
fn buckets_of_other_distances_are_unknown() {
    let mirrored = Buckets { sign: -1, ..T5 };
    let before = Buckets { before: 1, ..T5 };
    let after = Buckets { after: 1, ..T5 };
    for (name, case) in [("sign", mirrored), ("before", before), ("after", after)] {
        let model = bidirectional(|s| bucketed(s, case));
        assert!(is_unknown(&model), "{name}: {:?}", named(&model));
    }
    let blind = Buckets {
        sign: -1,
        both: false,
        ..T5
    };
    assert_eq!(
        named(&causal_with(|s| bucketed(s, blind))),
        [],
        "one bucket for all seen"
    );
    let more = bidirectional(|s| {
        let bias = bucketed(s, T5);
        let far = far(s);
        let line = sloped(s, SLOPES, &far);
        s.op("Add", &[&bias, &line])
    });
    assert!(is_unknown(&more), "a line on top: {:?}", named(&more));
}

#[test]
fn rows_identify_buckets_whose_numbers_are_absent() {
    let without_numbers = |rows: fn(&mut Sketch) -> String| {
        let model = bidirectional(|s| {
            let row = rows(s);
            let table = s.weights(&[32, HEADS]);
            s.make_absent(&table);
            picked(s, &table, &row)
        });
        let found = found(&model);
        let kinds: Vec<Kind> = found.findings.iter().map(|f| f.encoding.kind()).collect();
        (kinds, found.not_evaluated.len())
    };
    assert_eq!(
        without_numbers(|s| bucket_of(s, T5)),
        (vec![Kind::T5Bias], 0)
    );
    let square = |s: &mut Sketch| {
        let d = s.distance();
        let d = s.op("Mul", &[&d, &d]);
        let last = s.int(31);
        s.op("Min", &[&d, &last])
    };
    assert_eq!(
        without_numbers(square),
        (vec![], 1),
        "named as what could not be evaluated"
    );
}

/// The kinds that are named where content gates a bias that is then changed.
fn gated(change: impl Fn(&mut Sketch, &str) -> String) -> Vec<Kind> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let w = s.weights(&[SIZE, 1]);
    let gate = s.op("MatMul", &[&q, &w]);
    let gate = s.op("Sigmoid", &[&gate]);
    let bias = bucketed(&mut s, T5);
    let bias = s.op("Mul", &[&gate, &bias]);
    let bias = change(&mut s, &bias);
    let scores = s.op("Add", &[&scores, &bias]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let found = named(&s.model(23, &[&y]));
    found.iter().map(|(kind, _)| *kind).collect()
}

#[test]
fn buckets_under_a_gate_of_content_are_named_once() {
    assert_eq!(gated(|_, bias| bias.to_owned()), [Kind::T5Bias]);
    let scaled = gated(|s, bias| {
        let one = s.float(1.0);
        s.op("Mul", &[&one, bias])
    });
    assert_eq!(scaled, [Kind::T5Bias]);
    let divided = gated(|s, bias| {
        let by = s.floats(&[HEADS, 1, 1], [2.0, 4.0, 8.0]);
        s.op("Div", &[bias, &by])
    });
    assert_eq!(divided, [Kind::T5Bias]);
    let inverse = gated(|s, bias| {
        let one = s.float(1.0);
        s.op("Div", &[&one, bias])
    });
    assert!(inverse.contains(&Kind::Unknown), "{inverse:?}");
}

/// The kinds that are named where one operator of attention is given a bias that a number for each of `along`
/// multiplies: queries, or keys.
fn gated_in_one_operator(op: &str, along: &str) -> Vec<Kind> {
    let mut s = Sketch::default();
    let x = s.embedded();
    let w = s.weights(&[HIDDEN, HEADS]);
    let gate = s.op("MatMul", &[&x, &w]);
    let gate = s.op("Sigmoid", &[&gate]);
    let gate = s.transpose(&gate, &[0, 2, 1]);
    let gate = s.unsqueeze(&gate, &[if along == "queries" { 3 } else { 2 }]);
    let bias = bucketed(&mut s, T5);
    let bias = s.op("Mul", &[&gate, &bias]);
    let [q, k, v] = [0; 3].map(|_| {
        let w = s.weights(&[HIDDEN, HIDDEN]);
        s.op("MatMul", &[&x, &w])
    });
    let heads = A::Int(HEADS as i64);
    let y = match op {
        "Attention" => {
            let heads = [
                ("q_num_heads", heads),
                ("kv_num_heads", A::Int(HEADS as i64)),
            ];
            s.with(op, &[&q, &k, &v, &bias], &heads)
        }
        _ => s.with(op, &[&q, &k, &v, "", "", &bias], &[("num_heads", heads)]),
    };
    let found = found(&s.model(23, &[&y]));
    let mut kinds: Vec<Kind> = found.findings.iter().map(|f| f.encoding.kind()).collect();
    if !found.not_evaluated.is_empty() {
        kinds.push(Kind::Unknown);
    }
    kinds
}

#[test]
fn buckets_under_a_gate_are_read_where_one_operator_is_given_them() {
    for op in ["Attention", "ms.MultiHeadAttention"] {
        assert_eq!(gated_in_one_operator(op, "queries"), [Kind::T5Bias], "{op}");
        let by_key = gated_in_one_operator(op, "keys");
        assert!(by_key.contains(&Kind::Unknown), "{op}: {by_key:?}");
    }
}

/// A block of four queries that sees itself and the blocks around it, its first query being biased
/// as the token at this place.
fn block(first: i64) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (own, seen) = (s.slice(&x, 1, [4, 8, 1]), s.slice(&x, 1, [0, 12, 1]));
    let [q, k, v] = [&own, &seen, &seen].map(|x| s.headed(x));
    let scores = scores(&mut s, &q, &k);
    let keys = s.ints(&(0..12).collect::<Vec<_>>());
    let queries = s.ints(&(first..first + 4).collect::<Vec<_>>());
    let queries = s.unsqueeze(&queries, &[1]);
    let d = s.op("Sub", &[&keys, &queries]);
    let row = bucket_by(&mut s, T5, &d);
    let table = s.weights(&[T5.rows, HEADS]);
    let bias = picked(&mut s, &table, &row);
    let scores = s.op("Add", &[&scores, &bias]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.model(23, &[&y])
}

#[test]
fn buckets_are_read_where_queries_are_in_the_middle_block() {
    let kinds = |model: &Model| -> Vec<Kind> { named(model).into_iter().map(|n| n.0).collect() };
    assert_eq!(kinds(&block(4)), [Kind::T5Bias]);
    assert_eq!(kinds(&block(5)), [Kind::Unknown], "one too far");
    assert_eq!(kinds(&block(2)), [Kind::Unknown], "at no block");
}

#[test]
fn queries_that_fill_up_a_block_do_not_hide_a_bias() {
    // All keys are hidden from the last queries, by numbers that are far from all others.
    let filled = |bias: Option<fn(&mut Sketch) -> String>| {
        changed(|s, scores| {
            let at = s.range();
            let (at, last) = (s.unsqueeze(&at, &[1]), s.int(9));
            let beyond = s.op("Greater", &[&at, &last]);
            let (low, zero) = (s.float(-1e10), s.float(0.0));
            let mask = s.op("Where", &[&beyond, &low, &zero]);
            let mask = match bias {
                Some(bias) => {
                    let bias = bias(s);
                    s.op("Add", &[&bias, &mask])
                }
                None => mask,
            };
            s.op("Add", &[&scores, &mask])
        })
    };
    let kinds = |model: &Model| -> Vec<Kind> { named(model).into_iter().map(|n| n.0).collect() };
    assert_eq!(
        kinds(&filled(Some(|s| bucketed(s, T5)))),
        [Kind::T5Bias],
        "by its table"
    );
    let line = |s: &mut Sketch| {
        let far = far(s);
        sloped(s, SLOPES, &far)
    };
    assert_eq!(kinds(&filled(Some(line))), [Kind::Alibi]);
    assert_eq!(kinds(&filled(None)), [], "a mask alone");
    let flat = |s: &mut Sketch| s.floats(&[HEADS, 1, 1], [0.5, -1.0, 2.0]);
    assert_eq!(kinds(&filled(Some(flat))), [], "the same for all keys");
}
