//! Biases of the scores that are to be named, and look-alikes that are not.

mod coordinates;
mod factors;

use super::*;
use posenc_encodings::kind::Kind;

/// Causal attention of one layer whose scores go through `change`.
fn changed(change: impl Fn(&mut Sketch, String) -> String) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let scores = change(&mut s, scores);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    s.model(23, &[&y])
}

/// Attention with a bias, before a causal mask.
fn causal_with(bias: impl Fn(&mut Sketch) -> String) -> Model {
    changed(|s, scores| {
        let bias = bias(s);
        let scores = s.op("Add", &[&scores, &bias]);
        causal(s, &scores)
    })
}

/// Attention with a bias and no mask.
fn bidirectional(bias: impl Fn(&mut Sketch) -> String) -> Model {
    changed(|s, scores| {
        let bias = bias(s);
        s.op("Add", &[&scores, &bias])
    })
}

/// What is reported: each kind with its parameters.
fn named(model: &Model) -> Vec<(Kind, String)> {
    let detection = found(model);
    let findings = detection.findings;
    let named = |f: &crate::detect::finding::Finding| {
        let params = serde_json::Value::Object(f.encoding.params());
        (f.encoding.kind(), params.to_string())
    };
    findings.iter().map(named).collect()
}

/// Whether nothing is reported but a position that no family fits.
fn is_unknown(model: &Model) -> bool {
    let named = named(model);
    !named.is_empty() && named.iter().all(|(kind, _)| *kind == Kind::Unknown)
}

/// key − query, `[sequence, sequence]`.
fn distance(s: &mut Sketch) -> String {
    let at = s.range();
    let (rows, columns) = (s.unsqueeze(&at, &[1]), s.unsqueeze(&at, &[0]));
    s.op("Sub", &[&columns, &rows])
}

/// The distance as a float.
fn far(s: &mut Sketch) -> String {
    let distance = distance(s);
    s.cast(&distance, DType::F32)
}

/// Slopes times this.
fn sloped(s: &mut Sketch, slopes: [f64; HEADS], x: &str) -> String {
    let slopes = s.floats(&[HEADS, 1, 1], slopes);
    s.op("Mul", &[&slopes, x])
}

const SLOPES: [f64; HEADS] = [0.25, 0.0625, 0.015625];

#[test]
fn lines_are_named_in_every_form() {
    let alibi = |symmetric: &str| {
        let params =
            format!(r#"{{"heads":3,"slopes":[0.25,0.0625,0.015625],"symmetric":{symmetric}}}"#);
        vec![(Kind::Alibi, params)]
    };
    let by_distance = |s: &mut Sketch| {
        let far = far(s);
        sloped(s, SLOPES, &far)
    };
    assert_eq!(named(&causal_with(by_distance)), alibi("null"));
    assert_eq!(named(&bidirectional(by_distance)), alibi("false"));
    let by_key = |s: &mut Sketch| {
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[0]);
        sloped(s, SLOPES, &at)
    };
    assert_eq!(named(&causal_with(by_key)), alibi("null"));
    let symmetric = |s: &mut Sketch| {
        let far = far(s);
        let far = s.op("Abs", &[&far]);
        let far = s.op("Neg", &[&far]);
        sloped(s, SLOPES, &far)
    };
    assert_eq!(named(&bidirectional(symmetric)), alibi("true"));
    let from_table = |s: &mut Sketch| {
        let cells = SLOPES
            .into_iter()
            .flat_map(|m| (0..64).map(move |c| m * (c as f64 - 63.0)));
        let table = s.floats(&[HEADS, 1, 64], cells);
        let at = s.range();
        let shape = s.op("Shape", &[&at]);
        let start = s.op("Neg", &[&shape]);
        let [end, axis] = [i64::MAX, 2].map(|n| s.ints(&[n]));
        s.op("Slice", &[&table, &start, &end, &axis])
    };
    assert_eq!(named(&causal_with(from_table)), alibi("null"));
    let twice_and_halved = changed(|s, scores| {
        let bias = by_distance(s);
        let masked = causal(s, &bias);
        let scores = s.op("Add", &[&scores, &bias]);
        let half = s.float(0.5);
        let scores = s.op("Add", &[&scores, &masked]);
        s.op("Mul", &[&scores, &half])
    });
    assert_eq!(named(&twice_and_halved), alibi("null"));
}

