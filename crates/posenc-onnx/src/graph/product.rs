//! Products on the path of queries or keys that act on the features of each head.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ValueId};

use crate::graph::einsum::Equation;
use crate::graph::lane::Lane;

/// How the two operands and the result of a product name their axes: one letter each, those that
/// share a letter being one.
pub(crate) struct Letters {
    pub(crate) operands: [Vec<char>; 2],
    pub(crate) result: Vec<char>,
}

impl Letters {
    /// Of a `MatMul`, a `FusedMatMul` or an `Einsum` of two operands.
    pub(crate) fn of(graph: &Graph, trace: &Trace, id: NodeId) -> Option<Self> {
        let node = graph.node(id);
        let rank = |v: Option<ValueId>| trace.get(v?).dims.as_ref().map(Vec::len);
        if node.is("Einsum") {
            let Equation { operands, result } = Equation::of(graph, trace, id)?;
            return Some(Self {
                operands: operands.try_into().ok()?,
                result,
            });
        }
        let fused = node.domain() == "com.microsoft" && node.op() == "FusedMatMul";
        let flag = |name: &str| fused && matches!(node.int(name), Ok(Some(n)) if n != 0);
        if !node.is("MatMul") && !fused {
            return None;
        }
        let (a, b) = (rank(node.input(0))?, rank(node.input(1))?);
        if a < 2 || b < 2 {
            return None;
        }
        // Batch axes are named from the last backwards.
        let batch = |n: usize| (0..n).rev().map(|i| char::from(b'a' + (i % 20) as u8));
        // The first axis may precede those of the batch.
        let named =
            |n: usize, [row, column]: [char; 2], transposed: bool, first: bool| -> Vec<char> {
                let [row, column] = if transposed {
                    [column, row]
                } else {
                    [row, column]
                };
                if first {
                    [row]
                        .into_iter()
                        .chain(batch(n - 2))
                        .chain([column])
                        .collect()
                } else {
                    batch(n - 2).chain([row, column]).collect()
                }
            };
        Some(Self {
            operands: [
                named(a, ['x', 'y'], flag("transA"), flag("transBatchA")),
                named(b, ['y', 'z'], flag("transB"), flag("transBatchB")),
            ],
            result: named(a.max(b), ['x', 'z'], false, false),
        })
    }
}

/// The lane of operand `slot` of a product whose result runs in `lane`, where the product mixes
/// the features of each head with a square matrix and leaves everything else in its place.
pub(crate) fn before(
    graph: &Graph,
    trace: &Trace,
    id: NodeId,
    slot: usize,
    lane: &Lane,
) -> Option<Lane> {
    let letters = Letters::of(graph, trace, id)?;
    let (own, other) = (&letters.operands[slot], &letters.operands[1 - slot]);
    let sequence = *letters.result.get(lane.sequence)?;
    let made = *letters.result.get(lane.feature?)?;
    let mut contracted = own.iter().filter(|c| !letters.result.contains(c));
    let (read, None) = (*contracted.next()?, contracted.next()) else {
        return None;
    };
    // Output features are rows of the matrix, input features its columns.
    if own.contains(&made) || !other.contains(&made) || !other.contains(&read) {
        return None;
    }
    let place = |c: char| own.iter().position(|o| *o == c);
    let width = |v: Option<ValueId>, axis: usize| trace.get(v?).dims.as_ref()?.get(axis).copied();
    let node = graph.node(id);
    let (before, after) = (
        width(node.input(slot), place(read)?)?,
        width(node.output(0), lane.feature?)?,
    );
    (before == after && lane.group.is_none()).then_some(Lane {
        sequence: place(sequence)?,
        feature: Some(place(read)?),
        ..*lane
    })
}

/// The axis of operand `slot` along which the sequence of the result runs.
pub(crate) fn along(
    graph: &Graph,
    trace: &Trace,
    id: NodeId,
    slot: usize,
    lane: &Lane,
) -> Option<usize> {
    let letters = Letters::of(graph, trace, id)?;
    let sequence = letters.result.get(lane.sequence)?;
    letters
        .operands
        .get(slot)?
        .iter()
        .position(|c| c == sequence)
}

/// Heads are not wider than this: larger matrices are weights and not read.
const WIDEST: usize = 1024;

/// Whether a constant is a square matrix with one entry of 1 or −1 in each row and column.
pub(crate) fn is_signed_permutation(graph: &Graph, matrix: ValueId) -> bool {
    let Some(stored) = graph.stored(matrix) else {
        return false;
    };
    let Some(tensor) = (stored.elements() <= Some(WIDEST * WIDEST))
        .then(|| graph.constant(matrix))
        .flatten()
    else {
        return false;
    };
    let [.., rows, columns] = *tensor.dims() else {
        return false;
    };
    if rows != columns || rows * columns != tensor.len() {
        return false;
    }
    let mut taken = vec![false; columns];
    (0..rows).all(|i| {
        let mut entries = (0..columns).filter_map(|j| {
            let v = tensor.get_f64(i * columns + j)?;
            (v != 0.0).then_some((j, v))
        });
        match (entries.next(), entries.next()) {
            (Some((j, v)), None) => v.abs() == 1.0 && !std::mem::replace(&mut taken[j], true),
            _ => false,
        }
    })
}
