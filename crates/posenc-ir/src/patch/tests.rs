use super::*;
use crate::graph::Def;
use crate::model::Model;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, GraphProto};
use crate::samples::{find, floats, lines, model, node, producer, untyped, value, with_bodies};
use crate::{Attr, DType};

mod names;
mod refused;
mod removed;

/// y = (x · w + w) and dead code; `if c { a } else { b }` captures.
fn plain() -> GraphProto {
    GraphProto {
        name: Some("plain".to_owned()),
        input: vec![value("x", DType::F32, &[1])],
        initializer: vec![floats("w", &[2.0])],
        node: vec![
            node("Mul", &["x", "w"], &["a"]),
            node("Abs", &["x"], &["dead"]),
            node("Add", &["a", "w"], &["y"]),
        ],
        output: vec![untyped("y")],
        ..Default::default()
    }
}

/// As `branching`, with another reader of what the first branch captures.
fn shared_capture() -> GraphProto {
    let mut graph = branching();
    graph.node.push(node("Neg", &["a"], &["also"]));
    graph.output.push(untyped("also"));
    graph
}

fn branching() -> GraphProto {
    let branch = |op: &str, from: &str, out: &str| GraphProto {
        name: Some(format!("{out}_body")),
        node: vec![node(op, &[from], &[out])],
        output: vec![untyped(out)],
        ..Default::default()
    };
    let branches = vec![
        ("then_branch", branch("Neg", "a", "t")),
        ("else_branch", branch("Exp", "b", "e")),
    ];
    GraphProto {
        input: vec![value("x", DType::F32, &[1]), value("c", DType::Bool, &[])],
        initializer: vec![floats("w", &[2.0])],
        node: vec![
            node("Mul", &["x", "w"], &["a"]),
            node("Sin", &["x"], &["b"]),
            with_bodies(node("If", &["c"], &["y"]), branches),
            node("Identity", &["y"], &["z"]),
        ],
        output: vec![untyped("z")],
        ..Default::default()
    }
}

/// Commits what `edit` records; the result must check and read back from its bytes the same.
fn commit(model: &mut Model, edit: impl FnOnce(&Graph, &mut crate::Emitter<'_>)) -> Applied {
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), "e");
    edit(graph, &mut out);
    let patch = out.finish();
    let applied = model.commit(patch).unwrap();
    model.check().unwrap();
    let again = Model::from_bytes(model.to_bytes().unwrap()).unwrap();
    again.check().unwrap();
    assert_eq!(again.graph().text(), model.graph().text());
    applied
}

fn names(model: &Model, nodes: &[NodeId]) -> Vec<String> {
    let graph = model.graph();
    let ops = nodes.iter().map(|n| graph.node(*n).op().to_owned());
    ops.collect()
}

#[test]
fn new_nodes_are_before_their_first_reader() {
    let mut m = model(plain());
    let applied = commit(&mut m, |g, out| {
        let a = find(g, "a");
        let one = out.scalar("one", DType::F32, 1.0);
        let up = out.op("Add", &[a, one]);
        let down = out.op("Sub", &[up, one]);
        out.redirect(a, down).unwrap();
    });
    assert_eq!(
        lines(&m),
        [
            "a = Mul(x, w)",
            "dead = Abs(x)",
            "e/add_0 = Add(a, e/one_0)",
            "e/sub_0 = Sub(e/add_0, e/one_0)",
            "y = Add(e/sub_0, w)",
        ]
    );
    assert_eq!(names(&m, &applied.added), ["Add", "Sub"]);
    assert!(applied.removed.is_empty() && applied.revalued.is_empty());
    assert_eq!(applied.constants.len(), 1);
}

