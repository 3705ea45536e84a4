//! The numeric proof: rotations against the formula in f64, and whole models against each other.
//!
//! Three questions, three parts. [`check_rope`] cuts the rotation of every site out, runs it in a
//! runtime and compares cos, sin, q and k with the formula, at positions up to the full length:
//! numbers say that a rewrite is right, although the whole model's output changes by design.
//! [`verify`] runs whole models at several lengths, with optimizations off and on, and compares
//! them with another model or another runtime; for models with a cache, prefill with decode.
//! [`bisect`](bisect::bisect) names the first node whose value differs.
//!
//! A comparison never passes by default: NaN, an empty output and another shape are failures.

pub mod bisect;
pub(crate) mod bound;
pub mod compare;
mod cutout;
mod decode;
pub mod error;
pub mod expected;
pub mod feeds;
pub mod formula;
pub mod invariants;
mod measure;
pub mod readback;
pub mod run;
mod sample;
pub mod sites;
pub mod swap;
mod sweep;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod trial;

use std::collections::BTreeMap;

use posenc_ir::Model;
use posenc_runtime::{Backend, Fallback, Optimization, Provider, RuntimeError};

use crate::detect::{Detection, Options, detect};
use crate::graph::ports::Role;
use crate::report::{Run, SiteCheck, Verify};

pub use compare::{Difference, Tolerance, compare};
pub use error::{Reason, VerifyError};
pub use expected::{Expected, Law, expectations};
pub use run::Target;
pub use sites::check_rope;

/// What is asked of a verification.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// What whole models run on: runtimes by their place in the list, with a provider each. Empty:
    /// every runtime on the processor. The first one is what the others are compared with.
    pub providers: Vec<(usize, Provider)>,
    /// Whether nodes may run on another provider than the one asked for.
    pub fallback: Fallback,
    /// Lengths of whole runs; empty: a few usual ones that the model holds.
    pub lengths: Vec<usize>,
    /// Absolute tolerance of whole runs; `None`: by the type of the output.
    pub atol: Option<f64>,
    /// Relative tolerance of whole runs; `None`: by the type of the output.
    pub rtol: Option<f64>,
    /// Whether the first value that differs is looked for.
    pub bisect: Bisect,
    /// Roles of inputs, by name, where names and uses do not tell.
    pub roles: BTreeMap<String, Role>,
}

/// Whether a verification looks for the first value that differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bisect {
    /// It does not.
    #[default]
    No,
    /// It does, for the first run that is out of bounds.
    FirstFailure,
}

