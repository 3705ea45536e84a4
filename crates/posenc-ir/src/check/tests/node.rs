//! Nodes against the facts about their operators.

use super::*;
use crate::proto::{AttributeProto, attribute_proto::AttributeType};

fn int(name: &str, i: i64) -> AttributeProto {
    let mut a = AttributeProto {
        name: Some(name.to_owned()),
        i: Some(i),
        ..Default::default()
    };
    a.set_type(AttributeType::Int);
    a
}

fn string(name: &str) -> AttributeProto {
    let mut a = AttributeProto {
        name: Some(name.to_owned()),
        s: Some("text".into()),
        ..Default::default()
    };
    a.set_type(AttributeType::String);
    a
}

fn with(mut node: NodeProto, attributes: Vec<AttributeProto>) -> NodeProto {
    node.attribute = attributes;
    node
}

/// A division into two outputs that says how many parts it has.
fn split(parts: i64) -> NodeProto {
    with(
        node("Split", &["x"], &["y", "z"]),
        vec![int("num_outputs", parts)],
    )
}

/// A model of this one node under a version of ai.onnx.
fn alone(version: i64, node: NodeProto) -> ModelProto {
    let mut m = changed(|g| {
        let named = node.output.iter().find(|o| !o.is_empty());
        g.output[0] = untyped(named.map_or("x", String::as_str));
        g.node = vec![node];
    });
    m.opset_import[0] = import("", version);
    m
}

/// A loop whose body takes and gives so many values.
fn repeat(takes: usize, gives: usize) -> NodeProto {
    let names: Vec<String> = (0..takes).map(|i| format!("in{i}")).collect();
    let body = GraphProto {
        input: names.iter().map(|n| untyped(n)).collect(),
        node: (0..gives)
            .map(|i| node("Identity", &["x"], &[&format!("out{i}")]))
            .collect(),
        output: (0..gives).map(|i| untyped(&format!("out{i}"))).collect(),
        ..Default::default()
    };
    with_bodies(
        node("Loop", &["", "", "x"], &["y", "z"]),
        vec![("body", body)],
    )
}

#[test]
fn nodes_that_match_their_operator_pass() {
    let typeless = AttributeProto {
        r#type: None,
        ..int("to", 1)
    };
    let zero = AttributeProto {
        i: None,
        ..int("axis", 0)
    };
    let neg = |out: &str| branch(vec![node("Neg", &["x"], &[out])], out);
    let cases = [
        ("two inputs", 17, node("Add", &["x", "w"], &["y"])),
        ("trailing empty names", 17, node("Relu", &["x", ""], &["y"])),
        (
            "an optional input in between",
            17,
            node("Clip", &["x", "", "w"], &["y"]),
        ),
        ("one of many", 17, node("Max", &["x"], &["y"])),
        (
            "attribute",
            17,
            with(node("Cast", &["x"], &["y"]), vec![int("to", 1)]),
        ),
        (
            "attribute without a type",
            17,
            with(node("Cast", &["x"], &["y"]), vec![typeless]),
        ),
        (
            "a zero that is not written",
            17,
            with(node("Concat", &["x", "w"], &["y"]), vec![zero]),
        ),
        ("bounds as attributes", 6, node("Clip", &["x"], &["y"])),
        (
            "an operator of its time",
            9,
            node("Upsample", &["x", "w"], &["y"]),
        ),
        ("two parts", 18, split(2)),
        ("both branches", 17, choice(neg("a"), neg("b"))),
        ("a loop", 17, repeat(3, 3)),
    ];
    for (name, version, node) in cases {
        let model = Model::from_bytes(alone(version, node).encode_to_vec());
        let warnings = model
            .unwrap()
            .check()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(warnings, [], "{name}");
    }
}

