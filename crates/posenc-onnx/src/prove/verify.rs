//! Whole models in every runtime, and their rotations against the formula.

use posenc_ir::Model;
use posenc_runtime::{Backend, Optimization, Provider, RuntimeError};

use super::bisect::{Side, bisect};
use super::bound::Worst;
use super::decode::decode;
use super::error::VerifyError;
use super::expected::expectations;
use super::lengths;
use super::options::{Bisect, VerifyOptions};
use super::recorded::{self, Held};
use super::run::RuntimeTarget;
use super::sites::{Checked, check_rope};
use super::subject::Subject;
use super::sweep::Sweep;
use crate::detect::branches::branches;
use crate::detect::{Found, Options, detect};
use crate::graph::ports::Lengths;
use crate::record::{self, written};
use crate::report::{Run, SiteCheck, Verify};
use crate::request::roles;

/// The length at which prefill and decode are compared.
const DECODE: usize = 16;

/// Proves a model: its rotations against the formula, and whole runs against `other` or, without
/// it, against the first run.
///
/// The first run of all has nothing to be compared with; it only has to consist of numbers.
///
/// # Errors
/// When a runtime is not available or does not support the model. A difference is no error: it is
/// in the report.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Tract, verify::{VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let options = VerifyOptions { lengths: vec![8], ..VerifyOptions::default() };
/// let same = model.as_ir();
/// let report = verify(same, Some(same), &options, &[Box::new(Tract::default())])?;
/// assert!(report.ok && report.runs.iter().all(|run| run.max_abs.is_some()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    let mut records = held(model, other, &detection(options))?;
    let is_broken = records.checks.iter().any(|check| !check.ok);
    let mut report = match computed(model, other, options, backends) {
        Ok(report) => report,
        // What differs from the record is a result, whether a runtime runs it or not.
        Err(error) if is_broken => {
            records.unchecked.push(format!("runs, because {error}"));
            Verify::new(vec![], vec![])
        }
        Err(error) => return Err(error),
    };
    records.checks.append(&mut report.sites);
    let mut all = Verify::new(report.runs, records.checks);
    all.warnings = records.warnings;
    all.warnings.extend(report.warnings);
    let unread = record::read_unread(model).into_iter();
    let unread = unread.map(|why| format!("not read when the model was rewritten: {why}"));
    all.warnings.extend(unread);
    all.unchecked = records.unchecked;
    all.unchecked.extend(report.unchecked);
    Ok(all)
}

/// Rotations against their formula, and whole runs.
fn computed(
    model: &Model,
    other: Option<&Model>,
    options: &VerifyOptions,
    backends: &[Box<dyn Backend>],
) -> Result<Verify, VerifyError> {
    let detection = detection(options);
    let found = detect(model, &detection);
    let rotations = rotations(model, &found, backends)?;
    let targets = targets(options, backends)?;
    let subject = Subject::new(model, &found, options)?;
    let other = other.map(|other| (other, detect(other, &detection)));
    let lengths = lengths::lengths(&found, other.as_ref().map(|o| &o.1), options)?;
    let other = match &other {
        Some((other, found)) => Some(Subject::new(other, found, options)?),
        None => None,
    };
    let comparison = Comparison {
        subject: &subject,
        other: other.as_ref(),
        lengths: &lengths,
        options,
    };
    let mut whole = comparison.run(&targets)?;
    if options.bisect == Bisect::FirstFailure {
        comparison.bisect(&mut whole)?;
    }
    let mut report = whole.report(rotations.checks);
    report.unchecked = rotations.unchecked;
    Ok(report)
}

/// How models are detected.
fn detection(options: &VerifyOptions) -> Options {
    Options {
        roles: roles(&options.roles),
        ..Options::default()
    }
}

/// What is held to records.
#[derive(Default)]
struct Records {
    checks: Vec<SiteCheck>,
    warnings: Vec<String>,
    unchecked: Vec<String>,
}

impl Records {
    fn add(&mut self, held: Held) {
        self.checks.extend(held.checks);
        self.warnings.extend(held.differences);
    }
}

