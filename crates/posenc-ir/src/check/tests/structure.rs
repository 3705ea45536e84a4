//! Names, scopes and circles.

use super::*;

/// An `If` within an `If`, and so on.
fn nested(depth: usize) -> ModelProto {
    let mut body = branch(vec![node("Identity", &["x"], &["o"])], "o");
    let mut other = body.clone();
    for i in 0..depth {
        let out = format!("o{i}");
        let bodies = vec![("then_branch", body), ("else_branch", other)];
        body = branch(vec![with_bodies(node("If", &["c"], &[&out]), bodies)], &out);
        other = branch(vec![node("Identity", &["x"], &["e"])], "e");
    }
    body.input = vec![value("x", DType::F32, &[]), value("c", DType::Bool, &[])];
    model_proto(body)
}

#[test]
fn valid_models_pass() {
    let same = || branch(vec![node("Neg", &["x"], &["same"])], "same");
    let cases = [
        ("plain", changed(|_| {})),
        (
            "an optional input left out",
            changed(|g| g.node[0] = node("Clip", &["x", "", "w"], &["y"])),
        ),
        (
            "nodes out of order",
            changed(|g| g.node.insert(0, node("Neg", &["y"], &["z"]))),
        ),
        ("twenty bodies deep", nested(20)),
        (
            "one name in two bodies",
            changed(|g| g.node[0] = choice(same(), same())),
        ),
        (
            "a branch that gives a value of the graph as it is",
            changed(|g| g.node[0] = choice(branch(vec![], "x"), branch(vec![], "w"))),
        ),
        (
            "an input that is an initializer too",
            changed(|g| g.input.push(value("w", DType::F32, &[2]))),
        ),
    ];
    for (name, proto) in cases {
        assert_eq!(verdict(&proto), Ok(()), "{name}");
    }
}

#[test]
fn broken_structure_is_refused_with_the_place() {
    let holder = |read: &str| {
        let inner = branch(vec![node("Neg", &[read], &["t"])], "t");
        let other = branch(vec![node("Neg", &["x"], &["e"])], "e");
        let bodies = vec![("then_branch", inner), ("else_branch", other)];
        with_bodies(node("If", &["x"], &["q"]), bodies)
    };
    let cases = [
        (
            "self loop",
            changed(|g| g.node[0].input[0] = "y".to_owned()),
            "g/y_node: the node depends on its own output",
        ),
        (
            "circle of two",
            changed(|g| {
                g.node[0].input[0] = "z".to_owned();
                g.node.push(node("Neg", &["y"], &["z"]));
            }),
            "g/y_node: the node depends on its own output",
        ),
        (
            "circle through a body",
            changed(|g| {
                g.node.push(holder("y"));
                g.node[0].input[0] = "q".to_owned();
            }),
            "depends on its own output",
        ),
        (
            "a body that reads its own node",
            changed(|g| g.node.push(holder("q"))),
            "g/q_node: the node depends on its own output",
        ),
        (
            "undefined input",
            changed(|g| g.node[0].input[0] = "nix".to_owned()),
            "g/y_node: input nix is not defined",
        ),
        (
            "undefined input of a body",
            changed(|g| g.node.push(holder("nix"))),
            "g/q_node.then_branch/t_node: input nix is not defined",
        ),
        (
            "undefined output",
            changed(|g| g.output.push(untyped("nix"))),
            "output nix is not defined",
        ),
        (
            "a value of a body read outside",
            changed(|g| {
                g.node.push(holder("x"));
                g.node[0].input[0] = "t".to_owned();
            }),
            "g/y_node: input t is not defined",
        ),
        (
            "a value of one branch read in the other",
            changed(|g| {
                let first = branch(vec![node("Neg", &["x"], &["a"])], "a");
                let second = branch(vec![node("Neg", &["a"], &["b"])], "b");
                g.node[0] = choice(first, second);
            }),
            "g/y_node.else_branch/b_node: input a is not defined",
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
            "g/y_node: the node has no operator",
        ),
        (
            "nameless initializer",
            changed(|g| g.initializer[0].name = None),
            "has no name",
        ),
    ];
    for (name, proto, want) in cases {
        let why = verdict(&proto).unwrap_err();
        assert!(why.contains(want), "{name}: {why}");
    }
}

#[test]
fn nesting_of_bodies_is_limited() {
    let why = verdict(&nested(70)).unwrap_err();
    assert!(why.contains("nested more than 64 deep"), "{why}");
    assert_eq!(verdict(&nested(60)), Ok(()));
}

#[test]
fn deep_bodies_are_walked_by_every_pass() {
    let source = nested(60).encode_to_vec();
    let mut model = Model::from_bytes(source.clone()).unwrap();
    assert_eq!(model.sort().unwrap(), 0);
    let text = model.text(crate::Weights::Full).to_string();
    assert_eq!(text.matches("If(c)").count(), 60);
    let budget = crate::eval::Budget { elements: 64 };
    crate::eval::trace(&model, &Default::default(), &|_| false, &budget);
    let outputs = model.graph().scope(model.graph().main()).outputs().to_vec();
    let cut = model.cut(&[], &outputs, 1 << 20).map(drop);
    if let Err(why) = cut {
        assert!(why.to_string().contains("recursion"), "{why}");
    }
    // An edit in the innermost body is written through all of them.
    let inner = crate::samples::find(model.graph(), "o");
    let scope = model.graph().value(inner).scope();
    let graph = model.graph();
    let mut out = graph.emitter(scope, "edit");
    let x = crate::samples::find(graph, "x");
    let doubled = out.op("Add", &[x, x]);
    let (node, _) = graph.producer(inner).unwrap();
    out.redirect_use(x, crate::Use::new(node, 0), doubled)
        .unwrap();
    let patch = out.finish();
    model.commit(patch).unwrap();
    let again = Model::from_bytes(model.to_bytes().unwrap()).unwrap();
    assert_eq!(again.check().unwrap(), []);
    assert_eq!(again.graph().nodes().count(), graph_size(&source) + 1);
}

fn graph_size(source: &[u8]) -> usize {
    let model = Model::from_bytes(source.to_vec()).unwrap();
    model.graph().nodes().count()
}
