//! The lane of a node's input, from the lane of its output.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ValueId};

use super::pads::pads;
use super::{Lane, slice_start, wrap};
use crate::graph::operators::{is_elementwise, is_layout, is_rotary, is_write, written_slots};

/// The lane of input `slot` of a node, given the lane of its output `output`; `None` where the
/// sequence cannot be followed through the node.
pub(crate) fn back(
    graph: &Graph,
    trace: &Trace,
    id: NodeId,
    output: usize,
    slot: usize,
    lane: Lane,
) -> Option<Lane> {
    let node = graph.node(id);
    let dims = |v: ValueId| trace.get(v).dims.as_deref();
    let through = Through {
        graph,
        trace,
        id,
        output,
        slot,
        from: dims(node.input(slot)?)?,
        to: dims(node.output(output)?)?,
    };
    if lane.sequence.max(lane.feature.unwrap_or(0)) >= through.to.len() {
        return None;
    }
    through.lane(lane)
}

/// One input and one output of a node.
struct Through<'a> {
    graph: &'a Graph,
    trace: &'a Trace,
    id: NodeId,
    output: usize,
    slot: usize,
    /// Dimensions of the input.
    from: &'a [usize],
    /// Dimensions of the output.
    to: &'a [usize],
}

impl Through<'_> {
    fn lane(&self, lane: Lane) -> Option<Lane> {
        let node = self.graph.node(self.id);
        let same_rank = self.from.len() == self.to.len();
        if !node.domain().is_empty() {
            // Normalizations keep every axis; their first inputs carry the tokens.
            let slots = if is_rotary(node) { 1 } else { 2 };
            return (same_rank && self.slot < slots).then_some(lane);
        }
        match node.op() {
            "Concat" => self.concatenated(lane),
            "Transpose" => self.transposed(lane),
            op if is_elementwise(op) => self.broadcast(lane),
            _ if is_write(node) => self.written(lane),
            // Every other operator takes content by its first input alone.
            _ if self.slot != 0 => None,
            "Expand" | "Tile" => self.repeated(lane),
            op if is_layout(op) => self.reshaped(lane),
            "Pad" => self.padded(lane),
            "Split" => self.split(lane),
            "Slice" => self.sliced(lane),
            "Gather" => self.gathered(lane),
            "RotaryEmbedding" => same_rank.then_some(lane),
            // Means and sums over the features keep the tokens where they are.
            op if op.starts_with("Reduce") && same_rank => Some(lane.without_features()),
            op if NORMS.contains(&op) => Some(lane),
            _ => None,
        }
    }

    /// What is broadcast along the features has none.
    fn broadcast(&self, lane: Lane) -> Option<Lane> {
        let axis = |a: usize| (a + self.from.len()).checked_sub(self.to.len());
        let feature = lane.feature.and_then(axis).filter(|a| {
            let along = a + self.to.len() - self.from.len();
            self.from[*a] == self.to[along]
        });
        Some(Lane {
            sequence: axis(lane.sequence)?,
            group: lane.group.filter(|_| feature.is_some()),
            feature,
            ..lane
        })
    }

    fn transposed(&self, lane: Lane) -> Option<Lane> {
        let perm = self.graph.node(self.id).ints("perm").ok()?;
        let axis = |a: usize| match perm {
            Some(perm) => usize::try_from(*perm.get(a)?).ok(),
            None => (self.from.len() - 1).checked_sub(a),
        };
        Some(Lane {
            sequence: axis(lane.sequence)?,
            feature: lane.feature.and_then(axis),
            ..lane
        })
    }

    fn repeated(&self, lane: Lane) -> Option<Lane> {
        let aligned = |a: usize| {
            let axis = (a + self.from.len()).checked_sub(self.to.len());
            axis.filter(|i| self.from[*i] == self.to[a])
        };
        Some(Lane {
            sequence: aligned(lane.sequence)?,
            feature: lane.feature.and_then(aligned),
            ..lane
        })
    }

    fn reshaped(&self, lane: Lane) -> Option<Lane> {
        let (feature, group) = match lane.feature {
            Some(axis) => regrouped_features(self.from, self.to, axis, lane.group),
            None => (None, None),
        };
        Some(Lane {
            sequence: regrouped(self.from, self.to, lane.sequence)?,
            feature,
            group,
            ..lane
        })
    }

    fn concatenated(&self, lane: Lane) -> Option<Lane> {
        let node = self.graph.node(self.id);
        let axis = wrap(node.int("axis").ok()??, self.to.len())?;
        if lane.feature != Some(axis) {
            return Some(lane);
        }
        lane.shifted(self.width(&node.inputs()[..self.slot], axis)?, 1)
    }

    /// Tokens that are written into others along the sequence, as into a cache of fixed size, or those others. What is
    /// written has whole features.
    fn written(&self, lane: Lane) -> Option<Lane> {
        let node = self.graph.node(self.id);
        let (places, new) = written_slots(node)?;
        let new = node.input(new).filter(|_| self.slot != places)?;
        let new = self.trace.get(new).dims.as_deref()?;
        let mut axes = new.iter().zip(self.to).enumerate();
        let fits = new.len() == self.to.len()
            && axes.all(|(axis, (new, all))| new == all || axis == lane.sequence);
        fits.then_some(lane)
    }

    fn split(&self, lane: Lane) -> Option<Lane> {
        let node = self.graph.node(self.id);
        let axis = wrap(node.int("axis").ok()?.unwrap_or(0), self.to.len())?;
        if lane.feature != Some(axis) {
            return Some(lane);
        }
        lane.shifted(self.width(&node.outputs()[..self.output], axis)?, -1)
    }

    /// The length of these parts together along an axis.
    fn width(&self, parts: &[Option<ValueId>], axis: usize) -> Option<usize> {
        let length = |v: &ValueId| self.trace.get(*v).dims.as_ref()?.get(axis).copied();
        parts.iter().flatten().map(length).sum()
    }

    /// What is filled up along other axes than that of the tokens.
    fn padded(&self, lane: Lane) -> Option<Lane> {
        let node = self.graph.node(self.id);
        let mode = node.string("mode").ok()?;
        let fills = mode.is_none_or(|mode| mode == "constant");
        let pads = pads(node, self.trace, self.from.len())?;
        if !fills || pads[lane.sequence] != [0, 0] {
            return None;
        }
        match lane.feature {
            Some(axis) => lane.shifted(usize::try_from(pads[axis][0]).ok()?, 1),
            None => Some(lane),
        }
    }

    fn sliced(&self, lane: Lane) -> Option<Lane> {
        let Some(axis) = lane.feature.filter(|a| self.from[*a] != self.to[*a]) else {
            return Some(lane);
        };
        let start = slice_start(self.graph, self.trace, self.id, axis, self.from);
        match start.and_then(|s| usize::try_from(s).ok()) {
            Some(start) => lane.shifted(start, -1),
            None => Some(lane.without_features()),
        }
    }

    fn gathered(&self, lane: Lane) -> Option<Lane> {
        let node = self.graph.node(self.id);
        let axis = wrap(node.int("axis").ok()?.unwrap_or(0), self.from.len())?;
        let picked = self.trace.get(node.input(1)?).dims.as_ref()?.len();
        let back = |a: usize| match a {
            _ if a < axis => Some(a),
            _ if a >= axis + picked => Some(a + 1 - picked),
            _ => None,
        };
        Some(Lane {
            sequence: back(lane.sequence)?,
            feature: lane.feature.and_then(back),
            ..lane
        })
    }
}

