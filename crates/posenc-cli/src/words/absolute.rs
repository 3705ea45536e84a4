//! What is added to the embeddings, in words.

use serde_json::Value;

use super::{Telling, number, plain, sides};

/// `rows 2 to 65 of 66, width 64`, or `17 rows: 1 prefix + 4 × 4 grid, width 64`.
pub(super) fn learned(telling: &mut Telling<'_>) {
    let usable = telling.count("max_positions");
    let (rows, offset) = (telling.count("table_rows"), telling.count("offset"));
    match (usable, offset.unwrap_or(0), rows) {
        (Some(usable), 0, rows) if rows.is_none_or(|rows| rows == usable) => {
            let made = made_of(telling);
            telling.say(format!("{usable} rows{made}"));
        }
        (Some(usable), offset, rows) if usable > 0 => {
            let last = offset + usable - 1;
            let of = rows.map_or_else(String::new, |rows| format!(" of {rows}"));
            let made = made_of(telling);
            telling.say(format!("rows {offset} to {last}{of}{made}"));
        }
        (_, _, Some(rows)) => {
            let made = made_of(telling);
            telling.say(format!("a table of {rows} rows{made}"));
        }
        _ => {}
    }
    width(telling);
}

/// `64 rows, width 64, sines then cosines, frequencies 10000^(-i/32), positions from 2`.
pub(super) fn sinusoidal(telling: &mut Telling<'_>) {
    let image = telling.get("grid").is_some();
    match telling.count("max_positions") {
        Some(rows) => {
            let made = made_of(telling);
            telling.say(format!("{rows} rows{made}"));
        }
        None if telling.has("max_positions") => telling.say("computed"),
        None => {}
    }
    let width = width(telling);
    let cosines_first = telling.yes("cosines_first") == Some(true);
    match (telling.get("layout").and_then(Value::as_str), cosines_first) {
        (Some("half"), false) => telling.say("sines then cosines"),
        (Some("half"), true) => telling.say("cosines then sines"),
        (Some(layout), false) => telling.say(layout),
        (Some(layout), true) => telling.say(format!("{layout}, cosines first")),
        (None, _) => {}
    }
    let base = telling.get("base").map(number);
    let less = match telling.get("freq_denominator").and_then(Value::as_str) {
        Some("half_dim") => Some(0.0),
        Some("half_dim-1") => Some(1.0),
        _ => None,
    };
    match (base, less, width) {
        (Some(base), Some(less), Some(width)) => {
            // Each coordinate of an image has half of a row.
            let width = if image { width / 2 } else { width };
            let half = if less == 0.0 {
                width as f64 / 2.0
            } else {
                (width / 2) as f64
            };
            telling.say(format!("frequencies {base}^(-i/{})", half - less));
        }
        (Some(base), ..) => telling.say(format!("base {base}")),
        _ => {}
    }
    match telling.get("order").and_then(Value::as_str) {
        Some("yx") => telling.say("rows before columns"),
        Some("xy") => telling.say("columns before rows"),
        _ => {}
    }
    if telling.yes("normalized") == Some(true) {
        telling.say("coordinates up to 2π");
    }
    if let Some(offset) = telling.count("offset").filter(|n| *n > 0) {
        telling.say(format!("positions from {offset}"));
    }
    if let Some(factor) = telling.get("factor") {
        telling.say(format!("positions ÷ {}", number(factor)));
    }
    if let Some(amplitude) = telling.get("amplitude") {
        telling.say(format!("rows × {}", number(amplitude)));
    }
}

/// `kernel 3 × 3, 64 groups`.
pub(super) fn conv(telling: &mut Telling<'_>) {
    if let Some(kernel) = telling.get("kernel") {
        telling.say(format!("kernel {}", sides(kernel)));
    }
    match telling.count("groups") {
        Some(1) => telling.say("1 group"),
        Some(groups) => telling.say(format!("{groups} groups")),
        None => {}
    }
}

fn width(telling: &mut Telling<'_>) -> Option<u64> {
    let dim = telling.get("dim")?;
    telling.say(format!("width {}", plain(dim)));
    dim.as_u64()
}

/// `: 1 prefix + 4 × 4 grid`, of the rows of a table.
fn made_of(telling: &mut Telling<'_>) -> String {
    let prefix = telling.count("prefix").filter(|n| *n > 0);
    match (prefix, telling.get("grid").map(sides)) {
        (Some(prefix), Some(grid)) => format!(": {prefix} prefix + {grid} grid"),
        (None, Some(grid)) => format!(": {grid} grid"),
        (Some(prefix), None) => format!(", {prefix} of them prefix"),
        (None, None) => String::new(),
    }
}
