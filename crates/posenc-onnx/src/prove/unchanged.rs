//! The lengths at which a rewritten model computes what its original does: where every encoding has the same
//! numbers, as below the length from which a scaling or a longer table acts.

use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{Model, Use};

use super::VerifyError;
use super::bound::ROUNDINGS;
use super::compare::MASKED;
use super::expected::{Expected, expectations};
use crate::attention::Operand;
use crate::detect::finding::Finding;
use crate::detect::{Found, run_at};
use crate::graph::ports::Lengths;

/// Elements that a value may have which is compared.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// Two models, each with what was found in it.
pub(crate) type Pair<'a> = [(&'a Model, &'a Found); 2];

/// Whether all encodings of two models have the same numbers for sequences of this length without earlier
/// tokens. What has no numbers counts as different.
///
/// # Errors
/// When the metadata of one of them names an invalid scaling.
pub(crate) fn is_unchanged(pair: &Pair<'_>, at: Lengths) -> Result<bool, VerifyError> {
    let [(_, a), (_, b)] = pair;
    let is_read = |found: &Found| {
        let all = found.findings.len() + found.rotary.len();
        all > 0 && found.axial.is_empty() && found.not_rotary.is_empty()
    };
    if at.past > 0 || !is_read(a) || !is_read(b) {
        return Ok(false);
    }
    let [run_a, run_b] = pair.map(|(model, found)| run_at(model, found, at, &BUDGET));
    let Some(runs) = run_a.zip(run_b) else {
        return Ok(false);
    };
    Ok(rotate_alike(pair, at, &runs.0)? && add_alike(pair, &runs))
}

/// Whether queries and keys rotate by the same angles, in this run of the first model.
fn rotate_alike(pair: &Pair<'_>, at: Lengths, run: &Trace) -> Result<bool, VerifyError> {
    let [(a, in_a), (b, in_b)] = pair;
    let (a, b) = (expectations(a, in_a)?, expectations(b, in_b)?);
    // Another stack may have more tokens, and so may one with memory before them.
    let length = |site: usize| {
        let site = &in_a.attention[site];
        let tokens = |operand: &Operand| {
            let dims = run.get(operand.value).dims.as_ref()?;
            dims.get(operand.lane.sequence).copied()
        };
        let all = [&site.query, &site.key].map(tokens).into_iter().flatten();
        all.fold(at.sequence, usize::max)
    };
    let mut pairs = a.iter().zip(&b);
    Ok(a.len() == b.len() && pairs.all(|(a, b)| is_same_rotation(a, b, length(a.site))))
}

fn is_same_rotation(a: &Expected, b: &Expected, length: usize) -> bool {
    if (a.site, &a.pairs, a.first) != (b.site, &b.pairs, b.first) {
        return false;
    }
    let last = (a.first.unsigned_abs() as usize).saturating_add(length);
    let [one, other] = [a, b].map(|own| own.law.frequencies(last));
    let epsilon = f64::from(f32::EPSILON);
    let is_near = |x: f64, y: f64| (x - y).abs() <= ROUNDINGS * epsilon * x.abs();
    let same_angles = || {
        let mut pairs = one.inv_freq.iter().zip(&other.inv_freq);
        // One position, which is 0, rotates by nothing.
        last <= 1 || pairs.all(|(x, y)| is_near(*x, *y))
    };
    one.inv_freq.len() == other.inv_freq.len()
        && is_near(one.attention_factor, other.attention_factor)
        && same_angles()
}

/// Whether what is added to embeddings and scores, or multiplied with queries and keys, has the same numbers.
fn add_alike([(a, in_a), (b, in_b)]: &Pair<'_>, (run_a, run_b): &(Trace, Trace)) -> bool {
    let pairs = || in_a.findings.iter().zip(&in_b.findings);
    let is_alike =
        |(a, b): (&Finding, &Finding)| a.sites == b.sites && a.entries.len() == b.entries.len();
    if in_a.findings.len() != in_b.findings.len() || !pairs().all(is_alike) {
        return false;
    }
    let entries = pairs().flat_map(|(a, b)| a.entries.iter().zip(&b.entries));
    let mut entries = entries;
    let value = |model: &Model, at: &Use| model.graph().node(at.node).input(at.slot());
    let near = |x: &Use, y: &Use| {
        let (x, y) = (value(a, x)?, value(b, y)?);
        let epsilon = run_a.get(x).dtype?.epsilon()?;
        let (x, y) = (run_a.get(x).to_f64()?, run_b.get(y).to_f64()?);
        Some(x.shape() == y.shape() && are_near(x.iter().zip(&y), ROUNDINGS * epsilon))
    };
    entries.all(|(x, y)| near(x, y) == Some(true))
}

/// Whether numbers differ by no more than this share of the largest; what a mask is made of, which may be merged
/// with the numbers, counts for itself alone.
fn are_near<'n>(pairs: impl Iterator<Item = (&'n f64, &'n f64)> + Clone, share: f64) -> bool {
    let is_masked = |x: f64| x.abs() >= MASKED;
    let seen = pairs.clone().filter(|(x, _)| !is_masked(**x));
    let largest = seen.fold(0.0_f64, |most, (x, _)| most.max(x.abs()));
    let mut pairs = pairs;
    pairs.all(|(x, y)| {
        let size = if is_masked(*x) { x.abs() } else { largest };
        x == y || x.is_finite() && (x - y).abs() <= share * size
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_do_not_hide_other_numbers() {
        let near = |x: &[f64], y: &[f64]| are_near(x.iter().zip(y), 1e-6);
        let masked = f64::from(f32::MIN);
        assert!(near(&[0.5, masked], &[0.5 + 1e-7, masked]));
        assert!(!near(&[0.5, masked], &[0.6, masked]));
        assert!(!near(&[0.5, masked], &[0.5, 0.0]));
        assert!(!near(&[0.5, 0.0], &[0.5, masked]));
        assert!(!near(&[0.5, -1e4], &[0.5, -1e4 + 0.5]));
        let hidden = f64::NEG_INFINITY;
        assert!(near(&[0.5, hidden], &[0.5, hidden]));
        for other in [f64::NAN, 0.0, masked] {
            assert!(!near(&[0.5, hidden], &[0.5, other]), "{other}");
            assert!(!near(&[0.5, other], &[0.5, hidden]), "{other}");
        }
    }
}
