//! The product of queries and keys: which operand is which.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ValueId};

use super::site::Operand;
use crate::graph::einsum::Equation;
use crate::graph::lane::Lane;

/// The operands of a product, and the axis of queries in its result.
pub(crate) struct Product {
    pub(crate) query: Operand,
    pub(crate) key: Operand,
    pub(crate) queries: usize,
}

/// Which operand of the product is the queries', given the axis along which the softmax runs.
pub(crate) fn operands(
    graph: &Graph,
    trace: &Trace,
    product: NodeId,
    axis: usize,
) -> Option<Product> {
    let node = graph.node(product);
    let second = if node.is("QLinearMatMul") { 3 } else { 1 };
    let (a, b) = (node.input(0)?, node.input(second)?);
    let rank = |v: ValueId| trace.get(v).dims.as_ref().map(Vec::len);
    let out = rank(node.output(0)?)?;
    if node.is("Einsum") {
        let equation = Equation::of(graph, trace, product)?;
        return einsum_operands(trace, &equation, [a, b], axis);
    }
    let flag = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
    let lane = |value: ValueId, transposed: bool, row: bool| -> Option<Operand> {
        let (last, before) = (rank(value)?.checked_sub(1)?, rank(value)?.checked_sub(2)?);
        // Rows of the first operand and columns of the second are tokens.
        let tokens_first = row != transposed;
        Some(Operand {
            value,
            lane: Lane {
                sequence: if tokens_first { before } else { last },
                feature: Some(if tokens_first { last } else { before }),
                group: None,
                offset: 0,
            },
        })
    };
    let first = lane(a, flag("transA"), true)?;
    let second = lane(b, flag("transB"), false)?;
    let (query, key, queries) = match out.checked_sub(axis)? {
        1 => (first, second, axis.checked_sub(1)?),
        2 => (second, first, axis + 1),
        _ => return None,
    };
    Some(Product {
        query,
        key,
        queries,
    })
}

fn einsum_operands(
    trace: &Trace,
    equation: &Equation,
    [a, b]: [ValueId; 2],
    axis: usize,
) -> Option<Product> {
    let output = &equation.result;
    let [left, right] = &equation.operands[..] else {
        return None;
    };
    let keys = *output.get(axis)?;
    let side = |term: &[char], value: ValueId, own: char| -> Option<Operand> {
        let feature = term.iter().position(|c| !output.contains(c))?;
        Some(Operand {
            value,
            lane: Lane {
                sequence: term.iter().position(|c| *c == own)?,
                feature: Some(feature),
                group: None,
                offset: 0,
            },
        })
    };
    let (query, q_term, key, k_term) = match (left.contains(&keys), right.contains(&keys)) {
        (false, true) => (a, left, b, right),
        (true, false) => (b, right, a, left),
        _ => return None,
    };
    let size = |value: ValueId, term: &[char], c: char| {
        let axis = term.iter().position(|other| *other == c)?;
        trace.get(value).dims.as_ref()?.get(axis).copied()
    };
    // The letter that the queries keep and the keys do not have. Of several, as where heads share keys,
    // the one with as many indices as there are keys, or else with the most.
    let own = q_term
        .iter()
        .filter(|c| output.contains(c) && !k_term.contains(c));
    let count = size(key, k_term, keys);
    let rank = |c: &&char| {
        let own = size(query, q_term, **c);
        (own.is_some() && own == count, own)
    };
    let own = *own.rev().max_by_key(rank)?;
    Some(Product {
        query: side(q_term, query, own)?,
        key: side(k_term, key, keys)?,
        queries: output.iter().position(|c| *c == own)?,
    })
}
