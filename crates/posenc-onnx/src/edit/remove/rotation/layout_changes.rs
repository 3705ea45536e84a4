//! How a region changes shape and order apart from the rotation: what it computes if every angle is
//! 0 and the factor is 1.

use ndarray::{ArrayD, IxDyn};
use posenc_ir::eval::{Budget, Value, probe};
use posenc_ir::{Emitter, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::context::Context;
use crate::detect::rotary::matrices::matrices;
use crate::detect::rotary::site::ProbeMode;
use crate::error::RewriteError;
use crate::graph::lane::wrap;
use crate::graph::operators::is_rearrangement;
use crate::graph::region::Region;

/// The nodes that change shape and order between the input and the output of a region; `None` if
/// the region does anything else apart from the rotation.
pub(crate) fn find(
    context: &Context<'_>,
    region: &Region,
    mode: Option<ProbeMode>,
) -> Option<Vec<NodeId>> {
    let (from, to) = (context.dims(region.input)?, context.dims(region.output)?);
    let none = (from == to).then(Vec::new);
    let mut chains = none.into_iter().chain(chain(context, region));
    chains.find(|chain| does_nothing_else(context, region, mode, chain) == Some(true))
}

/// Applies copies of these nodes to a value.
pub(crate) fn emit(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    changes: &[NodeId],
    mut value: ValueId,
) -> Result<ValueId, RewriteError> {
    for id in changes {
        let mut inputs = context.graph().node(*id).inputs().to_vec();
        if let Some(first) = inputs.first_mut() {
            *first = Some(value);
        }
        let made = out.copy(*id, &inputs, &[])?;
        value = made.into_iter().flatten().next().unwrap_or(value);
    }
    Ok(value)
}

/// The changes of shape on one path through the region along which nothing else changes shape.
fn chain(context: &Context<'_>, region: &Region) -> Option<Vec<NodeId>> {
    let graph = context.graph();
    let within = region.content(graph, &context.found.classes);
    let mut seen = FxHashSet::default();
    let mut stack = vec![(region.output, vec![])];
    while let Some((value, changes)) = stack.pop() {
        if value == region.input {
            return Some(changes.into_iter().rev().collect());
        }
        let Some((id, 0)) = graph.producer(value).filter(|_| seen.insert(value)) else {
            continue;
        };
        let node = graph.node(id);
        let own = |v: &ValueId| *v == region.input || within.contains(v);
        if is_rearrangement(node.op()) {
            let before = node.input(0).filter(own);
            let longer = || changes.iter().copied().chain([id]).collect();
            stack.extend(before.map(|v| (v, longer())));
            continue;
        }
        let same = |v: &ValueId| own(v) && context.dims(*v) == context.dims(value);
        let before = node.inputs().iter().flatten().copied().filter(same);
        stack.extend(before.map(|v| (v, changes.clone())));
    }
    None
}

/// Whether a region is a chain of changes and a rotation, and nothing else.
fn does_nothing_else(
    context: &Context<'_>,
    region: &Region,
    mode: Option<ProbeMode>,
    changes: &[NodeId],
) -> Option<bool> {
    let dims = context.dims(region.input)?;
    let count: usize = dims.iter().product();
    // Numbers that stay distinct after arithmetic.
    let numbers = (0..count).map(|i| ((i + 1) as f64 * 0.754_877_666).fract());
    let x = ArrayD::from_shape_vec(IxDyn(dims), numbers.collect()).ok()?;
    let moved = apply(context, changes, x.clone())?;
    let moved = region.output_lane.split(moved)?;
    if mode == Some(ProbeMode::Spread) {
        // Each head is rotated by itself, in place.
        return Some(region.input_lane.split(x)? == moved);
    }
    let Context { model, found } = *context;
    let none = FxHashMap::default();
    let (maps, _) = matrices(model, &found.trace, &none, region).ok()?;
    let seeds = FxHashMap::from_iter([(region.input, Value::float(x))]);
    let budget = Budget { elements: 1 << 22 };
    let got = probe(model, &found.trace, &seeds, &[region.output], &budget).ok()?;
    let rotated = region.output_lane.split(got.first()?.to_f64()?)?;
    let (slots, length, width) = moved.dim();
    if rotated.dim() != moved.dim() || maps.dim() != (length, width, width) {
        return None;
    }
    let alike = |slot: usize, p: usize, i: usize| {
        let want: f64 = (0..width)
            .map(|j| maps[[p, i, j]] * moved[[slot, p, j]])
            .sum();
        (rotated[[slot, p, i]] - want).abs() <= 1e-9
    };
    let all = (0..slots).all(|s| (0..length).all(|p| (0..width).all(|i| alike(s, p, i))));
    Some(all)
}

/// Applies the changes to numbers.
fn apply(context: &Context<'_>, changes: &[NodeId], mut x: ArrayD<f64>) -> Option<ArrayD<f64>> {
    for id in changes {
        let node = context.graph().node(*id);
        x = match node.op() {
            "Transpose" => {
                let rank = x.ndim();
                let axes: Vec<usize> = match node.ints("perm").ok()? {
                    Some(perm) => perm.iter().map(|a| wrap(*a, rank)).collect::<Option<_>>()?,
                    None => (0..rank).rev().collect(),
                };
                let mut once = axes.clone();
                once.sort_unstable();
                if !once.into_iter().eq(0..rank) {
                    return None;
                }
                x.permuted_axes(axes).as_standard_layout().into_owned()
            }
            _ => {
                let dims = context.dims(node.output(0)?)?;
                x.into_shape_with_order(IxDyn(dims)).ok()?
            }
        };
    }
    Some(x)
}
