//! A scaling as records keep it: an object with the parameters and the word of the law as `type`,
//! or `null`.

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};
use serde_json::Value;

use super::{LawName, Scaling};

impl Serialize for Scaling {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut parameters = self.parameters().map_err(S::Error::custom)?;
        if let Some(parameters) = parameters.as_object_mut() {
            parameters.insert("type".to_owned(), self.name().into());
        }
        parameters.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Scaling {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let parameters = Value::deserialize(from)?;
        if parameters.is_null() {
            return Ok(Self::None);
        }
        let word = parameters["type"].as_str().unwrap_or("null").to_owned();
        if word == Self::None.name() {
            return Ok(Self::None);
        }
        let law: LawName = word
            .parse()
            .map_err(|_| D::Error::custom(format!("no scaling of type {word}")))?;
        Self::from_parameters(law, parameters).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::laws::{
        Dynamic, Linear, Llama3, LongRope, LongRopeAttention, Ntk, Proportional, RampBounds, Yarn,
    };

    /// Each law with the text of its record.
    fn records() -> Vec<(Scaling, &'static str)> {
        let yarn = Yarn::new(4.0, 64).unwrap();
        let longrope = |attention| {
            Scaling::LongRope(LongRope {
                short_factor: vec![1.0, 1.5],
                long_factor: vec![2.0, 4.0],
                original_length: 64,
                attention,
            })
        };
        let switched = LongRopeAttention::Switched {
            short: 1.0,
            long: 1.1,
        };
        vec![
            (Scaling::None, "null"),
            (
                Scaling::Linear(Linear { factor: 4.0 }),
                r#"{"factor":4.0,"type":"linear"}"#,
            ),
            (
                Scaling::Ntk(Ntk { factor: 2.5 }),
                r#"{"factor":2.5,"type":"ntk"}"#,
            ),
            (
                Scaling::Dynamic(Dynamic::new(2.0, 64).unwrap()),
                r#"{"factor":2.0,"original_length":64,"type":"dynamic"}"#,
            ),
            (
                Scaling::Yarn(Yarn {
                    attention_factor: Some(1.2),
                    bounds: RampBounds::Exact,
                    ..yarn
                }),
                r#"{"factor":4.0,"original_length":64,"beta_fast":32.0,"beta_slow":1.0,"truncate":false,"attention_factor":1.2,"type":"yarn"}"#,
            ),
            (
                longrope(switched),
                r#"{"original_length":64,"short_factor":[1.0,1.5],"long_factor":[2.0,4.0],"short_mscale":1.0,"long_mscale":1.1,"type":"longrope"}"#,
            ),
            (
                Scaling::Llama3(Llama3::new(8.0, 1.0, 4.0, 64).unwrap()),
                r#"{"factor":8.0,"original_length":64,"low_freq_factor":1.0,"high_freq_factor":4.0,"type":"llama3"}"#,
            ),
            (
                Scaling::Proportional(Proportional::new(0.5, 2.0).unwrap()),
                r#"{"factor":2.0,"partial_rotary_factor":0.5,"type":"proportional"}"#,
            ),
        ]
    }

    #[test]
    fn every_law_is_written_to_the_byte_and_read_back() {
        for (scaling, text) in records() {
            assert_eq!(serde_json::to_string(&scaling).unwrap(), text);
            let read: Scaling = serde_json::from_str(text).unwrap();
            assert_eq!(read, scaling);
        }
    }

    #[test]
    fn what_follows_from_other_parameters_is_written_as_a_number() {
        let yarn = Scaling::Yarn(Yarn::new(4.0, 64).unwrap()).to_json();
        assert_eq!(yarn["attention_factor"], json!(0.1 * 4.0_f64.ln() + 1.0));
        let longrope = Scaling::LongRope(LongRope {
            short_factor: vec![1.0],
            long_factor: vec![2.0],
            original_length: 64,
            attention: LongRopeAttention::Explicit(1.5),
        });
        let longrope = longrope.to_json();
        assert_eq!(longrope["short_mscale"], json!(1.5));
        assert_eq!(longrope["long_mscale"], json!(1.5));
    }

    #[test]
    fn what_is_no_scaling_is_refused() {
        let cases = [
            (json!({"type": "linear"}), "missing field `factor`"),
            (json!({"type": "new"}), "no scaling of type new"),
            (json!({"factor": 2.0}), "no scaling of type null"),
            (json!(4), "no scaling of type null"),
        ];
        for (record, want) in cases {
            let error = serde_json::from_value::<Scaling>(record).unwrap_err();
            assert_eq!(error.to_string(), want);
        }
    }
}
