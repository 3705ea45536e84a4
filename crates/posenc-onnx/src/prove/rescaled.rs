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
    let rounding = tolerance::half_step_of_frequencies(dtype);
    for (length, got) in ropes {
        let want = target.scaling.frequencies(&target.rope, length);
        let frequencies = relative_error(&got.inv_freq, &want.inv_freq, rounding);
        let error = frequencies.max(relative(got.attention_factor, want.attention_factor, 0.0));
        let near = error <= allowed; // NaN is not
        if !near {
            return Some(format!(
                "the rewritten rotation differs from its formula by {error:.1e}, more than {allowed:.1e}"
            ));
        }
    }
    None
}

/// The largest relative error of frequencies beyond a rounding; pairs that do not rotate are not read.
fn relative_error(got: &[f64], want: &[f64], rounding: f64) -> f64 {
    let rotating: Vec<f64> = want.iter().copied().filter(|f| *f != 0.0).collect();
    if got.len() != rotating.len() {
        return f64::INFINITY;
    }
    let pairs = got.iter().zip(&rotating);
    let errors = pairs.map(|(got, want)| relative(*got, *want, rounding));
    errors.fold(0.0, f64::max)
}

/// How far a number is from another beyond a rounding, as a share of that; infinite where it is none.
fn relative(got: f64, want: f64, rounding: f64) -> f64 {
    let error = (got - want).abs();
    if error.is_nan() {
        f64::INFINITY
    } else if error <= rounding {
        0.0
    } else {
        (error - rounding) / want.abs()
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use super::*;

    #[test]
    fn slow_frequencies_are_as_exact_as_their_type_stores_them() {
        let half = tolerance::half_step_of_frequencies(Some(DType::F16));
        let stored = |f: f64| half::f16::from_f64(f).to_f64();
        let slow = [1e-6, 3.3e-7, 7.5e-8];
        let error = |shift: f64, rounding: f64| {
            let got: Vec<f64> = slow.iter().map(|f| stored(*f) + shift).collect();
            relative_error(&got, &slow, rounding)
        };
        assert!(error(0.0, half) < 1e-3);
        assert!(error(2.0 * half, half) > 1e-2, "another step");
        assert!(error(0.0, 0.0) > 1e-2, "in a type that is as exact there");
        assert!(relative(f64::NAN, 1.0, half).is_infinite());
        assert!(relative_error(&[f64::NAN, 1.0, 1.0], &slow, half).is_infinite());
        assert!(relative_error(&slow[1..], &slow, half).is_infinite());
    }
}
