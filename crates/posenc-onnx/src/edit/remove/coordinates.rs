//! Follows rows that coordinates of the input select to where they join other content.

use std::collections::BTreeSet;

use posenc_ir::{Node, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::operators::{is_copy, is_layout, is_norm, is_product, is_skip_norm};

/// Values that are computed from coordinates only.
pub(crate) struct Coordinates {
    values: FxHashSet<ValueId>,
    /// Where they are added to other content.
    pub(crate) entries: Vec<Use>,
}

impl Coordinates {
    /// Follows the rows that these lookups return.
    ///
    /// # Errors
    /// If the rows join content other than by a sum.
    pub(crate) fn of(context: &Context<'_>, lookups: &[Use]) -> Result<Self, RewriteError> {
        let graph = context.graph();
        let indexed = |id: NodeId| (context.found.trace.step(id), id);
        let mut found = Self {
            values: FxHashSet::default(),
            entries: vec![],
        };
        // In execution order, so that the inputs of a node are known before the node.
        let mut pending: BTreeSet<(u32, NodeId)> =
            lookups.iter().map(|at| indexed(at.node)).collect();
        let first: FxHashSet<NodeId> = lookups.iter().map(|at| at.node).collect();
        while let Some((_, id)) = pending.pop_first() {
            let node = graph.node(id);
            let own = |v: &ValueId| found.values.contains(v);
            let inputs = || node.inputs().iter().flatten().copied();
            let others = inputs()
                .filter(|v| !own(v) && context.is_content(*v))
                .count();
            if node.is("Shape") {
                continue;
            }
            if !first.contains(&id) && others > 0 {
                if !matches!(node.op(), "Add" | "Sum") && !is_skip_norm(node) {
                    let why = "cannot remove rows selected by coordinates: they join content other than by a sum";
                    return Err(context.refuse(id, why));
                }
                let slots = node.inputs().iter().enumerate();
                let slots = slots.filter(|(_, v)| v.as_ref().is_some_and(own));
                let uses: Vec<Use> = slots.map(|(slot, _)| Use::new(id, slot)).collect();
                found.entries.extend(uses);
                continue;
            }
            if !first.contains(&id) && !stays_coordinates(node) {
                let why = format!(
                    "cannot remove rows selected by coordinates through {}",
                    node.op()
                );
                return Err(context.refuse(id, why));
            }
            for value in node.outputs().iter().flatten() {
                found.values.insert(*value);
                pending.extend(graph.uses(*value).iter().map(|at| indexed(at.node)));
            }
        }
        Ok(found)
    }

    pub(crate) fn has(&self, value: ValueId) -> bool {
        self.values.contains(&value)
    }
}

/// Operators whose results depend on coordinates only if their inputs do.
fn stays_coordinates(node: &Node) -> bool {
    let op = node.op();
    is_layout(op)
        || is_copy(op)
        || is_norm(node)
        || is_product(node)
        || matches!(op, "Add" | "Sub" | "Sum" | "Mul" | "Div")
        || matches!(op, "Concat" | "Slice" | "Split")
        || op.ends_with("uantizeLinear")
}