/// Holds the models to their records, and one of them to the other, which it was rewritten from.
fn held(model: &Model, other: Option<&Model>, options: &Options) -> Result<Records, VerifyError> {
    let mut all = Records::default();
    let mut recorded = vec![];
    for model in std::iter::once(model).chain(other) {
        let written = match written::read(model) {
            None => {
                recorded.push(None);
                continue;
            }
            Some(written) => written.map_err(|why| {
                VerifyError::unsupported(
                    "verify",
                    format!("invalid posenc.written metadata: {why}"),
                )
            })?,
        };
        let branches = branches(model, options);
        all.add(recorded::hold(model, &written, &branches));
        recorded.push(Some((written, branches)));
    }
    let is_of = |out: usize, original: &Model| {
        let of = recorded.get(out).and_then(Option::as_ref);
        of.is_some_and(|(written, _)| written.source == original.fingerprint())
    };
    let pair = match other {
        Some(other) if is_of(0, other) => Some((model, other, 0)),
        Some(other) if is_of(1, model) => Some((other, model, 1)),
        _ => None,
    };
    if let Some((out, original, at)) = pair
        && let Some((written, branches)) = &recorded[at]
    {
        all.add(recorded::hold_weights(out, original, written, branches));
    } else if recorded.iter().any(Option::is_some) {
        let why = "large weights, because the model that was rewritten was not given";
        all.unchecked.push(why.to_owned());
    }
    if recorded.iter().all(Option::is_none) {
        let why = "encodings other than rotations, masks, values, weights and outputs, because the \
                   model has no record of a rewrite";
        all.unchecked.push(why.to_owned());
    }
    Ok(all)
}

/// The models to compare, and how.
struct Comparison<'a> {
    subject: &'a Subject<'a>,
    other: Option<&'a Subject<'a>>,
    lengths: &'a [Lengths],
    options: &'a VerifyOptions,
}

/// The rows of whole runs.
#[derive(Default)]
struct WholeRuns<'a> {
    runs: Vec<Run>,
    /// The target of each row.
    targets: Vec<&'a RuntimeTarget<'a>>,
    /// The target that the others are compared with.
    first: Option<&'a RuntimeTarget<'a>>,
    /// Runtimes that do not support the model.
    refused: Vec<VerifyError>,
    warnings: Vec<String>,
}

impl Comparison<'_> {
    /// Runs the models on every target. A runtime that was not named may refuse them, as long as
    /// another one runs them.
    fn run<'t>(&self, targets: &'t [RuntimeTarget<'t>]) -> Result<WholeRuns<'t>, VerifyError> {
        let mut sweep = Sweep::new(self.subject, self.other, self.lengths);
        let mut whole = WholeRuns::default();
        for target in targets {
            match self.run_on(target, &mut sweep, &mut whole.warnings) {
                Ok(rows) => {
                    whole.targets.extend(rows.iter().map(|_| target));
                    whole.runs.extend(rows);
                    whole.first.get_or_insert(target);
                }
                Err(error @ VerifyError::Runtime { .. }) if self.options.providers.is_empty() => {
                    whole.refused.push(error);
                }
                Err(error) => return Err(error),
            }
        }
        if whole.first.is_none() && !whole.refused.is_empty() {
            return Err(whole.refused.swap_remove(0));
        }
        Ok(whole)
    }

    /// The rows of one target: runs at all lengths, and prefill against decode.
    fn run_on(
        &self,
        target: &RuntimeTarget<'_>,
        sweep: &mut Sweep<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Run>, VerifyError> {
        let mut rows = sweep.run(target)?;
        let longest = self.lengths.iter().map(|l| l.sequence).max().unwrap_or(0);
        match decode(self.subject, longest.min(DECODE), target) {
            Ok(stepped) => rows.extend(stepped),
            // Whole runs count without it.
            Err(error @ VerifyError::Unsupported { .. }) => {
                warnings.push(format!("prefill was not compared with decode: {error}"));
            }
            Err(error) => return Err(error),
        }
        Ok(rows)
    }

    /// Names the first value that differs in the first run that is out of bounds.
    fn bisect(&self, whole: &mut WholeRuns<'_>) -> Result<(), VerifyError> {
        let Some(first) = whole.first else {
            return Ok(());
        };
        let differs = |r: &Run| !r.ok && r.bound.is_some();
        let Some(failed) = whole.runs.iter().position(differs) else {
            return Ok(());
        };
        let run = &mut whole.runs[failed];
        let Some(at) = self.lengths.iter().find(|l| l.sequence == run.length) else {
            return Ok(());
        };
        let optimization = if run.optimization == "off" {
            Optimization::Off
        } else {
            Optimization::On
        };
        let target = whole.targets[failed];
        let a = side(self.subject, target, optimization);
        let b = match self.other {
            Some(other) => side(other, target, optimization),
            None => side(self.subject, first, Optimization::On),
        };
        run.first_divergence = bisect(&a, &b, *at, self.options)?;
        Ok(())
    }
}

fn side<'a>(
    subject: &Subject<'a>,
    target: &'a RuntimeTarget<'a>,
    optimization: Optimization,
) -> Side<'a> {
    Side {
        model: subject.model,
        found: subject.found,
        target,
        optimization,
    }
}

