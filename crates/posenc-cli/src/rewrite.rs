//! `rewrite`: another encoding, another scaling, another form.

pub(crate) mod check;
pub mod config;
pub(crate) mod diff;
pub(crate) mod external;
mod family;
mod flags;
pub mod output;
pub(crate) mod text;

use posenc_ir::fingerprint_of;
use posenc_ir::text::Weights;
use posenc_onnx::report::{Endpoint, Rewrite};
use posenc_onnx::request::Request;
use posenc_onnx::{Model, RewriteError, Rewritten};

use crate::exit::{Exit, Failure};
use crate::places::Search;
use crate::progress::Progress;
use crate::terminal::Terminal;
use crate::{files, model};

use check::Proof;
pub(crate) use flags::Args;

/// Rewrites a model and says what was done.
pub(crate) fn run(args: &Args, search: &Search, terminal: &Terminal) -> anyhow::Result<Exit> {
    let input = &args.model;
    let options = &args.output;
    args.chosen.check_single(input)?;
    if !args.drop.is_empty() {
        let why = "--drop leaves out models of a folder, and this is a file; remove it";
        return model::named(input, Err(Failure::usage(why)));
    }
    let read = args.files();
    let request = model::named(input, args.request())?;
    request.check_supported().map_err(RewriteError::from)?;
    if let Some(output) = &options.output {
        output::check(input, output, options.in_place, &read)?;
        if options.in_place && !files::is_same(input, output) {
            let why = "--in-place has no effect, because -o is another file; remove one of them";
            return model::named(input, Err(Failure::usage(why)));
        }
    }
    if options.write_config {
        config::check(input, options.output.as_deref(), options.in_place)?;
    }
    let progress = Progress::start(terminal, format!("reading {}", input.display()));
    let model = model::named(input, Model::open(input))?;
    let before = options
        .diff
        .then(|| model.as_ir().text(Weights::Hash).to_string());
    progress.now(format!("rewriting {}", input.display()));
    let proof = if args.checks.verify {
        Proof::Required
    } else {
        Proof::Wanted
    };
    let absent = model::absence(input, model.as_ir())?;
    let done = model::named(input, rewrite(&model, (proof, &request), search));
    let (done, mut report) = done.map_err(|e| match &absent {
        Some(absent) => Failure::with_note(&e, absent).into(),
        None => e,
    })?;
    report.warnings.extend(absent);
    let output = match &options.output {
        Some(output) => output.clone(),
        None if options.in_place => input.clone(),
        None => output::default_path(input, &report, &request),
    };
    let configs = options
        .write_config
        .then(|| config::plan(&done, input, &output, &read));
    let configs = configs.transpose()?;
    let passed = report.check.as_ref().is_none_or(|check| check.ok);
    if let Some(configs) = configs.as_ref().filter(|_| passed) {
        report.configs = configs.report();
        report.warnings.extend(configs.warnings.iter().cloned());
    }
    if passed && !options.dry_run {
        output::check(input, &output, options.in_place, &read)?;
        progress.now(format!("writing {}", output.display()));
        let linked = external::save(done.as_ir(), input, &output, options.external_data)?;
        report.warnings.extend(linked);
        if let Some(configs) = &configs {
            configs.write(&output)?;
        }
        report.output = Some(Endpoint {
            fingerprint: fingerprint_of(&output)?,
            path: output.display().to_string(),
        });
    }
    drop(progress);
    model::warn(terminal, input, model.warnings());
    if options.json {
        terminal.print_json(&report)?;
    } else if let Some(before) = before {
        let names = [input, &output].map(|path| path.display().to_string());
        let after = done.as_ir().text(Weights::Hash).to_string();
        let names = [names[0].as_str(), names[1].as_str()];
        terminal.print(diff::diff(&before, &after, names, terminal.out))?;
        for line in text::configs(&report.configs) {
            terminal.note(line);
        }
        for warning in &report.warnings {
            terminal.warn(warning);
        }
        terminal.note(match &report.output {
            Some(output) => format!("wrote {}", output.path),
            None => "nothing was written".to_owned(),
        });
    } else {
        terminal.print_report(&text::text(&report, terminal.out))?;
    }
    // The process ends here: to free a large graph piece by piece would take time for nothing.
    std::mem::forget((model, done));
    Ok(if passed { Exit::Done } else { Exit::Difference })
}

/// The model as the flags rewrite it, without a file.
pub(crate) fn in_memory(args: &Args, model: &Model) -> anyhow::Result<Rewritten> {
    let request = args.request()?;
    request.check_supported().map_err(RewriteError::from)?;
    Ok(model.plan(request)?.apply()?)
}

/// Rewrites the model and compares the result with formulas.
fn rewrite(
    model: &Model,
    (proof, request): (Proof, &Request),
    search: &Search,
) -> anyhow::Result<(Rewritten, Rewrite)> {
    let mut done = model.plan(request.clone())?.apply()?;
    let mut report = done.report().clone();
    check::fill(&mut done, (proof, request), search, &mut report)?;
    Ok((done, report))
}
