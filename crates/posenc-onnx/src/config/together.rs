//! What the graphs of one model change in a configuration that all of them share.

use serde_json::{Map, Value};

use super::change::{ConfigChange, object};
use super::lengths::{Lengths, add};
use crate::error::Refusal;

impl ConfigChange {
    /// What several graphs change in the configuration `old`: a value that one of them changes may stay for
    /// the others, as the length of a decoder does for the encoder.
    ///
    /// # Errors
    /// JSON that is no object, and a value that two graphs change differently.
    ///
    /// ```
    /// # use posenc_onnx::{ConfigChange, Model, Rescale};
    /// # use serde_json::json;
    /// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
    /// let config = json!({"max_position_embeddings": 64});
    /// let change = |factor| -> Result<_, Box<dyn std::error::Error>> {
    ///     let done = model.plan(Rescale::linear(factor).original_length(64))?.apply()?;
    ///     Ok(done.config(&config)?)
    /// };
    /// let [two, four] = [change(2.0)?, change(4.0)?];
    /// let both = ConfigChange::together(&config, &[&two, &two])?;
    /// assert_eq!(both.value()["max_position_embeddings"], 128);
    /// let why = ConfigChange::together(&config, &[&two, &four]).unwrap_err();
    /// assert!(why.reason().starts_with("max_position_embeddings would be 128"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn together(old: &Value, all: &[&Self]) -> Result<Self, Refusal> {
        let objects = all.iter().map(|change| object(change.value()));
        let objects = objects.collect::<Result<Vec<_>, _>>()?;
        let new = merged(object(old)?, &objects, "")?;
        let lengths = Lengths::union(all.iter().map(|change| &change.lengths));
        let mut warnings = vec![];
        for warning in all.iter().flat_map(|change| &change.warnings) {
            add(&mut warnings, warning.clone());
        }
        Ok(Self::new(old, new, lengths).with_warnings(warnings))
    }
}

/// An object with the changes of all.
fn merged(
    old: &Map<String, Value>,
    all: &[&Map<String, Value>],
    path: &str,
) -> Result<Map<String, Value>, Refusal> {
    let mut keys: Vec<&String> = old.keys().collect();
    for key in all.iter().flat_map(|new| new.keys()) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let mut result = Map::new();
    for key in keys {
        let path = match path {
            "" => key.clone(),
            outer => format!("{outer}.{key}"),
        };
        let before = old.get(key);
        let mut changed: Vec<Option<&Value>> = vec![];
        for new in all {
            let new = new.get(key);
            if new != before && !changed.contains(&new) {
                changed.push(new);
            }
        }
        let value = match changed[..] {
            [] => before.cloned(),
            [new] => new.cloned(),
            [first, second, ..] => {
                let objects: Option<Vec<&Map<String, Value>>> = changed
                    .iter()
                    .map(|new| new.and_then(Value::as_object))
                    .collect();
                match (before.and_then(Value::as_object), objects) {
                    (Some(before), Some(objects)) => {
                        Some(Value::Object(merged(before, &objects, &path)?))
                    }
                    _ => return Err(conflict(&path, [first, second])),
                }
            }
        };
        if let Some(value) = value {
            result.insert(key.clone(), value);
        }
    }
    Ok(result)
}

fn conflict(path: &str, values: [Option<&Value>; 2]) -> Refusal {
    let [a, b] = values.map(|value| value.map_or("left out".to_owned(), Value::to_string));
    Refusal::unsupported(format!(
        "{path} would be {a} by one graph and {b} by another"
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn change(old: &Value, new: &Value) -> ConfigChange {
        ConfigChange::new(old, object(new).unwrap().clone(), Lengths::default())
    }

    fn together(old: &Value, all: &[Value]) -> Result<Value, String> {
        let all: Vec<ConfigChange> = all.iter().map(|new| change(old, new)).collect();
        let all: Vec<&ConfigChange> = all.iter().collect();
        let change = ConfigChange::together(old, &all).map_err(|why| why.to_string())?;
        Ok(change.value().clone())
    }

    #[test]
    fn changes_of_different_keys_are_joined() {
        let old = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": 4});
        let cases = [
            ("none", vec![], old.clone()),
            ("no change", vec![old.clone(), old.clone()], old.clone()),
            (
                "one of two",
                vec![json!({"a": 9, "b": {"c": 2, "d": 3}, "e": 4}), old.clone()],
                json!({"a": 9, "b": {"c": 2, "d": 3}, "e": 4}),
            ),
            (
                "within an object",
                vec![
                    json!({"a": 1, "b": {"c": 7, "d": 3}, "e": 4}),
                    json!({"a": 1, "b": {"c": 2, "d": 8, "new": 5}, "e": 4}),
                ],
                json!({"a": 1, "b": {"c": 7, "d": 8, "new": 5}, "e": 4}),
            ),
            (
                "left out",
                vec![json!({"a": 1, "b": {"c": 2, "d": 3}}), old.clone()],
                json!({"a": 1, "b": {"c": 2, "d": 3}}),
            ),
        ];
        for (name, all, want) in cases {
            let got = together(&old, &all).unwrap();
            assert_eq!(got, want, "{name}");
            assert_eq!(got.to_string(), want.to_string(), "{name}: order of keys");
        }
    }

    #[test]
    fn two_changes_of_one_value_are_refused() {
        let old = json!({"a": 1, "b": {"c": 2}, "n": null});
        let cases = [
            (
                [
                    json!({"a": 2, "b": {"c": 2}, "n": null}),
                    json!({"a": 3, "b": {"c": 2}, "n": null}),
                ],
                "a would be 2 by one graph and 3 by another",
            ),
            (
                [
                    json!({"a": 1, "b": {"c": 4}, "n": null}),
                    json!({"a": 1, "b": {"c": 5}, "n": null}),
                ],
                "b.c would be 4 by one graph and 5 by another",
            ),
            (
                [
                    json!({"b": {"c": 2}, "n": null}),
                    json!({"a": 3, "b": {"c": 2}, "n": null}),
                ],
                "a would be left out by one graph and 3 by another",
            ),
            // Two laws are not mixed.
            (
                [
                    json!({"a": 1, "b": {"c": 2}, "n": {"x": 1}}),
                    json!({"a": 1, "b": {"c": 2}, "n": {"y": 1}}),
                ],
                r#"n would be {"x":1} by one graph and {"y":1} by another"#,
            ),
        ];
        for (all, want) in cases {
            assert_eq!(together(&old, &all).unwrap_err(), want);
        }
    }
}
