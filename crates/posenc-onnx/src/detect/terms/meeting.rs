//! Where queries or keys meet vectors: products of content and of what is none, whose result
//! joins the scores.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::attention::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::ones;
use crate::graph::operators::{is_copy, is_elementwise, is_layout, is_product};
use crate::graph::product::Letters;

/// A product of content with vectors that carry none.
#[derive(Clone, Debug)]
pub(crate) struct Meeting {
    /// The product.
    pub(crate) node: NodeId,
    /// The content.
    pub(crate) content: ValueId,
    /// The axes of the content that are summed over.
    pub(crate) features: Vec<usize>,
    /// The operand that carries no content.
    pub(crate) vectors: Use,
    /// What is read of vectors: from the operand back through what only moves and picks rows.
    pub(crate) chain: Vec<ValueId>,
    /// Whether content picks which of the products join the scores.
    pub(crate) is_picked: bool,
}

/// What joins the scores of a site.
#[derive(Clone, Debug, Default)]
pub(crate) struct Joins {
    pub(crate) meetings: Vec<Meeting>,
    /// Where content meets vectors of zeros: products that join, and add nothing.
    pub(crate) nothing: Vec<Use>,
    /// Content that joins by no such product, and the reason why it is none.
    pub(crate) others: Vec<(Use, &'static str)>,
    /// Indices that pick rows of the terms.
    pub(crate) picks: Vec<ValueId>,
}

impl Joins {
    /// What joins the scores besides a meeting: the results of other products, and content.
    pub(crate) fn besides(&self, graph: &Graph, meeting: &Meeting) -> Vec<ValueId> {
        let others = self.meetings.iter().map(|m| m.node);
        let others = others.filter(|node| *node != meeting.node);
        let products = others.chain(self.nothing.iter().map(|u| u.node));
        let products = products.filter_map(|node| graph.node(node).output(0));
        let joined = self.others.iter();
        let joined = joined.filter_map(|(u, _)| graph.node(u.node).input(u.slot()));
        products.chain(joined).collect()
    }
}

/// Walks back from the uses at which content joins the scores to the nearest products.
pub(crate) fn joins(graph: &Graph, classes: &Classes, trace: &Trace, site: &Site) -> Joins {
    let mut joins = Joins::default();
    let content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
    let index = |node: &Node| {
        let picks = node.is("Gather") || node.is("GatherElements");
        node.input(1).filter(|_| picks)
    };
    for join in crate::attention::scores::terms(graph, classes, site) {
        // A bias that content scales is read as a bias.
        if crate::attention::scores::is_gated(graph, classes, trace, site, join) {
            continue;
        }
        let Some(value) = graph.node(join.node).input(join.slot()) else {
            continue;
        };
        let (mut met, mut why) = (false, "it is not computed from a product with content");
        let mut seen = FxHashSet::default();
        // What picks may read the product itself, so that the term joins there.
        let is_picked = index(graph.node(join.node)).is_some_and(content);
        let mut stack = vec![(value, is_picked)];
        while let Some((value, is_picked)) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            let node = graph.node(id);
            if is_product(node) {
                match meeting(graph, classes, trace, id) {
                    Some(meeting) if is_zero(graph, classes, trace, meeting.vectors) => {
                        met = true;
                        if !joins.nothing.contains(&meeting.vectors) {
                            joins.nothing.push(meeting.vectors);
                        }
                    }
                    Some(meeting) if joins.meetings.iter().all(|m| m.node != id) => {
                        met = true;
                        joins.picks.extend(picks(graph, &meeting.chain));
                        joins.meetings.push(Meeting {
                            is_picked,
                            ..meeting
                        });
                    }
                    Some(_) => met = true,
                    None => why = "it is a product of content with content",
                }
                continue;
            }
            joins.picks.extend(index(node).filter(|v| !content(*v)));
            let is_picked = is_picked || index(node).is_some_and(content);
            let inputs = crate::graph::region::reads(graph, id).into_iter();
            let inputs = inputs.filter(|v| content(*v));
            stack.extend(inputs.map(|v| (v, is_picked)));
        }
        if !met {
            joins.others.push((join, why));
        }
    }
    joins.meetings.sort_by_key(|m| m.node);
    joins
}

/// The product as a meeting, where one operand alone is content.
fn meeting(graph: &Graph, classes: &Classes, trace: &Trace, id: NodeId) -> Option<Meeting> {
    let node = graph.node(id);
    let content = |slot: usize| {
        let value = node.input(slot);
        value.is_some_and(|v| classes.of_value(v).has(Class::CONTENT))
    };
    let slot = match (content(0), content(1)) {
        (true, false) => 0,
        (false, true) => 1,
        _ => return None,
    };
    let letters = Letters::of(graph, trace, id)?;
    let own = &letters.operands[slot];
    let summed = |a: &usize| !letters.result.contains(&own[*a]);
    let vectors = Use::new(id, 1 - slot);
    Some(Meeting {
        node: id,
        content: node.input(slot)?,
        features: (0..own.len()).filter(summed).collect(),
        vectors,
        chain: chain(graph, trace, node.input(1 - slot)?),
        is_picked: false,
    })
}

/// Whether what is read here is zero throughout, whatever is fed.
fn is_zero(graph: &Graph, classes: &Classes, trace: &Trace, at: Use) -> bool {
    let value = graph.node(at.node).input(at.slot());
    value.is_some_and(|v| crate::attention::scores::is_zero(classes, trace, v))
}

/// A value and what it is moved, picked or scaled from, nearest first.
pub(crate) fn chain(graph: &Graph, trace: &Trace, value: ValueId) -> Vec<ValueId> {
    let mut chain = vec![value];
    let mut at = value;
    while let Some((id, _)) = graph.producer(at).filter(|_| graph.stored(at).is_none()) {
        let node = graph.node(id);
        let single = |v: ValueId| trace.get(v).elements() == Some(1);
        let next = match node.op() {
            _ if !node.domain().is_empty() => None,
            "Slice" | "Gather" | "GatherElements" | "Pad" => node.input(0),
            _ if is_product(node) => ones::pick(graph, trace, id).map(|p| p.table),
            op if is_copy(op) || is_layout(op) => node.input(0),
            op if is_elementwise(op) && node.inputs().len() == 2 => {
                match (node.input(0), node.input(1)) {
                    (a, Some(b)) if single(b) => a,
                    (Some(a), b) if single(a) => b,
                    _ => None,
                }
            }
            _ => None,
        };
        let Some(next) = next.filter(|v| trace.get(*v).elements().is_some_and(|n| n > 1)) else {
            break;
        };
        chain.push(next);
        at = next;
    }
    chain
}

/// The indices that pick among the rows of a chain.
pub(crate) fn picks(graph: &Graph, chain: &[ValueId]) -> Vec<ValueId> {
    let makers = chain.iter().filter_map(|v| graph.producer(*v));
    let picking = makers.filter_map(|(id, _)| {
        let node = graph.node(id);
        match node.op() {
            "Gather" | "GatherElements" => node.input(1),
            _ => ones::index(graph, id),
        }
    });
    picking.collect()
}
