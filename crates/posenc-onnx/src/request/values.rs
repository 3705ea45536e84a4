//! Values of parameters in JSON, by their keys.

use posenc_encodings::param::{Given, Param, Value, Values};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

/// An object with the values of these parameters.
pub(super) fn serialize<S: Serializer>(
    given: &Given,
    params: &[&Param],
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut map = Map::new();
    for param in params {
        if let Some(value) = given.get(param.name) {
            map.insert(param.key(), json(value));
        }
    }
    map.serialize(to)
}

/// The values of an object with keys of these parameters.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(
    params: &[&Param],
    from: D,
) -> Result<Given, D::Error> {
    let mut given = Given::default();
    for (key, value) in Map::deserialize(from)? {
        let param = params.iter().find(|param| param.key() == key);
        let param =
            param.ok_or_else(|| D::Error::custom(format!("no parameter is called {key}")))?;
        let value = read(param, &value);
        let value = value.ok_or_else(|| D::Error::custom(format!("{key} has a wrong type")))?;
        given.set(param, value);
    }
    Ok(given)
}

fn json(value: &Value) -> Json {
    match value {
        Value::Number(number) => json!(number),
        Value::Count(count) => json!(count),
        Value::Numbers(numbers) => json!(numbers),
        Value::Bool(bool) => json!(bool),
        Value::Word(word) => json!(word),
    }
}

fn read(param: &Param, value: &Json) -> Option<Value> {
    Some(match param.values {
        Values::Positive | Values::NotNegative => Value::Number(value.as_f64()?),
        Values::Count => Value::Count(usize::try_from(value.as_u64()?).ok()?),
        Values::Numbers => {
            let list = value.as_array()?.iter().map(Json::as_f64);
            Value::Numbers(list.collect::<Option<_>>()?)
        }
        Values::Switch | Values::Bool => Value::Bool(value.as_bool()?),
        Values::Word(words) => Value::Word(words.iter().find(|w| Some(**w) == value.as_str())?),
    })
}
