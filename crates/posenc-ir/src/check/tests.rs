use prost::Message;

use crate::DType;
use crate::model::Model;
use crate::proto::{FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto};
use crate::samples::{floats, model_proto, node, untyped, value, with_bodies};

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
    let model = Model::from_bytes(proto.encode_to_vec(), None);
    model.and_then(|m| m.check()).map_err(|e| e.to_string())
}

pub(super) fn changed(edit: impl FnOnce(&mut GraphProto)) -> ModelProto {
    let mut graph = sum();
    edit(&mut graph);
    model_proto(graph)
}

fn nested(depth: usize) -> ModelProto {
    let mut body = GraphProto {
        node: vec![node("Identity", &["x"], &["o"])],
        output: vec![untyped("o")],
        ..Default::default()
    };
    for i in 0..depth {
        let out = format!("o{i}");
        body = GraphProto {
            node: vec![with_bodies(
                node("If", &["c"], &[&out]),
                vec![("then_branch", body.clone())],
            )],
            output: vec![untyped(&out)],
            ..Default::default()
        };
    }
    body.input = vec![value("x", DType::F32, &[]), value("c", DType::Bool, &[])];
    model_proto(body)
}

fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: Some(name.to_owned()),
        domain: Some("local".to_owned()),
        input: vec!["a".to_owned()],
        output: vec![nodes.last().unwrap().output[0].clone()],
        node: nodes,
        ..Default::default()
    }
}

fn call(name: &str, from: &str, to: &str) -> NodeProto {
    NodeProto {
        domain: Some("local".to_owned()),
        ..node(name, &[from], &[to])
    }
}

fn calling(functions: Vec<FunctionProto>) -> ModelProto {
    let mut proto = changed(|g| g.node[0] = call("F0", "x", "y"));
    proto.functions = functions;
    proto
}

/// F0 calls F1 `width` times in a row, F1 calls F2, and so on.
fn chain(length: usize, width: usize) -> ModelProto {
    let each = |i: usize| {
        let nodes = (0..width).map(|k| {
            let from = if k == 0 {
                "a".to_owned()
            } else {
                format!("b{}", k - 1)
            };
            let to = format!("b{k}");
            match i + 1 < length {
                true => call(&format!("F{}", i + 1), &from, &to),
                false => node("Relu", &[&from], &[&to]),
            }
        });
        function(&format!("F{i}"), nodes.collect())
    };
    calling((0..length).map(each).collect())
}

#[test]
fn sound_models_pass() {
    let cases = [
        ("plain", changed(|_| {})),
        (
            "an input left out",
            changed(|g| g.node[0].input.insert(1, String::new())),
        ),
        (
            "nodes out of order",
            changed(|g| {
                g.node.insert(0, node("Neg", &["y"], &["z"]));
            }),
        ),
        (
            "an empty tensor",
            changed(|g| g.initializer.push(floats("none", &[]))),
        ),
        ("twenty bodies deep", nested(20)),
        ("one name in two bodies", {
            let body = || GraphProto {
                node: vec![node("Neg", &["x"], &["same"])],
                output: vec![untyped("same")],
                ..Default::default()
            };
            changed(|g| {
                g.node[0] = with_bodies(
                    node("If", &["x"], &["y"]),
                    vec![("then_branch", body()), ("else_branch", body())],
                );
            })
        }),
        ("a function called", chain(1, 3)),
        ("a long chain of calls", chain(3000, 1)),
        ("a call of nothing", calling(vec![])),
    ];
    for (name, proto) in cases {
        assert_eq!(verdict(&proto), Ok(()), "{name}");
    }
}

