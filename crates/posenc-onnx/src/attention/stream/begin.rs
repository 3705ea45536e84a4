//! Where a residual stream begins: the values that everything a first layer reads runs through.

#[cfg(test)]
mod tests;

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Tokens, Walk, ends, operands, start};
use crate::attention::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::{is_elementwise, is_layout, is_norm, is_projection, is_skip_norm};

/// A value at which something may be added to all that a stack reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InsertionPoint {
    pub(crate) value: ValueId,
    /// The axes of tokens.
    pub(crate) tokens: Tokens,
    /// The use that the stack reads it by, where the value itself is but one of its summands.
    pub(crate) only: Option<Use>,
}

/// The begin of a residual stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Begin {
    /// The last values before a norm, a projection or a branch, from the first on.
    pub(crate) places: Vec<InsertionPoint>,
    /// The place among them that follows the embeddings: of looked-up ones the first, of others
    /// the first after the last projection.
    pub(crate) usual: usize,
}

/// What is between two values that all content passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Between {
    /// Scales, masks, changes of type or layout.
    Soft,
    /// A norm.
    Norm,
    /// A branch that is added to its input.
    Residual,
    /// Weights, or anything else.
    Other,
}

impl Begin {
    /// The begin of the stream that a site reads, which is to be the first of its stack; `None`
    /// where no value precedes both queries and keys.
    pub(crate) fn of(graph: &Graph, classes: &Classes, trace: &Trace, site: &Site) -> Option<Self> {
        let mut walk = Walk::new(graph, classes, trace);
        for operand in operands(classes, site) {
            walk.back(start(operand), Tokens::one(operand.lane.sequence));
        }
        let sinks: Vec<ValueId> = operands(classes, site).map(|o| o.value).collect();
        let flow = Flow::of(graph, classes, &walk, &sinks);
        // What the projections of queries and keys give is no stream any more.
        let within = |v: &ValueId| walk.before.contains((*v, true));
        let cuts: Vec<ValueId> = flow.cuts(&sinks).into_iter().filter(within).collect();
        let last = cuts.len().checked_sub(1)?;
        let mut places = vec![];
        let mut usual = 0;
        let first = *cuts.first()?;
        if let Some(place) = flow.summand(graph, &walk, first) {
            places.push(place);
        }
        for (i, value) in cuts.iter().copied().enumerate() {
            let next = (i < last).then(|| flow.between(graph, classes, value, cuts[i + 1]));
            if next == Some(Between::Other) && !flow.looks_up {
                usual = places.len() + 1;
            }
            if next != Some(Between::Soft) || branches(graph, value) {
                places.push(InsertionPoint {
                    value,
                    tokens: walk.tokens[value.index()]?,
                    only: None,
                });
            }
        }
        Some(Self {
            usual: usual.min(places.len() - 1),
            places,
        })
    }
}

/// The content before a site's queries and keys.
struct Flow {
    /// Values in an order of computation.
    order: Vec<ValueId>,
    /// The values before each.
    before: FxHashMap<ValueId, Vec<ValueId>>,
    /// Whether embeddings are looked up.
    looks_up: bool,
}

impl Flow {
    fn of(graph: &Graph, classes: &Classes, walk: &Walk<'_>, sinks: &[ValueId]) -> Self {
        let mut flow = Self {
            order: vec![],
            before: FxHashMap::default(),
            looks_up: false,
        };
        let mut stack: Vec<(ValueId, bool)> = sinks.iter().map(|v| (*v, false)).collect();
        let mut open = FxHashSet::default();
        while let Some((value, done)) = stack.pop() {
            if done {
                flow.order.push(value);
                continue;
            }
            if !open.insert(value) {
                continue;
            }
            let before = if looks_up(graph, classes, value) {
                vec![]
            } else {
                before(graph, classes, walk, value)
            };
            flow.looks_up |= looks_up(graph, classes, value);
            stack.push((value, true));
            stack.extend(before.iter().map(|v| (*v, false)));
            flow.before.insert(value, before);
        }
        flow
    }

    /// The values that every path from an origin to a sink passes, in order: those over
    /// which no step of the order leaps.
    fn cuts(&self, sinks: &[ValueId]) -> Vec<ValueId> {
        let place: FxHashMap<ValueId, usize> = self
            .order
            .iter()
            .enumerate()
            .map(|(i, v)| (*v, i))
            .collect();
        // The farthest place that a value up to here leads to.
        let mut reach = vec![0; self.order.len()];
        let mut origins = 0;
        for (i, value) in self.order.iter().enumerate() {
            let before = self.before.get(value).map_or(&[][..], Vec::as_slice);
            if before.is_empty() {
                origins = i;
            }
            for from in before {
                if let Some(from) = place.get(from) {
                    reach[*from] = reach[*from].max(i);
                }
            }
        }
        let first_sink = sinks.iter().filter_map(|s| place.get(s)).min();
        let ends = first_sink.copied().unwrap_or(0);
        let mut farthest = 0;
        let mut cuts = vec![];
        for (i, value) in self.order.iter().enumerate() {
            if i >= origins && farthest <= i && i <= ends {
                cuts.push(*value);
            }
            farthest = farthest.max(reach[i]);
        }
        cuts
    }

