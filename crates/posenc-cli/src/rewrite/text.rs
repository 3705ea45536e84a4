//! The report of a rewrite as text.

use posenc_encodings::kind::Kind;
use posenc_encodings::words::Word;
use posenc_onnx::report::{Check, ConfigFile, Edit, Guarantee, Inferred, Rewrite};
use serde_json::Value;

use crate::columns::{Align, Columns};
use crate::inspect::limits;
use crate::number::{counted, rough};
use crate::terminal::{Palette, one_line};
use crate::words;

const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;

/// The whole report.
pub(crate) fn text(report: &Rewrite, palette: Palette) -> String {
    let mut text = format!("{}\n", palette.bold(&report.input.path));
    if !report.inferred.is_empty() {
        section("Inferred", &mut text, palette);
        text += &inferred(&report.inferred).text(2, palette);
    }
    section("Edits", &mut text, palette);
    if report.sorted > 0 {
        let nodes = counted(report.sorted, "node");
        text += &format!("  {nodes} moved after their inputs\n");
    }
    if report.sorted == 0 || !report.edits.is_empty() {
        text += &edits(&report.edits, palette);
    }
    if report.limits.before == report.limits.after {
        section("Limits, unchanged", &mut text, palette);
        text += &limits(&report.limits.before).text_or_none(palette);
    } else {
        section("Limits before", &mut text, palette);
        text += &limits(&report.limits.before).text_or_none(palette);
        section("Limits after", &mut text, palette);
        text += &limits(&report.limits.after).text_or_none(palette);
    }
    for warning in &report.warnings {
        let warning = one_line(warning);
        text += &format!("\n{} {warning}\n", palette.alert("warning:"));
    }
    text += "\n";
    text += &format!("{}\n", guarantee(report.guarantee));
    if let Some(meaning) = &report.meaning {
        text += &format!("{}\n", one_line(meaning));
    }
    if let Some(check) = &report.check {
        text += &format!("{}\n", self::check(check, palette));
    }
    for line in configs(&report.configs) {
        text += &format!("config  {line}\n");
    }
    text += &match &report.output {
        Some(output) => format!("wrote {}\n", palette.bold(&output.path)),
        None => "nothing was written\n".to_owned(),
    };
    text
}

/// A row for each value that the request did not give.
pub(crate) fn inferred(all: &[Inferred]) -> Columns {
    let mut columns = Columns::new(&[("name", LEFT), ("value", LEFT), ("source", LEFT)]);
    for inferred in all {
        let value = words::plain(&inferred.value);
        columns.row([inferred.name.clone(), value, inferred.source.clone()]);
    }
    columns
}

/// What the result has in common with the model.
pub(crate) fn guarantee(guarantee: Guarantee) -> String {
    format!("{guarantee}: {}", lower(guarantee.about()))
}

/// A line for each change of a configuration.
pub(crate) fn configs(files: &[ConfigFile]) -> Vec<String> {
    let mut lines = vec![];
    for file in files {
        let path = one_line(&file.path);
        for (key, change) in &file.changes {
            let [before, after] = [0, 1].map(|i| change.get(i).unwrap_or(&Value::Null));
            lines.push(one_line(&format!("{path}: {key} {before} → {after}")));
        }
        if file.changes.is_empty() {
            lines.push(format!("{path}: a copy, in which nothing changes"));
        }
    }
    lines
}

fn section(title: &str, text: &mut String, palette: Palette) {
    *text += &format!("\n{}\n", palette.bold(title));
}

pub(crate) fn lower(sentence: &str) -> String {
    let mut chars = sentence.chars();
    let first = chars.next().map(|c| c.to_lowercase().to_string());
    first.unwrap_or_default() + chars.as_str()
}

/// Edits, equal ones in one row.
fn edits(edits: &[Edit], palette: Palette) -> String {
    if edits.is_empty() {
        return format!("  {}\n", palette.dim(NO_EDITS));
    }
    let (rows, counts) = (edited(edits), counts(edits));
    format!("{}  {}\n", rows.text(2, palette), palette.dim(counts))
}

/// In place of edits, where there are none.
pub(crate) const NO_EDITS: &str = "none: the model already matches the request";

/// A row for equal edits.
pub(crate) fn edited(edits: &[Edit]) -> Columns {
    let mut groups: Vec<(&Edit, usize)> = vec![];
    for edit in edits {
        match groups
            .iter_mut()
            .find(|(e, _)| e.from == edit.from && e.to == edit.to)
        {
            Some(group) => group.1 += 1,
            None => groups.push((edit, 1)),
        }
    }
    let mut columns = Columns::new(&[("sites", RIGHT), ("from", LEFT), ("to", LEFT)]);
    for (edit, sites) in groups {
        columns.row([sites.to_string(), describe(&edit.from), describe(&edit.to)]);
    }
    columns
}

/// How many nodes and initializers changed.
pub(crate) fn counts(edits: &[Edit]) -> String {
    let sum = |of: fn(&Edit) -> usize| edits.iter().map(of).sum::<usize>();
    format!(
        "{} added, {} removed, {} changed",
        counted(sum(|e| e.nodes_added), "node"),
        sum(|e| e.nodes_removed),
        counted(sum(|e| e.initializers_changed), "initializer"),
    )
}

