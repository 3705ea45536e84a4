//! Rotations, site by site, run by a runtime and compared with the formula in f64.
//!
//! Content with 1 in the first feature of every pair becomes m·cos in the first feature and m·sin
//! in the second, to the bit, whatever operators make up the rotation: this reads cos and sin as
//! they are applied. Random content, different for every head, then shows that pairs, heads and
//! all other features are where they belong.

mod rotation;
#[cfg(test)]
mod tests;

use posenc_ir::{Model, ValueId};
use posenc_runtime::Backend;
use rustc_hash::FxHashMap;

use super::VerifyError;
use super::bound::Worst;
use super::cutout::precision;
use super::expected::Expected;
use super::measure::Measured;
use super::trial::Trial;
use crate::detect::rotary::unrounded::{Rounding, fine, without};
use crate::detect::{Found, RotaryOperand};
use crate::graph::region::Aspect;
use crate::graph::signature::Signatures;
use crate::report::SiteCheck;
use rotation::RotationCheck;

/// Runs the rotations of queries and keys at the expected sites and compares them with the
/// formula. Equal rotations (the same operators, constants and shapes) run once.
///
/// Four quantities per site: `cos` and `sin` as they are applied, up to the expected length, and
/// `q` and `k`; each of them once more against the stored frequencies, where these are given. A
/// site without a rotation is a failed check without an error.
///
/// # Errors
/// When a rotation cannot be cut out or the runtime does not run it, with the site; when no site
/// is expected.
pub(crate) fn check_rope(
    model: &Model,
    found: &Found,
    sites: &[Expected],
    backend: &dyn Backend,
) -> Result<Checked, VerifyError> {
    if sites.is_empty() {
        return Err(VerifyError::unsupported("verify", "no site to check"));
    }
    // What is rounded to integers and back departs from the formula by steps of its own.
    let roundings = fine(model.graph(), &found.trace);
    let exact = without(model, &roundings);
    let read = match &exact {
        Some(exact) => (exact, &roundings[..]),
        None => (model, &[][..]),
    };
    let run = |trial| checked(read, found, sites, backend, trial);
    match run(Trial::of(model, found)) {
        // Some operators want as many rows of cosines as there are sequences.
        Err(error @ VerifyError::Runtime { .. }) => match Trial::single(model, found) {
            Some(trial) => run(trial).map_err(|_| error),
            None => Err(error),
        },
        done => done,
    }
}

/// Runs rotations with the dimensions of a trial run, and compares them with what is expected.
fn checked(
    (model, left_out): (&Model, &[Rounding]),
    found: &Found,
    sites: &[Expected],
    backend: &dyn Backend,
    trial: Trial<'_>,
) -> Result<Checked, VerifyError> {
    let mut checker = RopeChecker {
        model,
        left_out: left_out
            .iter()
            .map(|pair| (pair.after, pair.before))
            .collect(),
        found,
        backend,
        trial,
        signatures: Signatures::default(),
        done: vec![],
        unchecked: vec![],
    };
    let mut checks = vec![];
    for expected in sites {
        checks.extend(checker.site(expected)?);
    }
    Ok(Checked {
        checks,
        unchecked: checker.unchecked,
    })
}

/// The checks of rotations.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    pub(crate) checks: Vec<SiteCheck>,
    /// What rounding leaves nothing to compare of, one sentence for each site.
    pub(crate) unchecked: Vec<String>,
}

struct RopeChecker<'a> {
    model: &'a Model,
    /// What its nodes read in place of numbers that were rounded.
    left_out: FxHashMap<ValueId, ValueId>,
    found: &'a Found,
    backend: &'a dyn Backend,
    trial: Trial<'a>,
    signatures: Signatures,
    /// Earlier measurements: the signature of the rotation, and what was expected of it.
    done: Vec<(usize, Expected, Measured)>,
    unchecked: Vec<String>,
}

impl RopeChecker<'_> {
    fn site(&mut self, expected: &Expected) -> Result<Vec<SiteCheck>, VerifyError> {
        let found = self.found;
        let attention = found.attention.iter().find(|s| s.index == expected.site);
        let name = match attention {
            Some(site) => site.name.clone(),
            None => format!("attention site {}", expected.site),
        };
        let Some(rotary) = found.rotary.iter().find(|r| r.site == expected.site) else {
            return Ok(vec![Worst::default().check(&name, "rotation")]);
        };
        let switch = rotary.switch.is_some();
        let q = self.half(&rotary.query, switch, expected, &name)?;
        let k = self.half(&rotary.key, switch, expected, &name)?;
        let rows = [
            ("cos", q.cos.worse(&k.cos)),
            ("sin", q.sin.worse(&k.sin)),
            ("q", q.content),
            ("k", k.content),
        ];
        let blind = q.first_blind(&k);
        if let Some(first) = blind {
            let why = "because a position times a frequency has no digits left in the model's type";
            let what = format!("fast pairs of {name} from position {first} on, {why}");
            self.unchecked.push(what);
        }
        // Where all of it is beyond rounding, there is nothing to show.
        let shown = |w: &Worst| w.count > 0 || blind.is_none();
        let mut checks = vec![];
        for (quantity, worst) in rows.into_iter().filter(|(_, w)| shown(&w.formula)) {
            checks.push(worst.formula.check(&name, quantity));
        }
        if expected.stored.is_some() {
            for (quantity, worst) in rows.into_iter().filter(|(_, w)| shown(&w.stored)) {
                let quantity = format!("{quantity} (stored frequencies)");
                checks.push(worst.stored.check(&name, quantity));
            }
        }
        Ok(checks)
    }

    /// A rotation between the numbers before they are rounded, where that is left out.
    fn unrounded(&self, half: &RotaryOperand) -> RotaryOperand {
        let mut half = half.clone();
        for end in [&mut half.region.input, &mut half.region.output] {
            while let Some(before) = self.left_out.get(end) {
                *end = *before;
            }
        }
        half
    }

    /// The measurement of one rotation, or that of an equal one.
    fn half(
        &mut self,
        half: &RotaryOperand,
        switch: bool,
        expected: &Expected,
        site: &str,
    ) -> Result<Measured, VerifyError> {
        let half = &self.unrounded(half);
        let check = RotationCheck {
            model: self.model,
            found: self.found,
            backend: self.backend,
            trial: &self.trial,
            precision: precision(self.model, self.found, &half.region),
            switch,
            half,
            expected,
            site,
        };
        if half.region.inside.is_some() {
            return check.inside_operator();
        }
        let graph = self.model.graph();
        // Numbers differ at other lengths, so the signature includes how they are computed.
        let counts = (half.region).aspects(graph, &self.found.classes, Aspect::Origin);
        let trace = &self.found.trace;
        let rotation = self.signatures.region(graph, &half.region, trace, counts);
        // The numbers do not depend on the site.
        let wanted = Expected {
            site: 0,
            ..expected.clone()
        };
        let same = |(r, e, _): &&(usize, Expected, Measured)| *r == rotation && *e == wanted;
        if let Some((.., measured)) = self.done.iter().find(same) {
            return Ok(*measured);
        }
        let measured = check.measure()?;
        self.done.push((rotation, wanted, measured));
        Ok(measured)
    }
}
