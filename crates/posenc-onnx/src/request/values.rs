//! Values of parameters in the JSON of a request: objects with the keys of the parameters.

use posenc_encodings::param::{Given, Param, Value, Values};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value as Json, json};

/// Parameters of laws of RoPE.
pub(super) mod law {
    use super::*;

    fn params() -> impl Iterator<Item = &'static Param> {
        posenc_encodings::laws::params()
            .into_iter()
            .map(|(param, _)| param)
    }

    pub(crate) fn serialize<S: Serializer>(given: &Given, to: S) -> Result<S::Ok, S::Error> {
        write(given, params(), to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Given, D::Error> {
        read("law", params, from)
    }
}

/// Parameters of families of encodings.
pub(crate) mod family {
    use super::*;

    fn params() -> impl Iterator<Item = &'static Param> {
        posenc_encodings::families::all().flat_map(|family| family.params)
    }

    pub(crate) fn serialize<S: Serializer>(given: &Given, to: S) -> Result<S::Ok, S::Error> {
        write(given, params(), to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Given, D::Error> {
        read("family", params, from)
    }
}

fn write<S: Serializer>(
    given: &Given,
    params: impl Iterator<Item = &'static Param>,
    to: S,
) -> Result<S::Ok, S::Error> {
    let mut map = Map::new();
    for param in params {
        if let Some(value) = given.get(param.name) {
            map.insert(param.key(), to_json(value));
        }
    }
    map.serialize(to)
}

fn read<'de, D: Deserializer<'de>, P: Iterator<Item = &'static Param>>(
    owner: &str,
    params: impl Fn() -> P,
    from: D,
) -> Result<Given, D::Error> {
    let mut given = Given::default();
    for (key, value) in Map::deserialize(from)? {
        let param = params().find(|param| param.key() == key);
        let param = param.ok_or_else(|| D::Error::custom(format!("no {owner} has {key}")))?;
        let read = read_one(param, &value)
            .ok_or_else(|| D::Error::custom(format!("{key} cannot be {value}")))?;
        given.set(param, read);
    }
    Ok(given)
}

fn to_json(value: &Value) -> Json {
    match value {
        Value::Number(number) => json!(number),
        Value::Count(count) => json!(count),
        Value::Numbers(numbers) => json!(numbers),
        Value::Bool(bool) => json!(bool),
        Value::Word(word) => json!(word),
    }
}

/// A value of a parameter; `None` where it takes no such value.
pub(super) fn read_one(param: &Param, value: &Json) -> Option<Value> {
    of_json(param, value).filter(|read| param.values.contain(read))
}

fn of_json(param: &Param, value: &Json) -> Option<Value> {
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
