//! Parameters of an encoding, in words.

use posenc_onnx::kind::Kind;
use posenc_onnx::report::Params;
use serde_json::Value;

use crate::number::compact;

/// Entries of a list that are shown at its start.
const SHOWN: usize = 4;

/// The parameters of an encoding of that kind, in one line.
pub(crate) fn words(kind: Kind, params: &Params) -> String {
    match kind {
        Kind::Rope => rope(params),
        _ => entries(params, &[]).join(", "),
    }
}

fn rope(params: &Params) -> String {
    let mut words = vec![];
    let get = |name| params.get(name).filter(|v| !v.is_null());
    words.extend(get("theta").map(|theta| format!("θ {}", number(theta))));
    match (get("rotary_dim"), get("head_dim")) {
        (Some(rotary), Some(head)) if rotary == head => words.push(format!("all {head} elements")),
        (Some(rotary), Some(head)) => words.push(format!("{rotary} of {head} elements")),
        (Some(rotary), None) => words.push(format!("{rotary} elements")),
        _ => {}
    }
    words.extend(get("layout").map(|layout| match layout.as_str() {
        Some("half") => "halves".to_owned(),
        Some(other) => other.to_owned(),
        None => layout.to_string(),
    }));
    if let Some(Value::Object(law)) = get("scaling") {
        words.push(scaling(law));
    }
    let factor = get("attention_factor").filter(|m| m.as_f64() != Some(1.0));
    words.extend(factor.map(|m| format!("cos and sin × {}", number(m))));
    let told = [
        "theta",
        "rotary_dim",
        "head_dim",
        "layout",
        "scaling",
        "attention_factor",
    ];
    words.extend(entries(params, &told));
    words.join(", ")
}

/// `yarn × 4 from 64 (63 to 198)`, and the law's other parameters.
fn scaling(law: &Params) -> String {
    let get = |name| law.get(name).filter(|v| !v.is_null());
    let mut words = get("type")
        .and_then(Value::as_str)
        .unwrap_or("scaled")
        .to_owned();
    if let Some(factor) = get("factor") {
        words += &format!(" × {}", number(factor));
    }
    match (get("original_length"), get("original_length_range")) {
        (Some(length), None) => words += &format!(" from {length}"),
        (length, Some(Value::Array(range))) => {
            let range: Vec<String> = range.iter().map(Value::to_string).collect();
            let range = range.join(" to ");
            match length {
                Some(length) => words += &format!(" from {length} ({range})"),
                None => words += &format!(" from {range}"),
            }
        }
        _ => {}
    }
    let told = [
        "type",
        "factor",
        "original_length",
        "original_length_range",
        "exact",
        // Stands beside the law, as the factor on cos and sin.
        "attention_factor",
    ];
    let more = entries(law, &told);
    if !more.is_empty() {
        words += &format!(" ({})", more.join(", "));
    }
    words
}

/// Every entry that is not among those `told` already.
pub(crate) fn entries(params: &Params, told: &[&str]) -> Vec<String> {
    params
        .iter()
        .filter(|(name, _)| !told.contains(&name.as_str()))
        .map(|(name, value)| entry(&name.replace('_', " "), value))
        .collect()
}

fn entry(name: &str, value: &Value) -> String {
    match value {
        Value::Null => format!("{name} not told"),
        Value::Bool(true) => name.to_owned(),
        Value::Bool(false) => format!("not {name}"),
        Value::Number(_) => format!("{name} {}", number(value)),
        Value::String(word) => format!("{name} {word}"),
        Value::Array(list) => format!("{name} {}", short(list)),
        Value::Object(inner) => format!("{name} ({})", entries(inner, &[]).join(", ")),
    }
}

/// The first entries of a list, and its last.
fn short(list: &[Value]) -> String {
    let shown = |values: &[Value]| {
        let values: Vec<String> = values.iter().map(plain).collect();
        values.join(" ")
    };
    match list {
        [] => "none".to_owned(),
        [start @ .., last] if start.len() > SHOWN => {
            let (start, last) = (shown(&start[..SHOWN - 1]), plain(last));
            format!("{start} … {last} ({})", list.len())
        }
        _ => shown(list),
    }
}

/// A value without its name.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Number(_) => number(value),
        Value::String(word) => word.clone(),
        Value::Array(list) => short(list),
        _ => value.to_string(),
    }
}

/// Whole numbers with all their digits, others with five.
fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(float) if value.is_f64() => compact(float),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(kind: Kind, params: Value) -> String {
        let Value::Object(params) = params else {
            panic!("parameters are an object");
        };
        words(kind, &params)
    }

    #[test]
    fn parameters_are_told_in_words() {
        let yarn = json!({"type": "yarn", "factor": 4.0, "original_length": 64,
                          "original_length_range": [63, 198], "exact": false});
        let cases = [
            (
                Kind::Rope,
                json!({"theta": 1e4, "head_dim": 16, "rotary_dim": 16, "layout": "half",
                       "attention_factor": 1.0, "scaling": null}),
                "θ 10000, all 16 elements, halves",
            ),
            (
                Kind::Rope,
                json!({"theta": 5e5, "head_dim": 64, "rotary_dim": 16, "layout": "interleaved",
                       "attention_factor": 1.138629, "scaling": yarn}),
                "θ 500000, 16 of 64 elements, interleaved, yarn × 4 from 64 (63 to 198), cos and sin × 1.1386",
            ),
            (
                Kind::Rope,
                json!({"theta": null, "rotary_dim": 8, "head_dim": null, "layout": null,
                       "scaling": {"type": "custom", "inv_freq": [1.0, 0.5, 0.25, 0.125, 0.0625]}}),
                "8 elements, custom (inv freq 1 0.5 0.25 0.125 0.0625)",
            ),
            (
                Kind::Learned,
                json!({"max_positions": 512, "offset": 2, "grid": null}),
                "max positions 512, offset 2, grid not told",
            ),
            (
                Kind::Alibi,
                json!({"heads": 2, "slopes": [0.0625, 0.00390625], "symmetric": false}),
                "heads 2, slopes 0.0625 0.0039062, not symmetric",
            ),
            (Kind::Conv, json!({}), ""),
        ];
        for (kind, params, want) in cases {
            assert_eq!(of(kind, params), want, "{kind}");
        }
    }
}