    /// What is between a cut and the next.
    fn between(&self, graph: &Graph, classes: &Classes, from: ValueId, to: ValueId) -> Between {
        let mut stack = vec![to];
        let mut seen = FxHashSet::from_iter([from]);
        let mut nodes: Vec<NodeId> = vec![];
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            nodes.extend(graph.producer(value).map(|p| p.0));
            stack.extend(self.before.get(&value).into_iter().flatten());
        }
        let all = |test: &dyn Fn(&Node) -> bool| nodes.iter().all(|id| test(graph.node(*id)));
        let any = |test: &dyn Fn(&Node) -> bool| !all(&|node| !test(node));
        let content = |node: &Node| {
            let inputs = node.inputs().iter().flatten();
            inputs
                .filter(|v| classes.of_value(**v).has(Class::CONTENT))
                .count()
        };
        let last = graph.producer(to).map(|p| graph.node(p.0));
        let adds = last.is_some_and(|n| n.is("Add") && n.inputs().contains(&Some(from)));
        if any(&is_projection) && adds {
            Between::Residual
        } else if any(&is_projection) {
            Between::Other
        } else if any(&is_part_of_norm) {
            Between::Norm
        } else if all(&|node| moves(node) && content(node) == 1) {
            Between::Soft
        } else {
            Between::Other
        }
    }

    /// Where embeddings are summed by the operator that norms their sum: one of them.
    fn summand(&self, graph: &Graph, walk: &Walk<'_>, first: ValueId) -> Option<InsertionPoint> {
        let (id, _) = graph.producer(first)?;
        let node = graph.node(id);
        let before = self.before.get(&first)?;
        let value = node
            .input(0)
            .filter(|v| is_skip_norm(node) && before.contains(v))?;
        Some(InsertionPoint {
            value,
            tokens: walk.tokens[value.index()]?,
            only: Some(Use::new(id, 0)),
        })
    }
}

/// Whether several nodes compute with a value.
fn branches(graph: &Graph, value: ValueId) -> bool {
    let uses = graph.uses(value).iter();
    let computing = uses.filter(|u| {
        let node = graph.node(u.node);
        !node.is("Shape") && !node.is("Size")
    });
    computing.count() > 1
}

/// The content that a value is computed from, also where the walk does not follow its tokens: in
/// the means and sums of a norm.
fn before(graph: &Graph, classes: &Classes, walk: &Walk<'_>, value: ValueId) -> Vec<ValueId> {
    let steps = [false, true].map(|outer| walk.before.get((value, outer)));
    let mut all: Vec<ValueId> = steps.into_iter().flatten().flatten().map(|s| s.0).collect();
    if let Some((id, _)) = graph.producer(value) {
        let node = graph.node(id);
        let inputs = || node.inputs().iter().flatten().copied();
        let content = inputs().filter(|v| classes.of_value(*v).has(Class::CONTENT));
        let mixes = is_projection(node) && content.count() > 1;
        if !ends(node) && !mixes && node.bodies().next().is_none() {
            all.extend(inputs());
        }
    }
    // Earlier keys are no part of what a stream begins with.
    all.retain(|v| classes.of_value(*v).has(Class::FRESH));
    all.sort_unstable();
    all.dedup();
    all
}

/// Whether content picks rows of a table here.
fn looks_up(graph: &Graph, classes: &Classes, value: ValueId) -> bool {
    let Some((id, _)) = graph.producer(value) else {
        return false;
    };
    let node = graph.node(id);
    let content = |slot: usize| {
        let input = node.input(slot);
        input.is_some_and(|v| classes.of_value(v).has(Class::CONTENT))
    };
    match node.op() {
        "Gather" => content(1) && !content(0),
        "GatherBlockQuantized" | "EmbedLayerNormalization" => true,
        _ => false,
    }
}

fn is_part_of_norm(node: &Node) -> bool {
    is_norm(node) || node.op().starts_with("Reduce")
}

/// Scales, masks, changes of type and layout: what moves or multiplies content.
fn moves(node: &Node) -> bool {
    let op = node.op();
    node.domain().is_empty() && (is_elementwise(op) || is_layout(op))
}
