//! Models whose layers call functions.

use posenc_encodings::kind::Kind;
use posenc_ir::Model;
use posenc_ir::proto::{FunctionProto, ModelProto, NodeProto, OperatorSetIdProto};
use prost::Message;

use crate::facade;
use crate::prove::testing::fixture;
use crate::request::Request;

const DOMAIN: &str = "own";

fn node(op: &str, domain: &str, input: &[&str], output: &str) -> NodeProto {
    NodeProto {
        op_type: Some(op.to_owned()),
        domain: Some(domain.to_owned()),
        input: input.iter().map(|name| (*name).to_owned()).collect(),
        output: vec![output.to_owned()],
        ..NodeProto::default()
    }
}

/// A function of two inputs.
fn function(name: &str, node: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: Some(name.to_owned()),
        domain: Some(DOMAIN.to_owned()),
        input: vec!["a".into(), "b".into()],
        output: vec!["y".into()],
        node,
        opset_import: vec![OperatorSetIdProto {
            domain: Some(String::new()),
            version: Some(17),
        }],
        ..FunctionProto::default()
    }
}

/// A model with rotations in which every sum and product is a call of a function of functions, so
/// that it has many more values without calls than with them.
fn nested() -> Model {
    let mut proto = ModelProto::decode(fixture("mini/rope").source().clone()).unwrap();
    let version = proto.opset_import.iter().find(|o| o.domain().is_empty());
    let version = version.unwrap().version();
    let domain = OperatorSetIdProto {
        domain: Some(DOMAIN.to_owned()),
        version: Some(1),
    };
    proto.opset_import.push(domain);
    for op in ["Add", "Mul", "MatMul"] {
        let names: Vec<String> = (0..20).map(|i| format!("t{i}")).collect();
        let mut inner = vec![node(op, "", &["a", "b"], "t0")];
        for pair in names.windows(2) {
            inner.push(node("Identity", "", &[&pair[0]], &pair[1]));
        }
        inner.push(node("Identity", "", &[&names[19]], "y"));
        let outer = vec![node(&format!("Inner{op}"), DOMAIN, &["a", "b"], "y")];
        proto.functions.push(function(&format!("Inner{op}"), inner));
        proto.functions.push(function(&format!("Outer{op}"), outer));
    }
    for function in &mut proto.functions {
        function.opset_import[0].version = Some(version);
        function.opset_import.push(OperatorSetIdProto {
            domain: Some(DOMAIN.to_owned()),
            version: Some(1),
        });
    }
    let graph = proto.graph.as_mut().unwrap();
    for node in &mut graph.node {
        if matches!(node.op_type(), "Add" | "Mul" | "MatMul") {
            node.op_type = Some(format!("Outer{}", node.op_type()));
            node.domain = Some(DOMAIN.to_owned());
        }
    }
    Model::from_bytes(proto.encode_to_vec()).unwrap()
}

fn to(kind: Kind) -> Request {
    Request {
        to: Some(kind),
        ..Request::default()
    }
}

#[test]
fn a_model_that_keeps_its_calls_is_checked_where_it_was_read() {
    let model = facade::Model::checked(nested()).unwrap();
    let calls = |model: &Model| model.graph().nodes().any(|(_, n)| n.domain() == DOMAIN);
    let done = model.plan(to(Kind::Rope)).unwrap().apply().unwrap();
    assert!(done.report().edits.is_empty());
    assert!(calls(done.as_ir()), "an unchanged model keeps its bytes");
    assert!(done.is_verifiable().unwrap());
    let done = model.plan(to(Kind::None)).unwrap().apply().unwrap();
    assert_eq!(done.report().edits.len(), 2);
    assert!(!calls(done.as_ir()));
    assert!(!done.is_verifiable().unwrap());
}
