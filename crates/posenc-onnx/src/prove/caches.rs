//! The outputs that contain caches after a run.

use posenc_ir::{Graph, Node, ScopeKind, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::operators::{cache_slots, is_write, spliced};
use crate::graph::ports::{Lengths, Ports};

/// The outputs that contain caches of a window which no tokens fill after a run: the rest is undefined.
pub(super) fn unfilled(graph: &Graph, ports: &Ports, at: Lengths) -> Vec<String> {
    let outputs = ports
        .unfilled(graph, at)
        .filter_map(|port| present(graph, port.value));
    outputs.map(|v| graph.name(v).to_owned()).collect()
}

/// The output of the model that contains the keys or values of a cache after a run.
pub(super) fn present(graph: &Graph, past: ValueId) -> Option<ValueId> {
    let outputs = graph.scope(graph.main()).outputs();
    let mut stack = vec![past];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if outputs.contains(&value) {
            return Some(value);
        }
        if !seen.insert(value) {
            continue;
        }
        stack.extend(after_branch(graph, value));
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            // The outputs of an operator of attention end with its caches, in their order.
            let cache = cache_slots(node).iter().position(|slot| *slot == at.slot());
            let next = match (cache, node.op()) {
                (Some(cache), _) => node.output(1 + cache),
                (None, "Concat" | "Identity" | "Cast" | "Transpose" | "Reshape") => node.output(0),
                (None, "Slice") => joined(graph, node, value),
                (None, _) if is_write(node) && at.slot() == 0 => node.output(0),
                (None, _) => None,
            };
            stack.extend(next);
        }
    }
    None
}

/// The slots with new keys between this slice of a cache and another one.
fn joined(graph: &Graph, slice: &Node, cache: ValueId) -> Option<ValueId> {
    let mut uses = graph.uses(slice.output(0)?).iter();
    let joining = uses.find_map(|at| {
        let node = graph.node(at.node);
        (spliced(graph, node) == Some(cache)).then_some(node)
    });
    joining?.output(0)
}

/// The output of an `If` that is this value of one of its branches.
fn after_branch(graph: &Graph, value: ValueId) -> Option<ValueId> {
    let scope = graph.scope(graph.value(value).scope());
    let ScopeKind::Body(holder, _) = scope.kind() else {
        return None;
    };
    let node = graph.node(*holder);
    let slot = scope.outputs().iter().position(|output| *output == value);
    node.output(slot.filter(|_| node.is("If"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::sketch::Sketch;
    use posenc_ir::DType;

    /// Whether an output of a model with a branch contains the cache.
    fn is_identified(with_cache: fn(&mut Sketch) -> String) -> bool {
        let mut s = Sketch::default();
        for name in ["past", "new"] {
            s.input(name, DType::F32, &["batch", "", "8"]);
        }
        let flag = s.input("use_cache_branch", DType::Bool, &["1"]);
        let y = s.choice(&flag, [with_cache, |s| s.op("Identity", &["new"])]);
        let model = s.model(17, &[&y]);
        let graph = model.graph();
        let past = graph.scope(graph.main()).inputs()[0];
        let output = present(graph, past);
        assert!(output.is_none_or(|output| graph.name(output) == y));
        output.is_some()
    }

    #[test]
    fn a_cache_is_found_behind_the_branch_that_extends_it() {
        assert!(is_identified(|s| s.concat(&["past", "new"], 1)));
        assert!(is_identified(|s| {
            let [before, after] = [[0, 2, 1], [3, i64::MAX, 1]].map(|at| s.slice("past", 1, at));
            s.concat(&[&before, "new", &after], 1)
        }));
        assert!(!is_identified(|s| {
            let newest = s.slice("past", 1, [1, i64::MAX, 1]);
            s.concat(&[&newest, "new"], 1)
        }));
        assert!(!is_identified(|s| s.op("Add", &["past", "new"])));
        assert!(!is_identified(|s| {
            let both = s.concat(&["past", "new"], 1);
            s.op("Relu", &[&both])
        }));
    }
}
