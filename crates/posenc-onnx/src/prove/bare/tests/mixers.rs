//! Positions before and behind what mixes tokens and is no attention, and behind causal attention.

use super::*;

/// A convolution over tokens.
fn convolved(s: &mut Sketch, x: &str, size: usize, attrs: &[(&str, A)]) -> String {
    let w = s.weights(&[HIDDEN, HIDDEN, size]);
    along_tokens(s, x, |s, x| s.with("Conv", &[x, &w], attrs))
}

/// What is made of tokens along the last axis.
fn along_tokens(s: &mut Sketch, x: &str, make: impl Fn(&mut Sketch, &str) -> String) -> String {
    let y = s.transpose(x, &[0, 2, 1]);
    let y = make(s, &y);
    s.transpose(&y, &[0, 2, 1])
}

/// What mixes tokens and is no attention.
const MIXERS: [(&str, Embed); 13] = [
    ("a convolution with both ends filled up", |s, x| {
        convolved(s, x, 3, &[("pads", A::Ints(&[1, 1]))])
    }),
    ("one with zeros before the first token", |s, x| {
        convolved(s, x, 3, &[("pads", A::Ints(&[2, 0]))])
    }),
    ("a dilated one", |s, x| {
        let attrs = [("pads", A::Ints(&[2, 2])), ("dilations", A::Ints(&[2]))];
        convolved(s, x, 3, &attrs)
    }),
    ("one of even size", |s, x| {
        convolved(s, x, 4, &[("pads", A::Ints(&[1, 2]))])
    }),
    ("one with zeros by a word", |s, x| {
        convolved(s, x, 3, &[("auto_pad", A::Text("SAME_UPPER"))])
    }),
    ("one of which no weight meets the token itself", |s, x| {
        let attrs = [("pads", A::Ints(&[1, 1])), ("dilations", A::Ints(&[2]))];
        convolved(s, x, 2, &attrs)
    }),
    ("one whose weight of the token itself is zero", |s, x| {
        let w = s.weights(&[HIDDEN, HIDDEN, 3]);
        let others = s.floats(&[1, 1, 3], [1.0, 0.0, 1.0]);
        let w = s.op("Mul", &[&w, &others]);
        let attrs = [("pads", A::Ints(&[1, 1]))];
        along_tokens(s, x, |s, x| s.with("Conv", &[x, &w], &attrs))
    }),
    ("a mean of neighbours", |s, x| {
        let attrs = [("kernel_shape", A::Ints(&[3])), ("pads", A::Ints(&[1, 1]))];
        along_tokens(s, x, |s, x| s.with("AveragePool", &[x], &attrs))
    }),
    ("the largest of neighbours", |s, x| {
        let attrs = [("kernel_shape", A::Ints(&[3])), ("pads", A::Ints(&[1, 1]))];
        along_tokens(s, x, |s, x| s.with("MaxPool", &[x], &attrs))
    }),
    ("a shift", |s, x| {
        let ends = s.ints(&[0, 1, 0, 0, -1, 0]);
        s.op("Pad", &[x, &ends])
    }),
    ("a recurrence", |s, x| {
        let (w, r) = (
            s.weights(&[1, 4 * HIDDEN, HIDDEN]),
            s.weights(&[1, 4 * HIDDEN, HIDDEN]),
        );
        let x = s.transpose(x, &[1, 0, 2]);
        let attrs = [("hidden_size", A::Int(HIDDEN as i64))];
        let y = s.with("LSTM", &[&x, &w, &r], &attrs);
        let first = s.int(0);
        let y = s.gather(&y, &first, 1);
        s.transpose(&y, &[1, 0, 2])
    }),
    ("a recurrence in a body", |s, x| scanned(s, x)[1].clone()),
    ("a running sum", |s, x| {
        let axis = s.int(1);
        s.op("CumSum", &[x, &axis])
    }),
];

