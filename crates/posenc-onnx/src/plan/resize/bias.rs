//! Biases by the offset of two patches of the image, where they are added to its scores.

use ndarray::{ArrayD, IxDyn};
use posenc_ir::eval::Value;
use posenc_ir::{NodeId, Use, ValueId};
use rustc_hash::FxHashMap;

use super::broadcast::STEPS;
use super::walk::Walk;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::plan::readers;

/// A bias that gets the numbers of another grid, where it is added.
#[derive(Clone, Debug)]
pub(crate) struct ResizedBias {
    /// Its finding, by the place in `Found::findings`.
    pub(crate) finding: usize,
    /// What is added, `[…, query, key]`.
    pub(crate) value: ValueId,
    /// Where it is added.
    pub(crate) entry: Use,
    /// Rows before those of patches.
    pub(crate) prefix: usize,
    /// Rows and columns of patches before.
    pub(crate) old: [usize; 2],
    /// The same afterwards.
    pub(crate) new: [usize; 2],
}

impl ResizedBias {
    /// The number of each offset, `[…, rows, columns]`; `None` where pairs of one offset, or tokens of the
    /// prefix with different patches, have several.
    pub(crate) fn offsets(&self, numbers: &ArrayD<f64>) -> Option<ArrayD<f64>> {
        let lead = numbers.ndim().checked_sub(2)?;
        let mut dims = numbers.shape()[..lead].to_vec();
        dims.extend(self.old.map(|side| 2 * side - 1));
        let mut table = ArrayD::from_elem(dims, f64::NAN);
        for (index, number) in numbers.indexed_iter() {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            let (lead, pair) = index.split_at(lead);
            let patches = [pair[0], pair[1]].map(|token| token.checked_sub(self.prefix));
            let [Some(query), Some(key)] = patches else {
                let first = [pair[0], pair[1]].map(|token| token.min(self.prefix));
                if numbers[IxDyn(&[lead, &first].concat())] != *number {
                    return None;
                }
                continue;
            };
            let own = &mut table[IxDyn(&[lead, &offset(self.old, query, key)].concat())];
            if own.is_nan() {
                *own = *number;
            } else if *own != *number {
                return None;
            }
        }
        Some(table)
    }

    /// The encoding of the finding on the new grid.
    pub(super) fn after(&self, encoding: &Encoding) -> Encoding {
        let other = match encoding {
            Encoding::ScoreBias(kind, bias) => bias.in_window(self.new).map(|bias| (*kind, bias)),
            _ => None,
        };
        other.map_or_else(
            || encoding.clone(),
            |(kind, bias)| Encoding::ScoreBias(kind, bias),
        )
    }
}

/// Where constants that may hold a bias by the offset of tokens are read on their way to the scores, with
/// their findings.
pub(super) fn entries(context: &Context<'_>) -> FxHashMap<Use, usize> {
    let (graph, found) = (context.graph(), context.found);
    let is_windowed = |finding: &Finding| match &finding.encoding {
        Encoding::ScoreBias(_, bias) => bias.window().is_some(),
        _ => false,
    };
    let findings = found.findings.iter().enumerate();
    let own = findings.filter(|(_, finding)| is_windowed(finding));
    let mut stack: Vec<(Use, usize)> = own
        .flat_map(|(at, f)| f.entries.iter().map(move |entry| (*entry, at)))
        .collect();
    let mut all = FxHashMap::default();
    while let Some((at, finding)) = stack.pop() {
        if !graph.node(at.node).is("Add") || all.insert(at, finding).is_some() {
            continue;
        }
        let value = graph.node(at.node).input(at.slot());
        if let Some((maker, _)) = value.and_then(|value| graph.producer(value)) {
            stack.extend([0, 1].map(|slot| (Use::new(maker, slot), finding)));
        }
    }
    all
}

