//! Rotations, in words.

use posenc_encodings::params::Params;
use serde_json::Value;

use super::{Telling, between, entries, number, plain, sides};

/// `θ 10000, 8 of 16 elements, halves, yarn × 4 from 64`.
pub(super) fn tell(telling: &mut Telling<'_>) {
    if let Some(theta) = telling.get("theta") {
        telling.say(format!("θ {}", number(theta)));
    }
    match (telling.get("rotary_dim"), telling.get("head_dim")) {
        (Some(rotary), Some(head)) if rotary == head => telling.say(format!("all {head} elements")),
        (Some(rotary), Some(head)) => telling.say(format!("{rotary} of {head} elements")),
        (Some(rotary), None) => telling.say(format!("{rotary} elements")),
        _ => {}
    }
    if let Some(first) = telling.get("first_feature") {
        telling.say(format!("from element {first} on"));
    }
    match telling.get("layout").map(|l| (l, l.as_str())) {
        Some((_, Some("half"))) => telling.say("halves"),
        Some((_, Some(other))) => telling.say(other),
        Some((layout, None)) => telling.say(layout.to_string()),
        None => {}
    }
    if let Some(grid) = telling.get("grid") {
        let grid = sides(grid);
        match telling.count("prefix") {
            Some(prefix) if prefix > 0 => {
                telling.say(format!(
                    "by rows and columns of {prefix} prefix + {grid} grid"
                ));
            }
            _ => telling.say(format!("by rows and columns of {grid} grid")),
        }
    }
    if let Some(Value::Array(sections)) = telling.get("mrope_section") {
        let pairs: Vec<String> = sections.iter().map(plain).collect();
        let order = match telling.yes("mrope_interleaved") {
            Some(true) => ", interleaved",
            _ => "",
        };
        let (streams, pairs) = (sections.len(), pairs.join(" + "));
        telling.say(format!("{pairs} pairs of {streams} positions{order}"));
    }
    if let Some(Value::Object(law)) = telling.get("scaling") {
        telling.say(scaling(law));
    }
    let factor = telling.get("attention_factor").map(number);
    // Half precision has 1 as 0.99999.
    if let Some(factor) = factor.filter(|f| f != "1") {
        telling.say(format!("cos and sin × {factor}"));
    }
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
    let range = between(get("original_length_range"));
    match (get("original_length"), range) {
        (Some(length), None) => words += &format!(" from {length}"),
        (Some(length), Some(range)) => words += &format!(" from {length} ({range})"),
        (None, Some(range)) => words += &format!(" from {range}"),
        (None, None) => {}
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
