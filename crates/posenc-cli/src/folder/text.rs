//! Reports of folders as text.

use posenc_encodings::words::Word;
use posenc_onnx::report::{Limit, LimitCause, Rewrite};
use serde_json::Value;

use super::report::{Found, Report};
use crate::columns::{Align, Columns};
use crate::inspect::text::encoding;
use crate::number::{counted, rough};
use crate::rewrite::text::{configs, describe, lower};
use crate::terminal::{Palette, one_line};
use crate::words::plain;

const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;

/// What was found in a folder.
pub(super) fn found(found: &Found<'_>, palette: Palette) -> String {
    let mut text = format!("{}\n", palette.bold(one_line(&found.folder)));
    section("Models", &mut text, palette);
    let mut columns = Columns::new(&[
        ("model", LEFT),
        ("sites", RIGHT),
        ("limit", RIGHT),
        ("encodings", LEFT),
    ]);
    for report in &found.models {
        let mut encodings = report.encodings.iter().map(encoding);
        let first = encodings.next().unwrap_or_else(|| "none".to_owned());
        let name = below(&report.model.path, &found.folder);
        let sites = report.attention.len().to_string();
        columns.row([name, sites, limit(&report.limits), first]);
        for more in encodings {
            columns.row([String::new(), String::new(), String::new(), more]);
        }
    }
    text += &columns.text_or_none(palette);
    for (at, group) in found.shared.iter().enumerate() {
        if at == 0 {
            section("Encode positions alike", &mut text, palette);
        }
        let names: Vec<String> = group
            .iter()
            .map(|path| below(path, &found.folder))
            .collect();
        text += &format!("  {}\n", one_line(&names.join(", ")));
    }
    let differing = found.disagreements.iter().map(|d| d.sentence());
    let warnings = found.models.iter();
    let warnings = warnings.flat_map(|report| of_model(&report.model.path, &report.warnings));
    for (at, warning) in differing.chain(warnings).enumerate() {
        if at == 0 {
            section("Warnings", &mut text, palette);
        }
        text += &format!("  {}\n", palette.alert(one_line(&warning)));
    }
    for (at, problem) in found.errors.iter().enumerate() {
        if at == 0 {
            section("Not read", &mut text, palette);
        }
        text += &format!("  {}\n", palette.bad(one_line(&problem.error)));
    }
    text
}

/// What a rewrite of a folder did.
pub(super) fn rewritten(report: &Report, palette: Palette) -> String {
    let mut text = format!("{}\n", palette.bold(one_line(&report.input)));
    section("Models", &mut text, palette);
    let mut columns = Columns::new(&[
        ("model", LEFT),
        ("sites", RIGHT),
        ("from", LEFT),
        ("to", LEFT),
        ("limit", RIGHT),
        ("checked", LEFT),
    ]);
    for model in &report.models {
        columns.row(row(model, &report.input));
    }
    for kept in &report.kept {
        let why = format!("copied: {}", kept.why);
        columns.row([below(&kept.path, &report.input), String::new(), why]);
    }
    text += &columns.text(2, palette);
    text += &inferred(report, palette);
    for warning in warnings(report) {
        text += &format!("\n{} {warning}\n", palette.alert("warning:"));
    }
    text += "\n";
    let mut meanings: Vec<String> = vec![];
    for model in &report.models {
        let about = lower(model.guarantee.about());
        let lines = [format!("{}: {about}", model.guarantee)];
        let lines = lines.into_iter().chain(model.meaning.clone());
        for line in lines
            .filter(|line| !meanings.contains(line))
            .collect::<Vec<_>>()
        {
            text += &format!("{}\n", one_line(&line));
            meanings.push(line);
        }
    }
    for line in configs(&report.configs) {
        text += &format!("config  {line}\n");
    }
    for hidden in &report.left_out {
        text += &format!("left out  {}\n", one_line(hidden));
    }
    let models = counted(report.models.len(), "model");
    let mut copied = vec![counted(report.files, "other file")];
    if !report.kept.is_empty() {
        copied.insert(0, counted(report.kept.len(), "model"));
    }
    let copied = copied.join(" and ");
    text += &match &report.output {
        Some(output) => format!(
            "wrote {}: {models} rewritten, {copied} copied\n",
            palette.bold(one_line(output))
        ),
        None if report.ok => "nothing was written\n".to_owned(),
        None => format!("{}: nothing was written\n", palette.bad("a check failed")),
    };
    text
}