impl Walk<'_> {
    /// Gives a bias by the offset of patches that is added here the axes of its scores.
    pub(super) fn window_bias(&mut self, id: NodeId) -> Result<(), RewriteError> {
        for slot in [0, 1] {
            let entry = Use::new(id, slot);
            if !self.windowed.contains_key(&entry) {
                continue;
            }
            let scores = self.axes_in(id, 1 - slot).unwrap_or_default();
            if let [.., queries, keys] = &scores[..]
                && queries == keys
                && queries.changes()
            {
                self.widen_bias(entry, queries, STEPS)?;
            }
        }
        Ok(())
    }

    /// Gives what is added to scores of these queries, and as many keys, both axes: a constant by the offset
    /// of patches other numbers, a mask others of its own, and their sum those of both. Whether that was
    /// possible.
    fn widen_bias(&mut self, at: Use, tokens: &Extent, steps: usize) -> Result<bool, RewriteError> {
        let graph = self.context.graph();
        let Some(value) = graph.node(at.node).input(at.slot()) else {
            return Ok(false);
        };
        if self.axes.contains_key(&value) || self.resized.contains_key(&at) {
            return Ok(true);
        }
        if let Some(bias) = self.by_offsets(at, value, tokens) {
            let is_own = |at: &Use| self.windowed.contains_key(at);
            readers::check(self.context, value, is_own, |_| false)?;
            let dims = self.context.dims(value).unwrap_or_default();
            let mut axes: Vec<Extent> = dims.iter().map(|n| Extent::same(*n)).collect();
            axes.truncate(dims.len() - 2);
            axes.extend([tokens.clone(), tokens.clone()]);
            self.resized.insert(at, axes);
            self.biases.push(bias);
            return Ok(true);
        }
        let maker = graph.producer(value).map(|(maker, _)| maker);
        let sum = maker.filter(|maker| {
            self.windowed.contains_key(&Use::new(*maker, 0)) && !self.context.is_content(value)
        });
        let rank = self.context.dims(value).map_or(0, <[usize]>::len);
        let Some(maker) = sum.filter(|_| steps > 0 && rank >= 2) else {
            let mut widened = true;
            for axis in (rank.max(2) - 2)..rank {
                widened &= self.widen(at, axis, tokens, steps)?;
            }
            return Ok(widened);
        };
        if self.was_read(value, at.node) {
            return Ok(false);
        }
        for slot in [0, 1] {
            if !self.widen_bias(Use::new(maker, slot), tokens, steps - 1)? {
                return Ok(false);
            }
        }
        let made = self.evaluate(maker)?.into_iter().next();
        let mut axes = self.axes(value).unwrap_or_default();
        axes.truncate(rank - 2);
        axes.extend([tokens.clone(), tokens.clone()]);
        self.axes.insert(value, axes);
        self.values
            .insert(value, made.unwrap_or_else(Value::unknown));
        Ok(true)
    }

    /// The bias of a constant that has a number for each offset of two patches of the image.
    fn by_offsets(&self, at: Use, value: ValueId, tokens: &Extent) -> Option<ResizedBias> {
        let finding = *self.windowed.get(&at)?;
        let (prefix, old, new) = grid(tokens)?;
        let window = match &self.context.found.findings[finding].encoding {
            Encoding::ScoreBias(_, bias) => bias.window(),
            _ => None,
        };
        let [.., queries, keys] = self.context.dims(value)? else {
            return None;
        };
        let is_square = [*queries, *keys] == [tokens.before(); 2];
        let is_constant = self.context.found.classes.of_value(value).is_constant();
        if !is_square || window != Some(old) || !is_constant {
            return None;
        }
        let bias = ResizedBias {
            finding,
            value,
            entry: at,
            prefix,
            old,
            new,
        };
        let numbers = self.context.found.trace.get(value).to_f64()?;
        bias.offsets(&numbers).map(|_| bias)
    }
}

/// How many rows precede those of a grid on an axis, and its sides before and afterwards; `None` where
/// rows follow behind, or where there is no grid.
fn grid(axis: &Extent) -> Option<(usize, [usize; 2], [usize; 2])> {
    let (grid, before) = axis.parts().split_last()?;
    let [height, width] = grid.factors() else {
        return None;
    };
    let sides = |of: fn(&Extent) -> usize| [of(height), of(width)];
    let is_prefix = before.iter().all(|part| !part.changes());
    let prefix = before.iter().map(Extent::before).sum();
    is_prefix.then(|| (prefix, sides(Extent::before), sides(Extent::after)))
}

/// The place of a pair of patches in a table of offsets, key − query.
pub(crate) fn offset(grid: [usize; 2], query: usize, key: usize) -> [usize; 2] {
    let [q, k] = [query, key].map(|patch| [patch / grid[1], patch % grid[1]]);
    [0, 1].map(|side| k[side] + grid[side] - 1 - q[side])
}
