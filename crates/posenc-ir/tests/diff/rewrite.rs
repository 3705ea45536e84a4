//! Models changed as messages.

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::proto::{GraphProto, ModelProto, NodeProto};

/// Numbers that look random and are the same each time.
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15))
    }

    /// Below `n`, which is not 0.
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }

    pub(super) fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i + 1));
        }
    }
}

/// The same model: other names of nodes and inner values, initializers in another order, nodes in
/// another order of computation.
pub(super) fn disguise(model: &mut ModelProto, seed: u64) {
    let numbers = &mut Numbers::new(seed);
    let graph = model.graph.as_mut().unwrap();
    let ports = graph.input.iter().chain(&graph.output);
    let kept: BTreeSet<String> = ports.map(|v| v.name().to_owned()).collect();
    let mut names = Names {
        kept,
        given: BTreeMap::new(),
    };
    graph.name = Some("another name".into());
    rename(graph, &mut names);
    reorder(graph, numbers);
    for function in &mut model.functions {
        for name in function.input.iter_mut().chain(&mut function.output) {
            names.give(name);
        }
        for value in &mut function.value_info {
            names.give(value.name.get_or_insert_default());
        }
        function
            .node
            .iter_mut()
            .for_each(|n| rename_node(n, &mut names));
        shuffle_nodes(&mut function.node, numbers);
    }
}

struct Names {
    kept: BTreeSet<String>,
    given: BTreeMap<String, String>,
}

impl Names {
    fn give(&mut self, name: &mut String) {
        if !name.is_empty() && !self.kept.contains(name) {
            let n = self.given.len();
            let given = self.given.entry(name.clone());
            // Sorting by name would give another order than before.
            *name = given
                .or_insert_with(|| format!("v{}_{n}", n * 7919 % 10007))
                .clone();
        }
    }
}

fn rename(graph: &mut GraphProto, names: &mut Names) {
    for tensor in &mut graph.initializer {
        names.give(tensor.name.get_or_insert_default());
    }
    let values = graph.input.iter_mut().chain(&mut graph.output);
    for value in values.chain(&mut graph.value_info) {
        names.give(value.name.get_or_insert_default());
    }
    graph.node.iter_mut().for_each(|n| rename_node(n, names));
}

fn rename_node(node: &mut NodeProto, names: &mut Names) {
    node.name = None;
    for name in node.input.iter_mut().chain(&mut node.output) {
        names.give(name);
    }
    for attribute in &mut node.attribute {
        let bodies = attribute.g.as_deref_mut().into_iter();
        bodies
            .chain(&mut attribute.graphs)
            .for_each(|g| rename(g, names));
    }
}

fn reorder(graph: &mut GraphProto, numbers: &mut Numbers) {
    numbers.shuffle(&mut graph.initializer);
    shuffle_nodes(&mut graph.node, numbers);
    for attribute in graph.node.iter_mut().flat_map(|n| &mut n.attribute) {
        let bodies = attribute.g.as_deref_mut().into_iter();
        bodies
            .chain(&mut attribute.graphs)
            .for_each(|g| reorder(g, numbers));
    }
}

/// Another topological order.
fn shuffle_nodes(nodes: &mut Vec<NodeProto>, numbers: &mut Numbers) {
    let outputs = nodes.iter().enumerate();
    let maker: BTreeMap<String, usize> = outputs
        .flat_map(|(i, n)| n.output.iter().map(move |o| (o.clone(), i)))
        .filter(|(name, _)| !name.is_empty())
        .collect();
    let mut waits = vec![0; nodes.len()];
    let mut feeds = vec![vec![]; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        for from in reads(node).iter().filter_map(|name| maker.get(name)) {
            feeds[*from].push(i);
            waits[i] += 1;
        }
    }
    let mut ready: Vec<usize> = (0..nodes.len()).filter(|i| waits[*i] == 0).collect();
    let mut order = vec![];
    while !ready.is_empty() {
        let next = ready.swap_remove(numbers.below(ready.len()));
        order.push(nodes[next].clone());
        for to in &feeds[next] {
            waits[*to] -= 1;
            if waits[*to] == 0 {
                ready.push(*to);
            }
        }
    }
    assert_eq!(order.len(), nodes.len(), "the nodes form no circle");
    *nodes = order;
}

/// What a node reads, also in its bodies where they do not define it.
fn reads(node: &NodeProto) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = node.input.iter().cloned().collect();
    for a in &node.attribute {
        for graph in a.g.as_deref().into_iter().chain(&a.graphs) {
            let values = graph.output.iter().map(|v| v.name().to_owned());
            let mut inner: BTreeSet<String> = values.collect();
            inner.extend(graph.node.iter().flat_map(reads));
            let inputs = graph.input.iter().map(|v| v.name());
            let weights = graph.initializer.iter().map(|t| t.name());
            let made = graph.node.iter().flat_map(|n| &n.output);
            for name in inputs.chain(weights).chain(made.map(String::as_str)) {
                inner.remove(name);
            }
            found.extend(inner);
        }
    }
    found
}
