//! Bodies of control flow: they have the inputs and outputs that their node needs.

use crate::error::{Error, Result};
use crate::graph::{Graph, ScopeKind};
use crate::id::ScopeId;
use crate::node::Node;

/// The number of inputs and outputs that a body must have.
struct Want {
    inputs: usize,
    outputs: usize,
}

/// Checks the bodies of `If`, `Loop`, `Scan` and `SequenceMap`; `version` is that of ai.onnx.
pub(super) fn check(graph: &Graph, node: &Node, version: i64) -> Result<()> {
    if node.indexed_bodies().is_empty() || !node.domain().is_empty() {
        return Ok(());
    }
    let (inputs, outputs) = (node.inputs().len(), node.outputs().len());
    let want = match node.op() {
        "If" => Want { inputs: 0, outputs },
        // The iteration number, the condition, then the carried values.
        "Loop" => Want {
            inputs: inputs.max(2),
            outputs: outputs.saturating_add(1),
        },
        // Before version 9, the first input is the sequence lengths, which bodies do not get.
        "Scan" if version < 9 => Want {
            inputs: inputs.saturating_sub(1),
            outputs,
        },
        "Scan" | "SequenceMap" => Want { inputs, outputs },
        _ => return Ok(()),
    };
    for (name, body) in node.bodies() {
        let scope = graph.scope(body);
        let sides = [
            ("input", own_inputs(graph, body), want.inputs),
            ("output", scope.outputs().len(), want.outputs),
        ];
        for (what, got, want) in sides {
            if got != want {
                let (op, s) = (node.op(), if got == 1 { "" } else { "s" });
                let why = format!("{name} has {got} {what}{s}, but this {op} needs {want}");
                return Err(Error::invalid(why));
            }
        }
    }
    Ok(())
}

/// The number of inputs without a default.
fn own_inputs(graph: &Graph, scope: ScopeId) -> usize {
    debug_assert!(matches!(graph.scope(scope).kind(), ScopeKind::Body(..)));
    let inputs = graph.scope(scope).inputs().iter();
    inputs.filter(|v| graph.stored(**v).is_none()).count()
}
