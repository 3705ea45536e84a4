//! What a rescaled graph shows of its rotations, compared with the plan.

use posenc_ir::{Model, NodeId};

use crate::detect::{Found, RotarySite};
use crate::error::{Refusal, RewriteError};
use crate::plan::rescale::{Plan, Target};
use crate::prove::tolerance;

/// Compares the attention of the rescaled graph with that before, and its frequencies with the planned
/// ones.
///
/// # Errors
/// Where attention is not the same, or a rotation cannot be read or has other frequencies, with the
/// node.
pub(crate) fn has_planned_frequencies(
    model: &Model,
    before: &Found,
    after: &Found,
    plan: &Plan,
) -> Result<(), RewriteError> {
    let sites = |found: &Found| -> Vec<NodeId> { found.attention.iter().map(|s| s.node).collect() };
    let (old, new) = (sites(before), sites(after));
    if old != new {
        let lost = old.iter().find(|node| !new.contains(node));
        let place = lost.or(old.first()).map(|node| model.graph().place(*node));
        let why = "its attention cannot be read back from the rescaled graph";
        return Err(Refusal::unsupported(why)
            .at(place.unwrap_or_default())
            .into());
    }
    for (i, target) in &plan.targets {
        let site = &before.rotary[*i];
        let read = after.rotary.iter().find(|s| s.site == site.site);
        let why = match read {
            None => Some("the rewritten rotation cannot be read back".to_owned()),
            Some(read) => difference(before, after, read, target),
        };
        if let Some(why) = why {
            let place = model.graph().place(site.node);
            let name = &before.attention[site.site].name;
            return Err(Refusal::unsupported(why).at(place).in_site(name).into());
        }
    }
    Ok(())
}

/// The first difference between a rotation and its target.
fn difference(before: &Found, after: &Found, read: &RotarySite, target: &Target) -> Option<String> {
    let length = before.lengths.past + before.lengths.sequence;
    let mut ropes = vec![
        (length, &read.query.rotation.rope),
        (length, &read.key.rotation.rope),
    ];
    if let Some(switch) = &read.switch {
        ropes.extend(switch.beyond.iter().map(|(length, rope)| (*length, rope)));
    }
    // A graph for a single length has nothing to choose.
    let chooses = target.scaling.depends_on_length() && before.ports.fixed_sequence().is_none();
    if chooses && read.switch.is_none() {
        return Some("the choice by length cannot be read back".to_owned());
    }
    let dtype = after.trace.get(read.query.region.output).dtype;
    let allowed = tolerance::of_frequencies(dtype);
    for (length, got) in ropes {
        let want = target.scaling.frequencies(&target.rope, length);
        let error = relative_error(
            &got.inv_freq,
            &want.inv_freq,
            got.attention_factor,
            want.attention_factor,
        );
        let near = error <= allowed; // NaN is not
        if !near {
            return Some(format!(
                "the rewritten rotation differs from its formula by {error:.1e}"
            ));
        }
    }
    None
}

/// The largest relative error; pairs that do not rotate are not read.
fn relative_error(got: &[f64], want: &[f64], factor: f64, want_factor: f64) -> f64 {
    let rotating: Vec<f64> = want.iter().copied().filter(|f| *f != 0.0).collect();
    if got.len() != rotating.len() {
        return f64::INFINITY;
    }
    let relative = |a: f64, b: f64| (a - b).abs() / b.abs();
    let errors = got.iter().zip(&rotating).map(|(a, b)| relative(*a, *b));
    errors.fold(relative(factor, want_factor), f64::max)
}
