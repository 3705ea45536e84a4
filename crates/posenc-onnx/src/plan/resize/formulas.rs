//! Numbers that a formula gives of the places of patches, which interpolation would change or which count the old
//! patches: tables with sines, biases that are no stored table, and places that meet how many there were.

use ndarray::{ArrayD, Axis, s};
use posenc_encodings::families::sinusoidal::has_waves;
use posenc_ir::{Node, ValueId};

use super::counts::{FEW, is_near};
use super::offsets::ResizedBias;
use super::rows::by_row;
use super::table::ResizedTable;
use super::walk::Walk;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::graph::operators::{is_copy, is_layout};
use crate::graph::region::above;

/// Sides of fewer patches are numbers of any formula.
const FEWEST: usize = 3;

impl Walk<'_> {
    /// Refuses a table of patches whose numbers are sines of rows and columns with others added.
    pub(super) fn check_is_learned(&self, table: &ResizedTable) -> Result<(), RewriteError> {
        let numbers = self.context.found.trace.get(table.value).to_f64();
        let (Some(numbers), Some(grid)) = (numbers, table.sides(Extent::before)) else {
            return Ok(());
        };
        let (rows, lead) = by_row(&numbers, &table.axes, Extent::before);
        let last = lead + grid[0] * grid[1];
        if last > rows.nrows() || !has_waves(rows.slice(s![lead..last, ..]), grid) {
            return Ok(());
        }
        let why = "the table of patches has sines of rows and columns in a form that is not supported yet, as with \
                   other numbers added; interpolation gives other numbers; export the model with images of \
                   the new size";
        Err(self.refuse(table.entry.node, why))
    }

    /// Refuses a constant bias that is more than the rows of a stored table: interpolated, it would not be what its
    /// formula gives for other offsets.
    pub(super) fn check_is_table(&self, bias: &ResizedBias) -> Result<(), RewriteError> {
        let (graph, at) = (self.context.graph(), bias.entry.node);
        let numbers = self.context.found.trace.get(bias.value).to_f64();
        let table = numbers.and_then(|numbers| bias.offsets(&numbers));
        if table.is_some_and(|table| is_by_distance(&table)) {
            let why = "the bias of patches follows from their distance alone, and interpolation would give that of \
                       other distances; export the model with images of the new size";
            return Err(self.refuse(at, why));
        }
        let is_float = |value: ValueId| self.context.dtype(value).is_float();
        let makers = above(graph, vec![bias.value], is_float).into_iter();
        let makers = makers.filter(|value| graph.stored(*value).is_none());
        let makers = makers.filter_map(|value| graph.producer(value));
        let mut nodes = makers.map(|(id, _)| graph.node(id));
        match nodes.find(|node| !self.keeps_tables(node)) {
            Some(node) => Err(self.refuse(
                at,
                format!(
                    "the bias of patches is computed here by a formula (with {}), which gives other offsets other numbers \
                     than interpolation does; export the model with images of the new size",
                    node.op()
                ),
            )),
            None => Ok(()),
        }
    }

    /// Whether the interpolated result of an operator is that of interpolated inputs.
    fn keeps_tables(&self, node: &Node) -> bool {
        let (op, trace) = (node.op(), &self.context.found.trace);
        let inputs = || node.inputs().iter().flatten().copied();
        // The same number for all pairs.
        let is_factor = |value: ValueId| {
            let dims = self.context.dims(value).unwrap_or_default();
            dims.iter().rev().take(2).all(|n| *n == 1)
        };
        // Each row picks a row.
        let picks = |value: ValueId| {
            let numbers = trace.get(value).to_f64();
            let rows = self
                .context
                .dims(value)
                .and_then(|dims| dims.last().copied());
            numbers.zip(rows).is_some_and(|(numbers, width)| {
                let all: Vec<f64> = numbers.iter().copied().collect();
                all.chunks(width.max(1)).all(|row| {
                    row.iter().all(|v| *v == 0.0 || *v == 1.0) && row.iter().sum::<f64>() == 1.0
                })
            })
        };
        match op {
            "Mul" => inputs().any(is_factor),
            "Div" => node.input(1).is_some_and(is_factor),
            "MatMul" | "Gemm" => inputs().take(2).any(picks),
            "Add" | "Sub" | "Sum" | "Neg" | "Where" | "Concat" | "Split" | "Slice" | "Pad" => true,
            "Gather" | "GatherElements" | "GatherND" | "ScatterND" | "ScatterElements" => true,
            "Resize" | "DequantizeLinear" | "Constant" | "ConstantOfShape" => true,
            _ => is_copy(op) || is_layout(op),
        }
    }

    /// Refuses places that are computed for the new image and meet a number of how many there were in the old one.
    pub(super) fn check_places(&self) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        for id in graph.scope(graph.main()).nodes().iter().copied() {
            let node = graph.node(id);
            let is_scale = matches!(node.op(), "Mul" | "Div");
            if !(is_scale || matches!(node.op(), "Add" | "Sub")) || !node.domain().is_empty() {
                continue;
            }
            let inputs = || node.inputs().iter().flatten().copied();
            let Some(sides) = inputs().find_map(|value| self.sides_of_places(value)) else {
                continue;
            };
            let constant = |value: &ValueId| {
                self.context.found.classes.of_value(*value).is_constant()
                    && !self.values.contains_key(value)
            };
            for value in inputs().filter(constant) {
                let known = self.context.found.trace.get(value);
                let is_few = known.elements().is_some_and(|count| count <= FEW);
                let numbers = known.to_f64().filter(|_| is_few);
                let meant = numbers.iter().flatten().find_map(|number| {
                    let side = sides
                        .iter()
                        .find(|side| is_of_side(*number, **side, is_scale))?;
                    Some((number, side))
                });
                if let Some((number, side)) = meant {
                    let why = format!(
                        "the places of patches are computed for any image, and this {} reads {number}, which may \
                         follow from the {side} patches of a side of the old image; export the model with images of \
                         the new size",
                        node.op()
                    );
                    return Err(self.refuse(id, why));
                }
            }
        }
        Ok(())
    }

    /// The old sides of a value that is computed of the places of patches alone, for a rotation, and follows the
    /// image.
    fn sides_of_places(&self, value: ValueId) -> Option<Vec<usize>> {
        let is_float = self.context.dtype(value).is_float();
        let axes = self.axes.get(&value)?;
        if self.context.is_content(value) || !is_float || !self.rotating.contains(&value) {
            return None;
        }
        let parts = axes.iter().flat_map(Extent::parts);
        let changed = parts
            .flat_map(Extent::factors)
            .filter(|axis| axis.changes());
        let sides = changed.map(Extent::before).filter(|n| *n >= FEWEST);
        let sides: Vec<usize> = sides.collect();
        (!sides.is_empty()).then_some(sides)
    }
}

