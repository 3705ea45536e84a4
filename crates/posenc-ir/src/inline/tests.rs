use super::*;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{OperatorSetIdProto, ValueInfoProto};

fn node(op: &str, domain: &str, input: &[&str], output: &[&str]) -> NodeProto {
    let own = |l: &[&str]| l.iter().map(|s| (*s).to_owned()).collect();
    NodeProto {
        op_type: Some(op.to_owned()),
        domain: Some(domain.to_owned()),
        input: own(input),
        output: own(output),
        ..NodeProto::default()
    }
}

fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: Some(name.to_owned()),
        domain: Some("own".to_owned()),
        input: vec!["a".into()],
        output: vec!["b".into()],
        node: nodes,
        ..FunctionProto::default()
    }
}

fn model(functions: Vec<FunctionProto>, nodes: Vec<NodeProto>) -> Model {
    let value = |name: &str| ValueInfoProto {
        name: Some(name.to_owned()),
        ..ValueInfoProto::default()
    };
    let proto = ModelProto {
        ir_version: Some(8),
        opset_import: vec![
            OperatorSetIdProto {
                domain: Some(String::new()),
                version: Some(17),
            },
            OperatorSetIdProto {
                domain: Some("own".into()),
                version: Some(1),
            },
        ],
        graph: Some(GraphProto {
            node: nodes,
            input: vec![value("x")],
            output: vec![value("y")],
            ..GraphProto::default()
        }),
        functions,
        ..ModelProto::default()
    };
    Model::from_bytes(proto.encode_to_vec()).unwrap()
}

fn ops(model: &Model) -> Vec<String> {
    let graph = model.graph();
    let order = graph.order(graph.main()).unwrap();
    let nodes = order.iter().map(|n| graph.node(*n));
    nodes.map(|n| n.op().to_owned()).collect()
}

#[test]
fn every_call_gets_its_own_copy() {
    let inner = function(
        "Twice",
        vec![
            node("Neg", "", &["a"], &["t"]),
            node("Abs", "", &["t"], &["b"]),
        ],
    );
    let outer = function("Outer", vec![node("Twice", "own", &["a"], &["b"])]);
    let m = model(
        vec![inner, outer],
        vec![
            node("Outer", "own", &["x"], &["m"]),
            node("Twice", "own", &["m"], &["y"]),
        ],
    );
    let flat = m.inlined().unwrap().unwrap();
    assert_eq!(ops(&flat), ["Neg", "Abs", "Neg", "Abs"]);
    assert!(!flat.opsets().contains_key("own"));
    assert!(flat.inlined().unwrap().is_none(), "nothing is left to call");
}

#[test]
fn attributes_of_the_call_replace_references() {
    let mut inside = node("Softmax", "", &["a"], &["b"]);
    inside.attribute = vec![AttributeProto {
        name: Some("axis".into()),
        ref_attr_name: Some("along".into()),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    }];
    let mut call = node("F", "own", &["x"], &["y"]);
    call.attribute = vec![AttributeProto {
        name: Some("along".into()),
        i: Some(3),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    }];
    let flat = model(vec![function("F", vec![inside])], vec![call]);
    let flat = flat.inlined().unwrap().unwrap();
    let id = flat.graph().order(flat.graph().main()).unwrap()[0];
    assert_eq!(flat.graph().node(id).int("axis").unwrap(), Some(3));
}

#[test]
fn a_function_that_calls_itself_is_refused() {
    let endless = function("F", vec![node("F", "own", &["a"], &["b"])]);
    let m = model(vec![endless], vec![node("F", "own", &["x"], &["y"])]);
    let error = m.inlined().unwrap_err().to_string();
    assert!(error.contains("the function calls itself"), "{error}");
}

/// The names of the nodes, without those that have none.
fn names(model: &Model) -> Vec<String> {
    let nodes = model.graph().nodes().map(|(_, n)| n.name().to_owned());
    nodes.filter(|name| !name.is_empty()).collect()
}

#[test]
fn copies_have_names_of_their_own_or_none() {
    let named = |name: &str, mut node: NodeProto| {
        node.name = Some(name.to_owned());
        node
    };
    let long = "n".repeat(MAX_NAME + 1);
    let inner = function(
        "Inner",
        vec![
            node("Neg", "", &["a"], &["s"]),
            node("Neg", "", &["s"], &["t"]),
            named("last", node("Abs", "", &["t"], &["u"])),
            named(&long, node("Abs", "", &["u"], &["b"])),
        ],
    );
    let outer = function("Outer", vec![node("Inner", "own", &["a"], &["b"])]);
    let m = model(
        vec![inner, outer],
        vec![
            node("Outer", "own", &["x"], &["m"]),
            // The first label that the next call would get.
            named("Inner_3/last", node("Abs", "", &["m"], &["n"])),
            node("Inner", "own", &["n"], &["y"]),
        ],
    );
    let flat = m.inlined().unwrap().unwrap();
    let names = names(&flat);
    assert_eq!(
        names,
        ["Outer_2/Inner_1/last", "Inner_3/last", "Inner_4/last"]
    );
}
