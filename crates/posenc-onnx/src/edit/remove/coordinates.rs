//! Rows that coordinates of the input pick, followed on to where they join other content.

use std::collections::BTreeSet;

use posenc_ir::{NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::lane::is_layout;

/// Content that is position and nothing else.
pub(crate) struct Coordinates {
    values: FxHashSet<ValueId>,
    /// Where it is added to other content.
    pub(crate) entries: Vec<Use>,
}

impl Coordinates {
    /// What the tables that enter at these places give.
    pub(crate) fn of(context: &Context<'_>, lookups: &[Use]) -> Result<Self, RewriteError> {
        let graph = context.graph();
        let turn = |id: NodeId| (context.found.trace.turn(id), id);
        let mut found = Self {
            values: FxHashSet::default(),
            entries: vec![],
        };
        // In the order of computation, so that all that a node reads is known before it is.
        let mut ahead: BTreeSet<(u32, NodeId)> = lookups.iter().map(|at| turn(at.node)).collect();
        let first: FxHashSet<NodeId> = lookups.iter().map(|at| at.node).collect();
        while let Some((_, id)) = ahead.pop_first() {
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
                if !matches!(node.op(), "Add" | "Sum") && !node.op().starts_with("Skip") {
                    let why = "rows that coordinates pick meet content otherwise than in a sum";
                    return Err(context.refuse(id, why));
                }
                let slots = node.inputs().iter().enumerate();
                let slots = slots.filter(|(_, v)| v.as_ref().is_some_and(own));
                let uses: Vec<Use> = slots.map(|(slot, _)| Use::new(id, slot)).collect();
                found.entries.extend(uses);
                continue;
            }
            if !first.contains(&id) && !keeps(node.op()) {
                let why = format!(
                    "rows that coordinates pick cannot be followed through {}",
                    node.op()
                );
                return Err(context.refuse(id, why));
            }
            for value in node.outputs().iter().flatten() {
                found.values.insert(*value);
                ahead.extend(graph.uses(*value).iter().map(|at| turn(at.node)));
            }
        }
        Ok(found)
    }

    pub(crate) fn has(&self, value: ValueId) -> bool {
        self.values.contains(&value)
    }
}

/// Operators that make nothing but position of position.
fn keeps(op: &str) -> bool {
    is_layout(op)
        || op.ends_with("Normalization")
        || matches!(
            op,
            "Add" | "Sub" | "Sum" | "Mul" | "Div" | "Concat" | "Cast" | "Identity" | "Dropout"
        )
        || matches!(op, "MatMul" | "FusedMatMul" | "Gemm" | "Slice" | "Split")
        || op.ends_with("uantizeLinear")
}