/// A kind and its parameters, or several.
pub(crate) fn describe(value: &Value) -> String {
    let Value::Object(params) = value else {
        return match value {
            Value::Null => "none".to_owned(),
            Value::Array(all) => {
                let all: Vec<String> = all.iter().map(describe).collect();
                all.join(" + ")
            }
            other => words::plain(other),
        };
    };
    let mut params = params.clone();
    let kind = params.shift_remove("kind");
    let Some(name) = kind.as_ref().and_then(Value::as_str) else {
        return words::entries(&params, &[]).join(", ");
    };
    let form = params.get("form").map(words::plain);
    // The parameters are next to the kind, or under a name of their own.
    let params = match params.get("params") {
        Some(Value::Object(inner)) => inner.clone(),
        _ => params,
    };
    let about = match name.parse::<Kind>() {
        Ok(kind) => kind.describe(&params),
        Err(_) => words::entries(&params, &[]).join(", "),
    };
    let about = [Some(about).filter(|about| !about.is_empty()), form];
    let about: Vec<String> = about.into_iter().flatten().collect();
    match about.join(", ") {
        about if about.is_empty() => name.to_owned(),
        about => format!("{name} ({about})"),
    }
}

/// The comparison with the formula, in one line.
pub(crate) fn check(check: &Check, palette: Palette) -> String {
    let Check {
        sites,
        max_error,
        bound,
        ok,
    } = check;
    let verdict = if *ok {
        palette.good("checked")
    } else {
        palette.bad("check failed")
    };
    let sites = counted(*sites, "site");
    let found = if max_error.is_finite() {
        format!("largest error {}", rough(*max_error))
    } else {
        "a result is NaN or infinite, as where positions are too large for the model's type"
            .to_owned()
    };
    let bound = rough(*bound);
    format!("{verdict} against the formula in f64: {sites}, {found} (bound {bound})")
}

#[cfg(test)]
mod tests {
    use posenc_onnx::report::{Endpoint, Limit, LimitCause};
    use serde_json::json;

    use super::*;

    fn report() -> Rewrite {
        Rewrite::new(Endpoint {
            path: "llama.onnx".into(),
            fingerprint: "ab".into(),
        })
    }

    #[test]
    fn a_rescale_shows_what_was_inferred_changed_and_checked() {
        let mut report = report();
        report.output = Some(Endpoint {
            path: "llama.rope-yarn.onnx".into(),
            fingerprint: "cd".into(),
        });
        report.guarantee = Guarantee::NewFunction;
        report.inferred = vec![
            Inferred {
                name: "original-length".into(),
                value: json!(64),
                source: "max_position_embeddings of config.json".into(),
            },
            Inferred {
                name: "factor".into(),
                value: json!(4.0),
                source: "the default".into(),
            },
        ];
        let edit = |site: &str| Edit {
            site: site.into(),
            from: json!({"kind": "rope", "theta": 1e4}),
            to: json!({"kind": "rope", "theta": 1e4, "scaling": {"type": "yarn", "factor": 4.0}}),
            nodes_added: 2,
            nodes_removed: 0,
            initializers_changed: 1,
        };
        report.edits = vec![edit("layers.0"), edit("layers.1")];
        let limit = |length| Limit {
            length,
            cause: LimitCause::Cache,
            value: Some("cos_cached".into()),
        };
        report.limits.before = vec![limit(64)];
        report.limits.after = vec![limit(256)];
        report.check = Some(Check {
            sites: 2,
            max_error: 1.25e-7,
            bound: 3e-6,
            ok: true,
        });
        insta::assert_snapshot!(text(&report, Palette::Plain));
    }

    #[test]
    fn a_model_that_already_matches_the_request() {
        insta::assert_snapshot!(text(&report(), Palette::Plain));
    }

    #[test]
    fn a_config_has_a_line_for_each_change() {
        let file = |path: &str, changes: Value| ConfigFile {
            path: path.into(),
            changes: changes.as_object().cloned().unwrap(),
        };
        let law = json!({"rope_type": "linear", "factor": 2.0});
        let changes = json!({"max_position_embeddings": [64, 128], "rope_scaling": [null, law]});
        let files = [file("out/config.json", changes), file("b.json", json!({}))];
        let want = [
            "out/config.json: max_position_embeddings 64 → 128",
            r#"out/config.json: rope_scaling null → {"rope_type":"linear","factor":2.0}"#,
            "b.json: a copy, in which nothing changes",
        ];
        assert_eq!(configs(&files), want);
    }

    #[test]
    fn a_failed_check_is_reported() {
        let failed = Check {
            sites: 1,
            max_error: 0.5,
            bound: 1e-6,
            ok: false,
        };
        let want =
            "check failed against the formula in f64: 1 site, largest error 0.5 (bound 1e-6)";
        assert_eq!(check(&failed, Palette::Plain), want);
        let infinite = Check {
            max_error: f64::INFINITY,
            ..failed
        };
        let text = check(&infinite, Palette::Plain);
        assert!(text.contains("a result is NaN or infinite"), "{text}");
    }

    #[test]
    fn encodings_are_described_in_words() {
        let cases = [
            (json!(null), "none"),
            (json!("alibi"), "alibi"),
            (json!({"kind": "alibi"}), "alibi"),
            (
                json!({"kind": "rope", "params": {"theta": 1e4}}),
                "rope (θ 10000)",
            ),
            (json!({"form": "ops"}), "form ops"),
            (
                json!({"kind": "rope", "form": "onnx", "params": {"theta": 1e4}}),
                "rope (θ 10000, onnx)",
            ),
        ];
        for (value, want) in cases {
            assert_eq!(describe(&value), want);
        }
    }
}
