//! Frequencies that depend on the length: the rotation is read again at longer lengths.

use posenc_ir::eval::{Budget, Value, probe};
use posenc_ir::{Model, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::site::{RotaryOperand, Rotation, Switch};
use crate::detect::found::Found;
use crate::detect::rotary::read::read_again;
use crate::detect::rotary::source::{decisions, derives, lengths, moved, positions};
use crate::graph::dataflow::Class;
use posenc_encodings::families::rope::Rope;

/// Positions are tried up to this one; no model counts further.
const FARTHEST: usize = 1 << 24;

/// Frequencies within this relative difference count as equal.
const CLOSE: f64 = 1e-4;

/// Angles that are read from other rows of a rounded table differ by up to this many times the largest difference
/// between the table and a rotation.
const ROUNDED: f64 = 4.0;

/// Looks for a length at which the frequencies of a rotation change.
///
/// Only rotations whose numbers depend on a choice or a largest position are examined: the
/// others cannot change.
pub(crate) fn find(model: &Model, found: &Found, half: &RotaryOperand) -> Option<Switch> {
    let mut at = lengths(model, found, half);
    // A fused operator reads rows by its positions: these decide where its tables are computed of them.
    let is_read = |value: &ValueId| half.region.inside.is_none() || reaches(model, half, *value);
    let counted = positions(model, found, half).filter(is_read);
    let kept = if chooses(model, found, half) {
        at.extend(counted);
        None
    } else {
        counted
    };
    if at.is_empty() {
        return None;
    }
    let far = Far {
        model,
        found,
        half,
        positions: at,
        kept,
    };
    let near = far.read(far.shortest())?;
    let changed = |far: &Rotation| !is_close(far, &near);
    let mut known = far.shortest();
    let mut length = known.next_power_of_two().max(32);
    while length <= FARTHEST {
        if far.read(length).as_ref().is_some_and(changed) {
            break;
        }
        known = length;
        length *= 2;
    }
    let (mut within, mut beyond) = (known, length);
    if beyond > FARTHEST {
        return None;
    }
    while beyond - within > 1 {
        let middle = within + (beyond - within) / 2;
        match far.read(middle) {
            Some(far) if changed(&far) => beyond = middle,
            Some(_) => within = middle,
            None => return None,
        }
    }
    let lengths = [within + 1, 2 * within, 4 * within];
    let beyond = lengths.into_iter().filter(|n| *n > within);
    Some(Switch {
        original_length: within,
        beyond: beyond
            .map(|n| Some((n, far.read(n)?.rope)))
            .collect::<Option<_>>()?,
    })
}

struct Far<'a> {
    model: &'a Model,
    found: &'a Found,
    half: &'a RotaryOperand,
    /// The values that grow with the length.
    positions: Vec<ValueId>,
    /// Positions that are counted to the length, and stay as they are.
    kept: Option<ValueId>,
}

impl Far<'_> {
    /// The length of the trial run.
    fn shortest(&self) -> usize {
        self.found.lengths.past + self.found.lengths.sequence
    }

    /// The rotation when the last token is at position `length − 1`.
    fn read(&self, length: usize) -> Option<Rotation> {
        let shift = length.checked_sub(self.shortest())?;
        let mut change = FxHashMap::default();
        for at in &self.positions {
            change.insert(*at, moved(self.found.trace.get(*at), shift)?);
        }
        if let Some(kept) = self.kept {
            let value = self.found.trace.get(kept).clone();
            change.entry(kept).or_insert(value);
        }
        self.rotation(&change)
            .or_else(|| self.rotation(&self.decided(&change)?))
    }

    fn rotation(&self, change: &FxHashMap<ValueId, Value>) -> Option<Rotation> {
        let (region, before) = (&self.half.region, &self.half.rotation);
        read_again(self.model, &self.found.trace, change, region, before).ok()
    }

    /// What comparisons with a length say at another one. The tokens may be as many as before: the
    /// same length may count them.
    fn decided(&self, change: &FxHashMap<ValueId, Value>) -> Option<FxHashMap<ValueId, Value>> {
        let graph = self.model.graph();
        let single = |v: &ValueId| {
            let class = self.found.classes.of_value(*v);
            let follows = class.has(Class::LENGTH) && !class.has(Class::POSITION);
            follows && self.found.trace.get(*v).elements() == Some(1)
        };
        let nodes = decisions(self.model, self.found, self.half).into_iter();
        let outputs = nodes.filter(|id| !graph.node(*id).is("If"));
        let outputs = outputs.filter_map(|id| graph.node(id).output(0));
        let outputs: Vec<ValueId> = outputs.filter(single).collect();
        let budget = Budget { elements: 1 << 16 };
        let said = probe(self.model, &self.found.trace, change, &outputs, &budget).ok()?;
        (!outputs.is_empty()).then(|| outputs.into_iter().zip(said).collect())
    }
}

