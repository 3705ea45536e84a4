mod function;
mod node;
mod payload;
mod structure;
mod warning;

use prost::Message;

use crate::DType;
use crate::model::Model;
use crate::proto::{FunctionProto, GraphProto, ModelProto, NodeProto};
use crate::samples::{floats, import, model_proto, node, untyped, value, with_bodies};

/// y = x + w
fn sum() -> GraphProto {
    GraphProto {
        name: Some("g".to_owned()),
        input: vec![value("x", DType::F32, &[2])],
        initializer: vec![floats("w", &[1.0, 2.0])],
        node: vec![node("Add", &["x", "w"], &["y"])],
        output: vec![untyped("y")],
        ..Default::default()
    }
}

/// What reading or checking says; `Ok` where neither refuses.
fn verdict(proto: &ModelProto) -> Result<(), String> {
    let model = Model::from_bytes(proto.encode_to_vec());
    let checked = model.and_then(|m| m.check());
    checked.map(drop).map_err(|e| e.to_string())
}

pub(super) fn changed(edit: impl FnOnce(&mut GraphProto)) -> ModelProto {
    let mut graph = sum();
    edit(&mut graph);
    model_proto(graph)
}

/// The branch of an `If` that gives one value.
fn branch(nodes: Vec<NodeProto>, output: &str) -> GraphProto {
    GraphProto {
        node: nodes,
        output: vec![untyped(output)],
        ..Default::default()
    }
}

/// `y = If(x)` with these branches.
fn choice(then: GraphProto, or: GraphProto) -> NodeProto {
    let bodies = vec![("then_branch", then), ("else_branch", or)];
    with_bodies(node("If", &["x"], &["y"]), bodies)
}