/// Normalizations over the features, which are the last axis.
const NORMS: [&str; 3] = [
    "LayerNormalization",
    "RMSNormalization",
    "SimplifiedLayerNormalization",
];

impl Lane {
    /// The same sequence; its features are not known.
    fn without_features(self) -> Self {
        Self {
            feature: None,
            group: None,
            ..self
        }
    }

    /// The lane of a part that begins `by` features later, or earlier where `sign` is −1.
    fn shifted(self, by: usize, sign: i64) -> Option<Self> {
        match self.group {
            // Whole heads left out shift no feature.
            Some(group) if by.is_multiple_of(group) => Some(self),
            Some(_) => Some(self.without_features()),
            None => Some(Self {
                offset: self.offset.checked_add(sign * i64::try_from(by).ok()?)?,
                ..self
            }),
        }
    }
}

/// The axis of `from` that contains the features of `axis` of `to`, in heads of `group` each, and the
/// width of a head there; `None` where they are spread over several axes.
fn regrouped_features(
    from: &[usize],
    to: &[usize],
    axis: usize,
    group: Option<usize>,
) -> (Option<usize>, Option<usize>) {
    if let Some(same) = regrouped(from, to, axis) {
        return (Some(same), group);
    }
    let Some(all) = to.get(axis) else {
        return (None, None);
    };
    let width = group.unwrap_or(*all);
    let after: usize = to[axis + 1..].iter().product();
    let mut product = 1;
    for (i, n) in from.iter().enumerate().rev() {
        if product == after && *n == width {
            return (Some(i), None);
        }
        if product == after && *n > width && width > 1 && n.is_multiple_of(width) {
            return (Some(i), Some(width));
        }
        product *= n;
        if product > after {
            break;
        }
    }
    (None, None)
}

