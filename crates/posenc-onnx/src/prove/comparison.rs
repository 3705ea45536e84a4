//! Whole runs of one model, or of two, on every target.

use posenc_ir::Tensor;
use posenc_runtime::Optimization;

use super::bisect::{Side, bisect};
use super::decode::{decode, is_cut};
use super::error::VerifyError;
use super::options::VerifyOptions;
use super::permuted::permuted;
use super::points::Point;
use super::run::RuntimeTarget;
use super::shift::shift;
use super::subject::Subject;
use super::sweep::Sweep;
use crate::graph::reorder::Order;
use crate::report::{Run, SiteCheck, Verify};

/// The models to compare, and how.
pub(super) struct Comparison<'a> {
    pub(super) subject: &'a Subject<'a>,
    pub(super) other: Option<&'a Subject<'a>>,
    /// What the other has in another order.
    pub(super) moved: &'a [(String, Order)],
    pub(super) points: &'a [Point],
    pub(super) options: &'a VerifyOptions,
}

/// The rows of whole runs.
#[derive(Default)]
pub(super) struct WholeRuns<'a> {
    runs: Vec<Run>,
    /// The target of each row.
    targets: Vec<&'a RuntimeTarget<'a>>,
    /// The target that the others are compared with.
    first: Option<&'a RuntimeTarget<'a>>,
    /// Runtimes that do not support the model.
    pub(super) refused: Vec<VerifyError>,
    pub(super) warnings: Vec<String>,
    /// Whether outputs of padding differ.
    pads_apart: bool,
    /// Whether caches of a window were left out where no tokens fill them.
    are_unfilled: bool,
    /// Runs that the model need not support and does not, in words.
    left_out: Vec<String>,
    /// Whether bounds come from what quantization changes of equal sequences.
    is_noisy: bool,
}

