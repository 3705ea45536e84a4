//! The check of a rewrite: what was inserted or rescaled, run by a runtime, against its formula in
//! f64.

use posenc_onnx::report::{Check, Rewrite, SiteCheck};
use posenc_onnx::request::{Request, Target};
use posenc_onnx::verify::VerifyError;
use posenc_onnx::{Rewritten, Verification};
use posenc_runtime::{Backend, Provider};

use crate::backend::Choice;
use crate::exit::Failure;
use crate::places::Search;

/// Whether a rewrite is written without the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// A warning says why there is none.
    Wanted,
    /// It is not.
    Required,
}

/// Fills in the check of a report. The embedded runtime makes it; what that cannot run is left to
/// ONNX Runtime.
///
/// # Errors
/// When the model's own record cannot be followed, a position is left that was not read, or a
/// required comparison cannot be made.
pub fn fill(
    done: &mut Rewritten,
    (proof, request): (Proof, &Request),
    search: &Search,
    report: &mut Rewrite,
) -> anyhow::Result<()> {
    let mut checks = vec![];
    if done.is_respelled() {
        respelling(done, proof, search, report)?;
    }
    if done.is_without_positions() {
        checks = positions_left(done, (proof, request), search, report)?;
    }
    if done.is_verifiable()? {
        match by_any_runtime(search, |backend| Ok(done.verify(backend)?)) {
            Ok(verification) if verification.summary().is_none() => {
                not_compared(done, proof, report)?;
            }
            Ok(verification) => checks.extend_from_slice(verification.checks()),
            Err(why) => not_run(
                proof,
                why,
                report,
                "it was checked by the built-in evaluator only",
            )?,
        }
    }
    report.check = (!checks.is_empty()).then(|| Check::of(&checks));
    if let Some(target) = request.target {
        run_by(done, (proof, target), search, report)?;
    }
    Ok(())
}

/// Runs the result in the runtime that it is for.
///
/// # Errors
/// When it does not run there, or has to and the runtime is not available.
fn run_by(
    done: &Rewritten,
    (proof, target): (Proof, Target),
    search: &Search,
    report: &mut Rewrite,
) -> anyhow::Result<()> {
    let choice = match target {
        Target::Portable => return Ok(()),
        Target::Tract => Choice::Tract,
        Target::OrtCpu => Choice::Ort(Provider::Cpu),
        Target::OrtCuda => Choice::Ort(Provider::cuda(0)),
    };
    let not_run = |why: anyhow::Error, report: &mut Rewrite| {
        if proof == Proof::Required {
            return Err(why);
        }
        let warning = format!("the result was not run for the target {target}: {why}");
        report.warnings.push(warning);
        Ok(())
    };
    let backend = match choice.open(search) {
        Ok(backend) => backend,
        Err(why) => return not_run(why.into(), report),
    };
    match done.run(&*backend, choice.provider()) {
        Ok(None) => Ok(()),
        Ok(Some(why)) => {
            let warning = format!(
                "in {target}, the result runs for one sequence at a time: {}",
                cause(why)
            );
            report.warnings.push(warning);
            Ok(())
        }
        // There are no inputs to run it with.
        Err(why @ VerifyError::Unsupported { .. }) => not_run(why.into(), report),
        Err(why) => {
            let path = path(done);
            let why = cause(why);
            let why = format!("{path}: the result does not run in {target}: {why}");
            Err(Failure::unsupported(why).into())
        }
    }
}

