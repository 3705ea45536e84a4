//! Rotations by rows and columns in a model of other sizes, read again by unit vectors and compared with the formula at
//! every patch.

use posenc_encodings::families::axial::{Axial, Centred};
use posenc_encodings::families::rope::LOOSE;
use posenc_ir::{Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::context::Context;
use crate::detect::finding::Encoding;
use crate::detect::rotary::entering;
use crate::detect::rotary::read::read_angles;
use crate::error::RewriteError;
use crate::plan::resize::Plan;
use crate::plan::resize::rotations::bound;

/// Whether an encoding is the rotation that was planned, but for whole turns from patch to patch.
pub(super) fn is_planned(planned: &Encoding, new: &Encoding) -> bool {
    let (Encoding::Axial(planned), Encoding::Axial(new)) = (planned, new) else {
        return false;
    };
    // Where the graph computes the rotation, its steps are what it computes.
    let is_computed = planned.steps.is_empty();
    let near = |((axis, step), (other, own)): (&(usize, f64), &(usize, f64))| {
        let apart = (step - own).sin().hypot(1.0 - (step - own).cos());
        axis == other && apart < LOOSE
    };
    let is_same_factor = (planned.attention_factor - new.attention_factor).abs() < LOOSE;
    let own = Axial {
        theta: new.theta,
        attention_factor: new.attention_factor,
        steps: new.steps.clone(),
        ..planned.clone()
    };
    let all = planned.steps.iter().zip(&new.steps);
    let steps = planned.steps.len() == new.steps.len() && all.into_iter().all(near);
    own == *new && is_same_factor && (is_computed || steps)
}

/// Compares what rotates queries and keys with the formula.
///
/// # Errors
/// With the first token that rotates otherwise.
pub(super) fn check(
    before: &Context<'_>,
    after: &Context<'_>,
    plan: &Plan,
) -> Result<(), RewriteError> {
    let mut read: Vec<Vec<Option<ValueId>>> = vec![];
    let mut met: FxHashSet<Use> = FxHashSet::default();
    for (old, new) in before.found.axial.iter().zip(&after.found.axial) {
        for region in &new.regions {
            met.extend(&region.entries);
            let is_own = |at: &Use| region.entries.contains(at);
            let mut stored = plan.rotations.iter().filter(|own| is_own(&own.entry));
            let rotation = stored.find_map(|own| Some((own, own.stored.as_ref()?, own.grid()?)));
            let values = entering(after.model, region);
            let (Some((rotation, own, grid)), Encoding::Axial(axial)) =
                (rotation, &old.finding.encoding)
            else {
                continue;
            };
            if read.contains(&values) {
                continue;
            }
            read.push(values);
            let node = rotation.entry.node;
            let unknown = |_| before.refuse(node, "the rotation of the new grid cannot be read");
            let got = read_angles(after.model, &after.found.trace, region, axial.head_dim);
            let got = got.map_err(unknown)?;
            let (cos, sin) = own.law.on(axial, grid).reference(Centred::origin(grid));
            let bound = bound(after.dtype(rotation.value), axial.attention_factor);
            let pairs = || {
                cos.indexed_iter()
                    .zip(&sin)
                    .map(|((at, c), s)| (at, [c, s]))
            };
            let is_off = |(at, [c, s]): &((usize, usize), [&f64; 2])| {
                let own = [got.cos.get(*at), got.sin.get(*at)];
                let near = |(own, want): (Option<&f64>, &f64)| {
                    own.is_some_and(|own| (own - want).abs() <= bound)
                };
                !(near((own[0], c)) && near((own[1], s)))
            };
            if got.pairs != axial.pairs || got.cos.dim() != cos.dim() {
                return Err(before.refuse(node, "other features would rotate on the new grid"));
            }
            if let Some(((token, _), _)) = pairs().find(is_off) {
                let why = format!("token {token} would rotate otherwise than by the formula");
                return Err(before.refuse(node, why));
            }
        }
    }
    let mut stored = plan.rotations.iter().filter(|own| own.stored.is_some());
    match stored.find(|own| !met.contains(&own.entry)) {
        Some(own) => {
            Err(before.refuse(own.entry.node, "the rotation of the new grid is not found"))
        }
        None => Ok(()),
    }
}