/// Tokens with a position, or without.
const PLACED: [(&str, Embed); 3] = [
    ("none", |_, x| x.to_owned()),
    ("added", |s, x| {
        let rows = rows(s, 200);
        s.op("Add", &[x, &rows])
    }),
    // A factor for differences, which equal tokens hide.
    ("times", |s, x| {
        let rows = rows(s, 200);
        let mean = s.ints(&[1]);
        let mean = s.op("ReduceMean", &[x, &mean]);
        let off = s.op("Sub", &[x, &mean]);
        let off = s.op("Mul", &[&off, &rows]);
        s.op("Add", &[x, &off])
    }),
];

#[test]
fn what_mixes_tokens_hides_no_position_before_or_behind_it() {
    for (name, mix) in MIXERS {
        for (nth, (position, place)) in PLACED.into_iter().enumerate() {
            for is_before in [true, false] {
                let mut s = Sketch::default();
                s.input("input_ids", DType::I64, &["batch", "sequence"]);
                let mut x = s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
                if is_before {
                    x = place(&mut s, &x);
                }
                x = mix(&mut s, &x);
                if !is_before {
                    x = place(&mut s, &x);
                }
                let checks = checks(&attended(s, x));
                let what = format!("{name}, {position} before: {is_before}");
                assert!(!checks.is_empty(), "{what}");
                let has_failed = !failed(&checks).is_empty();
                assert_eq!(has_failed, nth > 0, "{what}: {:?}", failed(&checks));
            }
        }
    }
}

/// An operator that mixes tokens behind the last attention.
#[test]
fn what_mixes_tokens_at_the_end_hides_no_position() {
    for (name, mix) in MIXERS {
        for (nth, (position, place)) in PLACED.into_iter().enumerate() {
            let mut s = Sketch::default();
            let x = s.embedded();
            let x = s.attends(&x, &x);
            let x = place(&mut s, &x);
            let x = mix(&mut s, &x);
            let checks = checks(&s.model(17, &[&x]));
            let has_failed = !failed(&checks).is_empty();
            let what = format!("{name}, {position}");
            assert_eq!(has_failed, nth > 0, "{what}: {:?}", failed(&checks));
        }
    }
}

/// Tokens of a sequence that was shortened are compared among themselves.
#[test]
fn a_position_behind_a_convolution_that_shortens_is_seen() {
    let model = |is_placed: bool, is_filled: bool| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let x = s.attends(&x, &x);
        let pads: &[i64] = if is_filled { &[1, 1] } else { &[0, 0] };
        let attrs = [("pads", A::Ints(pads)), ("strides", A::Ints(&[2]))];
        let mut x = convolved(&mut s, &x, 3, &attrs);
        if is_placed {
            let shape = s.op("Shape", &[&x]);
            let (zero, one) = (s.int(0), s.int(1));
            let length = s.gather(&shape, &one, 0);
            let at = s.op("Range", &[&zero, &length, &one]);
            let table = s.weights(&[200, HIDDEN]);
            let rows = s.gather(&table, &at, 0);
            x = s.op("Add", &[&x, &rows]);
        }
        s.model(17, &[&x])
    };
    for is_filled in [false, true] {
        let [plain, placed] = [false, true].map(|p| checks(&model(p, is_filled)));
        assert_eq!(failed(&plain), [""; 0], "{is_filled}: control");
        assert!(
            failed(&placed).contains(&"rows of equal tokens"),
            "{is_filled}"
        );
    }
}

/// A convolution of what is the same at every token counts places where its ends are filled up.
#[test]
fn a_convolution_of_one_row_for_all_tokens_hides_no_position() {
    let checks = |pads: &[i64], size: usize| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let axis = s.ints(&[1]);
        let mean = s.op("ReduceMean", &[&x, &axis]);
        let shape = s.op("Shape", &[&x]);
        let all = s.op("Expand", &[&mean, &shape]);
        let row = convolved(&mut s, &all, size, &[("pads", A::Ints(pads))]);
        let x = s.op("Add", &[&x, &row]);
        checks(&attended(s, x))
    };
    assert_eq!(failed(&checks(&[0, 0], 1)), [""; 0], "control");
    assert!(failed(&checks(&[1, 1], 3)).contains(&"queries of equal tokens"));
}

