//! Decoders that were merged from one with and one without a cache.

use posenc_ir::{DType, Model};
use posenc_runtime::Backend;

use crate::detect::{Options, detect};
use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::plan::numbers::{Init, Numbers};
use crate::prove::options::VerifyOptions;
use crate::prove::swap::Proof;
use crate::prove::testing::Evaluator;
use crate::prove::verify_with;
use crate::request::{LawName, Parameters, Request, ScaleType};
use crate::rewrite::rewrite;
use posenc_encodings::kind::{Form, Kind, Layout};

/// A table outside of the branches.
const SHARED: &str = "v1";

/// A layer after embeddings with a table added, on keys that `earlier` may join.
fn layer(s: &mut Sketch, earlier: Option<&str>) -> String {
    let (words, rows) = (s.weights(&[30, HIDDEN]), s.weights(&[40, HIDDEN]));
    let x = s.gather(&words, "input_ids", 0);
    let rows = s.gather(&rows, "position_ids", 0);
    let x = s.op("Add", &[&x, &rows]);
    attention(s, &x, earlier)
}

/// The same with the table that branches share.
fn sharing(s: &mut Sketch, earlier: Option<&str>) -> String {
    let words = s.weights(&[30, HIDDEN]);
    let x = s.gather(&words, "input_ids", 0);
    let rows = s.gather(SHARED, "position_ids", 0);
    let x = s.op("Add", &[&x, &rows]);
    attention(s, &x, earlier)
}

/// The same without the table.
fn bare(s: &mut Sketch, earlier: Option<&str>) -> String {
    let words = s.weights(&[30, HIDDEN]);
    let x = s.gather(&words, "input_ids", 0);
    attention(s, &x, earlier)
}

