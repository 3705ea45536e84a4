//! Models with a position fail, and those without pass.

use posenc_ir::{Attr, DType, Emitter, Model, Tensor, ValueId};

use super::limits::Limits;
use super::{Bare, check, check_within};
use crate::detect::rows::{Rows, What};
use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::prove::testing::{Evaluator, fixture};
use crate::report::SiteCheck;
use crate::request::{LawName, Parameters, Request};
use posenc_encodings::kind::Kind;

/// The checks of all sites of a model as it is.
fn checks(model: &Model) -> Vec<SiteCheck> {
    let found = detect(model, &Options::default());
    let sites: Vec<usize> = (0..found.attention.len()).collect();
    check((model, &found), &sites, &Evaluator::default())
        .unwrap()
        .checks
}

fn failed(checks: &[SiteCheck]) -> Vec<&str> {
    let failed = checks.iter().filter(|check| !check.ok);
    failed.map(|check| check.quantity.as_str()).collect()
}

#[test]
fn every_encoding_that_is_left_is_seen() {
    // Rotations and absolute codes are in queries and keys, biases and terms in scores.
    for (kind, quantity) in [
        ("rope", "queries of equal tokens"),
        ("learned", "queries of equal tokens"),
        ("sinusoidal", "queries of equal tokens"),
        ("alibi", "scores of equal tokens"),
        ("t5", "scores of equal tokens"),
        ("relative-clipped", "scores of equal tokens"),
        ("shaw", "scores of equal tokens"),
        ("transformer-xl", "scores of equal tokens"),
    ] {
        let checks = checks(&fixture(&format!("mini/{kind}")));
        assert!(failed(&checks).contains(&quantity), "{kind}: {checks:?}");
    }
}

#[test]
fn a_model_without_positions_passes_at_every_site() {
    let checks = checks(&fixture("mini/none"));
    let site =
        ["queries", "keys", "values", "scores"].map(|name| format!("{name} of equal tokens"));
    let mut all = [&site[..], &site[..]].concat();
    all.push("rows of equal tokens".to_owned());
    let moved = |name: &String| name.replace("equal tokens", "tokens in another order");
    let moved: Vec<String> = all.iter().map(moved).collect();
    all.extend(moved);
    let quantities: Vec<&str> = checks.iter().map(|check| check.quantity.as_str()).collect();
    let longer = |quantity: &&&str| quantity.ends_with(" in a sequence of 95");
    assert_eq!(quantities.iter().filter(longer).count(), 9);
    let short: Vec<&str> = quantities.iter().copied().filter(|q| !longer(&q)).collect();
    assert_eq!(short, all);
    assert_eq!(failed(&checks), [""; 0]);
}

/// A number for each token along an axis of a value, 0 up to token `from`.
fn positions(out: &mut Emitter<'_>, value: ValueId, axis: i64, rank: usize, from: f64) -> ValueId {
    let shape = out.op("Shape", &[value]);
    let at = out.constant("axis", Tensor::from_i64(&[], &[axis]));
    let count = out.op_with("Gather", &[shape, at], &[("axis", Attr::Int(0))]);
    let [zero, one] = [0, 1].map(|n| out.constant("n", Tensor::from_i64(&[], &[n])));
    let range = out.op("Range", &[zero, count, one]);
    let range = out.cast(range, DType::F32);
    let from = out.scalar("from", DType::F32, from);
    let range = out.op("Sub", &[range, from]);
    let range = out.op("Relu", &[range]);
    let small = out.scalar("small", DType::F32, 0.05);
    let numbers = out.op("Mul", &[range, small]);
    let others = (0..rank as i64).filter(|a| *a != axis);
    let axes = out.ints("axes", &others.collect::<Vec<_>>());
    out.op("Unsqueeze", &[numbers, axes])
}