/// What a runtime says, without the setting of the run, as a part of a sentence.
fn cause(error: VerifyError) -> String {
    let why = match error {
        VerifyError::Runtime { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    why.trim_end_matches('.').to_owned()
}

/// Why each runtime failed; there is at least one.
type Reasons = Vec<anyhow::Error>;

/// What the first runtime gives that leaves nothing out, or else the first that succeeds.
fn by_any_runtime(
    search: &Search,
    run: impl Fn(&dyn Backend) -> anyhow::Result<Verification>,
) -> Result<Verification, Reasons> {
    let (mut reasons, mut partial) = (vec![], None);
    for choice in Choice::defaults() {
        match choice
            .open(search)
            .map_err(Into::into)
            .and_then(|backend| run(&*backend))
        {
            Ok(verification) if verification.left_out().is_none() => return Ok(verification),
            Ok(verification) => partial = partial.or(Some(verification)),
            Err(why) => reasons.push(why),
        }
    }
    partial.ok_or(reasons)
}

/// Warns that no runtime made a comparison, or refuses where it has to be made.
fn not_run(
    proof: Proof,
    mut reasons: Reasons,
    report: &mut Rewrite,
    instead: &str,
) -> anyhow::Result<()> {
    if proof == Proof::Required {
        return Err(reasons.pop().expect("each runtime has a reason"));
    }
    let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
    let why = reasons.join("; ");
    let warning = format!("no runtime could run the model, so {instead}; {why}");
    report.warnings.push(warning);
    Ok(())
}

/// Shows by a run that operators which were replaced by others compute the same.
fn respelling(
    done: &Rewritten,
    proof: Proof,
    search: &Search,
    report: &mut Rewrite,
) -> anyhow::Result<()> {
    let checks = match by_any_runtime(search, |backend| Ok(done.respelling(backend)?)) {
        Ok(checks) => checks,
        Err(why) => {
            let instead = "the replaced operators were not compared";
            return not_run(proof, why, report, instead);
        }
    };
    let Some(check) = checks.checks().iter().find(|check| !check.ok) else {
        return Ok(());
    };
    let path = path(done);
    let output = &check.site;
    let error = check.max_error.map_or("NaN".into(), |e| format!("{e:.1e}"));
    let why = format!(
        "{path}: operators were replaced or features reordered in a way that keeps every result, and yet \
         the output {output} differs by {error}, more than {:.1e}; please report this model",
        check.bound
    );
    Err(Failure::unsupported(why).into())
}

/// Shows by a run that no position is left where encodings were removed.
fn positions_left(
    done: &mut Rewritten,
    (proof, request): (Proof, &Request),
    search: &Search,
    report: &mut Rewrite,
) -> anyhow::Result<Vec<SiteCheck>> {
    let left = match by_any_runtime(search, |backend| Ok(done.positions_left(backend)?)) {
        Ok(left) => left,
        Err(why) => {
            let instead = "only the graph was searched for positions that are left";
            not_run(proof, why, report, instead)?;
            return Ok(vec![]);
        }
    };
    if left.stood_in() > 0 {
        report.warnings.push(format!(
            "the run which shows that no position is left had small stand-ins for {} bytes of weights",
            left.stood_in()
        ));
    }
    if let Some(why) = left.left_out() {
        let warning = format!(
            "behind causal attention, tokens were compared with equal content alone, not in two orders: {why}"
        );
        refuse_or_warn(done, proof, report, &warning)?;
    }
    if left.checks().is_empty() {
        let warning = "only the graph was searched for positions that are left: no tokens could be compared, as \
                       behind ends of a sequence that are filled up, or a recurrence";
        refuse_or_warn(done, proof, report, warning)?;
    }
    let Some(check) = left.checks().iter().find(|check| !check.ok) else {
        // The rows of outputs belong to no site, and sites are counted.
        let of_site = |c: &&SiteCheck| !c.quantity.starts_with("rows of");
        return Ok(left.checks().iter().filter(of_site).cloned().collect());
    };
    let (site, what) = (&check.site, &check.quantity);
    let error = check.max_error.map(|error| format!(" by {error:.1e}"));
    let error = error.unwrap_or_default();
    let why = format!(
        "{site}: without the encodings that were found, {what} still differ{error}: a position is \
         left that was not read, or something else that tells tokens apart"
    );
    if request.allowances.allow_unread {
        done.record_unread(&why);
        report.warnings.push(why);
        return Ok(vec![]);
    }
    let path = path(done);
    let advice = "give --allow-unread to rewrite the model all the same";
    Err(Failure::unsupported(format!("{path}: {why}; {advice}")).into())
}

/// Warns that nothing of what was inserted could be compared, or refuses where it has to be.
fn not_compared(done: &Rewritten, proof: Proof, report: &mut Rewrite) -> anyhow::Result<()> {
    let warning = "the inserted encoding does not affect scores; checked by detection only";
    refuse_or_warn(done, proof, report, warning)
}

/// Warns that a comparison was not made, or refuses where it has to be.
fn refuse_or_warn(
    done: &Rewritten,
    proof: Proof,
    report: &mut Rewrite,
    warning: &str,
) -> anyhow::Result<()> {
    if proof == Proof::Required {
        let path = path(done);
        return Err(Failure::unsupported(format!("{path}: {warning}")).into());
    }
    report.warnings.push(warning.to_owned());
    Ok(())
}

/// How messages name the model.
fn path(done: &Rewritten) -> String {
    let path = done.as_ir().path();
    path.map_or_else(String::new, |path| path.display().to_string())
}
