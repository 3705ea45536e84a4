//! The factor that a graph puts on queries or keys before their product.

use posenc_ir::Graph;
use posenc_ir::eval::Trace;

use crate::attention::Operand;
use crate::lane::is_layout;

/// Operators to look back through.
const STEPS: usize = 24;

/// The product of the numbers that an operand is multiplied with on the way from its projection.
pub(crate) fn before(graph: &Graph, trace: &Trace, operand: &Operand) -> f64 {
    let mut value = operand.value;
    let mut factor = 1.0;
    for _ in 0..STEPS {
        let Some((id, _)) = graph.producer(value) else {
            break;
        };
        let node = graph.node(id);
        let one = |slot: usize| {
            let v = node.input(slot)?;
            let known = trace.get(v).to_f64()?;
            (known.len() == 1).then(|| known.first().copied()).flatten()
        };
        let next = match node.op() {
            _ if !node.domain().is_empty() => None,
            "Mul" => match (one(0), one(1)) {
                (_, Some(m)) => {
                    factor *= m;
                    node.input(0)
                }
                (Some(m), None) => {
                    factor *= m;
                    node.input(1)
                }
                _ => None,
            },
            "Div" => one(1).and_then(|m| {
                factor /= m;
                node.input(0)
            }),
            "Cast" | "Identity" | "Slice" | "Split" | "Gather" => node.input(0),
            op if is_layout(op) => node.input(0),
            _ => None,
        };
        match next {
            Some(next) => value = next,
            None => break,
        }
    }
    factor
}
