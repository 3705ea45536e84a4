//! Computed sines and cosines of divided positions, compared with their formula and with those before.

use ndarray::{Array2, ArrayView1};
use posenc_encodings::families::sinusoidal::Sinusoidal;

use super::frames::Frames;
use super::table_runs::TableRuns;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::RewriteError;
use crate::plan::stretch::ComputedWaves;
use crate::prove::bound::{ROUNDINGS, WAVE};

/// Tokens of the runs that are compared.
const TOKENS: usize = 64;

/// Whether a finding has this code, as exactly as it can be read.
pub(in crate::prove) fn is_code(finding: &Finding, code: &Sinusoidal) -> bool {
    let Encoding::Sinusoidal(found) = &finding.encoding else {
        return false;
    };
    let same = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b.abs();
    let numbers = [
        (found.factor, code.factor),
        (found.base, code.base),
        (found.amplitude, code.amplitude),
    ];
    let rest = Sinusoidal {
        factor: code.factor,
        base: code.base,
        amplitude: code.amplitude,
        ..found.clone()
    };
    rest == *code && numbers.iter().all(|(a, b)| same(*a, *b))
}

/// Compares what is added at each position with the formula and, where the factor is whole, with what was added at
/// that part of the position.
///
/// # Errors
/// With the first position that differs, or where nothing can be compared.
pub(super) fn check(
    before: &Context<'_>,
    after: &Context<'_>,
    waves: &ComputedWaves,
) -> Result<(), RewriteError> {
    let finding = &before.found.findings[waves.finding];
    let frames = Frames::of(before, finding);
    let tokens = before.found.ports.fixed_sequence().unwrap_or(TOKENS);
    let mut runs = [before, after].map(|context| TableRuns::new(context, tokens, frames.as_ref()));
    for entry in &finding.entries {
        let unknown = || {
            let why =
                "what the sines and cosines add cannot be computed, so that it cannot be compared";
            before.refuse(entry.node, why)
        };
        let entered = |context: &Context<'_>| {
            let value = context.graph().node(entry.node).input(entry.slot());
            value.ok_or_else(unknown)
        };
        let (was, is) = (entered(before)?, entered(after)?);
        let [first, second] = &mut runs;
        let old = first.rows(was, 0).ok_or_else(unknown)?;
        let new = second.rows(is, 0).ok_or_else(unknown)?;
        let epsilon = after.dtype(is).epsilon();
        let epsilon = epsilon.unwrap_or(f64::from(f32::EPSILON));
        if let Some(position) = departs(&old, &new, waves, epsilon) {
            let why =
                format!("position {position} would get another code than that of the formula");
            return Err(before.refuse(entry.node, why));
        }
    }
    Ok(())
}

/// The first position whose code is not that of the formula, or not that of the part of it that was there before.
fn departs(
    old: &Array2<f64>,
    new: &Array2<f64>,
    waves: &ComputedWaves,
    epsilon: f64,
) -> Option<usize> {
    if old.dim() != new.dim() {
        return Some(0);
    }
    let ComputedWaves { factor, code, .. } = waves;
    let positions: Vec<f64> = (0..new.nrows()).map(|p| p as f64).collect();
    let want = code.reference(&positions);
    let differs = |position: &usize| {
        // An angle is rounded as often as it is computed with.
        let angle = (*position + code.offset) as f64;
        let bound = (WAVE + ROUNDINGS * epsilon * (1.0 + angle)) * code.amplitude.abs();
        let differ = |a: ArrayView1<'_, f64>, b: ArrayView1<'_, f64>| {
            !a.iter().zip(b).all(|(a, b)| (a - b).abs() <= bound)
        };
        let own = new.row(*position);
        // Of an offset, parts count too.
        let part = (*position + code.offset) as f64 / factor - code.offset as f64;
        let is_row = part.fract() == 0.0 && (0.0..old.nrows() as f64).contains(&part);
        let was = is_row.then(|| old.row(part as usize));
        differ(own, want.row(*position)) || was.is_some_and(|was| differ(own, was))
    };
    (0..new.nrows()).find(differs)
}

#[cfg(test)]
mod tests {
    use posenc_encodings::families::sinusoidal::Denominator;
    use posenc_encodings::layout::Layout;

    use super::*;

    #[test]
    fn other_codes_depart_from_the_formula() {
        let code = |factor: f64, offset: usize| Sinusoidal {
            dim: 8,
            layout: Layout::Half,
            cosines_first: false,
            denominator: Denominator::Pairs,
            base: 1e4,
            factor,
            amplitude: 1.0,
            max_positions: None,
            offset,
            image: None,
        };
        let positions: Vec<f64> = (0..TOKENS).map(|p| p as f64).collect();
        let rows = |code: &Sinusoidal| code.reference(&positions);
        for (factor, offset) in [(2.0, 0), (1.5, 0), (2.0, 2), (4.0, 1), (0.5, 0)] {
            let waves = ComputedWaves {
                finding: 0,
                factor,
                code: code(factor, offset),
            };
            let old = rows(&code(1.0, offset));
            let new = rows(&waves.code);
            let departs = |old: &Array2<f64>, new: &Array2<f64>| {
                super::departs(old, new, &waves, f64::from(f32::EPSILON))
            };
            assert_eq!(departs(&old, &new), None, "{factor} {offset}");
            let other = rows(&code(factor * 1.001, offset));
            assert!(departs(&old, &other).is_some(), "another factor");
            assert!(departs(&old, &old).is_some(), "nothing was divided");
            assert!(departs(&other, &new).is_some(), "another code before");
            let mut damaged = new.clone();
            damaged[[40, 3]] += 1e-3;
            assert_eq!(departs(&old, &damaged), Some(40), "one number");
            damaged[[40, 3]] = f64::NAN;
            assert_eq!(departs(&old, &damaged), Some(40), "no number");
        }
    }
}