fn attention(s: &mut Sketch, x: &str, earlier: Option<&str>) -> String {
    let [q, k, v] = [(); 3].map(|()| s.headed(x));
    let [k, v] = [k, v].map(|new| match earlier {
        Some(earlier) => s.concat(&[earlier, &new], 2),
        None => new,
    });
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let mask = s.cast("attention_mask", DType::F32);
    let mask = s.unsqueeze(&mask, &[1, 2]);
    let scores = s.op("Add", &[&scores, &mask]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    s.op("MatMul", &[&weights, &v])
}

/// A decoder that was merged from one with and one without a cache.
fn merged(without: fn(&mut Sketch) -> String) -> Model {
    merged_of(|s| layer(s, Some("past_key_values.0.key")), without)
}

/// A decoder of one layer, with and without a cache.
pub(crate) fn twin() -> Model {
    merged(|s| layer(s, None))
}

fn merged_of(with: fn(&mut Sketch) -> String, without: fn(&mut Sketch) -> String) -> Model {
    let mut s = Sketch::default();
    assert_eq!(s.weights(&[40, HIDDEN]), SHARED);
    for name in ["input_ids", "position_ids"] {
        s.input(name, DType::I64, &["batch", "sequence"]);
    }
    s.input("attention_mask", DType::I64, &["batch", "total"]);
    let dims = ["batch", "3", "past", "8"];
    s.input("past_key_values.0.key", DType::F32, &dims);
    let flag = s.input("use_cache_branch", DType::Bool, &["1"]);
    let y = s.choice(&flag, [with, without]);
    s.model(17, &[&y])
}

fn to_none(model: &mut Model) -> Result<usize, String> {
    let request = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    let done = rewrite(model, &request).map_err(|why| why.to_string())?;
    Ok(done.report.edits.iter().map(|e| e.nodes_removed).sum())
}

#[test]
fn every_branch_is_swapped() {
    let mut model = merged(|s| layer(s, None));
    // A gather and a sum in each.
    assert_eq!(to_none(&mut model), Ok(4));
    model.check().unwrap();
    let sums = model.graph().nodes().filter(|(_, n)| n.is("Add")).count();
    assert_eq!(sums, 2);
    assert_eq!(to_none(&mut model), Ok(0));
}

#[test]
fn what_is_said_is_of_the_branch_that_was_changed() {
    let mut model = merged_of(
        |s| bare(s, Some("past_key_values.0.key")),
        |s| layer(s, None),
    );
    let request = Request {
        to: Some(Kind::None),
        ..Request::default()
    };
    let done = rewrite(&mut model, &request).unwrap();
    let edits = done.report.edits;
    assert_eq!(edits.len(), 1, "{edits:?}");
    assert_eq!(edits[0].from["kind"], "learned");
    assert_eq!((edits[0].nodes_added, edits[0].nodes_removed), (0, 2));
    let meaning = done.report.meaning.unwrap();
    assert!(meaning.contains("with learned"), "{meaning}");
    let before: Vec<usize> = done.report.limits.before.iter().map(|l| l.length).collect();
    assert_eq!(before, [40]);
    assert!(done.report.limits.after.is_empty());
}

#[test]
fn tables_get_their_rows_in_every_branch() {
    let request = Request {
        scale: Some(ScaleType::Tile),
        parameters: Parameters {
            max_length: Some(80),
            ..Parameters::default()
        },
        ..Request::default()
    };
    let of_two = || {
        merged_of(
            |s| sharing(s, Some("past_key_values.0.key")),
            |s| sharing(s, None),
        )
    };
    for (mut model, tables) in [(of_two(), 1), (twin(), 2)] {
        let done = rewrite(&mut model, &request).unwrap();
        model.check().unwrap();
        assert_eq!(done.report.edits[0].initializers_changed, tables);
        for branch in [0, 1] {
            let options = Options {
                branch,
                ..Options::default()
            };
            let found = detect(&model, &options);
            let ends = found.findings.iter().map(|f| f.max_length);
            assert_eq!(Vec::from_iter(ends), [Some(80)], "branch {branch}");
        }
    }
    // A branch that reads the table for something else would get other rows there.
    let mut model = merged_of(
        |s| sharing(s, Some("past_key_values.0.key")),
        |s| {
            let y = sharing(s, None);
            let sum = s.op("ReduceSum", &[SHARED]);
            s.op("Add", &[&y, &sum])
        },
    );
    let before = model.graph().text();
    let why = rewrite(&mut model, &request).unwrap_err().to_string();
    assert!(why.contains("is read here for something else"), "{why}");
    assert_eq!(model.graph().text(), before);
}

/// A model in which rotations were put, in every branch.
fn rotated() -> Model {
    let mut model = twin();
    let request = Request {
        to: Some(Kind::Rope),
        ..Request::default()
    };
    rewrite(&mut model, &request).unwrap();
    model
}

#[test]
fn a_rotation_gets_another_form_in_every_branch() {
    let mut model = rotated();
    let request = |form| Request {
        form: Some(form),
        ..Request::default()
    };
    let operators = |model: &Model| {
        let nodes = model.graph().nodes();
        let ops: Vec<&str> = nodes.map(|(_, node)| node.op()).collect();
        let rotating = ops.iter().filter(|op| **op == "RotaryEmbedding");
        [rotating.count(), ops.len()]
    };
    let before = operators(&model);
    assert_eq!(before[0], 0);
    let done = rewrite(&mut model, &request(Form::Contrib)).unwrap();
    model.check().unwrap();
    // Queries and keys of both.
    assert_eq!(operators(&model)[0], 4);
    let [edit] = &done.report.edits[..] else {
        panic!("{:?}", done.report.edits);
    };
    let after = operators(&model)[1] as i64 - before[1] as i64;
    assert_eq!(edit.nodes_added as i64 - edit.nodes_removed as i64, after);
    assert_eq!(done.other_branches.len(), 1);
    rewrite(&mut model, &request(Form::Ops)).unwrap();
    assert_eq!(operators(&model)[0], 0);
}

/// A layer with rotated queries and keys, by operators or by one.
fn turned(s: &mut Sketch, is_fused: bool) -> String {
    let words = s.weights(&[30, HIDDEN]);
    let x = s.gather(&words, "input_ids", 0);
    let [cos, sin] = [f64::cos, f64::sin].map(|wave: fn(f64) -> f64| {
        let angle = |i: usize| (i / 4) as f64 * 100f64.powf(-((i % 4) as f64) / 4.0);
        s.floats(
            &[40, 4],
            (0..160).map(|i| wave(angle(i))).collect::<Vec<_>>(),
        )
    });
    let [q, k] = [(); 2].map(|()| {
        let x = s.headed(&x);
        if is_fused {
            return s.op("ms.RotaryEmbedding", &[&x, "position_ids", &cos, &sin]);
        }
        let [cos, sin] = [&cos, &sin].map(|table| {
            let rows = s.gather(table, "position_ids", 0);
            let both = s.concat(&[&rows, &rows], 2);
            s.unsqueeze(&both, &[1])
        });
        let (first, second) = (s.slice(&x, 3, [0, 4, 1]), s.slice(&x, 3, [4, 8, 1]));
        let second = s.op("Neg", &[&second]);
        let other = s.concat(&[&second, &first], 3);
        let (a, b) = (s.op("Mul", &[&x, &cos]), s.op("Mul", &[&other, &sin]));
        s.op("Add", &[&a, &b])
    });
    let v = s.headed(&x);
    s.weighted(&q, &k, &v)
}

#[test]
fn branches_of_different_forms_get_one() {
    let request = |form| Request {
        form: Some(form),
        ..Request::default()
    };
    for (form, count) in [(Form::Contrib, 4), (Form::Ops, 0)] {
        let mut model = merged_of(|s| turned(s, true), |s| turned(s, false));
        let done = rewrite(&mut model, &request(form)).unwrap();
        assert_eq!(done.report.edits.len(), 1, "{:?}", done.report.edits);
        let nodes = model.graph().nodes();
        let rotating = nodes.filter(|(_, node)| node.op() == "RotaryEmbedding");
        assert_eq!(rotating.count(), count, "{form}");
    }
}

#[test]
fn branches_keep_their_layout() {
    let mut request = Request::default();
    request.parameters.layout = Some(Layout::Interleaved);
    let why = rewrite(&mut rotated(), &request).unwrap_err().to_string();
    assert!(
        why.contains("branches of a model keep their layout"),
        "{why}"
    );
}

#[test]
fn a_rotation_is_rescaled_in_every_branch() {
    let request = |to: Option<Kind>, scaled: bool| {
        let mut request = Request {
            to,
            ..Request::default()
        };
        if scaled {
            request.scale = Some(LawName::Linear.into());
            request.parameters.factor = Some(4.0);
            request.parameters.original_length = Some(40);
        }
        request
    };
    // The frequency of the fastest pair in each branch.
    let fastest = |model: &Model| {
        [0, 1].map(|branch| {
            let options = Options {
                branch,
                ..Options::default()
            };
            let found = detect(model, &options);
            let first = found.rotary.first()?;
            Some((first.query.rotation.rope.inv_freq[0] * 1e4).round() / 1e4)
        })
    };
    let mut at_once = merged(|s| layer(s, None));
    rewrite(&mut at_once, &request(Some(Kind::Rope), true)).unwrap();
    assert_eq!(fastest(&at_once), [Some(0.25); 2]);
    let mut in_two_steps = merged(|s| layer(s, None));
    rewrite(&mut in_two_steps, &request(Some(Kind::Rope), false)).unwrap();
    assert_eq!(fastest(&in_two_steps), [Some(1.0); 2]);
    let done = rewrite(&mut in_two_steps, &request(None, true)).unwrap();
    assert_eq!(fastest(&in_two_steps), [Some(0.25); 2]);
    let changed = done.report.edits.iter().map(|e| e.initializers_changed);
    assert!(changed.sum::<usize>() > 0);
    let again = rewrite(&mut in_two_steps, &request(None, true)).unwrap();
    assert!(again.report.edits.is_empty());
    // A rotation in one branch only is rescaled there only.
    let mut alone = merged(|s| s.floats(&[1, 1, 1, 1], [0.0]));
    rewrite(&mut alone, &request(Some(Kind::Rope), true)).unwrap();
    assert_eq!(fastest(&alone)[0], Some(0.25));
}

#[test]
fn the_proof_is_of_every_branch() {
    let mut model = merged(|s| layer(s, None));
    let request = Request {
        to: Some(Kind::RelativeBias),
        ..Request::default()
    };
    let mut proof = rewrite(&mut model, &request).unwrap().proof.unwrap();
    assert_eq!(proof.other_branches.len(), 1);
    let checks = proof.evaluate().unwrap();
    assert!(checks.iter().all(|c| c.ok));
    let alone = Proof {
        other_branches: vec![],
        ..proof.clone()
    };
    assert!(alone.evaluate().unwrap().len() < checks.len());
    // The first branch matches the request; the second does not.
    for group in &mut proof.other_branches[0].plan.groups {
        for numbers in group.new.numbers() {
            *numbers = Numbers::Start(Init::Normal { std: 0.5, seed: 9 });
        }
    }
    assert!(alone.evaluate().unwrap().iter().all(|c| c.ok));
    assert!(!proof.evaluate().unwrap().iter().all(|c| c.ok));
    assert!(!proof.is_empty());
    proof.plan.groups.clear();
    assert!(!proof.is_empty(), "another branch is left to prove");
    proof.other_branches.clear();
    assert!(proof.is_empty());
}

#[test]
fn a_branch_that_cannot_be_read_is_refused() {
    let mut model = merged(|s| {
        let y = layer(s, None);
        let sizes = s.op("NonZero", &[&y]);
        let y = s.op("Reshape", &[&y, &sizes]);
        let k = s.transpose(&y, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&y, &k]);
        let weights = s.op("Softmax", &[&scores]);
        s.op("MatMul", &[&weights, &y])
    });
    let before = model.graph().text();
    let why = to_none(&mut model).unwrap_err();
    assert!(
        why.contains("a softmax is not recognized as attention"),
        "{why}"
    );
    assert_eq!(model.graph().text(), before);
}

