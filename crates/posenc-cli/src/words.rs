//! Parameters of an encoding, in words.

mod absolute;
mod distance;
mod rope;

use posenc_encodings::kind::Kind;
use posenc_encodings::params::Params;
use serde_json::Value;

use crate::number::compact;

/// Entries of a list that are shown at its start.
const SHOWN: usize = 4;

/// The parameters of an encoding of that kind, in one line.
pub(crate) fn words(kind: Kind, params: &Params) -> String {
    let mut telling = Telling::of(params);
    match kind {
        Kind::Rope => rope::tell(&mut telling),
        Kind::Learned => absolute::learned(&mut telling),
        Kind::Sinusoidal => absolute::sinusoidal(&mut telling),
        Kind::Conv => absolute::conv(&mut telling),
        Kind::Alibi => distance::alibi(&mut telling),
        Kind::T5Bias => distance::t5_bias(&mut telling),
        Kind::RelativeBias => distance::relative_bias(&mut telling),
        Kind::Shaw => distance::shaw(&mut telling),
        Kind::TransformerXl => distance::transformer_xl(&mut telling),
        Kind::Disentangled => distance::disentangled(&mut telling),
        Kind::None | Kind::Unknown => {}
    }
    telling.end()
}

/// Parameters on the way into words: what is asked for by name has been told, and the rest follows
/// under its name.
struct Telling<'a> {
    params: &'a Params,
    told: Vec<&'static str>,
    words: Vec<String>,
}

impl<'a> Telling<'a> {
    fn of(params: &'a Params) -> Self {
        Self {
            params,
            told: vec![],
            words: vec![],
        }
    }

    /// The value of that name, unless it is not known.
    fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.told.push(name);
        self.params.get(name).filter(|v| !v.is_null())
    }

    /// The whole number of that name.
    fn count(&mut self, name: &'static str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// Whether the answer of that name is yes.
    fn yes(&mut self, name: &'static str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    /// Whether there is such a parameter, known or not.
    fn has(&self, name: &str) -> bool {
        self.params.contains_key(name)
    }

    fn say(&mut self, words: impl Into<String>) {
        self.words.push(words.into());
    }

    fn end(mut self) -> String {
        self.words.extend(entries(self.params, &self.told));
        self.words.join(", ")
    }
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
        let values: Vec<String> = values.iter().map(within).collect();
        values.join(" ")
    };
    match list {
        [] => "none".to_owned(),
        [start @ .., last] if start.len() > SHOWN => {
            let (start, last) = (shown(&start[..SHOWN - 1]), within(last));
            format!("{start} … {last} ({})", list.len())
        }
        _ => shown(list),
    }
}

/// An element of a list.
fn within(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("({})", short(list)),
        _ => plain(value),
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

/// `4 × 4`, of a grid, a window or a kernel.
fn sides(value: &Value) -> String {
    match value {
        Value::Array(sides) => sides.iter().map(plain).collect::<Vec<_>>().join(" × "),
        side => plain(side),
    }
}

/// `63 to 198`, unless the ends are the same.
fn between(range: Option<&Value>) -> Option<String> {
    match range.and_then(Value::as_array)?.as_slice() {
        [least, greatest] if least != greatest => {
            Some(format!("{} to {}", plain(least), plain(greatest)))
        }
        _ => None,
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
mod tests;
