//! Caches of keys and values, from the inputs to the outputs that contain them after a run.

use posenc_ir::{Graph, Node, ScopeKind, ValueId};
use rustc_hash::FxHashSet;

use super::operators::{cache_slots, is_write, spliced};

/// The output of the model that contains the keys or values of a cache after a run.
pub(crate) fn present(graph: &Graph, past: ValueId) -> Option<ValueId> {
    reached(graph, past, false)
}

/// The output of the model that contains a part of a cache after a run, as one of a window does: the last tokens.
pub(crate) fn cut(graph: &Graph, past: ValueId) -> Option<ValueId> {
    match present(graph, past) {
        Some(_) => None,
        None => reached(graph, past, true),
    }
}

/// The first output behind a cache, which may be a slice of earlier keys and new ones together.
fn reached(graph: &Graph, past: ValueId, may_be_cut: bool) -> Option<ValueId> {
    let outputs = graph.scope(graph.main()).outputs();
    let mut stack = vec![(past, false)];
    let mut seen = FxHashSet::default();
    while let Some((value, is_joined)) = stack.pop() {
        if outputs.contains(&value) {
            return Some(value);
        }
        if !seen.insert((value, is_joined)) {
            continue;
        }
        stack.extend(after_branch(graph, value).map(|value| (value, is_joined)));
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            // The outputs of an operator of attention end with its caches, in their order.
            let cache = cache_slots(node).iter().position(|slot| *slot == at.slot());
            let next = match (cache, node.op()) {
                (Some(cache), _) => node.output(1 + cache),
                (None, "Concat" | "Identity" | "Cast" | "Transpose" | "Reshape") => node.output(0),
                (None, "Slice") if may_be_cut && is_joined && at.slot() == 0 => node.output(0),
                (None, "Slice") => joined(graph, node, value),
                (None, _) if is_write(node) && at.slot() == 0 => node.output(0),
                (None, _) => None,
            };
            let joins = cache.is_some() || node.is("Concat");
            stack.extend(next.map(|value| (value, is_joined || joins)));
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

    #[test]
    fn a_cache_of_which_the_last_tokens_are_kept_is_cut() {
        let is_cut = |with_cache: fn(&mut Sketch) -> String| {
            let mut s = Sketch::default();
            for name in ["past", "new"] {
                s.input(name, DType::F32, &["batch", "", "8"]);
            }
            let y = with_cache(&mut s);
            let model = s.model(17, &[&y]);
            let graph = model.graph();
            cut(graph, graph.scope(graph.main()).inputs()[0]).is_some()
        };
        assert!(is_cut(|s| {
            let all = s.concat(&["past", "new"], 1);
            s.slice(&all, 1, [-7, i64::MAX, 1])
        }));
        assert!(!is_cut(|s| s.concat(&["past", "new"], 1)));
        assert!(!is_cut(|s| s.slice("past", 1, [-7, i64::MAX, 1])));
        assert!(!is_cut(|s| {
            let all = s.concat(&["past", "new"], 1);
            let last = s.slice(&all, 1, [-7, i64::MAX, 1]);
            s.op("Relu", &[&last])
        }));
    }
}