/// A model in which a position enters at a value: times the difference to the mean of all tokens, or
/// as it is. It is 0 up to token `from`.
fn planted(
    model: &Model,
    (value, axis): (ValueId, usize),
    from: f64,
    is_multiplied: bool,
) -> Model {
    let graph = model.graph();
    let found = detect(model, &Options::default());
    let rank = found.trace.get(value).dims.as_ref().unwrap().len();
    let mut out = graph.emitter(graph.main(), "planted");
    let axis = axis as i64;
    let mut entering = positions(&mut out, value, axis, rank, from);
    if is_multiplied {
        let axes = out.ints("tokens", &[axis]);
        let mean = out.op("ReduceMean", &[value, axes]);
        let difference = out.op("Sub", &[value, mean]);
        entering = out.op("Mul", &[entering, difference]);
    }
    let sum = out.op("Add", &[value, entering]);
    out.redirect(value, sum).unwrap();
    let (planted, _) = model.clone().with_patch(out.finish()).unwrap();
    planted
}

/// The rows of a kind, and where they are.
fn rows_of(model: &Model, what: What) -> Rows {
    let found = detect(model, &Options::default());
    *found.rows.iter().find(|rows| rows.what == what).unwrap()
}

#[test]
fn a_position_that_reaches_only_values_or_outputs_is_seen() {
    let model = fixture("mini/none");
    for (what, quantity) in [
        (What::Values(1), "values of equal tokens"),
        (What::Output, "rows of equal tokens"),
    ] {
        let rows = rows_of(&model, what);
        let checks = checks(&planted(&model, (rows.value, rows.axis), 0.0, false));
        let failed = failed(&checks);
        assert!(failed.contains(&quantity), "{what:?}: {checks:?}");
        assert!(
            !failed.iter().any(|q| q.starts_with("queries")),
            "{what:?}: {checks:?}"
        );
    }
}

#[test]
fn a_position_that_begins_behind_the_first_tokens_is_seen() {
    let model = fixture("mini/none");
    let rows = rows_of(&model, What::Values(1));
    let late = |from| checks(&planted(&model, (rows.value, rows.axis), from, false));
    let longer = "values of equal tokens in a sequence of 95";
    assert!(failed(&late(40.0)).contains(&longer));
    assert_eq!(failed(&late(200.0)), [""; 0], "control");
}

/// An encoder in which a position multiplies the differences of the scores of a query.
fn with_factors_of_differences() -> Model {
    let model = fixture("mini-encoder/none");
    let found = detect(&model, &Options::default());
    let site = &found.attention[1];
    planted(
        &model,
        (site.scores.unwrap(), site.plane.unwrap()[1]),
        0.0,
        true,
    )
}

#[test]
fn a_position_times_a_difference_of_contents_is_seen_in_another_order() {
    let checks = checks(&with_factors_of_differences());
    let failed = failed(&checks);
    assert!(
        failed.contains(&"scores of tokens in another order"),
        "{checks:?}"
    );
    assert!(
        !failed.iter().any(|q| q.ends_with("of equal tokens")),
        "{checks:?}"
    );
}

#[test]
fn everything_moves_with_the_tokens_of_an_encoder() {
    let checks = checks(&fixture("mini-encoder/none"));
    assert_eq!(failed(&checks), [""; 0]);
    let moved = checks
        .iter()
        .filter(|c| c.quantity.ends_with("in another order"));
    let quantities: Vec<&str> = moved
        .map(|c| c.quantity.split(' ').next().unwrap())
        .collect();
    let site = ["queries", "keys", "values", "scores"];
    assert_eq!(quantities, [&site[..], &site[..], &["rows"]].concat());
}

#[test]
fn a_position_in_one_layer_is_named_there() {
    let mut model = fixture("mini/alibi");
    let mut request = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    request.layers = Some("0".parse().unwrap());
    crate::rewrite::rewrite(&mut model, &request).unwrap();
    let found = detect(&model, &Options::default());
    let checks = checks(&model);
    let failed: Vec<&SiteCheck> = checks.iter().filter(|check| !check.ok).collect();
    assert!(!failed.is_empty());
    assert!(
        failed
            .iter()
            .all(|check| check.site == found.attention[1].name),
        "{failed:?}"
    );
}