/// Whether a number may follow from how many patches a side has: they divide places, or shift them.
fn is_of_side(number: f64, side: usize, is_scale: bool) -> bool {
    let side = side as f64;
    let counts = [side, side - 1.0].into_iter().flat_map(|n| [n, n / 2.0]);
    let counts = counts.filter(|n| ![0.5, 1.0, 2.0].contains(n));
    let mut all = counts.flat_map(|n| if is_scale { vec![n, 1.0 / n] } else { vec![n] });
    all.any(|n| is_near(number.abs(), n))
}

/// Whether numbers `[.., row, column]` of offsets are the same in all directions, and not the same everywhere: those of
/// a function of distances, and of no learned table.
fn is_by_distance(table: &ArrayD<f64>) -> bool {
    let [row, column] = [table.ndim() - 2, table.ndim() - 1];
    let is_turned = |axis: usize| {
        let mut turned = table.clone();
        turned.invert_axis(Axis(axis));
        turned == table
    };
    let [rows, columns] = [row, column].map(|axis| table.shape()[axis]);
    let near = rows.min(columns) / 2;
    let inner = |mut all: ArrayD<f64>| {
        for axis in [row, column] {
            let middle = all.shape()[axis] / 2;
            all.slice_axis_inplace(
                Axis(axis),
                ndarray::Slice::from(middle - near..=middle + near),
            );
        }
        all
    };
    let square = inner(table.clone());
    let mut swapped = square.clone();
    swapped.swap_axes(row, column);
    let first = table.first();
    let varies = table.iter().any(|v| Some(v) != first);
    varies && near > 0 && is_turned(row) && is_turned(column) && square == swapped
}
