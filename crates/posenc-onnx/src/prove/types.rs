//! Element types: nodes that were inserted, and those that read them, have operands of one type.

use posenc_ir::{Applied, DType, Node, NodeId};

use crate::detect::context::Context;
use crate::error::RewriteError;

/// Checks the new nodes of a graph, and the nodes that read them.
///
/// # Errors
/// When a node combines floats of two types, which no runtime loads; the node is named.
pub(crate) fn check(context: &Context<'_>, applied: &Applied) -> Result<(), RewriteError> {
    let graph = context.graph();
    let new = applied.added.iter().copied();
    let readers = applied.added.iter().flat_map(|id| {
        let made = graph.node(*id).outputs().iter().flatten();
        made.flat_map(|value| graph.uses(*value).iter().map(|at| at.node))
    });
    let mut nodes: Vec<NodeId> = new.chain(readers).collect();
    nodes.sort_unstable();
    nodes.dedup();
    for id in nodes {
        if let Some([a, b]) = two_types(context, graph.node(id)) {
            let why = format!("it would combine {a} with {b}");
            return Err(context.refuse(id, why));
        }
    }
    Ok(())
}

/// Two types of floats among the operands of a node that must have one type.
fn two_types(context: &Context<'_>, node: &Node) -> Option<[DType; 2]> {
    let graph = context.graph();
    let slots = operands(node)?;
    let types = node.inputs().iter().enumerate();
    let types = types.filter(|(slot, _)| slots.is_none_or(|slots| slots.contains(slot)));
    let mut types = types.filter_map(|(_, value)| {
        let value = (*value)?;
        let read = context.found.trace.get(value).dtype;
        read.or_else(|| graph.dtype(value)).filter(|t| t.is_float())
    });
    let first = types.next()?;
    types
        .find(|other| *other != first)
        .map(|other| [first, other])
}

/// The slots of a node whose values have one type, `Some(None)` for all of them; `None` for an
/// operator that takes several types.
fn operands(node: &Node) -> Option<Option<&'static [usize]>> {
    if !node.domain().is_empty() {
        return None;
    }
    match node.op() {
        "Add" | "Sub" | "Mul" | "Div" | "MatMul" | "Gemm" | "Einsum" | "Conv" | "Max" | "Min"
        | "Sum" | "Mean" | "Concat" | "Equal" | "Less" | "LessOrEqual" | "Greater"
        | "GreaterOrEqual" | "Clip" | "Range" => Some(None),
        "Where" => Some(Some(&[1, 2])),
        "Pad" => Some(Some(&[0, 2])),
        "RotaryEmbedding" => Some(Some(&[0, 1, 2])),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{HIDDEN, Sketch};

    /// What is said of a graph after `op` combines its embeddings with a constant of a type.
    fn verdict(op: &str, other: DType) -> Result<(), String> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let y = s.op("Neg", &[&x]);
        let model = s.model(17, &[&y]);
        let graph = model.graph();
        let mut out = graph.emitter(graph.main(), "e");
        let old = graph.scope(graph.main()).outputs()[0];
        let ones = posenc_ir::Tensor::from_f64(other, &[HIDDEN], &[1.0; HIDDEN]);
        let ones = out.constant("ones", ones);
        let new = out.op(op, &[old, ones]);
        out.redirect(old, new).unwrap();
        let (model, applied) = model.clone().with_patch(out.finish()).unwrap();
        let found = detect(&model, &Options::default());
        let context = Context {
            model: &model,
            found: &found,
        };
        check(&context, &applied).map_err(|why| why.to_string())
    }

    #[test]
    fn floats_of_two_types_are_refused_where_an_operator_takes_one() {
        for (op, other, want) in [
            ("Add", DType::F32, None),
            ("Mul", DType::F32, None),
            // An exponent may have a type of its own.
            ("Pow", DType::F64, None),
            ("Add", DType::F64, Some("float with double")),
            ("Add", DType::F16, Some("float with float16")),
            ("Mul", DType::BF16, Some("float with bfloat16")),
            ("Max", DType::F64, Some("float with double")),
            ("Concat", DType::F16, Some("float with float16")),
        ] {
            match (verdict(op, other), want) {
                (Ok(()), None) => {}
                (Err(why), Some(want)) => {
                    let want = format!("it would combine {want}");
                    assert!(why.ends_with(&want), "{op} of {other}: {why}");
                    assert!(why.contains("e/"), "{op} of {other}: {why}");
                }
                (got, _) => panic!("{op} of {other}: {got:?}"),
            }
        }
    }
}