impl Comparison<'_> {
    /// Runs the models on every target. A runtime that was not named may refuse them, as long as
    /// another one runs them.
    pub(super) fn run<'t>(
        &self,
        targets: &'t [RuntimeTarget<'t>],
    ) -> Result<WholeRuns<'t>, VerifyError> {
        let mut sweep = Sweep::new(
            self.subject,
            (self.other, self.moved),
            (self.points, &self.options.inputs),
        );
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
        // The last runtime supports most.
        if whole.first.is_none()
            && let Some(error) = whole.refused.pop()
        {
            return Err(error);
        }
        whole.pads_apart = sweep.pads_apart;
        whole.are_unfilled = sweep.are_unfilled;
        whole.left_out = sweep.left_out;
        whole.is_noisy = sweep.is_noisy;
        Ok(whole)
    }

    /// The rows of one target: runs at all lengths, prefill against decode, and tokens at other positions and in
    /// another order.
    fn run_on(
        &self,
        target: &RuntimeTarget<'_>,
        sweep: &mut Sweep<'_>,
        warnings: &mut Vec<String>,
    ) -> Result<Vec<Run>, VerifyError> {
        let mut rows = sweep.run(target)?;
        if !self.options.inputs.is_empty() {
            return Ok(rows);
        }
        let longest = self.points.iter().map(|p| p.at.sequence).max().unwrap_or(0);
        match decode(self.subject, longest, target) {
            Ok(stepped) => {
                rows.extend(stepped.rows);
                warnings.extend(stepped.left_out);
            }
            // Whole runs count without it.
            Err(error @ VerifyError::Unsupported { .. }) => {
                warnings.push(format!("prefill was not compared with decode: {error}"));
            }
            // How the inputs follow a cache of which a part is kept is not known, unless the other model takes them.
            Err(error @ VerifyError::Runtime { .. })
                if is_cut(self.subject)
                    && self
                        .other
                        .is_none_or(|other| decode(other, longest, target).is_err()) =>
            {
                warnings.push(format!("prefill was not compared with decode: {error}"));
            }
            Err(error) => return Err(error),
        }
        match shift(self.subject, longest, target) {
            Ok(moved) => rows.extend(moved),
            // One sequence alone, or with padding before it, which a model need not run.
            Err(error @ (VerifyError::Runtime { .. } | VerifyError::Unsupported { .. })) => {
                warnings.push(format!("tokens were not moved: {error}"));
            }
            Err(error) => return Err(error),
        }
        match permuted(self.subject, target) {
            Ok(permuted) => rows.extend(permuted),
            Err(error @ VerifyError::Runtime { .. }) => {
                warnings.push(format!("tokens were not put in another order: {error}"));
            }
            Err(error) => return Err(error),
        }
        Ok(rows)
    }

    /// Names the first value that differs in the first run that is out of bounds, or says that none does.
    pub(super) fn bisect(&self, whole: &mut WholeRuns<'_>) -> Result<(), VerifyError> {
        let Some(first) = whole.first else {
            return Ok(());
        };
        // Another model shows where numbers that are none begin.
        let differs = |r: &Run| !r.ok && (r.bound.is_some() || self.other.is_some());
        let Some(failed) = whole.runs.iter().position(differs) else {
            return Ok(());
        };
        let run = &mut whole.runs[failed];
        let is_of = |p: &&Point| p.at.sequence == run.length && p.at.batch == run.batch;
        let is_padded = |p: &&Point| is_of(p) && p.padding.to_string() == run.padding;
        let mut points = self.points.iter();
        let padded = points.clone().find(is_padded);
        let Some(point) = padded.or_else(|| points.find(is_of)) else {
            return Ok(());
        };
        let optimization = if run.optimization == "off" {
            Optimization::Off
        } else {
            Optimization::On
        };
        let target = whole.targets[failed];
        let given = &self.options.inputs;
        let a = side(self.subject, target, optimization, given);
        let b = match self.other {
            Some(other) => side(other, target, optimization, given),
            None => side(self.subject, first, Optimization::On, given),
        };
        match bisect(&a, &b, *point, self.options)? {
            Some(found) => {
                run.first_divergence = Some(found.place);
                run.neighbourhood = found.around;
            }
            None => {
                let why = match self.other {
                    Some(_) => "none of the values before it that both models have differs",
                    None => {
                        "no value before it differs, as its run is compared with another one of the same model"
                    }
                };
                let (output, length) = (&run.output, run.length);
                let warning = format!("{output} at length {length} is out of bounds, and {why}");
                whole.warnings.push(warning);
            }
        }
        Ok(())
    }
}

fn side<'a>(
    subject: &Subject<'a>,
    target: &'a RuntimeTarget<'a>,
    optimization: Optimization,
    given: &'a [(String, Tensor)],
) -> Side<'a> {
    Side {
        model: subject.model,
        found: subject.found,
        target,
        optimization,
        given,
    }
}

impl WholeRuns<'_> {
    /// Whether the target that the others are compared with gives no numbers, or not as many, in any run.
    pub(super) fn is_without_numbers(&self) -> bool {
        let mut first = self
            .runs
            .iter()
            .filter(|run| run.bound.is_none())
            .peekable();
        first.peek().is_some() && first.all(|run| !run.ok)
    }

    pub(super) fn report(mut self, sites: Vec<SiteCheck>) -> Verify {
        let refused = self.refused.iter().map(|e| format!("skipped: {e}"));
        self.warnings.extend(refused);
        self.warnings.dedup();
        let mut report = Verify::new(self.runs, sites);
        report.warnings = self.warnings;
        if self.pads_apart {
            let why = "outputs of padding, which runtimes compute in different ways";
            report.unchecked.push(why.to_owned());
        }
        report.unchecked.extend(self.left_out);
        if self.is_noisy {
            report.warnings.push(
                "bounds of whole runs are wider where quantization changes the outputs of a sequence with what runs \
                 beside it"
                    .to_owned(),
            );
        }
        if self.are_unfilled {
            let why =
                "caches of a window at lengths that do not fill them, where the rest is undefined";
            report.unchecked.push(why.to_owned());
        }
        report
    }
}
