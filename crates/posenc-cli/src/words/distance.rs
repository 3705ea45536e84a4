//! What acts by the distance of key and query, in words.

use serde_json::Value;

use super::{Telling, between, plain, short, sides};

/// Slopes that are shown one by one; of more that fall or rise, the ends.
const FEW: usize = 4;

/// `8 slopes 0.5 to 0.0039062, symmetric`.
pub(super) fn alibi(telling: &mut Telling<'_>) {
    match telling.get("slopes").and_then(Value::as_array) {
        Some(slopes) => {
            telling.get("heads");
            telling.say(self::slopes(slopes));
        }
        None => heads(telling),
    }
    // Of causal attention nothing tells, and nothing depends on it.
    match telling.yes("symmetric") {
        Some(true) => telling.say("symmetric"),
        Some(false) => telling.say("signed distance"),
        None => {}
    }
}

fn slopes(slopes: &[Value]) -> String {
    let numbers: Vec<f64> = slopes.iter().filter_map(Value::as_f64).collect();
    let falls = numbers.windows(2).all(|w| w[0] > w[1]);
    let rises = numbers.windows(2).all(|w| w[0] < w[1]);
    match slopes {
        [first, .., last] if slopes.len() > FEW && (falls || rises) => {
            format!(
                "{} slopes {} to {}",
                slopes.len(),
                plain(first),
                plain(last)
            )
        }
        _ => format!("slopes {}", short(slopes)),
    }
}

/// `32 buckets up to distance 128, both ways, 4 heads`.
pub(super) fn t5_bias(telling: &mut Telling<'_>) {
    let distance = up_to(telling);
    match telling.count("num_buckets") {
        Some(buckets) => telling.say(format!("{buckets} buckets {distance}")),
        None => telling.say(distance),
    }
    match telling.yes("bidirectional") {
        Some(true) => telling.say("both ways"),
        Some(false) => telling.say("earlier keys only"),
        None => {}
    }
    heads(telling);
}

/// `window 4 × 4, 2 and 4 heads`.
pub(super) fn relative_bias(telling: &mut Telling<'_>) {
    match telling.get("window") {
        Some(window) => {
            telling.get("max_distance");
            telling.say(format!("window {}", sides(window)));
        }
        None => {
            let distance = up_to(telling);
            telling.say(distance);
        }
    }
    heads(telling);
}

/// `key and query terms up to distance 63`.
pub(super) fn shaw(telling: &mut Telling<'_>) {
    let met = terms(telling, ["key", "query", "value"]);
    let distance = up_to(telling);
    telling.say(format!("{met} terms {distance}").trim_start().to_owned());
}

/// `4 heads, 16 elements each`.
pub(super) fn transformer_xl(telling: &mut Telling<'_>) {
    heads(telling);
    if let Some(width) = telling.get("head_dim") {
        telling.say(format!("{} elements each", plain(width)));
    }
    if let Some(clamp) = telling.get("clamp") {
        telling.say(format!("clamped at distance {}", plain(clamp)));
    }
}

/// `c2p and p2c terms, 8 buckets each way up to distance 64`.
pub(super) fn disentangled(telling: &mut Telling<'_>) {
    let met = terms(telling, ["c2p", "p2c"]);
    let distance = up_to(telling);
    match telling.count("buckets") {
        Some(buckets) => {
            telling.say(format!("{met} terms"));
            telling.say(format!("{buckets} buckets each way {distance}"));
        }
        None => telling.say(format!("{met} terms {distance}")),
    }
}

/// Those of the names to which the answer is yes.
fn terms<const N: usize>(telling: &mut Telling<'_>, names: [&'static str; N]) -> String {
    let mut met = names.to_vec();
    met.retain(|name| telling.yes(name) == Some(true));
    listed(&met)
}

/// `up to distance 20 (19 to 24)`: what is in brackets has the same effect.
fn up_to(telling: &mut Telling<'_>) -> String {
    telling.get("exact");
    let range = between(telling.get("max_distance_range"));
    match (telling.get("max_distance"), range) {
        (Some(Value::Array(sides)), _) => match sides.as_slice() {
            [behind, ahead] => format!(
                "up to distance {} before and {} after",
                plain(behind),
                plain(ahead)
            ),
            other => format!("up to distance {}", short(other)),
        },
        (Some(distance), None) => format!("up to distance {}", plain(distance)),
        (Some(distance), Some(range)) => format!("up to distance {} ({range})", plain(distance)),
        (None, Some(range)) => format!("up to distance {range}"),
        (None, None) => "up to an unknown distance".to_owned(),
    }
}

/// `4 heads`, `2 and 4 heads` where layers differ.
fn heads(telling: &mut Telling<'_>) {
    match telling.get("heads") {
        Some(Value::Array(each)) => {
            let mut counts: Vec<u64> = each.iter().filter_map(Value::as_u64).collect();
            counts.sort_unstable();
            counts.dedup();
            let counts: Vec<String> = counts.iter().map(u64::to_string).collect();
            let counts: Vec<&str> = counts.iter().map(String::as_str).collect();
            telling.say(format!("{} heads", listed(&counts)));
        }
        Some(heads) if heads.as_u64() == Some(1) => telling.say("1 head"),
        Some(heads) => telling.say(format!("{} heads", plain(heads))),
        None => {}
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
