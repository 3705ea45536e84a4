//! What a patch removes: what nothing uses any more.

use super::*;

#[test]
fn nodes_that_only_the_old_value_needed_are_removed_and_dead_nodes_stay() {
    let mut m = model(plain());
    let applied = commit(&mut m, |g, out| {
        out.redirect(find(g, "a"), find(g, "x")).unwrap();
    });
    assert_eq!(names(&m, &applied.removed), ["Mul"]);
    assert_eq!(lines(&m), ["dead = Abs(x)", "y = Add(x, w)"]);
    let g = m.graph();
    assert_eq!(g.scope(g.main()).initializers().len(), 1);
    assert_eq!(g.uses(find(g, "w")).len(), 1);
    // The last reader of w is removed, and w with it.
    let applied = commit(&mut m, |g, out| {
        let y = find(g, "y");
        let square = out.op("Mul", &[find(g, "x"), find(g, "x")]);
        out.redirect(y, square).unwrap();
    });
    assert_eq!(names(&m, &applied.removed), ["Add"]);
    assert!(m.graph().scope(m.graph().main()).initializers().is_empty());
    let bytes = m.to_bytes().unwrap();
    let again = Model::from_bytes(bytes).unwrap();
    assert_eq!(lines(&again), ["dead = Abs(x)", "y = Mul(x, x)"]);
    assert_eq!(again.graph().find(again.graph().main(), "w"), None);
}

#[test]
fn a_node_is_removed_with_its_bodies_and_their_captures() {
    let mut m = model(branching());
    let applied = commit(&mut m, |g, out| {
        out.redirect(find(g, "y"), find(g, "x")).unwrap();
    });
    let mut removed = names(&m, &applied.removed);
    removed.sort();
    assert_eq!(removed, ["If", "Mul", "Sin"]);
    assert_eq!(lines(&m), ["z = Identity(x)"]);
    assert_eq!(m.graph().scopes().count(), 1);
    assert_eq!(m.graph().nodes().count(), 1);
}

#[test]
fn a_new_node_that_only_removed_nodes_read_is_removed() {
    let mut m = model(plain());
    let applied = commit(&mut m, |g, out| {
        let (a, x) = (find(g, "a"), find(g, "x"));
        let one = out.scalar("one", DType::F32, 1.0);
        let up = out.op("Add", &[x, one]);
        out.redirect_use(x, g.uses(x)[0], up).unwrap();
        out.redirect(a, x).unwrap();
    });
    assert!(applied.added.is_empty() && applied.constants.is_empty());
    assert_eq!(names(&m, &applied.removed), ["Mul"]);
    assert_eq!(lines(&m), ["dead = Abs(x)", "y = Add(x, w)"]);
}

#[test]
fn a_new_node_in_a_body_is_removed_with_the_body() {
    let mut m = model(branching());
    let applied = commit(&mut m, |g, out| {
        let (t, y, x) = (find(g, "t"), find(g, "y"), find(g, "x"));
        out.redirect(y, x).unwrap();
        out.set_scope(g.value(t).scope());
        let twice = out.op("Add", &[x, x]);
        let a = find(g, "a");
        out.redirect(a, twice).unwrap();
    });
    assert!(applied.added.is_empty());
    let g = m.graph();
    assert_eq!(g.uses(find(g, "x")).len(), 1);
    assert_eq!(lines(&m), ["z = Identity(x)"]);
}

#[test]
fn values_are_removed_only_where_nothing_uses_them() {
    // A node that nothing reads yet stays for the next patch.
    let mut m = model(plain());
    commit(&mut m, |g, out| {
        let twice = out.op("Neg", &[find(g, "a")]);
        out.op("Sin", &[twice]);
    });
    let original = m.clone();
    let applied = commit(&mut m, |g, out| {
        out.remove_if_unused(find(g, "e/sin_0")).unwrap()
    });
    assert_eq!(names(&m, &applied.removed), ["Sin", "Neg"]);
    assert_eq!(lines(&m), lines(&model(plain())));
    // Where this patch reads it, it stays; so do outputs and what was read before.
    let mut m = original;
    let applied = commit(&mut m, |g, out| {
        let sin = find(g, "e/sin_0");
        let sum = out.op("Add", &[find(g, "y"), sin]);
        out.redirect(find(g, "y"), sum).unwrap();
        for value in [sin, find(g, "y"), find(g, "w"), find(g, "x")] {
            out.remove_if_unused(value).unwrap();
        }
    });
    assert!(applied.removed.is_empty());
}

#[test]
fn unused_new_nodes_can_be_omitted() {
    let mut m = model(plain());
    let applied = commit(&mut m, |g, out| {
        let three = out.scalar("three", DType::F32, 3.0);
        let sum = out.op("Add", &[find(g, "a"), three]);
        out.op("Sin", &[sum]);
        let negated = out.op("Neg", &[find(g, "y")]);
        out.redirect(find(g, "y"), negated).unwrap();
        out.omit_unused();
        // What follows stays for the next patch.
        out.op("Cos", &[find(g, "a")]);
    });
    assert_eq!(names(&m, &applied.added), ["Neg", "Cos"]);
    assert_eq!((applied.constants, applied.removed), (vec![], vec![]));
}

#[test]
fn what_a_removed_node_of_a_removed_body_read_is_counted_once() {
    let text = "<ir_version: 8, opset_import: [\"\" : 17]> g (bool c, float[1] x) => (float[1] y) {
        a = Neg (x)
        z = If (c) <then_branch = t () => (float[1] p) { q = Abs (a) p = Neg (q) },
                    else_branch = e () => (float[1] r) { r = Exp (x) }>
        y = Neg (z)
    }";
    let mut model = Model::parse(text).unwrap();
    let graph = model.graph();
    let find = |name: &str| graph.values().find(|v| graph.name(*v) == name).unwrap();
    let mut out = graph.emitter(graph.main(), "new");
    let new = out.op("Abs", &[find("a")]);
    out.redirect(find("z"), new).unwrap();
    // The value of the body goes first, and then the node that holds the body.
    out.remove_if_unused(find("z")).unwrap();
    out.set_scope(graph.value(find("p")).scope());
    let other = out.op("Abs", &[find("x")]);
    out.redirect(find("q"), other).unwrap();
    out.remove_if_unused(find("q")).unwrap();
    let patch = out.finish();
    model.commit(patch).unwrap();
    model.check().unwrap();
    let again = Model::from_bytes(model.to_bytes().unwrap()).unwrap();
    let ops: Vec<&str> = again.graph().nodes().map(|(_, n)| n.op()).collect();
    assert_eq!(ops, ["Neg", "Abs", "Neg"]);
}
