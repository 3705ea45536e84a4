//! The bias or mask that a fused operator is given.

use ndarray::ArrayD;
use posenc_ir::eval::{Trace, Value};
use posenc_ir::{DType, Graph, Use, ValueId};

use crate::attention::site::Site;
use crate::graph::operators::bias_slots;

/// Where the bias or mask of a fused operator enters.
pub(crate) fn fused_entry(graph: &Graph, site: &Site) -> Option<Use> {
    let node = graph.node(site.node);
    let mut slots = bias_slots(node).iter();
    let slot = slots.find(|slot| node.input(**slot).is_some())?;
    Some(Use::new(site.node, *slot))
}

/// The bias or mask that a fused operator is given.
pub(crate) fn given(graph: &Graph, site: &Site) -> Option<ValueId> {
    let at = fused_entry(graph, site)?;
    graph.node(at.node).input(at.slot())
}

/// The bias or mask of a fused operator in the trial run.
pub(crate) fn fused(graph: &Graph, trace: &Trace, site: &Site) -> Option<ArrayD<f64>> {
    added(trace.get(given(graph, site)?))
}

/// The numbers of the bias or mask of a fused operator; hidden pairs of a bool mask are −∞.
pub(super) fn added(mask: &Value) -> Option<ArrayD<f64>> {
    match mask.dtype? {
        DType::Bool => {
            let hidden = |seen: f64| if seen == 0.0 { f64::NEG_INFINITY } else { 0.0 };
            Some(mask.to_f64()?.mapv(hidden))
        }
        dtype if dtype.is_float() => mask.to_f64(),
        // Lengths of sequences, or which tokens count.
        _ => None,
    }
}