#[test]
fn broken_models_are_refused_with_the_place() {
    let recursive_in_body = {
        let body = GraphProto {
            node: vec![call("F0", "a", "t")],
            output: vec![untyped("t")],
            ..Default::default()
        };
        let holder = with_bodies(node("If", &["a"], &["b"]), vec![("then_branch", body)]);
        calling(vec![function("F0", vec![holder])])
    };
    let strings = |count: usize| TensorProto {
        name: Some("s".to_owned()),
        dims: vec![3],
        data_type: Some(8),
        string_data: vec!["a".into(); count],
        ..Default::default()
    };
    let mut short = floats("w", &[1.0, 2.0]);
    short.raw_data = Some(vec![0; 7].into());
    let mut typed = floats("w", &[1.0, 2.0]);
    typed.raw_data = None;
    typed.float_data = vec![1.0; 3];
    let with = |edit: fn(&mut TensorProto)| changed(|g| edit(&mut g.initializer[0]));
    let cases = [
        (
            "self loop",
            changed(|g| g.node[0].input[0] = "y".to_owned()),
            "g/y_node: the node depends",
        ),
        (
            "circle of two",
            changed(|g| {
                g.node[0].input[0] = "z".to_owned();
                g.node.push(node("Neg", &["y"], &["z"]));
            }),
            "depends on its own output",
        ),
        (
            "circle through a body",
            changed(|g| {
                let body = GraphProto {
                    node: vec![node("Neg", &["y"], &["t"])],
                    output: vec![untyped("t")],
                    ..Default::default()
                };
                g.node.push(with_bodies(
                    node("If", &["x"], &["q"]),
                    vec![("then_branch", body)],
                ));
                g.node[0].input[0] = "q".to_owned();
            }),
            "depends on its own output",
        ),
        (
            "undefined input",
            changed(|g| g.node[0].input[0] = "nix".to_owned()),
            "g/y_node: input nix is not defined",
        ),
        (
            "undefined output",
            changed(|g| g.output.push(untyped("nix"))),
            "output nix is not defined",
        ),
        (
            "a value of a body read outside",
            changed(|g| {
                let body = GraphProto {
                    node: vec![node("Neg", &["x"], &["t"])],
                    output: vec![untyped("t")],
                    ..Default::default()
                };
                g.node.push(with_bodies(
                    node("If", &["x"], &["q"]),
                    vec![("then_branch", body)],
                ));
                g.node[0].input[0] = "t".to_owned();
            }),
            "input t is not defined",
        ),
        (
            "a function that captures",
            calling(vec![function("F0", vec![node("Add", &["a", "x"], &["b"])])]),
            "input x is not defined",
        ),
        (
            "defined by two nodes",
            changed(|g| g.node.push(node("Neg", &["x"], &["y"]))),
            "y is defined twice",
        ),
        (
            "two initializers",
            changed(|g| g.initializer.push(floats("w", &[1.0]))),
            "w is defined twice",
        ),
        (
            "two inputs",
            changed(|g| g.input.push(value("x", DType::F32, &[]))),
            "x is defined twice",
        ),
        (
            "node output and input",
            changed(|g| g.node[0].output[0] = "x".to_owned()),
            "x is defined twice",
        ),
        (
            "an output twice",
            changed(|g| g.output.push(untyped("y"))),
            "y: the output is listed twice",
        ),
        (
            "no operator",
            changed(|g| g.node[0].op_type = None),
            "names no operator",
        ),
        (
            "nameless initializer",
            with(|t| t.name = None),
            "has no name",
        ),
        (
            "negative dimension",
            with(|t| t.dims = vec![-2]),
            "w: a dimension of the tensor is negative",
        ),
        (
            "dimensions overflow",
            with(|t| t.dims = vec![i64::MAX, 4]),
            "dimensions overflow",
        ),
        (
            "dimensions overflow in bytes",
            with(|t| t.dims = vec![1 << 62]),
            "does not fit",
        ),
        (
            "unknown element type",
            with(|t| t.data_type = Some(99)),
            "type is not known",
        ),
        (
            "no payload",
            with(|t| t.raw_data = None),
            "w: the payload of 0 bytes does not fit",
        ),
        (
            "short payload",
            changed(|g| g.initializer[0] = short),
            "w: the payload of 7 bytes does not fit float[2]",
        ),
        (
            "long typed payload",
            changed(|g| g.initializer[0] = typed),
            "has 12 bytes",
        ),
        (
            "one string of three",
            changed(|g| g.initializer.push(strings(1))),
            "s: its 1 strings do not fit",
        ),
        (
            "seventy bodies deep",
            nested(70),
            "nested more than 64 deep",
        ),
        (
            "function twice",
            {
                let mut m = chain(1, 1);
                m.functions.push(m.functions[0].clone());
                m
            },
            "F0: the function is defined twice",
        ),
        (
            "function calls itself",
            calling(vec![function("F0", vec![call("F0", "a", "b")])]),
            "F0: the function calls itself",
        ),
        (
            "in a body",
            recursive_in_body,
            "F0: the function calls itself",
        ),
        ("two to the fortieth", chain(40, 2), "unfold into more than"),
    ];
    for (name, proto, want) in cases {
        let why = verdict(&proto).unwrap_err();
        assert!(why.contains(want), "{name}: {why}");
    }
    assert_eq!(
        verdict(&changed(|g| g.initializer.push(strings(3)))),
        Ok(())
    );
}
