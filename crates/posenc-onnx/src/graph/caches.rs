//! Caches of keys and values, from the inputs to the outputs that contain them after a run.

use posenc_ir::{Graph, Node, ScopeKind, Use, ValueId};
use rustc_hash::FxHashSet;

use super::operators::{cache_slots, is_rotary, is_write, spliced};

/// The output of the model that contains the keys or values of a cache after a run.
pub(crate) fn present(graph: &Graph, past: ValueId) -> Option<ValueId> {
    reached(graph, past, Kept::Whole).pop()
}

/// The output of the model that contains a part of a cache after a run, as one of a window does: the last tokens.
pub(crate) fn cut(graph: &Graph, past: ValueId) -> Option<ValueId> {
    match present(graph, past) {
        Some(_) => None,
        None => reached(graph, past, Kept::Cut).pop(),
    }
}

/// The only output of the model to which a cache leads where its elements are changed on the way, as by a rotation of
/// earlier keys.
pub(crate) fn changed(graph: &Graph, past: ValueId) -> Option<ValueId> {
    let outputs = reached(graph, past, Kept::Changed);
    let &[only] = &outputs[..] else { return None };
    Some(only)
}

/// What an output contains of a cache.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kept {
    Whole,
    /// A slice of earlier keys and new ones together.
    Cut,
    /// Other elements, each of which comes from a few of one token.
    Changed,
}

/// A value behind a cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Behind {
    value: ValueId,
    /// Whether earlier keys and new ones are together in it; only then it may be cut.
    is_joined: bool,
    /// The axes of a stack of caches that it lacks.
    picked: usize,
}

/// The outputs behind a cache; no more than one where its elements are not changed.
fn reached(graph: &Graph, past: ValueId, kept: Kept) -> Vec<ValueId> {
    let outputs = graph.scope(graph.main()).outputs();
    let mut found = vec![];
    let mut stack = vec![Behind {
        value: past,
        is_joined: false,
        picked: 0,
    }];
    let mut seen = FxHashSet::default();
    while let Some(at) = stack.pop() {
        if outputs.contains(&at.value) && at.picked == 0 {
            if !found.contains(&at.value) {
                found.push(at.value);
            }
            if kept != Kept::Changed {
                return found;
            }
        }
        if !seen.insert(at) {
            continue;
        }
        let outer = after_branch(graph, at.value);
        stack.extend(outer.map(|value| Behind { value, ..at }));
        let uses = graph.uses(at.value).iter();
        for each in uses {
            stack.extend(next(graph, at, *each, kept));
            if kept == Kept::Changed {
                stack.extend(changes(graph, at, *each));
            }
        }
    }
    found
}

/// What a use makes of single elements of a value behind a cache, or of pairs of them.
fn changes(graph: &Graph, at: Behind, each: Use) -> impl Iterator<Item = Behind> {
    let node = graph.node(each.node);
    let of_elements = matches!(node.op(), "Mul" | "Add" | "Sub" | "Div" | "Neg");
    let of_pairs = matches!(node.op(), "Slice" | "Split") || is_rotary(node);
    let follows = of_elements || (of_pairs && each.slot() == 0);
    let values = node.outputs().iter().flatten().filter(move |_| follows);
    values.map(move |value| Behind {
        value: *value,
        ..at
    })
}

/// What a use makes of a value behind a cache.
fn next(graph: &Graph, at: Behind, each: Use, kept: Kept) -> Option<Behind> {
    let node = graph.node(each.node);
    // The outputs of an operator of attention end with its caches, in their order.
    let cache = cache_slots(node)
        .iter()
        .position(|slot| *slot == each.slot());
    let mut picked = at.picked;
    let value = match (cache, node.op()) {
        (Some(cache), _) => node.output(1 + cache),
        (None, "Concat" | "Identity" | "Cast" | "Transpose" | "Reshape") => node.output(0),
        (None, "Gather") if picks_one(graph, node) && each.slot() == 0 => {
            picked += 1;
            node.output(0)
        }
        (None, "Unsqueeze") if picked > 0 => {
            picked -= 1;
            node.output(0)
        }
        (None, "Slice") if kept == Kept::Cut && at.is_joined && each.slot() == 0 => node.output(0),
        (None, "Slice") => joined(graph, node, at.value),
        (None, _) if is_write(node) && each.slot() == 0 => node.output(0),
        (None, _) => None,
    };
    Some(Behind {
        value: value?,
        is_joined: at.is_joined || cache.is_some() || node.is("Concat"),
        picked,
    })
}

/// Whether a `Gather` picks one of a stack of caches, whose axis it removes.
fn picks_one(graph: &Graph, node: &Node) -> bool {
    let index = node.input(1).and_then(|index| graph.constant(index));
    index.is_some_and(|index| index.dims().is_empty())
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

    #[test]
    fn caches_whose_elements_are_changed_lead_to_one_output() {
        let is_changed = |with_cache: fn(&mut Sketch) -> Vec<String>| {
            let mut s = Sketch::default();
            for name in ["past", "new"] {
                s.input(name, DType::F32, &["batch", "", "8"]);
            }
            let outputs = with_cache(&mut s);
            let outputs: Vec<&str> = outputs.iter().map(String::as_str).collect();
            let model = s.model(17, &outputs);
            let graph = model.graph();
            let past = graph.scope(graph.main()).inputs()[0];
            assert_eq!(present(graph, past).or_else(|| cut(graph, past)), None);
            changed(graph, past).is_some()
        };
        fn doubled(s: &mut Sketch) -> String {
            let both = s.concat(&["past", "new"], 1);
            s.op("Add", &[&both, &both])
        }
        assert!(is_changed(|s| vec![doubled(s)]));
        assert!(!is_changed(|s| {
            let doubled = doubled(s);
            vec![s.op("Neg", &[&doubled]), doubled]
        }));
        assert!(!is_changed(|s| {
            let doubled = doubled(s);
            vec![s.op("MatMul", &[&doubled, &doubled])]
        }));
    }

    #[test]
    fn caches_of_a_stack_are_found_where_they_are_stacked_again() {
        let outputs = |last: fn(&mut Sketch, [String; 2]) -> String| {
            let mut s = Sketch::default();
            s.input("past", DType::F32, &["2", "batch", "", "8"]);
            s.input("new", DType::F32, &["batch", "", "8"]);
            let parts = [0, 1].map(|part| {
                let at = s.int(part);
                let part = s.gather("past", &at, 0);
                s.concat(&[&part, "new"], 1)
            });
            let y = last(&mut s, parts);
            let model = s.model(17, &[&y]);
            let graph = model.graph();
            let past = graph.scope(graph.main()).inputs()[0];
            [present(graph, past), cut(graph, past)].map(|output| output.is_some())
        };
        fn stacked(s: &mut Sketch, parts: [String; 2]) -> String {
            let parts = parts.map(|part| s.unsqueeze(&part, &[0]));
            s.concat(&[&parts[0], &parts[1]], 0)
        }
        assert_eq!(outputs(stacked), [true, false]);
        let last = |s: &mut Sketch, parts| {
            let all = stacked(s, parts);
            s.slice(&all, 2, [-7, i64::MAX, 1])
        };
        assert_eq!(outputs(last), [false, true]);
        // One of them is no cache for the next step.
        assert_eq!(outputs(|_, [keys, _]| keys), [false; 2]);
        // Nor is what several rows of the input make.
        let rows = |s: &mut Sketch, _: [String; 2]| {
            let rows = s.ints(&[1, 0]);
            s.gather("past", &rows, 0)
        };
        assert_eq!(outputs(rows), [false; 2]);
    }
}