#[test]
fn numbers_that_differ_everywhere_fail() {
    // The evaluator returns other numbers for the last token.
    let model = fixture("mini/none");
    let found = detect(&model, &Options::default());
    let wrong = Evaluator {
        fault: Some(|data, _| *data.last_mut().unwrap() += 1.0),
        ..Evaluator::default()
    };
    let checks = check((&model, &found), &[0], &wrong).unwrap().checks;
    let equal = |q: &&&str| q.ends_with("of equal tokens");
    assert_eq!(
        failed(&checks).iter().filter(equal).count(),
        5,
        "{checks:?}"
    );
}

/// The checks of a model of which all matrices are too large to run.
fn with_stand_ins(model: &Model) -> Bare {
    let found = detect(model, &Options::default());
    let sites: Vec<usize> = (0..found.attention.len()).collect();
    let limits = Limits {
        weights: 20_000,
        large: 24 * 24,
        ..Limits::USUAL
    };
    check_within((model, &found), &sites, &Evaluator::default(), limits).unwrap()
}

#[test]
fn stand_ins_for_large_weights_neither_hide_nor_make_a_position() {
    for family in ["mini", "mini-encoder"] {
        let model = fixture(&format!("{family}/none"));
        let bare = with_stand_ins(&model);
        // More than the matrices of two layers.
        assert!(
            bare.stood_in > 2 * 4 * 4 * 24 * 24,
            "{family}: {}",
            bare.stood_in
        );
        assert_eq!(failed(&bare.checks), [""; 0], "{family}: {:?}", bare.checks);
        assert_eq!(bare.checks.len(), checks(&model).len(), "{family}");
    }
    for kind in ["rope", "learned", "alibi", "shaw"] {
        let bare = with_stand_ins(&fixture(&format!("mini/{kind}")));
        assert!(bare.stood_in > 0);
        assert_ne!(failed(&bare.checks), [""; 0], "{kind}: {:?}", bare.checks);
    }
    let bare = with_stand_ins(&with_factors_of_differences());
    assert!(
        failed(&bare.checks).contains(&"scores of tokens in another order"),
        "{bare:?}"
    );
}

#[test]
fn a_model_of_too_many_nodes_is_not_run() {
    let model = fixture("mini/none");
    let found = detect(&model, &Options::default());
    let limits = Limits {
        nodes: 50,
        ..Limits::USUAL
    };
    let backend = Evaluator::default();
    let error = check_within((&model, &found), &[0], &backend, limits).unwrap_err();
    assert!(error.to_string().contains("at most 50 are run"), "{error}");
}

/// What is made of embeddings.
type Embed = fn(&mut Sketch, &str) -> String;

/// Two layers without encodings behind the embeddings that `embed` changes.
fn embedded(embed: Embed) -> Model {
    let mut s = Sketch::default();
    s.input("input_ids", DType::I64, &["batch", "sequence"]);
    let x = s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
    let x = embed(&mut s, &x);
    attended(s, x)
}

/// Two layers without encodings.
fn attended(mut s: Sketch, mut x: String) -> Model {
    for _ in 0..2 {
        x = s.attends(&x, &x);
    }
    s.model(17, &[&x])
}

/// `inputs_embeds` with rows of a table added.
fn placed(s: &mut Sketch) -> String {
    let rows = rows(s, 200);
    s.op("Add", &["inputs_embeds", &rows])
}

fn rows(s: &mut Sketch, count: usize) -> String {
    let (table, at) = (s.weights(&[count, HIDDEN]), s.range());
    s.gather(&table, &at, 0)
}

