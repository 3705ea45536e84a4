//! Numbers that meet queries or keys behind their projection and come from no projection themselves, as the
//! sines and cosines that a program gives as inputs: no rotation is read from them.

use posenc_ir::{Dim, Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::found::Found;
use crate::graph::dataflow::Class;
use crate::graph::operators::{is_norm, is_projection};
use crate::graph::ports::Role;

/// Nodes between a projection and a product are few.
const STEPS: usize = 512;

/// One sentence for each input that such numbers come from, with the first place where they meet.
pub(crate) fn unread(graph: &Graph, found: &Found) -> Vec<String> {
    let search = Search { graph, found };
    let mut seen = FxHashSet::default();
    let mut sentences: Vec<String> = vec![];
    let sites = found.attention.iter().filter(|site| site.product.is_some());
    for site in sites {
        for (side, operand) in [("queries", &site.query), ("keys", &site.key)] {
            let Some((id, input)) = search.meets(operand.value) else {
                continue;
            };
            if seen.insert(input) {
                let (place, name) = (graph.place(id), graph.name(input));
                sentences.push(format!(
                    "{place}: {side} meet numbers that are computed from the input {name} without any \
                     weights, which may rotate them and were not read"
                ));
            }
        }
    }
    sentences
}

struct Search<'a> {
    graph: &'a Graph,
    found: &'a Found,
}

/// What a value is computed from.
#[derive(Default)]
struct Roots {
    /// Whether weights project some of it, in this run or before.
    is_projected: bool,
    /// An input that it is computed from otherwise.
    input: Option<ValueId>,
}

impl Search<'_> {
    /// Where what is projected meets what is not, and the input that this is computed from.
    fn meets(&self, value: ValueId) -> Option<(NodeId, ValueId)> {
        let mut stack = vec![value];
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop().filter(|_| seen.len() < STEPS) {
            let Some((id, _)) = self.graph.producer(value).filter(|_| seen.insert(value)) else {
                continue;
            };
            let node = self.graph.node(id);
            let content = self.content(node);
            if self.projects(node) {
                continue;
            }
            if matches!(node.op(), "Mul" | "Add" | "Sub" | "Where" | "Div") && content.len() > 1 {
                let roots: Vec<Roots> = content.iter().map(|v| self.roots(*v)).collect();
                let outside = roots.iter().find(|roots| !roots.is_projected);
                let input = outside.and_then(|roots| roots.input);
                if let Some(input) = input.filter(|_| roots.iter().any(|r| r.is_projected)) {
                    return Some((id, input));
                }
            }
            stack.extend(content);
        }
        None
    }

    /// What a value is computed from: weights project content, and norms have weights.
    fn roots(&self, value: ValueId) -> Roots {
        let mut roots = Roots::default();
        let mut stack = vec![value];
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            // Too far to tell.
            if seen.len() > STEPS {
                roots.is_projected = true;
                break;
            }
            let Some((id, output)) = self.graph.producer(value) else {
                let port = self.found.ports.iter().find(|port| port.value == value);
                roots.is_projected |= port.is_some_and(|port| port.role == Role::Past);
                // One number for each feature is a weight that a program gives.
                let is_weight = port.is_none_or(|port| match port.dims[..] {
                    [] => true,
                    [Dim::Known(n)] => n > 1 && port.dtype.is_float(),
                    _ => false,
                });
                roots.input = roots.input.or(Some(value).filter(|_| !is_weight));
                continue;
            };
            let node = self.graph.node(id);
            // The scale and the zero point by which all elements are rounded.
            if node.is("DynamicQuantizeLinear") && output > 0 {
                continue;
            }
            // Tokens pick learned rows, too.
            let is_picked = node.op().starts_with("Gather")
                && node.input(0).is_some_and(|table| !self.is_content(table));
            let is_body = node.bodies().next().is_some();
            if self.projects(node) || is_norm(node) || is_picked || is_body {
                roots.is_projected = true;
                break;
            }
            stack.extend(self.content(node));
        }
        roots
    }

    /// Whether weights project features. The product of a column with a row has no features: so positions are
    /// multiplied with frequencies.
    fn projects(&self, node: &Node) -> bool {
        let first = node.input(0).filter(|_| node.is("MatMul"));
        let dims = first.and_then(|v| self.found.trace.get(v).dims.as_deref());
        is_projection(node) && dims.and_then(<[usize]>::last) != Some(&1)
    }

    fn is_content(&self, value: ValueId) -> bool {
        self.found.classes.of_value(value).has(Class::CONTENT)
    }

    fn content(&self, node: &Node) -> Vec<ValueId> {
        let inputs = node.inputs().iter().flatten().copied();
        inputs.filter(|v| self.is_content(*v)).collect()
    }
}
