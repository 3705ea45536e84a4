//! Biases of buckets that are one operator.

use posenc_encodings::kind::Form;
use serde_json::json;

use crate::graph::sketch::{A, HEADS, HIDDEN, Sketch};
use crate::request::{Request, Target};
use crate::rewrite::{plan, rewrite};
use posenc_encodings::laws::LawName;
use posenc_ir::Model;

/// A layer whose attention is given the bias of an operator, up to this distance.
fn model(max_distance: i64) -> Model {
    let mut s = Sketch::default();
    let x = s.embedded();
    let table = s.weights(&[8, HEADS]);
    let shape = s.op("Shape", &[&x]);
    let length = s.slice(&shape, 0, [1, 2, 1]);
    let attributes = [
        ("max_distance", A::Int(max_distance)),
        ("is_bidirectional", A::Int(1)),
    ];
    let op = "ms.RelativePositionBias";
    let bias = s.with(op, &[&table, &length, &length], &attributes);
    let weights = s.weights(&[HIDDEN, 3 * HIDDEN]);
    let heads = [("num_heads", A::Int(HEADS as i64))];
    let y = s.with("ms.Attention", &[&x, &weights, "", "", "", &bias], &heads);
    s.model(17, &[&y])
}

fn count(model: &Model, op: &str) -> usize {
    let nodes = model.graph().nodes();
    nodes.filter(|(_, node)| node.op() == op).count()
}

#[test]
fn they_get_the_form_of_plain_operators() {
    let of = |form, target| Request {
        form,
        target,
        ..Request::default()
    };
    for request in [of(Some(Form::Ops), None), of(None, Some(Target::OrtCpu))] {
        let before = model(20);
        let planned = plan(&before, request.clone(), &[]).unwrap();
        assert_eq!(planned.unfolded_biases(&planned.branches[0].found), [0]);
        let mut after = before.clone();
        let done = rewrite(&mut after, &request).unwrap();
        let [edit] = &done.report.edits[..] else {
            panic!("{:?}", done.report.edits);
        };
        assert_eq!(edit.from["form"], json!("contrib"));
        assert_eq!(edit.to["form"], json!("ops"));
        assert_eq!(edit.from["params"], edit.to["params"]);
        assert_eq!(count(&after, "RelativePositionBias"), 0);
        assert_eq!(count(&after, "Attention"), 1);
    }
}

#[test]
fn they_stay_where_nothing_asks_for_others() {
    for form in [Form::Contrib, Form::Onnx] {
        let request = Request {
            form: Some(form),
            ..Request::default()
        };
        let why = rewrite(&mut model(20), &request).unwrap_err().to_string();
        assert!(why.contains("only rotations have another form"), "{why}");
    }
    let request = Request {
        target: Some(Target::OrtCuda),
        ..Request::default()
    };
    let before = model(20);
    let planned = plan(&before, request.clone(), &[]).unwrap();
    let found = &planned.branches[0].found;
    assert!(planned.unfolded_biases(found).is_empty());
    let mut after = before.clone();
    let done = rewrite(&mut after, &request).unwrap();
    assert!(done.report.edits.is_empty());
    assert_eq!(count(&after, "RelativePositionBias"), 1);
}

#[test]
fn their_distances_are_divided_as_plain_operators() {
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    let mut after = model(20);
    let done = rewrite(&mut after, &request).unwrap();
    let edit = &done.report.edits[0];
    assert_eq!(edit.to["params"]["factor"], json!(2));
    assert_eq!(
        (&edit.from["form"], &edit.to["form"]),
        (&json!("contrib"), &json!("ops"))
    );
    assert_eq!(count(&after, "RelativePositionBias"), 0);
}
