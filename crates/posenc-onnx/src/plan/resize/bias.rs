//! Biases by the offset of two patches of the image, where they are added to its scores.

use posenc_encodings::inferred::{self, Inferred};
use posenc_ir::eval::Value;
use posenc_ir::{NodeId, Use, ValueId};

use super::broadcast::STEPS;
use super::offsets::ResizedBias;
use super::walk::Walk;
use crate::detect::finding::Encoding;
use crate::error::RewriteError;
use crate::graph::extent::Extent;
use crate::plan::readers;

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
        if let Some(bias) = self.computed(at, value, tokens) {
            let mut axes = self.axes(value).unwrap_or_default();
            axes.truncate(axes.len() - 2);
            axes.extend([tokens.clone(), tokens.clone()]);
            self.axes.insert(value, axes);
            self.biases.push(bias);
            return Ok(true);
        }
        if self.axes.contains_key(&value) || self.resized.contains_key(&at) {
            return Ok(true);
        }
        if let Some(bias) = self.stored(at, value, tokens) {
            self.check_is_table(&bias)?;
            if graph.stored(value).is_some() {
                let how = "numbers between those of the table";
                let source = "stored numbers do not show whether a formula gave them";
                inferred::add(&mut self.inferred, Inferred::new("bias", how, source));
            }
            let is_own = |at: &Use| self.windowed.contains_key(at);
            let is_changed = |other| self.context.graph().uses(other).iter().any(is_own);
            readers::check(
                self.context,
                value,
                "the bias of patches",
                is_own,
                is_changed,
            )?;
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

    /// The bias that the graph itself computes for the pairs of other tokens.
    fn computed(&self, at: Use, value: ValueId, tokens: &Extent) -> Option<ResizedBias> {
        let (maker, _) = self.context.graph().producer(value)?;
        let [.., queries, keys] = self.values.get(&value)?.dims.as_deref()? else {
            return None;
        };
        let has_all = [*queries, *keys] == [tokens.after(); 2];
        let bias = self.by_offsets(at, value, tokens)?;
        (has_all && self.made.contains(&maker)).then_some(ResizedBias {
            is_computed: true,
            ..bias
        })
    }

    /// The bias of a constant that has a number for each offset of two patches of the image.
    fn stored(&self, at: Use, value: ValueId, tokens: &Extent) -> Option<ResizedBias> {
        let is_constant = self.context.found.classes.of_value(value).is_constant();
        self.by_offsets(at, value, tokens).filter(|_| is_constant)
    }

    /// The bias of a value that has a number for each offset of two patches of the image.
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
        if !is_square || window != Some(old) {
            return None;
        }
        let bias = ResizedBias {
            finding,
            value,
            entry: at,
            prefix,
            old,
            new,
            is_computed: false,
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
