//! Axis roles: which axis of a value is the sequence and which the features of a head, carried
//! from a node's output back to its inputs.
//!
//! Roles, not axis numbers: a model may be sequence-first, fold heads into the batch, or hold
//! keys transposed.

mod heads;

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ValueId};

use crate::graph::operators::{is_elementwise, is_layout};

/// Where the sequence and the features of one head stand in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The axis along which tokens stand.
    pub sequence: usize,
    /// The axis of the features; `None` where it is merged with another or thinned out.
    pub feature: Option<usize>,
    /// Features of each head, where several heads stand one after another on the feature axis.
    pub group: Option<usize>,
    /// Which feature of the head the first one is.
    pub offset: i64,
}

impl Lane {
    /// A sequence whose features are not known.
    pub(crate) fn of_sequence(sequence: usize) -> Self {
        Self {
            sequence,
            feature: None,
            group: None,
            offset: 0,
        }
    }

    /// Features of one head in a value of these dimensions.
    pub fn width(&self, dims: &[usize]) -> Option<usize> {
        let all = *dims.get(self.feature?)?;
        Some(self.group.unwrap_or(all))
    }
}

/// The lane of input `slot` of a node whose output `output` runs in `lane`; `None` where the
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
    let from = dims(node.input(slot)?)?;
    let to = dims(node.output(output)?)?;
    if lane.sequence.max(lane.feature.unwrap_or(0)) >= to.len() {
        return None;
    }
    let op = node.op();
    if !node.domain().is_empty() {
        // Normalizations keep every axis; their first inputs carry the tokens.
        let same = from.len() == to.len() && slot < 2;
        return same.then_some(lane);
    }
    if is_elementwise(op) {
        let axis = |a: usize| (a + from.len()).checked_sub(to.len());
        // What is broadcast along the features has none.
        let feature = lane.feature.and_then(axis).filter(|a| {
            let along = a + to.len() - from.len();
            from[*a] == to[along]
        });
        return Some(Lane {
            sequence: axis(lane.sequence)?,
            group: lane.group.filter(|_| feature.is_some()),
            feature,
            ..lane
        });
    }
    match op {
        "Transpose" => {
            let perm = node.ints("perm").ok()?;
            let axis = |a: usize| match perm {
                Some(perm) => usize::try_from(*perm.get(a)?).ok(),
                None => (from.len() - 1).checked_sub(a),
            };
            Some(Lane {
                sequence: axis(lane.sequence)?,
                feature: lane.feature.and_then(axis),
                ..lane
            })
        }
        _ if is_layout(op) => {
            if slot != 0 {
                return None;
            }
            let aligned = |a: usize| {
                let axis = (a + from.len()).checked_sub(to.len());
                axis.filter(|i| from[*i] == to[a])
            };
            if matches!(op, "Expand" | "Tile") {
                return Some(Lane {
                    sequence: aligned(lane.sequence)?,
                    feature: lane.feature.and_then(aligned),
                    ..lane
                });
            }
            let (feature, group) = match lane.feature {
                Some(axis) => regrouped_features(from, to, axis, lane.group),
                None => (None, None),
            };
            Some(Lane {
                sequence: regrouped(from, to, lane.sequence)?,
                feature,
                group,
                ..lane
            })
        }
        "Concat" => {
            let axis = wrap(node.int("axis").ok()??, to.len())?;
            if lane.feature != Some(axis) {
                return Some(lane);
            }
            let before = node.inputs()[..slot].iter().flatten();
            let widths: Option<Vec<usize>> = before.map(|v| dims(*v)?.get(axis).copied()).collect();
            lane.shifted(widths?.iter().sum(), 1)
        }
        "Split" => {
            if slot != 0 {
                return None;
            }
            let axis = wrap(node.int("axis").ok()?.unwrap_or(0), to.len())?;
            if lane.feature != Some(axis) {
                return Some(lane);
            }
            let before = node.outputs()[..output].iter().flatten();
            let widths: Option<Vec<usize>> = before.map(|v| dims(*v)?.get(axis).copied()).collect();
            lane.shifted(widths?.iter().sum(), -1)
        }
        "Slice" => {
            if slot != 0 {
                return None;
            }
            let Some(axis) = lane.feature.filter(|a| from[*a] != to[*a]) else {
                return Some(lane);
            };
            let start = slice_start(graph, trace, id, axis, from);
            match start.and_then(|s| usize::try_from(s).ok()) {
                Some(start) => lane.shifted(start, -1),
                None => Some(Lane {
                    feature: None,
                    group: None,
                    ..lane
                }),
            }
        }
        "Gather" => {
            if slot != 0 {
                return None;
            }
            let axis = wrap(node.int("axis").ok()?.unwrap_or(0), from.len())?;
            let picked = dims(node.input(1)?)?.len();
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
        "LayerNormalization" | "RMSNormalization" | "SimplifiedLayerNormalization" => {
            (slot == 0).then_some(lane)
        }
        "RotaryEmbedding" => (slot == 0 && from.len() == to.len()).then_some(lane),
        // Means and sums over the features keep the tokens where they are.
        _ if op.starts_with("Reduce") && slot == 0 && from.len() == to.len() => Some(Lane {
            feature: None,
            group: None,
            ..lane
        }),
        _ => None,
    }
}