#[test]
fn a_redirected_output_keeps_its_name_and_type() {
    let mut graph = plain();
    graph.output = vec![value("y", DType::F32, &[1])];
    let mut m = model(graph);
    for _ in 0..2 {
        commit(&mut m, |g, out| {
            let y = g.scope(g.main()).outputs()[0];
            let negated = out.op("Neg", &[y]);
            out.redirect(y, negated).unwrap();
        });
    }
    let want = [
        "a = Mul(x, w)",
        "dead = Abs(x)",
        "e/neg_0 = Add(a, w)",
        "e/neg_1 = Neg(e/neg_0)",
        "y = Neg(e/neg_1)",
    ];
    assert_eq!(lines(&m), want);
    let g = m.graph();
    let y = g.scope(g.main()).outputs()[0];
    assert_eq!((g.name(y), g.dtype(y)), ("y", Some(DType::F32)));
    assert_eq!(g.find(g.main(), "y"), Some(y));
}

#[test]
fn what_a_body_captures_is_used() {
    let mut m = model(branching());
    let g = m.graph();
    assert_eq!(g.uses(find(g, "a")).len(), 1);
    // b loses no reader, a keeps the one in the body.
    let applied = commit(&mut m, |g, out| {
        let y = find(g, "y");
        let twice = out.op("Add", &[y, y]);
        out.redirect(y, twice).unwrap();
    });
    assert!(applied.removed.is_empty());
    // The reader in the body is redirected, and what it read is removed from the graph around it.
    let applied = commit(&mut m, |g, out| {
        out.redirect(find(g, "a"), find(g, "x")).unwrap();
    });
    assert_eq!(names(&m, &applied.removed), ["Mul"]);
    let g = m.graph();
    assert!(!lines(&m).iter().any(|l| l.starts_with("a =")));
    assert!(g.nodes().all(|(_, n)| n.op() != "Mul"));
}

#[test]
fn a_captured_value_that_a_body_returns_can_be_redirected() {
    let mut graph = branching();
    let body = graph.node[2].attribute[1].g.as_mut().unwrap();
    body.node.clear();
    body.output = vec![untyped("b")];
    let mut m = model(graph);
    commit(&mut m, |g, out| {
        let b = find(g, "b");
        let negated = out.op("Neg", &[b]);
        out.redirect(b, negated).unwrap();
    });
    let g = m.graph();
    let body = g.node(producer(g, "y")).bodies().nth(1).unwrap().1;
    let out = g.scope(body).outputs()[0];
    assert_eq!(g.node(g.producer(out).unwrap().0).op(), "Neg");
}

#[test]
fn a_shared_constant_keeps_its_payload_for_other_uses() {
    let other = Tensor::from_f32(&[1], &[9.0]);
    let mut m = model(plain());
    commit(&mut m, |g, out| {
        let (w, y) = (find(g, "w"), producer(g, "y"));
        let seen: Vec<Use> = g.uses(w).iter().copied().filter(|u| u.node == y).collect();
        assert_ne!(out.replace_constant(w, &seen, other.clone()).unwrap(), w);
    });
    let g = m.graph();
    assert_eq!(lines(&m)[2], "y = Add(a, e/constant_0)");
    assert_eq!(
        g.constant(find(g, "w")),
        Some(Tensor::from_f32(&[1], &[2.0]))
    );
    assert_eq!(g.constant(find(g, "e/constant_0")), Some(other.clone()));
    // Named by all of its readers it is edited in place.
    let mut m = model(plain());
    let applied = commit(&mut m, |g, out| {
        let w = find(g, "w");
        assert_eq!(
            out.replace_constant(w, g.uses(w), other.clone()).unwrap(),
            w
        );
    });
    assert_eq!(applied.revalued.len(), 1);
    assert!(applied.constants.is_empty());
    assert_eq!(m.graph().constant(find(m.graph(), "w")), Some(other));
}

#[test]
fn a_resized_constant_that_is_an_input_too_gets_a_copy() {
    let mut graph = plain();
    graph.input.push(value("w", DType::F32, &[1]));
    for (dims, in_place) in [(1, true), (2, false)] {
        let mut m = model(graph.clone());
        commit(&mut m, |g, out| {
            let w = find(g, "w");
            let tensor = Tensor::from_f32(&[dims], &vec![3.0; dims]);
            let got = out.replace_constant(w, g.uses(w), tensor).unwrap();
            assert_eq!(got == w, in_place, "{dims}");
        });
        let inputs = m.graph().scope(m.graph().main()).inputs().len();
        assert_eq!(inputs, 2, "{dims}");
    }
}

