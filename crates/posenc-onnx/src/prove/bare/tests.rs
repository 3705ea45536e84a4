//! Models with a position fail, and those without pass.

mod branches;
mod inputs;
mod loops;
mod met;
mod mixers;

use posenc_ir::{Attr, DType, Emitter, Model, Tensor, ValueId};

use super::limits::Limits;
use super::{Bare, check, check_within};
use crate::detect::rows::{Rows, What};
use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HEADS, HIDDEN, Sketch};
use crate::prove::testing::{Evaluator, fixture};
use crate::report::SiteCheck;
use crate::request::{LawName, Parameters, Request};
use posenc_encodings::kind::Kind;

/// What a run shows at all sites of a model as it is.
fn checks(model: &Model) -> Vec<SiteCheck> {
    let found = detect(model, &Options::default());
    let sites: Vec<usize> = (0..found.attention.len()).collect();
    let backend = Evaluator::default();
    check_within((model, &found), &sites, &backend, Limits::USUAL)
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

/// The last and all states of a recurrence that a body computes.
fn scanned(s: &mut Sketch, x: &str) -> [String; 2] {
    let first = s.int(0);
    let (row, none) = (s.gather(x, &first, 1), s.float(0.0));
    let state = s.op("Mul", &[&row, &none]);
    s.recurrence([&state, x], 1, |s, [state, x]| {
        let half = s.float(0.5);
        let kept = s.op("Mul", &[state, &half]);
        let sum = s.op("Add", &[&kept, x]);
        s.op("Tanh", &[&sum])
    })
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
    let backend = Evaluator::default();
    let read = (done.read(), &done.found);
    let all = check_within(read, &others, &backend, Limits::USUAL).unwrap();
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

/// Scores of earlier tokens and of each token itself, and the values.
fn causal_scores(s: &mut Sketch, x: &str) -> (String, String) {
    let [q, k, v] = [(); 3].map(|()| s.headed(x));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let at = s.range();
    let [rows, columns] = [1, 0].map(|axis| s.unsqueeze(&at, &[axis]));
    let is_later = s.op("Greater", &[&columns, &rows]);
    let masked = s.float(-1e9);
    let scores = s.op("Where", &[&is_later, &masked, &scores]);
    (scores, v)
}

#[test]
fn products_of_packed_weights_are_coarse_where_they_round_what_they_multiply() {
    let coarse = |level: i64| {
        let mut s = Sketch::default();
        let x = s.embedded();
        let (w, scales) = (s.weights(&[4, 1, 16]), s.weights(&[4]));
        let attrs = [
            ("K", A::Int(24)),
            ("N", A::Int(4)),
            ("accuracy_level", A::Int(level)),
        ];
        let y = s.with("ms.MatMulNBits", &[&x, &w, &scales], &attrs);
        super::coarse(s.model(17, &[&y]).graph())
    };
    assert_eq!([0, 1, 2, 3].map(coarse), [0.0; 4]);
    assert_eq!(coarse(4), super::coarse::COARSE);
}
