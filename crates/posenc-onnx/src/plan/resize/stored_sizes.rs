//! Tables that the graph makes of a larger stored grid, by a `Resize` to sizes that are written in it.

use std::collections::BTreeSet;

use posenc_ir::{NodeId, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use super::walk::Walk;
use crate::graph::extent::Extent;
use crate::graph::operators::{is_copy, is_rearrangement};

/// The input of `Resize` that has the sizes.
const SIZES: usize = 3;

/// A `Resize` to a grid of stored sizes.
struct Made {
    output: ValueId,
    /// `[batch, feature, height, width]`.
    dims: [usize; 4],
    /// Where the sizes of the grid are read, which are the last two numbers of a constant.
    at: Use,
    sizes: ValueId,
}

impl Walk<'_> {
    /// Lets such tables be made for the patches of another image. `old` and `new` are the rows and columns of pixels.
    pub(super) fn follow_stored_sizes(&mut self, old: [usize; 2], new: [usize; 2]) {
        let graph = self.context.graph();
        let entries = self.entries.keys();
        let tables = entries.filter_map(|at| graph.node(at.node).input(at.slot()));
        let tables: BTreeSet<ValueId> = tables.collect();
        let all: Vec<Made> = tables
            .into_iter()
            .filter_map(|table| self.made(table))
            .collect();
        for made in all {
            let [batch, features, height, width] = made.dims;
            let side = |at: usize, length: usize| {
                let pixels = length * new[at];
                pixels.is_multiple_of(old[at]).then(|| pixels / old[at])
            };
            let (Some(down), Some(across)) = (side(0, height), side(1, width)) else {
                continue;
            };
            let Some(mut numbers) = graph.constant(made.sizes).and_then(|own| own.to_i64s()) else {
                continue;
            };
            let first = numbers.len() - 2;
            numbers[first] = down as i64;
            numbers[first + 1] = across as i64;
            let tensor = Tensor::from_i64(&[numbers.len()], &numbers);
            self.constants.insert(made.at, (made.sizes, tensor));
            let changed = |old, new| Extent::One { old, new };
            let axes = vec![
                Extent::same(batch),
                Extent::same(features),
                changed(height, down),
                changed(width, across),
            ];
            self.start(made.output, axes);
        }
    }

    /// The only `Resize` behind a table.
    fn made(&self, table: ValueId) -> Option<Made> {
        let graph = self.context.graph();
        let (mut stack, mut seen) = (vec![table], FxHashSet::default());
        let mut found: Vec<NodeId> = vec![];
        while let Some(value) = stack.pop() {
            let Some((id, _)) = graph.producer(value).filter(|_| seen.insert(value)) else {
                continue;
            };
            let node = graph.node(id);
            match (node.domain(), node.op()) {
                ("", "Resize") => found.push(id),
                ("", "Concat") => stack.extend(node.inputs().iter().flatten()),
                ("", op) if op == "Slice" || is_copy(op) || is_rearrangement(op) => {
                    stack.extend(node.input(0));
                }
                _ => {}
            }
        }
        let [id] = found[..] else { return None };
        let node = graph.node(id);
        let (output, given) = (node.output(0)?, node.input(SIZES)?);
        let dims: [usize; 4] = self.context.dims(output)?.try_into().ok()?;
        let mut place = (Use::new(id, SIZES), given);
        if graph.stored(given).is_none() {
            let (maker, _) = graph.producer(given)?;
            let slot = graph.node(maker).inputs().len() - 1;
            let last = graph.node(maker).input(slot);
            place = (Use::new(maker, slot), last?);
            if !graph.node(maker).is("Concat") {
                return None;
            }
        }
        let (at, sizes) = place;
        let numbers = graph.constant(sizes)?.to_i64s()?;
        let grid = [dims[2] as i64, dims[3] as i64];
        let is_own = numbers.ends_with(&grid) && graph.stored(sizes)?.dims.len() == 1;
        is_own.then_some(Made {
            output,
            dims,
            at,
            sizes,
        })
    }
}
