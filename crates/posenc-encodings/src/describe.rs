//! Reported parameters in words for people.

use serde_json::Value;

use crate::params::Params;
use crate::round::to_digits;

/// Entries of a list that are written before it is shortened.
const MOST_ENTRIES: usize = 4;

/// Describes the parameters of a report in words. A family describes those that it reads by name;
/// every other parameter follows under its name.
#[derive(Debug)]
pub struct Description<'a> {
    params: &'a Params,
    read: Vec<&'static str>,
    words: Vec<String>,
}

impl<'a> Description<'a> {
    /// Of these parameters, with no words yet.
    pub fn of(params: &'a Params) -> Self {
        Self {
            params,
            read: vec![],
            words: vec![],
        }
    }

    /// The value of that name, unless it is not known.
    pub fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.read.push(name);
        self.params.get(name).filter(|v| !v.is_null())
    }

    /// The whole number of that name.
    pub fn count(&mut self, name: &'static str) -> Option<u64> {
        self.get(name)?.as_u64()
    }

    /// The truth value of that name.
    pub fn bool(&mut self, name: &'static str) -> Option<bool> {
        self.get(name)?.as_bool()
    }

    /// The word of that name.
    pub fn word(&mut self, name: &'static str) -> Option<&'a str> {
        self.get(name)?.as_str()
    }

    /// Whether there is such a parameter, known or not.
    pub fn has(&self, name: &str) -> bool {
        self.params.contains_key(name)
    }

    /// Adds words, which a comma separates from others.
    pub fn say(&mut self, words: impl Into<String>) {
        self.words.push(words.into());
    }

    /// Says `4 heads`, or `2 and 4 heads` where layers differ.
    pub fn heads(&mut self) {
        match self.get("heads") {
            Some(Value::Array(each)) => {
                let mut counts: Vec<u64> = each.iter().filter_map(Value::as_u64).collect();
                counts.sort_unstable();
                counts.dedup();
                let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
                let counts: Vec<&str> = counts.iter().map(String::as_str).collect();
                self.say(format!("{} heads", listed(&counts)));
            }
            Some(heads) if heads.as_u64() == Some(1) => self.say("1 head"),
            Some(heads) => self.say(format!("{} heads", plain(heads))),
            None => {}
        }
    }

    /// Says a number for each head, in the plural `noun`: of many that fall or rise, the ends.
    pub fn per_head(&mut self, name: &'static str, noun: &str) {
        let Some(Value::Array(list)) = self.get(name) else {
            return;
        };
        let numbers: Vec<f64> = list.iter().filter_map(Value::as_f64).collect();
        let falls = numbers.windows(2).all(|w| w[0] > w[1]);
        let rises = numbers.windows(2).all(|w| w[0] < w[1]);
        match list.as_slice() {
            [first, .., last] if list.len() > MOST_ENTRIES && (falls || rises) => {
                let ends = [first, last].map(plain);
                self.say(format!("{} {noun} {} to {}", list.len(), ends[0], ends[1]));
            }
            _ => self.say(format!("{noun} {}", short(list))),
        }
    }

    /// Says `width 64`, and returns it.
    pub fn width(&mut self) -> Option<u64> {
        let dim = self.get("dim")?;
        self.say(format!("width {}", plain(dim)));
        dim.as_u64()
    }

    /// `: 1 prefix + 4 × 4 grid`, of the rows of a table.
    pub fn parts_of_rows(&mut self) -> String {
        let prefix = self.count("prefix").filter(|n| *n > 0);
        match (prefix, self.get("grid").map(sides)) {
            (Some(prefix), Some(grid)) => format!(": {prefix} prefix + {grid} grid"),
            (None, Some(grid)) => format!(": {grid} grid"),
            (Some(prefix), None) => format!(", {prefix} of them prefix"),
            (None, None) => String::new(),
        }
    }

    /// `up to distance 20 (19 to 24)`: what is in brackets has the same effect.
    pub fn up_to_distance(&mut self) -> String {
        self.get("exact");
        let range = between(self.get("max_distance_range"));
        match (self.get("max_distance"), range) {
            (Some(Value::Array(sides)), _) => match sides.as_slice() {
                [before, after] => format!(
                    "up to distance {} before and {} after",
                    plain(before),
                    plain(after)
                ),
                other => format!("up to distance {}", short(other)),
            },
            (Some(distance), None) => format!("up to distance {}", plain(distance)),
            (Some(distance), Some(range)) => {
                format!("up to distance {} ({range})", plain(distance))
            }
            (None, Some(range)) => format!("up to distance {range}"),
            (None, None) => "up to an unknown distance".to_owned(),
        }
    }

    /// Those of the names whose value is true, as a list.
    pub fn true_ones(&mut self, names: &[&'static str]) -> String {
        let mut met = names.to_vec();
        met.retain(|name| self.bool(name) == Some(true));
        listed(&met)
    }

    /// All words, with the parameters that were not read.
    pub fn end(mut self) -> String {
        self.words.extend(entries(self.params, &self.read));
        self.words.join(", ")
    }
}

/// Every parameter that is not among those `read` already, under its name.
pub fn entries(params: &Params, read: &[&str]) -> Vec<String> {
    params
        .iter()
        .filter(|(name, _)| !read.contains(&name.as_str()))
        .map(|(name, value)| entry(&name.replace('_', " "), value))
        .collect()
}

fn entry(name: &str, value: &Value) -> String {
    match value {
        Value::Null => format!("{name} unknown"),
        Value::Bool(true) => name.to_owned(),
        Value::Bool(false) => format!("not {name}"),
        Value::Number(_) => format!("{name} {}", number(value)),
        Value::String(word) => format!("{name} {word}"),
        Value::Array(list) => format!("{name} {}", short(list)),
        Value::Object(inner) => format!("{name} ({})", entries(inner, &[]).join(", ")),
    }
}

/// The first entries of a list, and its last.
pub fn short(list: &[Value]) -> String {
    let joined = |values: &[Value]| {
        let values: Vec<String> = values.iter().map(within).collect();
        values.join(" ")
    };
    match list {
        [] => "none".to_owned(),
        [start @ .., last] if start.len() > MOST_ENTRIES => {
            let (start, last) = (joined(&start[..MOST_ENTRIES - 1]), within(last));
            format!("{start} … {last} ({})", list.len())
        }
        _ => joined(list),
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
pub fn plain(value: &Value) -> String {
    match value {
        Value::Number(_) => number(value),
        Value::String(word) => word.clone(),
        Value::Array(list) => short(list),
        _ => value.to_string(),
    }
}

/// `4 × 4`, of a grid, a window or a kernel.
pub fn sides(value: &Value) -> String {
    match value {
        Value::Array(sides) => sides.iter().map(plain).collect::<Vec<_>>().join(" × "),
        side => plain(side),
    }
}

/// `63 to 198`, unless the ends are the same.
pub fn between(range: Option<&Value>) -> Option<String> {
    match range.and_then(Value::as_array)?.as_slice() {
        [least, greatest] if least != greatest => {
            Some(format!("{} to {}", plain(least), plain(greatest)))
        }
        _ => None,
    }
}

/// Whole numbers with all their digits, others with five.
pub fn number(value: &Value) -> String {
    match value.as_f64() {
        Some(float) if value.is_f64() => compact(float),
        _ => value.to_string(),
    }
}

/// `a`, `a and b`, `a, b and c`.
fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

/// Five significant digits: as a plain decimal where that is short, else with an exponent.
pub fn compact(number: f64) -> String {
    if number == 0.0 {
        return "0".to_owned();
    }
    if !number.is_finite() {
        return infinite(number);
    }
    let rounded = to_digits(number, 5);
    if (1e-3..1e7).contains(&rounded.abs()) {
        rounded.to_string()
    } else {
        format!("{rounded:e}")
    }
}

/// A number that is infinite or NaN.
pub fn infinite(number: f64) -> String {
    match number {
        n if n.is_nan() => "–".to_owned(),
        n if n > 0.0 => "∞".to_owned(),
        _ => "-∞".to_owned(),
    }
}
