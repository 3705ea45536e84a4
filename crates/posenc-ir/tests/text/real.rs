//! Every model of `fixtures/`, and of the collections in `../shared` where they are present.

use std::path::Path;

use posenc_ir::proto::ModelProto;
use posenc_ir::{Model, Weights};
use prost::Message;

use super::normal::normal;
use crate::shared::{collections, fixtures, root};

/// Prints and parses; text and messages must be the same.
fn is_read_back(path: &Path) {
    let at = path.display();
    let model = Model::open(path).unwrap_or_else(|e| panic!("{at}: {e}"));
    let text = model.text(Weights::Full).to_string();
    let parsed = Model::parse(&text).unwrap_or_else(|e| panic!("{at}: {e}"));
    let again = parsed.text(Weights::Full).to_string();
    // Comments at the head name what the first text left out.
    let body = |text: &str| {
        let start = text.find("<\n").expect("a head is always there");
        text[start..].to_owned()
    };
    assert!(body(&text) == body(&again), "{at}: the texts differ");
    let before = ModelProto::decode(model.source().clone()).unwrap();
    let after = ModelProto::decode(parsed.source().clone()).unwrap();
    assert!(normal(before) == normal(after), "{at}: the models differ");
}

#[test]
fn every_model_round_trips_through_its_text() {
    for model in fixtures().into_iter().chain(collections()) {
        is_read_back(&model);
    }
}

#[test]
fn a_change_of_the_text_is_noticed() {
    let path = root().join("fixtures/llama/torchscript/model.onnx");
    let model = Model::open(&path).unwrap();
    let text = model.text(Weights::Full).to_string();
    let want = normal(ModelProto::decode(model.source().clone()).unwrap());
    let is_same = |text: &str| {
        let parsed = Model::parse(text).unwrap();
        normal(ModelProto::decode(parsed.source().clone()).unwrap()) == want
    };
    assert!(is_same(&text));
    let changes = [
        ("a value", "int64 {1}", "int64 {2}"),
        ("an attribute", "axis = 0", "axis = -1"),
        ("an operator", "= Sigmoid(", "= Softplus("),
        (
            "the producer",
            "producer_name: \"pytorch\"",
            "producer_name: \"torch\"",
        ),
        ("an operator set", "\"\" : 17", "\"\" : 18"),
        ("a dimension", "int64[batch,", "int64[other,"),
    ];
    for (what, from, to) in changes {
        assert!(text.contains(from), "{what}: {from} is missing");
        assert!(!is_same(&text.replacen(from, to, 1)), "{what}");
    }
}