#[test]
fn other_nodes_are_refused_with_the_reason() {
    let lying = AttributeProto {
        r#type: Some(AttributeType::Int as i32),
        ..string("axis")
    };
    let reference = AttributeProto {
        i: None,
        ref_attr_name: Some("axis".to_owned()),
        ..int("axis", 0)
    };
    let no_body = {
        let mut a = int("then_branch", 0);
        (a.i, a.r#type) = (None, Some(AttributeType::Graph as i32));
        a
    };
    let neg = |out: &str| branch(vec![node("Neg", &["x"], &[out])], out);
    let mut two = neg("a");
    two.output.push(untyped("x"));
    let mut taking = neg("a");
    taking.input.push(untyped("more"));
    let concat = |a: AttributeProto| with(node("Concat", &["x", "w"], &["y"]), vec![a]);
    let both = {
        let mut n = with(node("Constant", &[], &["y"]), vec![int("value_int", 1)]);
        let mut other = int("value_float", 0);
        (other.i, other.f) = (None, Some(1.0));
        other.r#type = Some(AttributeType::Float as i32);
        n.attribute.push(other);
        n
    };
    let cases = [
        (
            "too few",
            17,
            node("Add", &["x"], &["y"]),
            "Add needs 2 inputs, but has 1",
        ),
        (
            "too many",
            17,
            node("Relu", &["x", "w", "x"], &["y"]),
            "Relu needs 1 input, but has 3",
        ),
        (
            "none of many",
            17,
            node("Concat", &[], &["y"]),
            "Concat needs at least 1 input, but has 0",
        ),
        (
            "over a range",
            17,
            node("Clip", &["x", "w", "w", "w"], &["y"]),
            "Clip needs 1 to 3 inputs",
        ),
        (
            "left out",
            17,
            node("Add", &["", "x"], &["y"]),
            "required input 0 of Add is omitted",
        ),
        (
            "no output",
            17,
            node("Relu", &["x"], &[]),
            "Relu needs 1 output, but has 0",
        ),
        (
            "an empty output",
            17,
            node("Relu", &["x"], &["", ""]),
            "all outputs of Relu are omitted",
        ),
        (
            "two outputs",
            17,
            node("Relu", &["x"], &["y", "z"]),
            "Relu needs 1 output, but has 2",
        ),
        (
            "without",
            17,
            node("Cast", &["x"], &["y"]),
            "attribute to of Cast is missing",
        ),
        (
            "a string",
            17,
            concat(string("axis")),
            "attribute axis must be an integer, not a string",
        ),
        (
            "a string that says it is a number",
            17,
            concat(lying),
            "attribute axis is declared as an integer but contains a string",
        ),
        (
            "twice",
            17,
            with(
                node("Concat", &["x"], &["y"]),
                vec![int("axis", 0), int("axis", 1)],
            ),
            "attribute axis is given twice",
        ),
        (
            "twice among many",
            17,
            with(
                node("Concat", &["x"], &["y"]),
                (0..20).map(|i| int(&format!("a{}", i % 19), 0)).collect(),
            ),
            "attribute a0 is given twice",
        ),
        (
            "a reference outside of functions",
            17,
            concat(reference),
            "attribute axis refers to an attribute of a function, but is not in one",
        ),
        (
            "later",
            17,
            node("RotaryEmbedding", &["x", "w", "w"], &["y"]),
            "RotaryEmbedding was added in version 23 of ai.onnx, but version 17 is imported",
        ),
        (
            "later, as ONNX Runtime has it, without its factors",
            11,
            node("LayerNormalization", &["x"], &["y"]),
            "LayerNormalization needs 2 to 3 inputs, but has 1",
        ),
        (
            "gone",
            17,
            node("Upsample", &["x", "w"], &["y"]),
            "Upsample was removed in version 10 of ai.onnx, but version 17 is imported",
        ),
        (
            "version 0",
            0,
            node("Add", &["x", "w"], &["y"]),
            "was added in version 1 of ai.onnx",
        ),
        (
            "bounds as inputs",
            6,
            node("Clip", &["x", "w"], &["y"]),
            "Clip needs 1 input, but has 2",
        ),
        (
            "a constant of nothing",
            17,
            node("Constant", &[], &["y"]),
            "Constant has 0 values instead of one",
        ),
        (
            "a constant of two values",
            17,
            both,
            "Constant has 2 values instead of one",
        ),
        (
            "a part without an output",
            18,
            split(3),
            "num_outputs of Split is 3, but it has 2 outputs",
        ),
        (
            "an output without a part",
            18,
            split(1),
            "num_outputs of Split is 1, but it has 2 outputs",
        ),
        (
            "one branch",
            17,
            with_bodies(node("If", &["x"], &["y"]), vec![("then_branch", neg("a"))]),
            "attribute else_branch of If is missing",
        ),
        (
            "a branch without a graph",
            17,
            with(node("If", &["x"], &["y"]), vec![no_body]),
            "attribute then_branch contains 0 graphs instead of one",
        ),
        (
            "a branch that gives more",
            17,
            choice(neg("b"), two),
            "else_branch has 2 outputs, but this If needs 1",
        ),
        (
            "a branch that takes something",
            17,
            choice(taking, neg("b")),
            "then_branch has 1 input, but this If needs 0",
        ),
        (
            "a loop that carries less",
            17,
            repeat(2, 3),
            "body has 2 inputs, but this Loop needs 3",
        ),
        (
            "a loop that gives no condition",
            17,
            repeat(3, 2),
            "body has 2 outputs, but this Loop needs 3",
        ),
    ];
    for (name, version, node, want) in cases {
        let why = verdict(&alone(version, node)).unwrap_err();
        assert!(why.contains(want), "{name}: {why}");
        assert!(why.starts_with("g/"), "{name}: {why}");
    }
}

#[test]
fn domains_must_be_imported() {
    let foreign = || NodeProto {
        domain: Some("com.example".to_owned()),
        ..node("Frob", &["x"], &["y"])
    };
    let mut m = changed(|g| g.node[0] = foreign());
    assert_eq!(verdict(&m), Ok(()));
    m.opset_import.pop();
    let want = "g/y_node: the operator is in com.example, which is not imported";
    assert_eq!(verdict(&m), Err(want.to_owned()));
    let mut m = changed(|_| {});
    m.opset_import.clear();
    let why = verdict(&m).unwrap_err();
    assert!(
        why.contains("is in ai.onnx, which is not imported"),
        "{why}"
    );
}

#[test]
fn domains_that_runtimes_know_need_not_be_imported() {
    let of = |domain: &str, op: &str, inputs: &[&str]| NodeProto {
        domain: Some(domain.to_owned()),
        ..node(op, inputs, &["y"])
    };
    let mut m = changed(|g| g.node[0] = of("com.microsoft", "Gelu", &["x"]));
    m.opset_import.retain(|o| o.domain().is_empty());
    assert_eq!(verdict(&m), Ok(()));
    let warned = Model::from_bytes(m.encode_to_vec()).unwrap().check();
    let warned: Vec<String> = warned.unwrap().iter().map(ToString::to_string).collect();
    assert!(
        warned[0].contains("com.microsoft is not imported"),
        "{warned:?}"
    );
    // Operators of a known domain are checked.
    let mut m = changed(|g| g.node[0] = of("ai.onnx.ml", "Binarizer", &["x", "x"]));
    m.opset_import.retain(|o| o.domain().is_empty());
    let why = verdict(&m).unwrap_err();
    assert!(why.contains("Binarizer needs 1 input"), "{why}");
    // Without any import, nothing is assumed.
    let mut m = changed(|g| g.node[0] = of("com.microsoft", "Gelu", &["x"]));
    m.opset_import.clear();
    let why = verdict(&m).unwrap_err();
    assert!(why.contains("which is not imported"), "{why}");
}

#[test]
fn a_model_without_imports_uses_the_first_version() {
    let mut m = changed(|g| g.node[0] = node("Relu", &["x"], &["y"]));
    m.opset_import.clear();
    m.ir_version = Some(2);
    assert_eq!(verdict(&m), Ok(()));
    m.graph.as_mut().unwrap().node[0] = node("Sin", &["x"], &["y"]);
    let why = verdict(&m).unwrap_err();
    assert!(why.contains("version 1 is imported"), "{why}");
    m.ir_version = None;
    assert_eq!(verdict(&m), Err("the model has no IR version".to_owned()));
}

#[test]
fn both_names_of_the_standard_domain_are_one() {
    let mut m = changed(|g| g.node[0].domain = Some("ai.onnx".to_owned()));
    m.opset_import = vec![import("ai.onnx", 17)];
    assert_eq!(verdict(&m), Ok(()));
}