#[test]
fn a_position_that_acts_on_one_id_alone_is_seen() {
    let placed = |id: i64| {
        embedded(match id {
            5 => |s, x| {
                let id = s.int(5);
                marked(s, x, &id)
            },
            _ => |s, x| {
                // No token is of this id.
                let id = s.int(-9);
                marked(s, x, &id)
            },
        })
    };
    let checks = [5, -9].map(|id| checks(&placed(id)));
    assert!(failed(&checks[0]).contains(&"queries of equal tokens of id 5"));
    assert!(!failed(&checks[0]).contains(&"queries of equal tokens"));
    assert_eq!(failed(&checks[1]), [""; 0], "control");
}

#[test]
fn a_position_that_acts_on_ids_of_one_half_of_the_vocabulary_is_seen() {
    let placed = |compare: &str, bound: i64| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let bound = s.int(bound);
        let is_marked = s.op(compare, &["input_ids", &bound]);
        let is_marked = s.unsqueeze(&is_marked, &[2]);
        let rows = rows(&mut s, 200);
        let later = s.op("Add", &[&x, &rows]);
        let x = s.op("Where", &[&is_marked, &later, &x]);
        attended(s, x)
    };
    for (compare, bound) in [("Greater", 15), ("Less", 14)] {
        let checks = checks(&placed(compare, bound));
        assert_ne!(failed(&checks), [""; 0], "{compare} {bound}");
    }
    let none = checks(&placed("Greater", 40));
    assert_eq!(failed(&none), [""; 0], "control");
}

#[test]
fn what_changes_nothing_before_a_position_does_not_hide_it() {
    let cases: [(&str, Embed); 4] = [
        ("nothing", |_, x| x.to_owned()),
        ("a pad of nothing", |s, x| {
            let ends = s.ints(&[0; 6]);
            s.op("Pad", &[x, &ends])
        }),
        ("a pad of features", |s, x| {
            let ends = s.ints(&[0, 0, 0, 0, 0, 2]);
            let wide = s.op("Pad", &[x, &ends]);
            s.slice(&wide, 2, [0, HIDDEN as i64, 1])
        }),
        ("a branch that content chooses", |s, _| {
            let size = s.with("ReduceSum", &["inputs_embeds"], &[("keepdims", A::Int(0))]);
            let zero = s.float(0.0);
            let condition = s.op("Greater", &[&size, &zero]);
            let plain: fn(&mut Sketch) -> String = |s| s.op("Identity", &["inputs_embeds"]);
            s.choice(&condition, [plain, plain])
        }),
    ];
    for (name, before) in cases {
        let mut s = Sketch::default();
        s.input("input_ids", DType::I64, &["batch", "sequence"]);
        let x = s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
        let x = before(&mut s, &x);
        let bare = attended(s.clone(), x.clone());
        assert_eq!(failed(&checks(&bare)), [""; 0], "{name}: control");
        let rows = rows(&mut s, 200);
        let x = s.op("Add", &[&x, &rows]);
        let checks = checks(&attended(s, x));
        let failed = failed(&checks);
        assert!(
            failed.contains(&"queries of equal tokens"),
            "{name}: {checks:?}"
        );
    }
}

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
const MIXERS: [(&str, Embed); 12] = [
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

/// The same behind the last attention.
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
        let found = detect(&model, &Options::default());
        let alone = super::alone::Alone::of(model.graph(), &found);
        [alone.even.len(), alone.each.len()]
    };
    assert_eq!(of(false), [1, 1]);
    assert_eq!(of(true), [1, 0]);
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

