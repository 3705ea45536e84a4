//! Biases of the scores that are to be named, and look-alikes that are not.

mod buckets;
mod coordinates;
mod factors;
mod integers;

use super::*;
use crate::inspect::report;
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

/// The distance as a float.
fn far(s: &mut Sketch) -> String {
    let distance = s.distance();
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
fn layers_with_other_slopes_are_entries_of_their_own() {
    let slopes = |second: f64| {
        let mut s = Sketch::default();
        let mut x = s.embedded();
        for factor in [1.0, second] {
            let [scores, v] = s.scored(&x, &x);
            let far = far(&mut s);
            let bias = sloped(&mut s, SLOPES.map(|slope| slope * factor), &far);
            let scores = s.op("Add", &[&scores, &bias]);
            let hidden = causal(&mut s, &scores);
            let weights = s.op("Softmax", &[&hidden]);
            let y = s.op("MatMul", &[&weights, &v]);
            let y = s.merged(&y);
            x = s.op("Add", &[&x, &y]);
        }
        let model = s.model(17, &[&x]);
        let all = report(&model, &detect(&model, &Options::default())).encodings;
        let all = all
            .into_iter()
            .map(|own| (own.layers, own.params["slopes"][0].as_f64()));
        all.collect::<Vec<_>>()
    };
    assert_eq!(slopes(1.0), [(vec![0, 1], Some(0.25))]);
    assert_eq!(slopes(3.0), [(vec![0], Some(0.25)), (vec![1], Some(0.75))]);
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
    let of_length = |s: &mut Sketch| {
        let (far, at) = (far(s), s.range());
        let length = s.op("Size", &[&at]);
        let length = s.cast(&length, DType::F32);
        let share = s.op("Div", &[&far, &length]);
        sloped(s, SLOPES, &share)
    };
    assert!(
        is_unknown(&causal_with(of_length)),
        "other slopes in longer sequences"
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

#[test]
fn beside_sinks_a_number_for_each_query_counts() {
    let beside = |bias: &dyn Fn(&mut Sketch) -> String| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let (scores, bias) = (scores(&mut s, &q, &k), bias(&mut s));
        let scores = s.op("Add", &[&scores, &bias]);
        let scores = causal(&mut s, &scores);
        let (first, zero) = (s.slice(&scores, -1, [0, 1, 1]), s.float(0.0));
        let sinks = s.op("Mul", &[&first, &zero]);
        let scores = s.concat(&[&scores, &sinks], -1);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let weights = s.slice(&weights, -1, [0, -1, 1]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.model(23, &[&y])
    };
    let at = |s: &mut Sketch, axis: i64| {
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        s.unsqueeze(&at, &[axis])
    };
    let kinds = |model: &Model| -> Vec<Kind> { named(model).iter().map(|(k, _)| *k).collect() };
    let by_distance = |s: &mut Sketch| {
        let far = far(s);
        sloped(s, SLOPES, &far)
    };
    assert_eq!(kinds(&beside(&by_distance)), [Kind::Alibi]);
    let by_key = move |s: &mut Sketch| {
        let at = at(s, 0);
        sloped(s, SLOPES, &at)
    };
    assert!(is_unknown(&beside(&by_key)));
    let by_query = move |s: &mut Sketch| at(s, 1);
    assert!(is_unknown(&beside(&by_query)));
    let same = |s: &mut Sketch| s.floats(&[HEADS, 1, 1], SLOPES);
    assert_eq!(kinds(&beside(&same)), [], "the same for all tokens");
}

/// Rows of a table `[rows, heads]` as `[heads, sequence, sequence]`.
fn picked(s: &mut Sketch, table: &str, rows: &str) -> String {
    let bias = s.gather(table, rows, 0);
    s.transpose(&bias, &[2, 0, 1])
}

/// A table of `2k + 1` rows picked by the distance clipped to `[low, high]`.
fn clipped(s: &mut Sketch, k: i64, [low, high]: [i64; 2]) -> String {
    let d = s.distance();
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
fn rows_that_a_product_picks_are_those_that_an_index_picks() {
    let picked = |s: &mut Sketch, [low, high]: [i64; 2], compares: bool, factor: f64| {
        let d = s.distance();
        let [low, high, five, depth] = [low, high, 5, 11].map(|n| s.int(n));
        let d = s.op("Max", &[&d, &low]);
        let d = s.op("Min", &[&d, &high]);
        let row = s.op("Add", &[&d, &five]);
        let ones = if compares {
            let rows = s.ints(&(0..11).collect::<Vec<_>>());
            let row = s.unsqueeze(&row, &[-1]);
            let same = s.op("Equal", &[&row, &rows]);
            s.cast(&same, DType::F32)
        } else {
            let values = s.floats(&[2], [0.0, factor]);
            s.op("OneHot", &[&row, &depth, &values])
        };
        let table = s.weights(&[11, HEADS]);
        let bias = s.op("MatMul", &[&ones, &table]);
        s.transpose(&bias, &[2, 0, 1])
    };
    let params = r#"{"max_distance":5,"window":null,"heads":3}"#.to_owned();
    for compares in [false, true] {
        let whole = |s: &mut Sketch| picked(s, [-5, 5], compares, 1.0);
        for model in [bidirectional(whole), causal_with(whole)] {
            assert_eq!(named(&model), [(Kind::RelativeBias, params.clone())]);
        }
        let lopsided = bidirectional(|s| picked(s, [-5, 3], compares, 1.0));
        assert!(is_unknown(&lopsided), "{:?}", named(&lopsided));
    }
    let halves = causal_with(|s| picked(s, [-5, 5], false, 0.5));
    assert_ne!(
        named(&halves),
        [(Kind::RelativeBias, params)],
        "no row of the table"
    );
}

#[test]
fn masks_are_no_biases_and_free_tables_are_unknown() {
    assert_eq!(named(&changed(|s, scores| causal(s, &scores))), []);
    assert_eq!(named(&changed(|_, scores| scores)), []);
    let window = changed(|s, scores| {
        let far = s.distance();
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

/// A mask may be in it, as in windows that are shifted.
#[test]
fn a_bias_that_differs_between_sequences_is_unknown_and_not_read() {
    let model = |sequences: usize| bidirectional(|s| s.weights(&[sequences, 1, 14, 14]));
    for (sequences, is_read) in [(2, false), (1, true)] {
        let model = model(sequences);
        assert!(is_unknown(&model), "{sequences}: {:?}", named(&model));
        let unread = found(&model).not_evaluated;
        assert_eq!(unread.is_empty(), is_read, "{sequences}: {unread:?}");
    }
}
