//! Proportional RoPE from its numbers: geometric over the whole head, then
//! pairs that rest.

use super::evidence::Samples;
use super::family::{Fit, Identified, IdentifiedScaling};
use super::geometric;

/// `samples` are the pairs that turn, out of `whole`.
pub(super) fn fit(samples: &Samples, whole: usize) -> Option<Fit> {
    let turning = samples.pairs();
    let fit = geometric::fit(samples).filter(|_| samples.is_unit_factor())?;
    let factor = match fit.found.scaling {
        None => 1.0,
        Some(IdentifiedScaling::Linear { factor }) => factor,
        Some(_) => return None,
    };
    // Rounded to zero is not zero: the next pair must be large enough to show.
    let theta = fit.found.theta;
    let next = theta.map(|theta| samples.plain(theta, turning) / factor);
    if next.is_some_and(|next| next <= samples.vanishing()) {
        return None;
    }
    let partial_rotary_factor = turning as f64 / whole as f64;
    let scaling = Some(IdentifiedScaling::Proportional {
        partial_rotary_factor,
        factor,
    });
    let fit_error = fit.found.fit_error;
    Some(Fit {
        found: Identified {
            theta,
            scaling,
            fit_error,
        },
        cost: fit.cost,
    })
}
