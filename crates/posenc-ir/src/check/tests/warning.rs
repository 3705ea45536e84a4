//! What is said of models that pass.

use super::*;
use crate::proto::AttributeProto;
use crate::samples::lines;

fn warnings(proto: &ModelProto) -> Vec<String> {
    let model = Model::from_bytes(proto.encode_to_vec()).unwrap();
    let warnings = model.check().unwrap();
    warnings.iter().map(ToString::to_string).collect()
}

/// z reads y before it is computed, and so does the body of an `If`.
fn unsorted() -> ModelProto {
    changed(|g| {
        let inner = branch(
            vec![node("Abs", &["s"], &["t"]), node("Neg", &["y"], &["s"])],
            "t",
        );
        let other = branch(vec![], "x");
        let bodies = vec![("then_branch", inner), ("else_branch", other)];
        g.node = vec![
            node("Neg", &["y"], &["z"]),
            with_bodies(node("If", &["x"], &["q"]), bodies),
            node("Abs", &["x"], &["p"]),
            node("Add", &["x", "w"], &["y"]),
        ];
    })
}

#[test]
fn warnings_are_listed_once_with_their_first_place() {
    let frob = |out: &str| NodeProto {
        domain: Some("com.example".to_owned()),
        ..node("Frob", &["x"], &[out])
    };
    let with_attribute = |n: NodeProto| {
        let attribute = AttributeProto {
            name: Some("odd".to_owned()),
            i: Some(1),
            ..Default::default()
        };
        NodeProto {
            attribute: vec![attribute],
            ..n
        }
    };
    let later = {
        let mut m = changed(|g| g.node.push(node("Neg", &["x"], &["z"])));
        m.opset_import[0] = import("", 1000);
        m
    };
    let twice = {
        let mut m = changed(|_| {});
        m.opset_import.push(import("ai.onnx", 18));
        m
    };
    let shadow = changed(|g| {
        let body = || branch(vec![node("Neg", &["x"], &["w"])], "w");
        g.node[0] = choice(body(), body());
    });
    let ahead = {
        let mut m = changed(|g| g.node[0] = node("LayerNormalization", &["x", "w"], &["y"]));
        m.opset_import[0] = import("", 11);
        m
    };
    let of_runtime = |op: &str, inputs: &[&str]| {
        let mut m = changed(|_| {});
        m.opset_import.push(import("com.microsoft", 1));
        if let Some(graph) = &mut m.graph {
            graph.node.push(NodeProto {
                domain: Some("com.microsoft".to_owned()),
                ..node(op, inputs, &["z"])
            });
        }
        m
    };
    let cases: [(&str, ModelProto, &[&str]); 13] = [
        ("plain", changed(|_| {}), &[]),
        (
            "an operator of ONNX Runtime",
            of_runtime("FusedMatMul", &["x", "x"]),
            &[],
        ),
        (
            "an operator that ONNX Runtime adds to ai.onnx",
            changed(|g| g.node[0] = node("SimplifiedLayerNormalization", &["x", "w"], &["y"])),
            &[],
        ),
        (
            "an unknown operator of ONNX Runtime",
            of_runtime("Frob", &["x"]),
            &["g/z_node: com.microsoft has no operator Frob; the node is not checked"],
        ),
        (
            "more inputs than are known",
            of_runtime("FusedMatMul", &["x", "x", "x"]),
            &[
                "g/z_node: FusedMatMul needs 2 inputs, but has 3: the operator is from a later version of \
                 ONNX Runtime",
            ],
        ),
        (
            "unknown domain",
            changed(|g| g.node.extend([frob("a"), frob("b")])),
            &["g/a_node: operators of com.example are unknown and not checked (2 times)"],
        ),
        (
            "unknown operator",
            changed(|g| g.node.push(node("Frob", &["x"], &["z"]))),
            &["g/z_node: ai.onnx has no operator Frob; the node is not checked"],
        ),
        (
            "unknown attribute",
            changed(|g| g.node[0] = with_attribute(g.node[0].clone())),
            &["g/y_node: Add of ai.onnx 17 has no attribute odd"],
        ),
        (
            "a version of the future",
            later,
            &["version 1000 of ai.onnx is unknown, and its operators are not checked"],
        ),
        (
            "an operator that ONNX Runtime has in every version",
            ahead,
            &[
                "g/y_node: LayerNormalization is in ai.onnx from version 17 on, and version 11 is \
                 imported: ONNX Runtime alone reads it",
            ],
        ),
        (
            "two versions",
            twice,
            &["ai.onnx is imported as version 17 and 18; the last one is used"],
        ),
        (
            "a name of the graph in a body",
            shadow,
            &["g/y_node: a body defines w, which is also defined outside of it (2 times)"],
        ),
        (
            "out of order",
            unsorted(),
            &[
                "g/z_node: 2 nodes of the graph are before nodes that they read: nodes are not \
                 topologically sorted",
                "g/q_node.then_branch/t_node: the node is before a node that it reads: nodes \
                 are not topologically sorted",
            ],
        ),
    ];
    for (name, proto, want) in cases {
        let got = warnings(&proto);
        assert_eq!(got.len(), want.len(), "{name}: {got:?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.contains(want), "{name}: {got}");
        }
    }
}

#[test]
fn the_number_of_warnings_is_limited() {
    let many = changed(|g| {
        let frobs = (0..80).map(|i| node(&format!("Frob{i}"), &["x"], &[&format!("o{i}")]));
        g.node.extend(frobs);
    });
    let got = warnings(&many);
    assert_eq!(got.len(), 51);
    assert_eq!(got[50], "30 more warnings are omitted");
}

#[test]
fn sorting_moves_misplaced_nodes_and_keeps_every_node() {
    let proto = unsorted();
    let source = proto.encode_to_vec();
    let mut model = Model::from_bytes(source.clone()).unwrap();
    assert_eq!(model.sort().unwrap(), 3);
    let bytes = model.to_bytes().unwrap();
    assert_eq!(bytes.len(), source.len());
    let again = Model::from_bytes(bytes).unwrap();
    assert_eq!(again.check().unwrap(), []);
    let want = ["p = Abs(x)", "y = Add(x, w)", "z = Neg(y)", "q = If(x)"];
    assert_eq!(lines(&again), want);
    let sorted = {
        let mut proto = proto;
        let nodes = &mut proto.graph.as_mut().unwrap().node;
        nodes.rotate_left(2);
        let body = nodes[3].attribute[0].g.as_mut().unwrap();
        body.node.reverse();
        proto.encode_to_vec()
    };
    assert_eq!(again.to_bytes().unwrap(), sorted);
}

#[test]
fn sorting_a_sorted_model_changes_no_byte() {
    let source = changed(|g| g.node.push(node("Neg", &["y"], &["z"]))).encode_to_vec();
    let mut model = Model::from_bytes(source.clone()).unwrap();
    assert_eq!(model.sort().unwrap(), 0);
    assert_eq!(model.to_bytes().unwrap(), source);
}

#[test]
fn nodes_in_a_cycle_are_not_sorted() {
    let proto = changed(|g| {
        g.node[0].input[0] = "z".to_owned();
        g.node.push(node("Neg", &["y"], &["z"]));
    });
    let source = proto.encode_to_vec();
    let mut model = Model::from_bytes(source.clone()).unwrap();
    let error = model.sort().unwrap_err().to_string();
    assert!(error.contains("depends on its own output"), "{error}");
    assert_eq!(model.to_bytes().unwrap(), source);
}