/// The axis of `from` that is `to[axis]` unchanged after regrouping.
fn regrouped(from: &[usize], to: &[usize], axis: usize) -> Option<usize> {
    let all = to.get(axis)?;
    let before: usize = to[..axis].iter().product();
    let mut product = 1;
    for (i, n) in from.iter().enumerate() {
        if product == before && n == all {
            return Some(i);
        }
        product *= n;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_followed_into_merged_heads_and_out_again() {
        type Found = (Option<usize>, Option<usize>);
        type Case = (
            &'static [usize],
            &'static [usize],
            usize,
            Option<usize>,
            Found,
        );
        let cases: [Case; 7] = [
            (&[2, 7, 24], &[2, 7, 3, 8], 3, None, (Some(2), Some(8))),
            (&[2, 7, 3, 8], &[2, 7, 24], 2, Some(8), (Some(3), None)),
            (&[2, 7, 72], &[2, 7, 3, 3, 8], 4, None, (Some(2), Some(8))),
            (&[14, 24], &[2, 7, 24], 2, Some(8), (Some(1), Some(8))),
            (&[2, 7, 3, 8], &[6, 7, 8], 2, None, (Some(3), None)),
            // Heads within features, and features on two axes, are no such thing.
            (&[2, 7, 24], &[2, 7, 8, 3], 2, None, (None, None)),
            (&[2, 7, 3, 4, 2], &[2, 7, 3, 8], 3, None, (None, None)),
        ];
        for (from, to, axis, group, want) in cases {
            let got = regrouped_features(from, to, axis, group);
            assert_eq!(got, want, "{from:?} {to:?} {axis}");
        }
    }

    #[test]
    fn an_axis_that_does_not_exist_has_no_origin() {
        assert_eq!(regrouped_features(&[2, 7], &[2, 7], 2, None), (None, None));
        assert_eq!(regrouped(&[2, 7], &[2, 7], 2), None);
    }

    #[test]
    fn regrouping_finds_an_axis_only_where_it_is_alone() {
        type Case = (&'static [usize], &'static [usize], usize, Option<usize>);
        let cases: [Case; 6] = [
            (&[2, 7, 64], &[2, 7, 4, 16], 1, Some(1)),
            (&[2, 7, 64], &[2, 7, 4, 16], 3, None),
            (&[2, 4, 7, 16], &[8, 7, 16], 1, Some(2)),
            (&[2, 4, 7, 16], &[8, 7, 16], 0, None),
            (&[14, 64], &[2, 7, 64], 1, None),
            (&[1, 7, 3], &[7, 3], 0, Some(1)),
        ];
        for (from, to, axis, want) in cases {
            assert_eq!(regrouped(from, to, axis), want, "{from:?} {to:?} {axis}");
        }
    }
}
