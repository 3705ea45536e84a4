//! Functions and their calls.

use super::*;

fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: Some(name.to_owned()),
        domain: Some("local".to_owned()),
        input: vec!["a".to_owned()],
        output: vec![nodes.last().unwrap().output[0].clone()],
        node: nodes,
        opset_import: vec![import("", 17), import("local", 1)],
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
            if i + 1 < length {
                call(&format!("F{}", i + 1), &from, &to)
            } else {
                node("Relu", &[&from], &[&to])
            }
        });
        function(&format!("F{i}"), nodes.collect())
    };
    calling((0..length).map(each).collect())
}

/// F0 contains an `If` with a call of F1 in its branch, and so on.
fn nested_calls(length: usize) -> ModelProto {
    let each = |i: usize| {
        let inner = if i + 1 < length {
            call(&format!("F{}", i + 1), "a", "t")
        } else {
            node("Neg", &["a"], &["t"])
        };
        let other = branch(vec![node("Neg", &["a"], &["e"])], "e");
        let bodies = vec![
            ("then_branch", branch(vec![inner], "t")),
            ("else_branch", other),
        ];
        let holder = with_bodies(node("If", &["a"], &["b"]), bodies);
        function(&format!("F{i}"), vec![holder])
    };
    calling((0..length).map(each).collect())
}

/// A function of two inputs, the second of which is read by `node`.
fn of_two(node: NodeProto) -> FunctionProto {
    let mut f = function("F0", vec![node]);
    f.input.push("b".to_owned());
    f
}

#[test]
fn valid_calls_pass() {
    let with_overloads = {
        let mut second = function("F0", vec![node("Abs", &["a"], &["b"])]);
        second.overload = Some("second".to_owned());
        let mut m = chain(1, 1);
        m.functions.push(second);
        m
    };
    let cases = [
        ("a function called", chain(1, 3)),
        ("a long chain of calls", chain(3000, 1)),
        ("many calls that are no more than they seem", chain(16, 2)),
        ("calls in bodies", nested_calls(10)),
        ("a call of nothing", calling(vec![])),
        ("one name with two overloads", with_overloads),
        (
            "an input left out that the function can do without",
            calling(vec![of_two(node("Clip", &["a", "b"], &["c"]))]),
        ),
        (
            "a function of another version than the model",
            calling(vec![FunctionProto {
                opset_import: vec![import("", 9)],
                ..function("F0", vec![node("Upsample", &["a", "a"], &["b"])])
            }]),
        ),
    ];
    for (name, proto) in cases {
        assert_eq!(verdict(&proto), Ok(()), "{name}");
    }
}

#[test]
fn broken_functions_are_refused() {
    let recursive_in_body = {
        let body = branch(vec![call("F0", "a", "t")], "t");
        let bodies = vec![("then_branch", body.clone()), ("else_branch", body)];
        let holder = with_bodies(node("If", &["a"], &["b"]), bodies);
        calling(vec![function("F0", vec![holder])])
    };
    let with_call = |edit: fn(&mut NodeProto)| {
        let mut m = chain(1, 1);
        edit(&mut m.graph.as_mut().unwrap().node[0]);
        m
    };
    let cases = [
        (
            "a function that captures",
            calling(vec![function("F0", vec![node("Add", &["a", "x"], &["b"])])]),
            "F0/b_node: input x is not defined",
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
            "in a circle",
            calling(vec![
                function("F0", vec![call("F1", "a", "b")]),
                function("F1", vec![call("F0", "a", "b")]),
            ]),
            "the function calls itself",
        ),
        (
            "in a body",
            recursive_in_body,
            "F0: the function calls itself",
        ),
        (
            "two to the fortieth",
            chain(41, 2),
            "expand to more than 131072 nodes",
        ),
        (
            "bodies of calls within each other",
            nested_calls(100),
            "expand to more than 64 nested bodies",
        ),
        (
            "an input too many",
            with_call(|n| n.input.push("w".to_owned())),
            "g/y_node: F0 has 1 input, but the call has 2",
        ),
        (
            "an output too many",
            with_call(|n| n.output.push("more".to_owned())),
            "g/y_node: F0 has 1 output, but the call has 2",
        ),
        (
            "no input",
            with_call(|n| n.input.clear()),
            "g/y_node: required input 0 of F0 is omitted",
        ),
        (
            "an input left out that the function needs",
            calling(vec![of_two(node("Add", &["a", "b"], &["c"]))]),
            "g/y_node: required input 1 of F0 is omitted",
        ),
        (
            "a function that imports nothing",
            {
                let mut m = chain(1, 1);
                m.functions[0].opset_import.clear();
                m
            },
            "F0/b0_node: the operator is in ai.onnx, which is not imported",
        ),
        (
            "an operator that the function's own version lacks",
            calling(vec![FunctionProto {
                opset_import: vec![import("", 6)],
                ..function("F0", vec![node("Sin", &["a"], &["b"])])
            }]),
            "F0/b_node: Sin was added in version 7 of ai.onnx, but version 6 is imported",
        ),
    ];
    for (name, proto, want) in cases {
        let why = verdict(&proto).unwrap_err();
        assert!(why.contains(want), "{name}: {why}");
    }
}

#[test]
fn functions_that_expand_too_far_are_unsupported_and_not_invalid() {
    let model = Model::from_bytes(chain(41, 2).encode_to_vec()).unwrap();
    let why = model.check().unwrap_err();
    assert!(matches!(why.kind(), crate::ErrorKind::Unsupported(_)));
}
