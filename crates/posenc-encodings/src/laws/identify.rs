//! From the numbers of a rotary embedding to the law that made them.
//!
//! Every law is fitted, and a fit counts only when it explains the numbers
//! more briefly than listing them would: each frequency is worth as many bits
//! as it has reliable digits, round parameters (θ = 10000, s = 4, L0 = 8192)
//! are cheap, odd ones cost as much as a frequency. So a table with one
//! frequency off by a percent is `custom`, not a YaRN with an odd factor, and
//! four numbers from a small head can still name their law.

pub(crate) mod evidence;
pub(crate) mod found;
pub(crate) mod geometric;
pub(crate) mod ramp;
pub(crate) mod round;
pub(crate) mod search;

#[cfg(test)]
mod tests;

use serde_json::Value;

use super::{LawName, Scaling};
use crate::words::Word;

use evidence::Samples;
use found::{Fit, Identified};
use geometric::Candidates;
use search::Search;

/// Identifies the law that has these frequencies and this factor.
///
/// `inv_freq` holds the pairs in order, radians per position, as read from a
/// graph; `attention_factor` is the factor m on cos and sin. Frequencies are
/// taken to be exact to the relative `tolerance`: about 1e-6 for numbers kept
/// in f32, 1e-3 for f16. `rotary_dim` is the width that the pairs span; where
/// it equals `head_dim`, pairs that are missing or zero at the slow end make
/// it proportional.
///
/// Never fails: what no law explains is `custom`. A fixed NTK scaling reads as
/// plain RoPE of its larger θ, which it is.
pub fn identify(
    inv_freq: &[f64],
    attention_factor: f64,
    rotary_dim: usize,
    head_dim: usize,
    tolerance: f64,
) -> Identified {
    let custom = || Identified::custom(inv_freq, None);
    let whole = rotary_dim / 2;
    let rotating = inv_freq
        .iter()
        .rposition(|&f| f != 0.0)
        .map_or(0, |last| last + 1);
    if rotating == 0 || inv_freq.len() > whole {
        return custom();
    }
    let Some(samples) = Samples::new(
        &inv_freq[..rotating],
        attention_factor,
        rotary_dim,
        tolerance,
    ) else {
        return custom();
    };
    let none = Candidates(Vec::new());
    let cheapest = |search| cheapest(fits(search, &samples, &none));
    if rotating < whole {
        let fit = (rotary_dim == head_dim).then(|| cheapest(Search::Resting));
        return fit.flatten().unwrap_or_else(custom);
    }
    if let Some(row) = geometric::fit(&samples) {
        let custom = || Identified::custom(inv_freq, row.theta);
        // A factor on cos and sin is a scaling that these numbers do not name.
        return if !samples.is_unit_factor() {
            custom()
        } else if row.factor.is_some() {
            cheapest(Search::Geometric).unwrap_or_else(custom)
        } else {
            Identified {
                theta: row.theta,
                scaling: None,
                fit_error: row.error,
            }
        };
    }
    // Three numbers are too few for a ramp: two are spent on θ and s.
    if samples.pairs() < 4 {
        return custom();
    }
    ramp_like(&samples).unwrap_or_else(|| {
        let theta = LawName::ALL.iter().find_map(|law| law.theta(&samples));
        Identified::custom(inv_freq, theta)
    })
}

/// The law of frequencies that start at 1 and are not geometric: the usual forms first, the freer
/// ones only where those find nothing.
fn ramp_like(samples: &Samples) -> Option<Identified> {
    let candidates = Candidates::of(samples);
    let baseline = geometric::cost_of_exceptions(samples, &candidates);
    // All of them start with 1.
    let is_accepted = |fit: &Fit| samples.worth(fit.cost, 1) && fit.cost < baseline;
    // Free parameters fit too much that is known to a few digits only.
    let last = match samples.bits < 15.0 {
        true => Search::Unrounded,
        false => Search::Unusual,
    };
    [Search::Usual, Search::Widened, last]
        .into_iter()
        .find_map(|search| {
            let fits = match search {
                Search::Widened => fits(search, samples, &candidates.widened(samples)),
                _ => fits(search, samples, &candidates),
            };
            cheapest(fits.into_iter().filter(is_accepted))
        })
}

/// The readings of all laws.
fn fits(search: Search, samples: &Samples, candidates: &Candidates) -> Vec<Fit> {
    let laws = LawName::ALL.iter();
    laws.flat_map(|law| law.fits(search, samples, candidates))
        .collect()
}

fn cheapest(fits: impl IntoIterator<Item = Fit>) -> Option<Identified> {
    let cheapest = fits.into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost));
    cheapest.map(|fit| fit.found)
}

impl Identified {
    /// A law that computes these frequencies, for checks and rewrites.
    ///
    /// Absent for a custom list and where the parameters are not fixed. The
    /// factor on cos and sin is the one given, not the one of the law.
    pub fn scaling(&self, attention_factor: f64) -> Option<Scaling> {
        let Some(scaling) = &self.scaling else {
            return Some(Scaling::None);
        };
        let law: LawName = scaling.name().parse().ok()?;
        let mut parameters = scaling.fixed_parameters()?.clone();
        parameters.insert("attention_factor".to_owned(), attention_factor.into());
        Scaling::from_parameters(law, Value::Object(parameters)).ok()
    }
}
