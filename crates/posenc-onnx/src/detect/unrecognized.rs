//! Softmaxes and operators that may be attention and were not recognized: those whose sizes are unknown after the
//! trial run, and softmaxes operators that the search for attention does not pass.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ScopeId, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::{Site, fused};
use crate::graph::bodies::{attention_within, holder, inside, left, outside, results};
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::{is_copy, is_layout, is_product, is_projection, may_attend};

/// Whether the sizes of some are unknown.
pub(crate) fn has_unknown_sizes(graph: &Graph, classes: &Classes, trace: &Trace) -> bool {
    !softmaxes(graph, classes, trace).is_empty()
}

/// Softmaxes over content whose sizes are unknown, but for those whose weights go to outputs alone, and operators of
/// attention without sizes.
fn softmaxes(graph: &Graph, classes: &Classes, trace: &Trace) -> Vec<NodeId> {
    let is_unknown = |node: &Node| {
        let is_content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
        let unknown = |v: &ValueId| trace.get(*v).dims.is_none() && is_content(*v);
        let Some(scores) = node.input(0).filter(unknown) else {
            return false;
        };
        let weighted = || node.output(0).is_some_and(|v| may_weight(graph, v));
        node.is("Softmax") && is_of_content(graph, classes, scores) && weighted()
    };
    let is_unread = |id: NodeId, node: &Node| {
        let of_content = classes.content(node).next().is_some();
        is_attention(node) && of_content && fused(graph, trace, id).is_none()
    };
    // The branch of an `If` that does not run here runs when that branch is examined.
    let all = graph
        .nodes()
        .filter(|(id, node)| trace.step(*id) > 0 && (is_unknown(node) || is_unread(*id, node)));
    all.map(|(id, _)| id).collect()
}

/// The warning about softmaxes of unknown sizes; `None` where there are none.
pub(crate) fn without_sizes(graph: &Graph, classes: &Classes, trace: &Trace) -> Option<String> {
    let unknown = softmaxes(graph, classes, trace);
    let first = *unknown.first()?;
    let scores = graph.node(first).input(0)?;
    let from = match source(graph, trace, scores) {
        _ if trace.get(scores).dims.is_some() => format!(
            "{}: this {} has a form that is not read",
            graph.place(first),
            called(graph, first)
        ),
        Some(id) => format!(
            "{}: the output of this {} has unknown sizes",
            graph.place(id),
            called(graph, id)
        ),
        None => "the sizes of scores are unknown".to_owned(),
    };
    let has_fused = unknown.iter().any(|id| is_attention(graph.node(*id)));
    let count = match (unknown.len(), has_fused) {
        (1, true) => "an operator of attention is".to_owned(),
        (n, true) => format!("{n} softmaxes or operators of attention are"),
        (1, false) => "a softmax is".to_owned(),
        (n, false) => format!("{n} softmaxes are"),
    };
    Some(format!(
        "{from}, so that {count} not recognized as attention, which may use position"
    ))
}

/// The warning about operators with attention in a body that is no control flow, as a search for the best sentence
/// runs its decoder; `None` where there are none.
pub(crate) fn in_operators(graph: &Graph, trace: &Trace) -> Option<String> {
    let known = FxHashSet::default();
    let is_unread = |(id, node): &(NodeId, &Node)| {
        let is_control = ["If", "Loop", "Scan"].iter().any(|op| node.is(op));
        let bodies = node.bodies().map(|(_, body)| body).collect();
        trace.step(*id) > 0 && !is_control && attention_within(graph, bodies, &known).is_some()
    };
    let (id, _) = graph.nodes().find(is_unread)?;
    let (place, op) = (graph.place(id), called(graph, id));
    Some(format!(
        "{place}: this {op} runs a model of its own, whose attention is not read; rewrite that model before it \
         is put into this one"
    ))
}

/// Whether a node is attention as one operator.
fn is_attention(node: &Node) -> bool {
    may_attend(node) && !node.is("Softmax")
}

/// Nodes to look at between a softmax and a product.
const NEAR: usize = 64;

