//! The law of a rotation that was found.

use posenc_ir::{DType, Tensor};

use crate::detect::{Found, RotarySite, Switch};
use posenc_encodings::families::rope::Rope;
use posenc_encodings::laws::{Identified, identify, identify_growth, identify_lists};

/// The laws that were identified already. Sites that rotate alike have one law.
pub(crate) struct KnownLaws<'a> {
    found: &'a Found,
    known: Vec<(&'a RotarySite, Identified)>,
}

impl<'a> KnownLaws<'a> {
    /// Of the sites of a model.
    pub(crate) fn of(found: &'a Found) -> Self {
        let known = vec![];
        Self { found, known }
    }

    /// The law of a site.
    pub(crate) fn law(&mut self, site: &'a RotarySite) -> &Identified {
        let alike = |other: &RotarySite| {
            other.query.rotation.rope == site.query.rotation.rope
                && other.switch == site.switch
                && tolerance(self.found, other) == tolerance(self.found, site)
        };
        let at = self.known.iter().position(|(other, _)| alike(other));
        let at = at.unwrap_or_else(|| {
            self.known.push((site, identified(self.found, site)));
            self.known.len() - 1
        });
        &self.known[at].1
    }
}

/// The scaling of a site, identified from its numbers.
fn identified(found: &Found, site: &RotarySite) -> Identified {
    let rope = &site.query.rotation.rope;
    let tolerance = tolerance(found, site);
    let within = |tolerance| {
        let (factor, dim, all) = (rope.attention_factor, rope.rotary_dim, rope.head_dim);
        identify(&rope.inv_freq, factor, dim, all, tolerance)
    };
    let mut near = within(tolerance);
    // Frequencies that were stored in half precision, and computed with in another type.
    let halves = [(DType::F16, HALF), (DType::BF16, BRAIN)];
    for (dtype, coarse) in halves {
        if near.theta.is_none() && coarse > tolerance && is_stored_as(dtype, &rope.inv_freq) {
            near = within(coarse);
        }
    }
    match &site.switch {
        None => near,
        Some(switch) => switched(rope, switch, near, tolerance.max(1e-5)),
    }
}

/// The scaling of a rotation that changes with the length: a base that grows, or two lists.
fn switched(rope: &Rope, switch: &Switch, near: Identified, tolerance: f64) -> Identified {
    let original = switch.original_length;
    let mut samples = vec![
        (original.div_ceil(2), rope.inv_freq.clone()),
        (original, rope.inv_freq.clone()),
    ];
    let beyond = switch.beyond.iter();
    samples.extend(beyond.map(|(length, rope)| (*length, rope.inv_freq.clone())));
    if let Some(growth) = identify_growth(&samples, rope.rotary_dim, tolerance) {
        return growth;
    }
    let theta = near.theta.filter(|_| near.scaling.is_none());
    match switch.beyond.last() {
        Some((_, long)) => {
            identify_lists(&rope.inv_freq, &long.inv_freq, original, theta, tolerance)
        }
        None => near,
    }
}

/// How exactly the numbers of a site are those of its law, as a share of each.
pub(crate) fn precision(found: &Found, site: &RotarySite) -> f64 {
    let stored = &site.query.rotation.rope.inv_freq;
    let halves = [(DType::F16, HALF), (DType::BF16, BRAIN)];
    let halves = halves
        .into_iter()
        .filter(|(dtype, _)| is_stored_as(*dtype, stored));
    halves
        .map(|(_, coarse)| coarse)
        .fold(tolerance(found, site), f64::max)
}

/// How exactly half precision stores frequencies.
const HALF: f64 = 2e-3;

/// How exactly bfloat16 stores frequencies.
const BRAIN: f64 = 1e-2;

/// Frequencies that say something of how they are stored.
const FEW: usize = 4;

/// Whether all frequencies are numbers of this type, and not only powers of two.
fn is_stored_as(dtype: DType, frequencies: &[f64]) -> bool {
    let rounded = Tensor::from_f64(dtype, &[frequencies.len()], frequencies);
    let near = |(i, f): (usize, &f64)| {
        let stored = rounded.get_f64(i).unwrap_or(0.0);
        (stored - f).abs() <= 1e-6 * f.abs()
    };
    let is_power = |f: &&f64| (f.log2() - f.log2().round()).abs() < 1e-6;
    let telling = frequencies.iter().filter(|f| !is_power(f)).count();
    telling >= FEW && frequencies.iter().enumerate().all(near)
}

/// How exactly the graph stores its frequencies, as a share of each.
fn tolerance(found: &Found, site: &RotarySite) -> f64 {
    match found.trace.get(site.query.region.output).dtype {
        Some(DType::F16) => HALF,
        Some(DType::BF16) => BRAIN,
        _ if site.query.rotation.fit_error > ROUNDED => COARSE,
        _ => 2e-6,
    }
}

/// Cosines and sines that are farther from those of their angles are rounded, to eight bits or so.
const ROUNDED: f64 = 1e-3;

/// How exactly such cosines and sines give frequencies.
const COARSE: f64 = 5e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_of_half_precision_are_told_from_others() {
        let exact: Vec<f64> = (0..8)
            .map(|i| 10000_f64.powf(-f64::from(i) / 8.0))
            .collect();
        let stored = |dtype| {
            let tensor = Tensor::from_f64(dtype, &[exact.len()], &exact);
            tensor.to_f64s().unwrap()
        };
        for dtype in [DType::F16, DType::BF16] {
            assert!(is_stored_as(dtype, &stored(dtype)), "{dtype}");
            assert!(!is_stored_as(dtype, &exact), "{dtype}");
        }
        assert!(!is_stored_as(DType::F16, &stored(DType::F32)));
        // Powers of two say nothing.
        assert!(!is_stored_as(DType::F16, &[1.0, 0.5, 0.25, 0.125, 0.0625]));
    }
}
