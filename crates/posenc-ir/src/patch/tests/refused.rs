//! What a patch cannot do: refused when it is recorded, or as a whole when it is committed.

use super::*;

#[test]
fn a_patch_that_does_not_fit_is_refused_and_changes_nothing() {
    type Edit = fn(&Graph, &mut crate::Emitter<'_>);
    let circle: Edit = |g, out| {
        let (a, y) = (find(g, "a"), find(g, "z"));
        let back = out.op("Add", &[a, y]);
        out.redirect(find(g, "b"), back).unwrap();
    };
    let circle_by_capture: Edit = |g, out| {
        out.redirect(find(g, "a"), find(g, "y")).unwrap();
    };
    // The body alone is edited; the circle is in the graph around it.
    let circle_around_a_body: Edit = |g, out| {
        let t = find(g, "t");
        let is_use_of_producer = |u: &&Use| g.producer(t) == Some((u.node, 0));
        let at = *g
            .uses(find(g, "a"))
            .iter()
            .find(is_use_of_producer)
            .unwrap();
        out.redirect_use(find(g, "a"), at, find(g, "z")).unwrap();
    };
    let out_of_body: Edit = |g, out| {
        let t = find(g, "t");
        let used = out.op("Neg", &[t]);
        out.redirect(find(g, "y"), used).unwrap();
    };
    let other_body: Edit = |g, out| {
        out.redirect(find(g, "b"), find(g, "t")).unwrap();
    };
    let output_is_input: Edit = |g, out| {
        out.redirect(find(g, "z"), find(g, "x")).unwrap();
    };
    let foreign: Edit = |g, out| {
        let nowhere = ValueId::from_index(g.value_count() + 7);
        out.redirect(find(g, "y"), nowhere).unwrap();
    };
    let cases = [
        (
            "circle",
            circle,
            "y_node: the node depends on its own output",
        ),
        (
            "circle around a body",
            circle_around_a_body,
            "y_node: the node depends on its own output",
        ),
        (
            "circle by capture",
            circle_by_capture,
            "y_node: the node depends on its own output",
        ),
        (
            "a value out of a body",
            out_of_body,
            "body that it is not in",
        ),
        (
            "a value of the other body",
            other_body,
            "body that it is not in",
        ),
        (
            "an output that is an input",
            output_is_input,
            "can only be replaced by a new output",
        ),
        (
            "a value of another patch",
            foreign,
            "a value of another patch",
        ),
    ];
    for (name, edit, want) in cases {
        let mut m = model(shared_capture());
        let (text, bytes) = (m.graph().text(), m.to_bytes().unwrap());
        let g = m.graph();
        let mut out = g.emitter(g.main(), "e");
        edit(g, &mut out);
        let patch = out.finish();
        let why = m.commit(patch).unwrap_err().to_string();
        assert!(why.contains(want), "{name}: {why}");
        assert_eq!(m.graph().text(), text, "{name}");
        assert_eq!(m.to_bytes().unwrap(), bytes, "{name}");
        m.check().unwrap();
        // And it can still be edited.
        commit(&mut m, |g, out| {
            let b = find(g, "b");
            let fine = out.op("Neg", &[b]);
            out.redirect(b, fine).unwrap();
        });
    }
}

#[test]
fn a_patch_of_another_state_is_refused() {
    let mut m = model(plain());
    let g = m.graph();
    let patch = |g: &Graph| {
        let mut out = g.emitter(g.main(), "e");
        let a = find(g, "a");
        let negated = out.op("Neg", &[a]);
        out.redirect(a, negated).unwrap();
        out.finish()
    };
    let (first, second) = (patch(g), patch(g));
    m.commit(first).unwrap();
    let text = m.graph().text();
    let why = m.commit(second).unwrap_err().to_string();
    assert_eq!(why, "the patch was recorded for another state of the graph");
    assert_eq!(m.graph().text(), text);
    let third = patch(m.graph());
    m.commit(third).unwrap();
}

#[test]
fn what_cannot_be_recorded_is_refused_there_and_then() {
    let m = model(plain());
    let g = m.graph();
    let (a, w, x) = (find(g, "a"), find(g, "w"), find(g, "x"));
    let mut out = g.emitter(g.main(), "e");
    let own = out.op("Neg", &[a]);
    let use_of_a = g.uses(a)[0];
    let ints = Tensor::from_i64(&[1], &[1]);
    let tensor = Tensor::from_f32(&[1], &[1.0]);
    assert!(out.redirect(own, a).is_err(), "a value of the patch");
    assert!(out.redirect_use(x, use_of_a, w).is_err(), "not a use of x");
    assert!(
        out.replace_constant(x, &[], tensor.clone()).is_err(),
        "no constant"
    );
    assert!(
        out.replace_constant(w, g.uses(w), ints).is_err(),
        "another element type"
    );
    assert!(
        out.replace_constant(w, &[use_of_a], tensor).is_err(),
        "not a use of w"
    );
    assert!(out.redirect_use(a, use_of_a, w).is_ok());
}

#[test]
fn a_function_accepts_nodes_and_no_initializers() {
    use prost::Message;
    let function = crate::proto::FunctionProto {
        name: Some("F".to_owned()),
        input: vec!["in".to_owned()],
        output: vec!["out".to_owned()],
        node: vec![node("Neg", &["in"], &["out"])],
        ..Default::default()
    };
    let proto = crate::proto::ModelProto {
        functions: vec![function],
        ..crate::samples::model_proto(plain())
    };
    let source = proto.encode_to_vec();
    for constant in [true, false] {
        let mut m = Model::from_bytes(source.clone()).unwrap();
        let g = m.graph();
        let input = g.values().find(|v| g.name(*v) == "in").unwrap();
        let mut out = g.emitter(g.value(input).scope(), "e");
        let new = if constant {
            let two = out.scalar("two", DType::F32, 2.0);
            out.op("Mul", &[input, two])
        } else {
            out.op("Abs", &[input])
        };
        out.redirect(input, new).unwrap();
        let patch = out.finish();
        assert_eq!(m.commit(patch).is_err(), constant);
        assert_eq!(m.to_bytes().unwrap() == source, constant);
        let read = Model::from_bytes(m.to_bytes().unwrap()).unwrap();
        assert_eq!(read.graph().text(), m.graph().text());
    }
}

#[test]
fn a_node_with_bodies_is_not_copied() {
    let m = model(branching());
    let g = m.graph();
    let mut out = g.emitter(g.main(), "e");
    let node = producer(g, "y");
    let why = out.copy(node, &[Some(find(g, "c"))], &[]).unwrap_err();
    assert!(why.to_string().contains("cannot be copied"), "{why}");
}

#[test]
fn an_input_with_the_name_of_a_value_is_refused() {
    let m = model(branching());
    let mut out = m.graph().emitter(m.graph().main(), "e");
    for taken in ["x", "w", "a", "z", "t"] {
        let error = out.input(taken, DType::I64, &[]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("already has a value {taken}")),
            "{error}"
        );
    }
    out.input("ids", DType::I64, &[]).unwrap();
    let error = out.input("ids", DType::I64, &[]).unwrap_err().to_string();
    assert!(error.contains("already has a value ids"), "{error}");
    assert_eq!(out.finish().inputs.len(), 1);
}

#[test]
fn a_new_value_cannot_be_removed() {
    let m = model(plain());
    let mut out = m.graph().emitter(m.graph().main(), "e");
    let twice = out.op("Neg", &[find(m.graph(), "a")]);
    let error = out.remove_if_unused(twice).unwrap_err().to_string();
    assert!(error.contains("a value of the patch cannot be"), "{error}");
}