/// A factor in a branch that is always taken, with a node for its constant.
fn factor(s: &mut Sketch) -> String {
    let three = s.with("Constant", &[], &[("value_int", A::Int(3))]);
    s.cast(&three, DType::F32)
}

#[test]
fn a_branch_that_is_always_taken_is_recorded_as_it_is_read() {
    let mut s = Sketch::default();
    let x = s.embedded();
    let (table, at) = (s.weights(&[40, HIDDEN]), s.range());
    let rows = s.gather(&table, &at, 0);
    let x = s.op("Add", &[&x, &rows]);
    let (two, three) = (s.int(2), s.int(3));
    let always = s.op("Greater", &[&three, &two]);
    let factor = s.choice(&always, [factor, factor]);
    let x = s.op("Mul", &[&x, &factor]);
    let y = s.attends(&x, &x);
    let mut model = s.model(17, &[&y]);
    to_none(&mut model).unwrap();
    let again = Model::from_bytes(model.to_bytes().unwrap()).unwrap();
    let options = VerifyOptions {
        lengths: vec![4],
        ..VerifyOptions::default()
    };
    let backends: [Box<dyn Backend>; 1] = [Box::new(Evaluator::default())];
    let report = verify_with(&again, None, &options, &backends, None).unwrap();
    assert!(report.ok, "{:?}", report.sites);
}
