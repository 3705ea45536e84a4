//! Products on the path of queries or keys that act on the features of each head.

use ndarray::Array2;
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

/// A change of basis within each head by which a product multiplies operand `slot`, `[out, in]`: a
/// stored square matrix whose rows are orthogonal and of one length, as permutations and Hadamard
/// matrices are. `None` for other matrices, which weights are.
pub(crate) fn basis(graph: &Graph, trace: &Trace, id: NodeId, slot: usize) -> Option<Array2<f64>> {
    let matrix = graph.node(id).input(1 - slot.min(1))?;
    let small = graph.stored(matrix)?.elements() <= Some(WIDEST * WIDEST);
    let tensor = small.then(|| graph.constant(matrix)).flatten()?;
    let [.., rows, columns] = *tensor.dims() else {
        return None;
    };
    if rows != columns || rows * columns != tensor.len() {
        return None;
    }
    let cells: Vec<f64> = (0..tensor.len())
        .map(|i| tensor.get_f64(i))
        .collect::<Option<_>>()?;
    let stored = Array2::from_shape_vec((rows, columns), cells).ok()?;
    let letters = Letters::of(graph, trace, id)?;
    let reads_rows =
        letters.operands[slot].contains(letters.operands[1 - slot.min(1)].iter().rev().nth(1)?);
    let map = if reads_rows {
        stored.reversed_axes()
    } else {
        stored
    };
    is_orthogonal(&map).then_some(map)
}

/// How far rows may be from orthogonal, over their length; half precision is as near.
const ORTHOGONAL: f64 = 4e-3;

/// Whether the rows of a matrix are orthogonal and of one length. Weights fail at the first pair.
fn is_orthogonal(map: &Array2<f64>) -> bool {
    let length = map.row(0).dot(&map.row(0));
    let dot = |i: usize, j: usize| map.row(i).dot(&map.row(j)) / length;
    let holds = |i: usize| {
        let one = (dot(i, i) - 1.0).abs() <= ORTHOGONAL;
        one && (0..i).all(|j| dot(i, j).abs() <= ORTHOGONAL)
    };
    length > 0.0 && (0..map.nrows()).all(holds)
}
