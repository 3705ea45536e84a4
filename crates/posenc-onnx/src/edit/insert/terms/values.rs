//! The product of attention weights and values, which a term is added to.

use std::collections::hash_map::Entry;

use posenc_ir::{NodeId, ValueId};
use rustc_hash::FxHashMap;

use super::product::Named;
use crate::attention::Site;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::lane::{Lane, back};
use crate::graph::operators::{is_elementwise, is_product, is_rearrangement};

/// The product, with a letter for each axis.
pub(crate) struct WeightedValues {
    /// Its result.
    pub(crate) value: ValueId,
    /// The weights as they enter it.
    pub(crate) weights: ValueId,
    /// Their axes.
    pub(crate) content: Vec<char>,
    /// The letters of queries, keys and features.
    pub(crate) vectors: [char; 3],
    /// The axes of the result.
    pub(crate) result: Vec<char>,
}

impl WeightedValues {
    /// The product after the softmax of a site.
    ///
    /// # Errors
    /// If there is none, several, or one that is not supported.
    pub(crate) fn of(context: &Context<'_>, site: &Site) -> Result<Self, RewriteError> {
        let refuse = |why: &str| context.refuse(site.node, why);
        let (steps, products) = products_of_weights(context, site);
        let [(node, weights)] = products[..] else {
            return Err(refuse(
                "cannot locate the one product of its weights and values",
            ));
        };
        Self::at(context, site, &steps, node, weights)
            .ok_or_else(|| refuse("the axes of its weights and values are not known"))
    }

    fn at(
        context: &Context<'_>,
        site: &Site,
        steps: &Steps,
        node: NodeId,
        weights: ValueId,
    ) -> Option<Self> {
        let named = Named::of(context, node).filter(|n| n.factor == 1.0)?;
        let product = context.graph().node(node);
        let slot = usize::from(product.input(0) != Some(weights));
        let content = named.operands[slot].clone();
        let [rows, columns] = site.plane?;
        let letter = |axis: usize| {
            let here = |a: &usize| origin(context, site, steps, weights, *a) == Some(axis);
            let mut found = (0..content.len()).filter(here);
            let one = found.next().filter(|_| found.next().is_none())?;
            content.get(one).copied()
        };
        let (query, key) = (letter(rows)?, letter(columns)?);
        let mut made = named.result.iter().filter(|c| !content.contains(c));
        let feature = *made.next().filter(|_| made.next().is_none())?;
        let at = named.result.iter().position(|c| *c == feature)?;
        let width = context.dims(product.output(0)?)?.get(at).copied();
        let summed = named.result.contains(&query) && !named.result.contains(&key);
        (summed && width == site.head_dim).then_some(Self {
            value: product.output(0)?,
            weights,
            content,
            vectors: [query, key, feature],
            result: named.result,
        })
    }
}

/// How values after the softmax are computed: the node and the slot of the weights.
type Steps = FxHashMap<ValueId, (NodeId, usize)>;

/// The products of weights and content, and the path to them.
fn products_of_weights(context: &Context<'_>, site: &Site) -> (Steps, Vec<(NodeId, ValueId)>) {
    let graph = context.graph();
    let mut steps = Steps::default();
    let mut products = vec![];
    let mut stack: Vec<ValueId> = graph.node(site.node).output(0).into_iter().collect();
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            if is_product(node) {
                let mut others = node.inputs().iter().flatten().filter(|v| **v != value);
                if others.any(|v| context.is_content(*v)) {
                    products.push((at.node, value));
                }
                continue;
            }
            let op = node.op();
            let through = node.domain().is_empty()
                && (is_elementwise(op) || is_rearrangement(op) || op == "Slice");
            // A comparison of weights, for example, is not weights.
            let float = |v: &ValueId| context.dtype(*v).is_float();
            let Some(made) = node.output(0).filter(|v| through && float(v)) else {
                continue;
            };
            if let Entry::Vacant(free) = steps.entry(made) {
                free.insert((at.node, at.slot()));
                stack.push(made);
            }
        }
    }
    products.sort_unstable();
    products.dedup();
    (steps, products)
}

/// The axis of the softmax output that becomes this axis of a value after it.
fn origin(
    context: &Context<'_>,
    site: &Site,
    steps: &Steps,
    mut value: ValueId,
    mut axis: usize,
) -> Option<usize> {
    let graph = context.graph();
    let first = graph.node(site.node).output(0)?;
    while value != first {
        let (id, slot) = *steps.get(&value)?;
        let lane = Lane::of_sequence(axis);
        axis = back(graph, &context.found.trace, id, 0, slot, lane)?.sequence;
        value = graph.node(id).input(slot)?;
    }
    Some(axis)
}
