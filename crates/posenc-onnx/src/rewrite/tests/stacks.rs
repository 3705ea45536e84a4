//! Models of an encoder and a decoder, whose layers count within their stack.

use posenc_ir::{DType, Model};

use crate::graph::sketch::{A, HIDDEN, Sketch};
use crate::request::{LawName, Request};
use crate::rewrite::rewrite;
use posenc_encodings::kind::{Kind, Stack};

/// Attention of `x` to `keys`, added to `x`.
fn attends(s: &mut Sketch, x: &str, keys: &str) -> String {
    let q = s.headed(x);
    let [k, v] = [0; 2].map(|_| s.headed(keys));
    let k = s.transpose(&k, &[0, 1, 3, 2]);
    let scores = s.op("MatMul", &[&q, &k]);
    let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
    let y = s.op("MatMul", &[&weights, &v]);
    let y = s.merged(&y);
    s.op("Add", &[x, &y])
}

/// Two layers of an encoder and one of a decoder, without any encoding.
fn model() -> Model {
    let mut s = Sketch::default();
    let mut x = s.embedded();
    for _ in 0..2 {
        x = attends(&mut s, &x.clone(), &x);
    }
    let dims = ["batch", "decoder_sequence"];
    let ids = s.input("decoder_input_ids", DType::I64, &dims);
    let words = s.weights(&[30, HIDDEN]);
    let mut y = s.op("Gather", &[&words, &ids]);
    y = attends(&mut s, &y.clone(), &y);
    y = attends(&mut s, &y, &x);
    s.model(17, &[&y])
}

#[test]
fn edits_name_what_each_stack_had() {
    let mut model = model();
    for (stack, theta) in [(Stack::Encoder, 1e4), (Stack::Decoder, 1e6)] {
        let mut request = Request {
            to: Some(Kind::Rope),
            stack: Some(stack),
            ..Request::default()
        };
        request.parameters.theta = Some(theta);
        let done = rewrite(&mut model, &request).unwrap();
        assert!(!done.report.edits.is_empty(), "{stack}");
    }
    let mut request = Request {
        scale: Some(LawName::Linear.into()),
        ..Request::default()
    };
    request.parameters.factor = Some(2.0);
    let done = rewrite(&mut model, &request).unwrap();
    let reported = done.report.edits.iter().map(|edit| {
        let theta = |side: &serde_json::Value| side["params"]["theta"].as_f64();
        let law = edit.to["params"]["scaling"]["type"].as_str();
        (theta(&edit.from), theta(&edit.to), law)
    });
    let reported: Vec<_> = reported.collect();
    let scaled = |theta| (Some(theta), Some(theta), Some("linear"));
    assert_eq!(reported, [scaled(1e4), scaled(1e4), scaled(1e6)]);
}
