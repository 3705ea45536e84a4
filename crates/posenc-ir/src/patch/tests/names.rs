//! Names of nodes.

use super::*;

/// The names of the nodes in every graph, as they are written.
fn written(model: &Model) -> Vec<String> {
    let again = Model::from_bytes(model.to_bytes().unwrap()).unwrap();
    let nodes = again.graph().nodes().map(|(_, n)| n.name().to_owned());
    nodes.collect()
}

#[test]
fn a_written_graph_has_each_name_once() {
    let mut graph = branching();
    for node in &mut graph.node {
        node.name = Some("same".to_owned());
    }
    graph.node[1].name = None;
    let mut m = model(graph);
    commit(&mut m, |g, out| {
        let z = find(g, "z");
        let more = out.op("Neg", &[find(g, "y")]);
        out.redirect(z, more).unwrap();
    });
    // Bodies are graphs of their own.
    assert_eq!(written(&m), ["same", "", "", "e/neg_0", "t_node", "e_node"]);
}

#[test]
fn names_of_different_graphs_may_be_equal() {
    let mut graph = branching();
    let names = ["a_node", "t_node", "e_node", "z_node"];
    for (node, name) in graph.node.iter_mut().zip(names) {
        node.name = Some(name.to_owned());
    }
    let mut m = model(graph);
    commit(&mut m, |g, out| {
        let z = find(g, "z");
        let more = out.op("Neg", &[find(g, "y")]);
        out.redirect(z, more).unwrap();
    });
    let want = ["a_node", "t_node", "e_node", "e/neg_0", "t_node", "e_node"];
    assert_eq!(written(&m), want);
}