/// One layer of attention to earlier tokens.
fn causal(s: &mut Sketch, x: &str) -> String {
    let [q, k, v] = [(); 3].map(|()| s.headed(x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let at = s.range();
    let [rows, columns] = [1, 0].map(|axis| s.unsqueeze(&at, &[axis]));
    let is_later = s.op("Greater", &[&columns, &rows]);
    let masked = s.float(-1e9);
    let scores = s.op("Where", &[&is_later, &masked, &scores]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.op("Add", &[x, &y])
}

#[test]
fn sites_that_a_rescale_leaves_alone_have_no_position() {
    let mut model = fixture("smollm3/dynamo");
    let request = Request {
        scale: Some(LawName::Linear.into()),
        parameters: Parameters {
            factor: Some(2.0),
            ..Parameters::default()
        },
        ..Request::default()
    };
    let done = crate::rewrite::rewrite(&mut model, &request).unwrap();
    assert!(!done.bare.is_empty());
    let bare = check(
        (done.read(), &done.found),
        &done.bare,
        &Evaluator::default(),
    )
    .unwrap();
    assert!(!bare.checks.is_empty());
    assert_eq!(failed(&bare.checks), [""; 0]);
    // The others rotate.
    let others: Vec<usize> = (0..done.found.attention.len()).collect();
    let all = check((done.read(), &done.found), &others, &Evaluator::default()).unwrap();
    assert!(failed(&all.checks).contains(&"queries of equal tokens"));
}

/// With rows of a table added to tokens of one id.
fn marked(s: &mut Sketch, x: &str, id: &str) -> String {
    let rows = rows(s, 200);
    let flags = s.op("Equal", &["input_ids", id]);
    let flags = s.cast(&flags, DType::F32);
    let flags = s.unsqueeze(&flags, &[-1]);
    let rows = s.op("Mul", &[&rows, &flags]);
    s.op("Add", &[x, &rows])
}

/// One of two branches, the first for more tokens than `bound`.
fn chosen(s: &mut Sketch, bound: i64, branches: [fn(&mut Sketch) -> String; 2]) -> String {
    let shape = s.op("Shape", &["input_ids"]);
    let (one, bound) = (s.int(1), s.int(bound));
    let length = s.gather(&shape, &one, 0);
    let condition = s.op("Greater", &[&length, &bound]);
    s.choice(&condition, branches)
}

#[test]
fn a_position_in_the_branch_that_is_not_taken_is_seen() {
    let plain: fn(&mut Sketch) -> String = |s| s.op("Identity", &["inputs_embeds"]);
    let doubled: fn(&mut Sketch) -> String = |s| s.op("Add", &["inputs_embeds", "inputs_embeds"]);
    assert_eq!(plain_and(doubled, plain), [""; 0], "control");
    let failed = plain_and(placed, plain);
    assert!(
        failed
            .iter()
            .any(|q| q.contains("queries of equal tokens in the other branch of"))
    );
}

/// What fails where a branch for more than 1000 tokens is not taken.
fn plain_and(far: fn(&mut Sketch) -> String, near: fn(&mut Sketch) -> String) -> Vec<String> {
    let mut s = Sketch::default();
    s.input("input_ids", DType::I64, &["batch", "sequence"]);
    s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
    let x = chosen(&mut s, 1000, [far, near]);
    let checks = checks(&attended(s, x));
    failed(&checks).into_iter().map(str::to_owned).collect()
}

#[test]
fn a_limit_that_was_not_found_leaves_a_shorter_sequence() {
    let model = |far: fn(&mut Sketch) -> String| {
        let mut s = Sketch::default();
        s.input("input_ids", DType::I64, &["batch", "sequence"]);
        s.input("inputs_embeds", DType::F32, &["batch", "sequence", "24"]);
        let x = chosen(&mut s, 20, [far, |s| s.op("Identity", &["inputs_embeds"])]);
        attended(s, x)
    };
    // The table of this branch ends before the longest sequence.
    let late = checks(&model(|s| {
        let rows = rows(s, 60);
        s.op("Add", &["inputs_embeds", &rows])
    }));
    let longer = |q: &&str| q.contains("in a sequence of 51");
    assert!(failed(&late).iter().any(longer), "{late:?}");
}
