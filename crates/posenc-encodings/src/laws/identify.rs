//! From the numbers of a rotary embedding to the family that made them.
//!
//! Every family is fitted, and a fit counts only when it explains the numbers
//! more briefly than listing them would: each frequency is worth as many bits
//! as it has reliable digits, round parameters (θ = 10000, s = 4, L0 = 8192)
//! are cheap, odd ones cost as much as a frequency. So a table with one
//! frequency off by a percent is `custom`, not a YaRN with an odd factor, and
//! four numbers from a small head can still name their family.

mod evidence;
mod family;
mod geometric;
mod llama3;
mod longrope;
mod proportional;
mod ramp;
mod round;
mod yarn;

#[cfg(test)]
mod tests;

pub use family::{Identified, IdentifiedScaling, IdentifiedYarn};
pub use longrope::{identify_growth, identify_lists};

use evidence::Samples;
use geometric::Candidates;

/// Tells which family has these frequencies and this factor.
///
/// `inv_freq` holds the pairs in order, radians per position, as read from a
/// graph; `attention_factor` is the factor m on cos and sin. Frequencies are
/// taken to be exact to the relative `tolerance`: about 1e-6 for numbers kept
/// in f32, 1e-3 for f16. `rotary_dim` is the width that the pairs span; where
/// it equals `head_dim`, pairs that are missing or zero at the slow end make
/// it [`IdentifiedScaling::Proportional`].
///
/// Never fails: what no family explains is [`IdentifiedScaling::Custom`].
/// A fixed NTK scaling reads as plain RoPE of its larger θ, which it is.
pub fn identify(
    inv_freq: &[f64],
    attention_factor: f64,
    rotary_dim: usize,
    head_dim: usize,
    tolerance: f64,
) -> Identified {
    let custom = || Identified::custom(inv_freq, None);
    let whole = rotary_dim / 2;
    let turning = inv_freq
        .iter()
        .rposition(|&f| f != 0.0)
        .map_or(0, |last| last + 1);
    if turning == 0 || inv_freq.len() > whole {
        return custom();
    }
    let Some(samples) = Samples::new(
        &inv_freq[..turning],
        attention_factor,
        rotary_dim,
        tolerance,
    ) else {
        return custom();
    };
    if turning < whole {
        let fit = (rotary_dim == head_dim)
            .then(|| proportional::fit(&samples, whole))
            .flatten();
        return fit.map_or_else(custom, |fit| fit.found);
    }

    if let Some(fit) = geometric::fit(&samples) {
        // A factor on cos and sin is a scaling that these numbers do not name.
        return match samples.is_unit_factor() {
            true => fit.found,
            false => Identified::custom(inv_freq, fit.found.theta),
        };
    }
    // Three numbers are too few for a ramp: two are spent on θ and s.
    if samples.pairs() < 4 {
        return Identified::custom(inv_freq, None);
    }
    let candidates = Candidates::of(&samples);
    let baseline = geometric::cost_of_exceptions(&samples, &candidates);
    // Every ramp starts with 1.
    let accepted = |fit: &family::Fit| samples.worth(fit.cost, 1) && fit.cost < baseline;
    let cheaper = |a: &family::Fit, b: &family::Fit| a.cost.total_cmp(&b.cost);
    // The usual forms first; the freer ones only where those say nothing.
    let searches: [&dyn Fn() -> Vec<family::Fit>; 3] = [
        &|| {
            let mut fits = yarn::usual(&samples, &candidates);
            fits.extend(llama3::usual(&samples, &candidates));
            fits
        },
        // Llama 3 always leaves two pairs plain or divides two by one factor.
        &|| yarn::usual(&samples, &candidates.widened(&samples)),
        &|| {
            // A free ramp fits too much that is known to a few digits only.
            if samples.bits < 15.0 {
                return Vec::new();
            }
            let mut fits = yarn::unusual(&samples, &candidates);
            fits.extend(llama3::unusual(&samples, &candidates));
            fits
        },
    ];
    for search in searches {
        if let Some(best) = search().into_iter().filter(accepted).min_by(cheaper) {
            return best.found;
        }
    }
    Identified::custom(inv_freq, longrope::theta_of_decimals(&samples))
}
