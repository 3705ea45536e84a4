//! `rewrite`: another encoding, another scaling, another form.

mod check;
pub(crate) mod diff;
mod external;
mod family;
mod flags;
mod output;
mod text;

use posenc_ir::text::Weights;
use posenc_ir::{Model, fingerprint_of};
use posenc_onnx::report::{Endpoint, Rewrite};
use posenc_onnx::request::Request;

use crate::exit::{Exit, Failure};
use crate::model;
use crate::progress::Progress;
use crate::rope;
use crate::terminal::Terminal;

use check::Proof;
pub(crate) use flags::Args;

/// Rewrites a model and says what was done.
pub(crate) fn run(args: &Args, terminal: &Terminal) -> anyhow::Result<Exit> {
    let input = &args.model;
    let options = &args.output;
    let request = args.request();
    request.check_law().map_err(|e| rope::flag_error(&e))?;
    if let Some(output) = &options.output {
        output::check(input, output, options.in_place, &request)?;
    }
    let progress = Progress::start(terminal, format!("reading {}", input.display()));
    let (mut model, warnings) = model::open_checked(input)?;
    let before = options.diff.then(|| model.text(Weights::Hash).to_string());
    progress.now(format!("rewriting {}", input.display()));
    let proof = if args.checks.verify {
        Proof::Required
    } else {
        Proof::Wanted
    };
    let absent = model::absence(input, &model)?;
    let done = model::named(input, rewrite(&mut model, &request, proof));
    let mut report = done.map_err(|e| match &absent {
        Some(absent) => Failure::beside(&e, absent).into(),
        None => e,
    })?;
    report.warnings.extend(absent);
    if let Some(flag) = request.unsupported() {
        let input = input.display();
        let sentence = format!("{input}: {flag} is not supported yet");
        return Err(Failure::unsupported(sentence).into());
    }
    let output = match &options.output {
        Some(output) => output.clone(),
        None if options.in_place => input.clone(),
        None => output::beside(input, &report, &request),
    };
    let held = report.check.as_ref().is_none_or(|check| check.ok);
    if held && !options.dry_run {
        output::check(input, &output, options.in_place, &request)?;
        // A link stays one: what it leads to is replaced.
        let output = output.canonicalize().unwrap_or_else(|_| output.clone());
        progress.now(format!("writing {}", output.display()));
        external::save(&model, input, &output, request.external_data)?;
        report.output = Some(Endpoint {
            fingerprint: fingerprint_of(&output)?,
            path: output.display().to_string(),
        });
    }
    drop(progress);
    model::warn(terminal, input, &warnings);
    if options.json {
        terminal.print_json(&report)?;
    } else if let Some(before) = before {
        let names = [input, &output].map(|path| path.display().to_string());
        let after = model.text(Weights::Hash).to_string();
        let names = [names[0].as_str(), names[1].as_str()];
        terminal.print(diff::diff(&before, &after, names, terminal.out))?;
        for warning in &report.warnings {
            terminal.warn(warning);
        }
    } else {
        terminal.print(text::text(&report, terminal.out))?;
    }
    // The process ends here: to take a large graph apart piece by piece would be for nothing.
    std::mem::forget(model);
    Ok(if held { Exit::Done } else { Exit::Difference })
}

/// Changes the model as asked, and proves it.
fn rewrite(model: &mut Model, request: &Request, proof: Proof) -> anyhow::Result<Rewrite> {
    let done = posenc_onnx::rewrite::rewrite(model, request).map_err(rope::rewrite_error)?;
    model.check()?;
    let mut report = done.report.clone();
    check::fill(model, &done, proof, &mut report)?;
    Ok(report)
}