/// Proves a model: its rotations against the formula, and whole runs against `other` or against
/// each other.
///
/// Without `other`, the first run is what the others are compared with; it itself only has to be
/// made of numbers.
///
/// # Errors
/// Where a runtime is not there or does not take the model, with what was run; a difference is no
/// error, and stands in the report.
pub fn verify(
    model: &Model,
    other: Option<&Model>,
    options: &VerifyOptions,
    backends: &[Box<dyn Backend>],
) -> Result<Verify, VerifyError> {
    if backends.is_empty() {
        let none = RuntimeError::unavailable("a runtime", "none was found, and none is built in");
        return Err(VerifyError::runtime("verify", none));
    }
    let detection = Options {
        roles: options.roles.clone(),
        ..Options::default()
    };
    let found = detect(model, &detection);
    let sites = rotations(model, &found, backends)?;
    let targets = targets(options, backends)?;
    let subject = sweep::Subject::new(model, &found, options)?;
    let detected = other.map(|other| (other, detect(other, &detection)));
    let against = match &detected {
        Some((other, found)) => Some(sweep::Subject::new(other, found, options)?),
        None => None,
    };
    let lengths = sweep::lengths(&found, options);
    let longest = lengths.iter().map(|l| l.sequence).max().unwrap_or(0);
    let mut sweep = sweep::Sweep::new(&subject, against.as_ref(), &lengths);
    let (mut runs, mut ran, mut refused) = (vec![], vec![], vec![]);
    // The target of each run.
    let mut owners: Vec<&Target<'_>> = vec![];
    let mut warnings = vec![];
    for target in &targets {
        let own = sweep.run(target).and_then(|mut own| {
            match decode::decode(&subject, longest.min(DECODE), target) {
                Ok(stepped) => own.extend(stepped),
                // Whole runs stand without it.
                Err(error @ VerifyError::Unsupported { .. }) => {
                    warnings.push(format!("prefill was not compared with decode: {error}"));
                }
                Err(error) => return Err(error),
            }
            Ok(own)
        });
        match own {
            Ok(own) => {
                owners.extend(own.iter().map(|_| target));
                runs.extend(own);
                ran.push(target);
            }
            // Nobody asked for this runtime by name, so another one will do.
            Err(error @ VerifyError::Runtime { .. }) if options.providers.is_empty() => {
                refused.push(error);
            }
            Err(error) => return Err(error),
        }
    }
    if ran.is_empty() && !refused.is_empty() {
        return Err(refused.swap_remove(0));
    }
    if options.bisect == Bisect::FirstFailure
        && let Some(first) = ran.first()
    {
        let a = (model, &found);
        let b = detected
            .as_ref()
            .map_or(a, |(other, found)| (*other, found));
        let differs = |r: &Run| !r.ok && r.bound.is_some();
        if let Some(failed) = runs.iter().position(differs)
            && let Some(at) = lengths.iter().find(|l| l.sequence == runs[failed].length)
        {
            let target = owners[failed];
            let optimization = match runs[failed].optimization.as_str() {
                "off" => Optimization::Off,
                _ => Optimization::On,
            };
            let side = |(model, found), target, optimization| bisect::Side {
                model,
                found,
                target,
                optimization,
            };
            let a = side(a, target, optimization);
            let b = match detected {
                Some(_) => side(b, target, optimization),
                None => side(b, first, Optimization::On),
            };
            runs[failed].first_divergence = bisect::bisect(&a, &b, *at, options)?;
        }
    }
    let mut report = Verify::new(runs, sites);
    warnings.extend(refused.iter().map(|e| format!("left out: {e}")));
    warnings.dedup();
    report.warnings = warnings;
    Ok(report)
}

/// The length at which prefill and decode are compared.
const DECODE: usize = 16;

/// Rotations in the first runtime that takes them; tract is asked first.
fn rotations(
    model: &Model,
    found: &Detection,
    backends: &[Box<dyn Backend>],
) -> Result<Vec<SiteCheck>, VerifyError> {
    let expected = expectations(model, found)?;
    if expected.is_empty() {
        return Ok(vec![]);
    }
    let mut order: Vec<&dyn Backend> = backends.iter().map(AsRef::as_ref).collect();
    order.sort_by_key(|b| b.name() != "tract");
    let mut refused = None;
    for backend in order {
        match check_rope(model, found, &expected, backend) {
            Ok(checks) => return Ok(checks),
            Err(error @ VerifyError::Runtime { .. }) => {
                refused.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    match refused {
        Some(error) => Err(error),
        None => Ok(vec![]),
    }
}

fn targets<'a>(
    options: &VerifyOptions,
    backends: &'a [Box<dyn Backend>],
) -> Result<Vec<Target<'a>>, VerifyError> {
    let everywhere = || (0..backends.len()).map(|i| (i, Provider::Cpu)).collect();
    let providers: Vec<(usize, Provider)> = match options.providers.is_empty() {
        true => everywhere(),
        false => options.providers.clone(),
    };
    let target = |(i, provider): (usize, Provider)| {
        let backend = backends.get(i).ok_or_else(|| {
            let why = format!("there are {} runtimes", backends.len());
            let missing = RuntimeError::unavailable(format!("runtime {i}"), why);
            VerifyError::runtime("verify", missing)
        })?;
        Ok(Target {
            backend: backend.as_ref(),
            provider,
            fallback: options.fallback,
        })
    };
    providers.into_iter().map(target).collect()
}