#[test]
fn new_names_are_unique_and_deterministic() {
    let mut graph = plain();
    graph.node[1].output[0] = "e/neg_0".to_owned();
    graph.node[2].name = Some("e/neg_1".to_owned());
    let run = || {
        let mut m = model(graph.clone());
        commit(&mut m, |g, out| {
            let a = find(g, "a");
            let (p, q) = (out.op("Neg", &[a]), out.op("Neg", &[a]));
            let both = out.op("Add", &[p, q]);
            out.redirect(a, both).unwrap();
        });
        m
    };
    let m = run();
    assert!(m.graph().find(m.graph().main(), "e/neg_2").is_some());
    assert!(m.graph().find(m.graph().main(), "e/neg_3").is_some());
    assert_eq!(m.to_bytes().unwrap(), run().to_bytes().unwrap());
}

#[test]
fn the_last_redirect_of_a_use_counts() {
    let mut m = model(plain());
    commit(&mut m, |g, out| {
        let (a, x, w) = (find(g, "a"), find(g, "x"), find(g, "w"));
        out.redirect(a, x).unwrap();
        out.redirect(a, w).unwrap();
        out.redirect(a, a).unwrap();
    });
    assert_eq!(lines(&m)[2], "y = Add(a, w)");
    let g = m.graph();
    assert_eq!(g.uses(find(g, "a")).len(), 1);
    assert_eq!(g.uses(find(g, "x")).len(), 2);
}

#[test]
fn the_last_redirect_of_an_output_counts() {
    let mut m = model(plain());
    commit(&mut m, |g, out| {
        let y = find(g, "y");
        let (first, second) = (out.op("Neg", &[y]), out.op("Exp", &[y]));
        out.redirect(y, first).unwrap();
        out.redirect(y, second).unwrap();
    });
    assert!(lines(&m).contains(&"y = Exp(e/exp_0)".to_owned()));
    let text = m.graph().text();
    commit(&mut m, |g, out| {
        let y = find(g, "y");
        out.redirect(y, y).unwrap();
    });
    assert_eq!(m.graph().text(), text);
}

#[test]
fn a_copy_keeps_attributes_that_are_not_replaced() {
    let int = |name: &str, i: i64| AttributeProto {
        name: Some(name.to_owned()),
        r#type: Some(AttributeType::Int as i32),
        i: Some(i),
        ..Default::default()
    };
    let mut graph = plain();
    let mut fused = node("Fused", &["x", "w", "w"], &["f", "", "more"]);
    fused.domain = Some("com.microsoft".to_owned());
    fused.attribute = vec![int("heads", 3), int("flag", 1)];
    graph.node.push(fused);
    graph.node.push(node("Add", &["f", "more"], &["z"]));
    graph.output.push(untyped("z"));
    let mut m = model(graph);
    let applied = commit(&mut m, |g, out| {
        let (x, node) = (find(g, "x"), producer(g, "f"));
        let set = [("flag", Attr::Int(0))];
        let copied = out.copy(node, &[Some(x), None, Some(x)], &set).unwrap();
        let [Some(f), None, Some(more)] = copied[..] else {
            panic!("{copied:?}");
        };
        out.redirect(find(g, "f"), f).unwrap();
        out.redirect(find(g, "more"), more).unwrap();
    });
    assert_eq!(names(&m, &applied.removed), ["Fused"]);
    let line = "f_node/e_fused_0, , f_node/e_fused_0.2 = Fused(x, , x)";
    assert!(lines(&m).contains(&line.to_owned()), "{:?}", lines(&m));
    let g = m.graph();
    let copy = g.node(producer(g, "f_node/e_fused_0"));
    assert_eq!(copy.domain(), "com.microsoft");
    assert_eq!(
        (copy.int("heads"), copy.int("flag")),
        (Ok(Some(3)), Ok(Some(0)))
    );
}