impl WholeRuns<'_> {
    fn report(mut self, sites: Vec<SiteCheck>) -> Verify {
        let refused = self.refused.iter().map(|e| format!("skipped: {e}"));
        self.warnings.extend(refused);
        self.warnings.dedup();
        let mut report = Verify::new(self.runs, sites);
        report.warnings = self.warnings;
        report
    }
}

/// Rotations in the first runtime that runs them; tract is tried first.
fn rotations(
    model: &Model,
    found: &Found,
    backends: &[Box<dyn Backend>],
) -> Result<Checked, VerifyError> {
    let mut all = Checked {
        checks: absent(model, found),
        unchecked: vec![],
    };
    let expected = expectations(model, found)?;
    if expected.is_empty() {
        return Ok(all);
    }
    let mut order: Vec<&dyn Backend> = backends.iter().map(AsRef::as_ref).collect();
    order.sort_by_key(|b| b.name() != "tract");
    let mut refused = None;
    for backend in order {
        match check_rope(model, found, &expected, backend) {
            Ok(rotations) => {
                all.checks.extend(rotations.checks);
                all.unchecked = rotations.unchecked;
                return Ok(all);
            }
            Err(error @ VerifyError::Runtime { .. }) => {
                refused.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    refused.map_or(Ok(all), Err)
}

/// A failed check for every site that has a rotation by the record and none in the graph.
fn absent(model: &Model, found: &Found) -> Vec<SiteCheck> {
    let recorded = record::record(model).map(|r| r.sites()).unwrap_or_default();
    let has_none = |site: &usize| found.rotary.iter().all(|r| r.site != *site);
    let absent = recorded.into_iter().filter(has_none).map(|site| {
        let name = found.attention.get(site).map(|s| s.name.clone());
        let name = name.unwrap_or_else(|| format!("attention site {site}"));
        Worst::default().check(&name, "rotation")
    });
    absent.collect()
}

/// The targets of the options; every runtime on the processor where none is named.
fn targets<'a>(
    options: &VerifyOptions,
    backends: &'a [Box<dyn Backend>],
) -> Result<Vec<RuntimeTarget<'a>>, VerifyError> {
    let providers: Vec<(usize, Provider)> = if options.providers.is_empty() {
        (0..backends.len()).map(|i| (i, Provider::Cpu)).collect()
    } else {
        options.providers.clone()
    };
    let target = |(i, provider): (usize, Provider)| {
        let backend = backends.get(i).ok_or_else(|| {
            let why = format!("there are {} runtimes", backends.len());
            let missing = RuntimeError::unavailable(format!("runtime {i}"), why);
            VerifyError::runtime("verify", missing)
        })?;
        Ok(RuntimeTarget {
            backend: backend.as_ref(),
            provider,
            fallback: options.fallback,
        })
    };
    providers.into_iter().map(target).collect()
}