/// What enters a rotation beside content.
fn entering(model: &Model, half: &RotaryOperand) -> Vec<ValueId> {
    let graph = model.graph();
    let entries = half.region.entries.iter();
    entries
        .filter_map(|u| graph.node(u.node).input(u.slot()))
        .collect()
}

/// Whether what enters a rotation is computed of a value.
fn reaches(model: &Model, half: &RotaryOperand, value: ValueId) -> bool {
    let from = FxHashSet::from_iter([value]);
    let mut entering = entering(model, half).into_iter();
    entering.any(|entry| derives(model.graph(), entry, &from))
}

/// Whether the rotation depends on a comparison or a maximum of positions, or of how many tokens a mask shows.
fn chooses(model: &Model, found: &Found, half: &RotaryOperand) -> bool {
    let graph = model.graph();
    let mut stack = entering(model, half);
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        let class = found.classes.of_value(value);
        let counts = class.has(Class::POSITION) || class.has(Class::PADDING);
        if !seen.insert(value) || class.has(Class::CONTENT) || !counts {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        if matches!(
            node.op(),
            "ReduceMax" | "Max" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual"
        ) {
            return true;
        }
        stack.extend(node.inputs().iter().flatten());
    }
    false
}

/// Whether two rotations, of as many tokens, are equal within the error of what they were read from.
fn is_close(a: &Rotation, b: &Rotation) -> bool {
    noise([a, b], CLOSE).covers(&a.rope, &b.rope)
}

/// How far numbers differ that are the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noise {
    /// As a share of each.
    share: f64,
    /// The error of cosines and sines, times [`ROUNDED`].
    rounded: f64,
    /// The tokens that frequencies are read from.
    tokens: f64,
}

/// How far the rotations of the same table may differ that are read from different rows, by a share of each number at
/// least.
pub(crate) fn noise(rotations: [&Rotation; 2], share: f64) -> Noise {
    let [a, b] = rotations;
    Noise {
        share,
        rounded: ROUNDED * a.fit_error.max(b.fit_error),
        tokens: a.cos.nrows().max(1) as f64,
    }
}

impl Noise {
    /// Whether two rotations differ by no more.
    pub(crate) fn covers(self, a: &Rope, b: &Rope) -> bool {
        let near = |a: f64, b: f64, error: f64| {
            (a - b).abs() <= error.max(self.share * a.abs().max(b.abs()))
        };
        let mut frequencies = a.inv_freq.iter().zip(&b.inv_freq);
        a.pairs == b.pairs
            && near(a.attention_factor, b.attention_factor, self.rounded)
            && frequencies.all(|(a, b)| near(*a, *b, self.rounded / self.tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope(slowest: f64) -> Rope {
        Rope {
            inv_freq: vec![1.0, slowest],
            attention_factor: 1.2,
            pairs: vec![(0, 2), (1, 3)],
            layout: None,
            rotary_dim: 4,
            head_dim: 4,
        }
    }

    /// Whether a change of a rotation is within the noise of a table with this error.
    fn is_same(fit_error: f64, change: impl FnOnce(&mut Rope)) -> bool {
        let noise = Noise {
            share: CLOSE,
            rounded: ROUNDED * fit_error,
            tokens: 16.0,
        };
        let mut other = rope(1e-3);
        change(&mut other);
        noise.covers(&rope(1e-3), &other)
    }

    #[test]
    fn only_what_rounding_explains_is_the_same() {
        let (exact, half) = (1e-9, 2.5e-4);
        assert!(is_same(exact, |_| {}));
        // A slow frequency is read from rounded rows with a large relative error.
        assert!(is_same(half, |rope| rope.inv_freq[1] *= 1.05));
        assert!(!is_same(exact, |rope| rope.inv_freq[1] *= 1.05));
        assert!(!is_same(half, |rope| rope.inv_freq[1] *= 1.1));
        assert!(!is_same(half, |rope| rope.inv_freq[0] *= 1.001));
        assert!(is_same(half, |rope| rope.attention_factor += 5e-4));
        assert!(!is_same(half, |rope| rope.attention_factor += 5e-3));
        assert!(!is_same(exact, |rope| rope.attention_factor += 5e-4));
        assert!(!is_same(half, |rope| rope.pairs.swap(0, 1)));
    }
}