#[test]
fn look_alikes_of_lines_are_not_named_so() {
    let of_distance = |ops: fn(&mut Sketch, &str) -> String| {
        move |s: &mut Sketch| {
            let far = far(s);
            let bent = ops(s, &far);
            sloped(s, SLOPES, &bent)
        }
    };
    let kerple = of_distance(|s, d| {
        let d = s.op("Abs", &[d]);
        let one = s.float(1.0);
        let d = s.op("Add", &[&d, &one]);
        let d = s.op("Log", &[&d]);
        s.op("Neg", &[&d])
    });
    let log = r#"{"variant":"log","heads":3,"r1":[0.25,0.0625,0.015625],"r2":[1.0,1.0,1.0]}"#;
    for model in [causal_with(kerple), bidirectional(kerple)] {
        assert_eq!(named(&model), [(Kind::Kerple, log.to_owned())]);
    }
    let root = of_distance(|s, d| {
        let d = s.op("Abs", &[d]);
        let d = s.op("Sqrt", &[&d]);
        s.op("Neg", &[&d])
    });
    let power = log.replace("1.0", "0.5").replace("log", "power");
    assert_eq!(named(&causal_with(root)), [(Kind::Kerple, power)]);
    let square = of_distance(|s, d| s.op("Mul", &[d, d]));
    assert!(is_unknown(&causal_with(square)));
    let one_sided = of_distance(|s, d| {
        let zero = s.float(0.0);
        s.op("Max", &[d, &zero])
    });
    assert!(is_unknown(&bidirectional(one_sided)));
    assert_eq!(
        named(&causal_with(one_sided)),
        [],
        "zero for all that is seen"
    );
    let by_query = |s: &mut Sketch| {
        let far = far(s);
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let one = s.float(1.0);
        let at = s.op("Add", &[&at, &one]);
        let at = s.unsqueeze(&at, &[1]);
        s.op("Div", &[&far, &at])
    };
    assert!(is_unknown(&causal_with(by_query)), "a slope for each query");
    let of_query = |s: &mut Sketch| {
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        s.unsqueeze(&at, &[1])
    };
    assert_eq!(
        named(&bidirectional(of_query)),
        [],
        "a softmax does not see it"
    );
    // Clipped far beyond the trial run.
    let clipped = of_distance(|s, d| {
        let least = s.float(-40.0);
        s.op("Max", &[d, &least])
    });
    let found = named(&causal_with(clipped));
    assert_eq!(found.len(), 1);
    assert_ne!(found[0].0, Kind::Alibi);
}

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
    let d = distance(s);
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

/// Rows of a table `[rows, heads]` as `[heads, sequence, sequence]`.
fn picked(s: &mut Sketch, table: &str, rows: &str) -> String {
    let bias = s.gather(table, rows, 0);
    s.transpose(&bias, &[2, 0, 1])
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

/// A table of `2k + 1` rows picked by the distance clipped to `[low, high]`.
fn clipped(s: &mut Sketch, k: i64, [low, high]: [i64; 2]) -> String {
    let d = distance(s);
    let [low, high, k_] = [low, high, k].map(|n| s.int(n));
    let d = s.op("Max", &[&d, &low]);
    let d = s.op("Min", &[&d, &high]);
    let row = s.op("Add", &[&d, &k_]);
    let table = s.weights(&[2 * k as usize + 1, HEADS]);
    picked(s, &table, &row)
}

#[test]
fn clips_are_named_and_others_are_not() {
    let clip = |k: &str| {
        let params = format!(r#"{{"max_distance":{k},"window":null,"heads":3}}"#);
        vec![(Kind::RelativeBias, params)]
    };
    assert_eq!(named(&bidirectional(|s| clipped(s, 5, [-5, 5]))), clip("5"));
    assert_eq!(named(&causal_with(|s| clipped(s, 5, [-5, 5]))), clip("5"));
    assert_eq!(
        named(&bidirectional(|s| clipped(s, 40, [-40, 40]))),
        clip("40")
    );
    assert_eq!(named(&bidirectional(|s| clipped(s, 5, [-4, 4]))), clip("4"));
    let lopsided = bidirectional(|s| clipped(s, 5, [-5, 3]));
    assert!(is_unknown(&lopsided), "{:?}", named(&lopsided));
}

#[test]
fn masks_are_no_biases_and_free_tables_are_unknown() {
    assert_eq!(named(&changed(|s, scores| causal(s, &scores))), []);
    assert_eq!(named(&changed(|_, scores| scores)), []);
    let window = changed(|s, scores| {
        let far = distance(s);
        let far = s.op("Abs", &[&far]);
        let three = s.int(3);
        let outside = s.op("Greater", &[&far, &three]);
        let low = s.float(-1e4);
        let zero = s.float(0.0);
        let mask = s.op("Where", &[&outside, &low, &zero]);
        s.op("Add", &[&scores, &mask])
    });
    assert_eq!(named(&window), []);
    assert_eq!(found(&window).attention[0].mask.window, Some(4));
    let free = bidirectional(|s| {
        let table = s.weights(&[HEADS, 32, 32]);
        let at = s.range();
        let table = s.gather(&table, &at, 1);
        s.gather(&table, &at, 2)
    });
    assert!(is_unknown(&free), "{:?}", named(&free));
    let by_key = bidirectional(|s| {
        let table = s.weights(&[HEADS, 1, 32]);
        let at = s.range();
        s.gather(&table, &at, 2)
    });
    assert!(is_unknown(&by_key), "{:?}", named(&by_key));
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
        let d = distance(s);
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

#[test]
fn buckets_under_a_gate_of_content_are_named_once() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let [q, k, v] = [0; 3].map(|_| s.headed(&x));
    let scores = scores(&mut s, &q, &k);
    let w = s.weights(&[SIZE, 1]);
    let gate = s.op("MatMul", &[&q, &w]);
    let gate = s.op("Sigmoid", &[&gate]);
    let bias = bucketed(&mut s, T5);
    let bias = s.op("Mul", &[&gate, &bias]);
    let scores = s.op("Add", &[&scores, &bias]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let found = named(&s.model(23, &[&y]));
    let kinds: Vec<Kind> = found.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [Kind::T5Bias], "{found:?}");
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