/// The last state of a recurrence depends on the order of all tokens.
#[test]
fn a_recurrence_whose_state_is_read_moves_with_no_token() {
    let of = |reads_state: bool| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let w = s.weights(&[1, 4 * HIDDEN, HIDDEN]);
        let y = s.transpose(&x, &[1, 0, 2]);
        let attrs = [("hidden_size", A::Int(HIDDEN as i64))];
        let y = s.many("LSTM", &[&y, &w, &w], &attrs, 2);
        let first = s.int(0);
        let y = match reads_state {
            true => y[1].clone(),
            false => s.gather(&y[0], &first, 1),
        };
        let y = s.transpose(&y, &[1, 0, 2]);
        let x = s.op("Add", &[&x, &y]);
        let model = attended(s, x);
        alone(&model)
    };
    assert_eq!(of(false), [1, 1]);
    assert_eq!(of(true), [1, 0]);
    let in_body = |reads_state: bool| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [last, all] = scanned(&mut s, &x);
        let mut x = s.op("Add", &[&x, &all]);
        if reads_state {
            let last = s.unsqueeze(&last, &[1]);
            x = s.op("Add", &[&x, &last]);
        }
        alone(&attended(s, x))
    };
    assert_eq!(in_body(false), [1, 1]);
    assert_eq!(in_body(true), [1, 0]);
}

/// How many nodes tell equal tokens apart no more, and of how many each token is computed alone.
fn alone(model: &Model) -> [usize; 2] {
    let found = detect(model, &Options::default());
    let alone = crate::prove::bare::alone::Alone::of(model.graph(), &found);
    [alone.even.len(), alone.each.len()]
}

/// The attention of a causal block hides how its tokens move: something of each token stands for it.
#[test]
fn a_position_behind_causal_attention_that_equal_tokens_hide_is_seen() {
    let model = |place: Embed, layers: usize| {
        let mut s = Sketch::default();
        let mut x = s.embedded();
        for _ in 0..layers {
            x = causal(&mut s, &x);
        }
        let x = place(&mut s, &x);
        s.model(17, &[&x])
    };
    let rows = "rows of tokens in another order";
    for layers in [1, 3] {
        let [plain, added, times] = PLACED.map(|(_, place)| checks(&model(place, layers)));
        assert!(plain.iter().any(|check| check.quantity == rows));
        assert_eq!(failed(&plain), [""; 0], "{layers}: control");
        assert!(failed(&added).contains(&"rows of equal tokens"));
        assert_eq!(failed(&times), [rows], "{layers}");
    }
}

/// A runtime that does not take the model without causal attention compares the rest, and that is said.
#[test]
fn what_a_runtime_leaves_out_is_said() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let x = causal(&mut s, &x);
    let (_, times) = PLACED[2];
    let x = times(&mut s, &x);
    let model = s.model(17, &[&x]);
    let found = detect(&model, &Options::default());
    let run = |refused: Option<&'static str>| {
        let backend = Evaluator {
            refused,
            ..Evaluator::default()
        };
        check_within((&model, &found), &[0], &backend, Limits::USUAL).unwrap()
    };
    let whole = run(None);
    assert_eq!(whole.left_out, None);
    assert_ne!(failed(&whole.checks), [""; 0]);
    let name = "posenc/expand_0";
    let partial = run(Some(name));
    assert!(partial.left_out.unwrap().contains("is refused"));
    assert_eq!(failed(&partial.checks), [""; 0]);
    let scores = |check: &SiteCheck| check.quantity == "scores of tokens in another order";
    assert!(partial.checks.iter().any(scores), "{:?}", partial.checks);
}

/// One layer of attention to earlier tokens.
fn causal(s: &mut Sketch, x: &str) -> String {
    let (scores, v) = causal_scores(s, x);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.op("Add", &[x, &y])
}
