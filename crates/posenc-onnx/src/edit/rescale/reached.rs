//! What the changed frequencies reach besides the rotations that they were changed for.

use posenc_ir::{Graph, NodeId, ScopeKind, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::dataflow::{Class, Classes};
use crate::graph::region::shape_only;

/// What a patch changed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    /// Constants with other numbers.
    pub(crate) values: Vec<ValueId>,
    /// New nodes.
    pub(crate) nodes: Vec<NodeId>,
}

/// Where changed numbers arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Elsewhere {
    /// They meet content here.
    Node(NodeId),
    /// They leave the graph.
    Output(ValueId),
}

/// The first place at which changed numbers meet content at no use of `meant`, or leave the graph.
/// Shapes do not count, since a rescale changes none that matters here.
pub(crate) fn elsewhere(
    graph: &Graph,
    classes: &Classes,
    touched: &Touched,
    meant: &FxHashSet<Use>,
) -> Option<Elsewhere> {
    let content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
    let added: FxHashSet<NodeId> = touched.nodes.iter().copied().collect();
    let results = results(graph);
    let made = added.iter().flat_map(|id| graph.node(*id).outputs());
    let mut stack: Vec<ValueId> = touched.values.clone();
    stack.extend(made.flatten());
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if content(&value) || !seen.insert(value) {
            continue;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if meant.contains(at) || added.contains(&at.node) || shape_only(graph, at.node) {
                continue;
            }
            let is_loop = !node.is("If") && node.bodies().next().is_some();
            let next: Vec<ValueId> = if is_loop {
                // What it is given, its bodies read.
                let bodies = node.bodies().map(|(_, body)| graph.scope(body).inputs());
                bodies
                    .filter_map(|given| given.get(at.slot()).copied())
                    .collect()
            } else {
                node.outputs().iter().flatten().copied().collect()
            };
            if next.iter().any(content) {
                return Some(Elsewhere::Node(at.node));
            }
            stack.extend(next);
        }
        for result in results.get(&value).into_iter().flatten() {
            match *result {
                None => return Some(Elsewhere::Output(value)),
                Some((holder, outer)) if content(&outer) => {
                    let is_read = !graph.uses(outer).is_empty() || results.contains_key(&outer);
                    if is_read {
                        return Some(Elsewhere::Node(holder));
                    }
                }
                Some((_, outer)) => stack.push(outer),
            }
        }
    }
    None
}

/// What an output of a scope becomes: an output of the node that holds the body, or one of the graph,
/// `None`.
type Becomes = Option<(NodeId, ValueId)>;

fn results(graph: &Graph) -> FxHashMap<ValueId, Vec<Becomes>> {
    let mut results: FxHashMap<ValueId, Vec<Becomes>> = FxHashMap::default();
    for scope in graph.scopes() {
        let scope = graph.scope(scope);
        for (place, value) in scope.outputs().iter().enumerate() {
            let becomes = match scope.kind() {
                ScopeKind::Body(holder, _) => {
                    let node = graph.node(*holder);
                    // The first result of a loop is its condition.
                    let place = place.checked_sub(usize::from(node.is("Loop")));
                    let Some(outer) = place.and_then(|place| node.output(place)) else {
                        continue;
                    };
                    Some((*holder, outer))
                }
                _ => None,
            };
            results.entry(*value).or_default().push(becomes);
        }
    }
    results
}

#[cfg(test)]
mod tests {
    use posenc_ir::Model;

    use super::*;
    use crate::graph::ports::Ports;

    /// A loop that multiplies embeddings with a number, and returns the number too.
    fn looped(outputs: &str) -> Model {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             g (int64[batch,sequence] input_ids) => ({outputs})\n\
             <float[2,2] w = {{1.0, 2.0, 3.0, 4.0}}, float f = {{2.0}}, int64 n = {{2}}, bool t = {{1}}>\n\
             {{ x = Gather(w, input_ids) y, z = Loop(n, t, x, f) <body = b (int64 i, bool c, \
             float[batch,sequence,2] a, float g) => (bool c2, float[batch,sequence,2] a2, float g2) \
             {{ c2 = Identity(c) [\"mul\"] a2 = Mul(a, g) g2 = Identity(g) }}> }}\n"
        );
        Model::parse(&text).unwrap()
    }

    #[test]
    fn numbers_are_followed_into_loops_and_out_of_them() {
        let y = "float[batch,sequence,2] y";
        for (outputs, is_meant) in [
            (y.to_owned(), true),
            (y.to_owned(), false),
            (format!("{y}, float z"), true),
        ] {
            let model = looped(&outputs);
            let graph = model.graph();
            let classes = Classes::of(graph, &Ports::of(graph, &Default::default()));
            let find = |name: &str| graph.find(graph.main(), name).unwrap();
            let mul = graph.nodes().find(|(_, node)| node.is("Mul")).unwrap().0;
            let holder = graph.nodes().find(|(_, node)| node.is("Loop")).unwrap().0;
            let touched = Touched {
                values: vec![find("f")],
                nodes: vec![],
            };
            let meant = is_meant.then_some(Use::new(mul, 1)).into_iter().collect();
            let want = match (is_meant, outputs.ends_with('z')) {
                (false, _) => Some(Elsewhere::Node(mul)),
                (true, true) => Some(Elsewhere::Node(holder)),
                (true, false) => None,
            };
            assert_eq!(
                elsewhere(graph, &classes, &touched, &meant),
                want,
                "{outputs}"
            );
        }
    }
}