/// What a user should know of the models and their configurations, each once.
pub(super) fn warnings(report: &Report) -> Vec<String> {
    let all = report.models.iter();
    let all = all.flat_map(|model| of_model(&model.input.path, &model.warnings));
    let all = all.chain(report.warnings.iter().cloned());
    all.map(|warning| one_line(&warning)).collect()
}

/// Warnings with the path of their model.
fn of_model<'a>(path: &'a str, warnings: &'a [String]) -> impl Iterator<Item = String> + 'a {
    warnings
        .iter()
        .map(move |warning| format!("{path}: {warning}"))
}

/// A model that was rewritten.
fn row(model: &Rewrite, folder: &str) -> [String; 6] {
    let of_sites = |of: fn(&posenc_onnx::report::Edit) -> &Value| {
        let mut all: Vec<String> = vec![];
        for edit in &model.edits {
            let words = describe(of(edit));
            if !all.contains(&words) {
                all.push(words);
            }
        }
        all.join("; ")
    };
    let [from, to] = match model.edits[..] {
        [] => ["already as requested".to_owned(), String::new()],
        _ => [of_sites(|edit| &edit.from), of_sites(|edit| &edit.to)],
    };
    let [before, after] = [&model.limits.before, &model.limits.after].map(|all| limit(all));
    let limit = if before == after {
        before
    } else {
        let or_none = |limit: String| {
            if limit.is_empty() {
                "none".to_owned()
            } else {
                limit
            }
        };
        format!("{} → {}", or_none(before), or_none(after))
    };
    let check = match &model.check {
        Some(check) => {
            let verdict = if check.ok { "ok" } else { "FAILED" };
            let [error, bound] = [check.max_error, check.bound].map(rough);
            format!("{verdict}, error {error} (bound {bound})")
        }
        None => String::new(),
    };
    let sites = match model.edits.len() {
        0 => String::new(),
        n => n.to_string(),
    };
    [
        below(&model.input.path, folder),
        sites,
        from,
        to,
        limit,
        check,
    ]
}

/// Values that the request did not give, and the models where they are not those of all.
fn inferred(report: &Report, palette: Palette) -> String {
    let mut rows: Vec<([String; 3], Vec<String>)> = vec![];
    for model in &report.models {
        for value in &model.inferred {
            let words = [
                value.name.clone(),
                plain(&value.value),
                value.source.clone(),
            ];
            let name = below(&model.input.path, &report.input);
            match rows.iter_mut().find(|(row, _)| *row == words) {
                Some((_, models)) if !models.contains(&name) => models.push(name),
                Some(_) => {}
                None => rows.push((words, vec![name])),
            }
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = String::new();
    section("Inferred", &mut text, palette);
    let mut columns = Columns::new(&[
        ("name", LEFT),
        ("value", LEFT),
        ("source", LEFT),
        ("models", LEFT),
    ]);
    for ([name, value, source], models) in rows {
        let models = match models.len() {
            n if n == report.models.len() => String::new(),
            _ => models.join(", "),
        };
        columns.row([name, value, source, models]);
    }
    text + &columns.text(2, palette)
}

/// The length at which a graph ends.
pub(super) fn limit(limits: &[Limit]) -> String {
    let of_graph = limits.iter().filter(|l| l.cause != LimitCause::Runtime);
    let shortest = of_graph.map(|limit| limit.length).min();
    shortest.map_or_else(String::new, |length| length.to_string())
}

/// A path without that of the folder.
pub(super) fn below(path: &str, folder: &str) -> String {
    let inner = std::path::Path::new(path).strip_prefix(folder);
    inner.map_or_else(|_| path.to_owned(), |path| path.display().to_string())
}

fn section(title: &str, text: &mut String, palette: Palette) {
    *text += &format!("\n{}\n", palette.bold(title));
}