/// The warning about softmaxes over products of content that weight content or positions, but are none
/// of these sites; `None` where there are none.
pub(crate) fn not_attention(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    sites: &[Site],
) -> Option<String> {
    let known: FxHashSet<NodeId> = sites.iter().map(|s| s.node).collect();
    let scopes = sites.iter().map(|s| s.scope).chain([graph.main()]);
    let scopes: FxHashSet<ScopeId> = scopes.collect();
    let is_missed = |(id, node): &(NodeId, &Node)| {
        let (scores, weights) = (node.input(0), node.output(0));
        node.is("Softmax")
            && is_examined(graph, &scopes, node.scope())
            && !known.contains(id)
            && scores
                .is_some_and(|v| trace.get(v).dims.is_some() && is_of_content(graph, classes, v))
            && weights.is_some_and(|v| is_multiplied(graph, classes, v))
    };
    let all: Vec<NodeId> = graph.nodes().filter(is_missed).map(|(id, _)| id).collect();
    let first = graph.place(*all.first()?);
    let more = match all.len() - 1 {
        0 => String::new(),
        1 => ", nor is another one".to_owned(),
        n => format!(", nor are {n} others"),
    };
    Some(format!(
        "{first}: this softmax over a product of activations is not recognized as attention{more}; it \
         may use position"
    ))
}

/// Whether a scope is one of these or a body that runs in one of them; of the branches of an `If`, one
/// is examined.
fn is_examined(graph: &Graph, examined: &FxHashSet<ScopeId>, mut scope: ScopeId) -> bool {
    while !examined.contains(&scope) {
        match holder(graph, scope).map(|id| graph.node(id)) {
            Some(node) if !node.is("If") => scope = node.scope(),
            _ => return false,
        }
    }
    true
}

/// Whether a product with content is next, or one with what depends on positions, whatever moves the
/// weights before it.
fn is_multiplied(graph: &Graph, classes: &Classes, weights: ValueId) -> bool {
    let is_mixed = |v: &ValueId| {
        let class = classes.of_value(*v);
        class.has(Class::CONTENT) || class.has(Class::POSITION)
    };
    let mut stack = vec![weights];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) || seen.len() > NEAR {
            continue;
        }
        stack.extend(left(graph, value));
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if node.bodies().next().is_some() {
                stack.extend(inside(graph, *at));
                continue;
            }
            let mut others = node.inputs().iter().flatten().filter(|v| **v != value);
            if !is_product(node) {
                stack.extend(node.outputs().iter().flatten());
            } else if others.any(is_mixed) {
                return true;
            }
        }
    }
    false
}

/// Whether weights may meet anything before they leave the model.
fn may_weight(graph: &Graph, weights: ValueId) -> bool {
    let mut stack = vec![weights];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let moves = is_layout(node.op()) || is_copy(node.op());
            let picks = matches!(node.op(), "Slice" | "ArgMax" | "TopK" | "ReduceMax" | "Log");
            let alone = at.slot() == 0 && node.scope() == graph.main();
            if !alone || !moves && !picks {
                return true;
            }
            if seen.insert(at.node) {
                stack.extend(node.outputs().iter().flatten());
            }
        }
    }
    graph
        .producer(weights)
        .is_none_or(|(id, _)| graph.node(id).scope() != graph.main())
}

/// Whether the nearest product before a value is one of content and content.
fn is_of_content(graph: &Graph, classes: &Classes, value: ValueId) -> bool {
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) || seen.len() > NEAR {
            continue;
        }
        let Some((id, output)) = graph.producer(value) else {
            stack.extend(outside(graph, value));
            continue;
        };
        let node = graph.node(id);
        if node.bodies().next().is_some() {
            stack.extend(results(graph, id, output));
            continue;
        }
        let content: Vec<ValueId> = classes.content(node).collect();
        if content.len() > 1 && is_product(node) {
            return true;
        }
        if !(is_product(node) || is_projection(node) && content.len() == 1) {
            stack.extend(content);
        }
    }
    false
}

/// An operator by its name; one that no version of its domain has, and one of a domain of others, with that.
fn called(graph: &Graph, id: NodeId) -> String {
    let node = graph.node(id);
    let (domain, op) = (node.domain(), node.op());
    match domain {
        "" if posenc_ir::is_operator(op) => op.to_owned(),
        "" => format!("{op}, which is no operator of ai.onnx,"),
        "com.microsoft" => format!("{domain}.{op}"),
        _ => format!("{domain}.{op}, an operator that is not known,"),
    }
}

/// The first node before `value` whose output has unknown sizes: those of its inputs are known.
fn source(graph: &Graph, trace: &Trace, value: ValueId) -> Option<NodeId> {
    let mut seen = FxHashSet::default();
    let mut at = value;
    while seen.insert(at) {
        let (id, _) = graph.producer(at)?;
        let inputs = graph.node(id).inputs().iter().flatten();
        match inputs.copied().find(|v| trace.get(*v).dims.is_none()) {
            Some(before) => at = before,
            None => return Some(id),
        }
    }
    None
}