impl Lane {
    /// The lane of a part that begins `by` features farther on, or back where `sign` is −1.
    fn shifted(self, by: usize, sign: i64) -> Option<Self> {
        match self.group {
            // Whole heads left out shift no feature.
            Some(group) if by.is_multiple_of(group) => Some(self),
            Some(_) => Some(Self {
                feature: None,
                group: None,
                ..self
            }),
            None => Some(Self {
                offset: self.offset + sign * i64::try_from(by).ok()?,
                ..self
            }),
        }
    }
}

/// Where features that stand on `axis` of `to`, in heads of `group` each, stand in `from`, and in
/// heads of which width; nowhere, where they are spread over several axes.
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
    let behind: usize = to[axis + 1..].iter().product();
    let mut product = 1;
    for (i, n) in from.iter().enumerate().rev() {
        if product == behind && *n == width {
            return (Some(i), None);
        }
        if product == behind && *n > width && width > 1 && n.is_multiple_of(width) {
            return (Some(i), Some(width));
        }
        product *= n;
        if product > behind {
            break;
        }
    }
    (None, None)
}

/// The axis of `from` that stands unchanged at `to[axis]` after regrouping.
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

/// Where a `Slice` of step 1 starts on `axis`; `None` for other steps.
pub(crate) fn slice_start(
    graph: &Graph,
    trace: &Trace,
    id: NodeId,
    axis: usize,
    from: &[usize],
) -> Option<i64> {
    let node = graph.node(id);
    let list = |slot: usize, name: &str| -> Option<Vec<i64>> {
        match node.input(slot) {
            Some(v) => Some(trace.get(v).to_i64()?.iter().copied().collect()),
            None => node.ints(name).ok()?.map(<[i64]>::to_vec),
        }
    };
    let starts = list(1, "starts")?;
    let all: Vec<i64> = (0..i64::try_from(starts.len()).ok()?).collect();
    let axes = list(3, "axes").unwrap_or(all);
    let steps = list(4, "steps").unwrap_or_else(|| vec![1; starts.len()]);
    for (i, a) in axes.iter().enumerate() {
        if wrap(*a, from.len())? != axis {
            continue;
        }
        if *steps.get(i)? != 1 {
            return None;
        }
        let len = i64::try_from(from[axis]).ok()?;
        let start = *starts.get(i)?;
        return Some(if start < 0 {
            (start + len).max(0)
        } else {
            start.min(len)
        });
    }
    Some(0)
}

/// A negative axis counts from the end.
pub(crate) fn wrap(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis + rank } else { axis };
    (0..rank).contains(&axis).then_some(axis as usize)
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
    fn an_axis_that_is_not_there_comes_from_nowhere() {
        assert_eq!(regrouped_features(&[2, 7], &[2, 7], 2, None), (None, None));
        assert_eq!(regrouped(&[2, 7], &[2, 7], 2), None);
    }

    #[test]
    fn regrouping_finds_an_axis_only_where_it_stands_alone() {
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