#[test]
fn a_copy_is_named_in_the_module_of_what_it_replaces() {
    for (name, stem) in [
        ("/layers.0/attn/Softmax", "/layers.0/attn/e_fused"),
        ("/Softmax", "/Softmax/e_fused"),
        ("Softmax", "Softmax/e_fused"),
        ("", "e/fused"),
    ] {
        let mut graph = plain();
        let mut fused = node("Fused", &["x"], &["f"]);
        fused.domain = Some("com.microsoft".to_owned());
        fused.name = Some(name.to_owned());
        graph.node.push(fused);
        graph.output.push(untyped("f"));
        let mut m = model(graph);
        // The second patch finds the name of the first one taken.
        for n in 0..2 {
            commit(&mut m, |g, out| {
                let (x, f) = (find(g, "x"), find(g, "f"));
                let copied = out.copy(producer(g, "f"), &[Some(x)], &[]).unwrap();
                out.redirect(f, copied[0].unwrap()).unwrap();
            });
            let own = m.graph().node(producer(m.graph(), "f")).name();
            assert_eq!(own, format!("{stem}_{n}"), "{name}");
        }
    }
}

#[test]
fn an_added_input_is_last_with_its_type() {
    let mut m = model(branching());
    let dims = [Dim::Symbol("batch".into()), Dim::Known(3), Dim::Unknown];
    let mut out = m.graph().emitter(m.graph().main(), "e");
    out.input("ids", DType::I64, &dims).unwrap();
    let text = out.finish().text(m.graph());
    assert_eq!(text, "@@ inputs\n+ int64[batch,3,?] ids\n");
    commit(&mut m, |g, out| {
        let ids = out.input("ids", DType::I64, &dims).unwrap();
        // A body reads it as it reads any value around it.
        let t = find(g, "t");
        out.set_scope(g.value(t).scope());
        let cast = out.cast(ids, DType::F32);
        let sum = out.op("Add", &[find(g, "a"), cast]);
        out.redirect(find(g, "a"), sum).unwrap();
    });
    let again = Model::from_bytes(m.to_bytes().unwrap()).unwrap();
    for m in [&m, &again] {
        let g = m.graph();
        let inputs = g.scope(g.main()).inputs();
        let names: Vec<&str> = inputs.iter().map(|v| g.name(*v)).collect();
        assert_eq!(names, ["x", "c", "ids"]);
        let ids = g.value(inputs[2]);
        assert_eq!(ids.def(), Def::Input(2));
        assert_eq!(g.dtype(inputs[2]), Some(DType::I64));
        assert_eq!(ids.shape(), Some(&dims[..]));
        assert_eq!(g.uses(inputs[2]).len(), 1);
    }
    // A second edit writes it as the first one did.
    let mut m = again;
    commit(&mut m, |g, out| {
        let ids = find(g, "ids");
        let cast = out.cast(ids, DType::I64);
        out.redirect(ids, cast).unwrap();
    });
    assert_eq!(m.graph().scope(m.graph().main()).inputs().len(), 3);
}

#[test]
fn an_input_alone_changes_the_bytes() {
    let mut m = model(plain());
    commit(&mut m, |_, out| {
        out.input("ids", DType::I64, &[]).unwrap();
    });
    let again = Model::from_bytes(m.to_bytes().unwrap()).unwrap();
    assert_eq!(again.graph().scope(again.graph().main()).inputs().len(), 2);
}

#[test]
fn thousands_of_uses_are_redirected_at_once() {
    let n = 20_000;
    let mut graph = plain();
    for i in 0..n {
        graph.node.push(node("Neg", &["a"], &[&format!("n{i}")]));
    }
    let mut m = model(graph);
    let started = std::time::Instant::now();
    commit(&mut m, |g, out| {
        let a = find(g, "a");
        let negated = out.op("Neg", &[a]);
        out.redirect(a, negated).unwrap();
    });
    let g = m.graph();
    assert_eq!(g.uses(find(g, "a")).len(), 1);
    assert_eq!(g.uses(find(g, "e/neg_0")).len(), n + 1);
    // Quadratic work takes minutes here.
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
