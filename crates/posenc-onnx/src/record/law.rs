//! The law that a site of the `posenc.rope` metadata names.

use serde_json::Value;

use posenc_encodings::laws::{
    Dynamic, Linear, Llama3, LongRope, LongRopeAttention, Ntk, Proportional, RampBounds, Rope,
    Scaling, Yarn,
};

/// The scaling of a site and what it scales, as a rewrite wrote them down.
///
/// # Errors
/// In words, what is missing or impossible.
pub(crate) fn law(site: &Value) -> Result<(Rope, Scaling), String> {
    let entry = Entry(site);
    let rope = Rope {
        theta: entry.number("theta")?,
        rotary_dim: entry.length("rotary_dim")?,
        head_dim: entry.length("head_dim")?,
    };
    let scaling = match &site["scaling"] {
        Value::Null => Scaling::None,
        scaling => Entry(scaling).scaling()?,
    };
    scaling.check(&rope).map_err(|e| e.to_string())?;
    Ok((rope, scaling))
}

struct Entry<'a>(&'a Value);

impl Entry<'_> {
    fn number(&self, key: &str) -> Result<f64, String> {
        let number = self.0[key].as_f64();
        number.ok_or_else(|| format!("{key} is missing"))
    }

    fn length(&self, key: &str) -> Result<usize, String> {
        let length = self.0[key].as_u64().and_then(|n| usize::try_from(n).ok());
        length.ok_or_else(|| format!("{key} is missing"))
    }

    fn list(&self, key: &str) -> Result<Vec<f64>, String> {
        let list = self.0[key].as_array();
        let list = list.and_then(|l| l.iter().map(Value::as_f64).collect::<Option<_>>());
        list.ok_or_else(|| format!("{key} is missing"))
    }

    fn scaling(&self) -> Result<Scaling, String> {
        let factor = || self.number("factor");
        Ok(match self.0["type"].as_str() {
            Some("none") => Scaling::None,
            Some("linear") => Scaling::Linear(Linear { factor: factor()? }),
            Some("ntk") => Scaling::Ntk(Ntk { factor: factor()? }),
            Some("dynamic") => Scaling::Dynamic(Dynamic {
                factor: factor()?,
                max_position: self.length("original_length")?,
            }),
            Some("yarn") => Scaling::Yarn(Yarn {
                factor: factor()?,
                original_length: self.length("original_length")?,
                beta_fast: self.number("beta_fast")?,
                beta_slow: self.number("beta_slow")?,
                bounds: match self.0["truncate"].as_bool() {
                    Some(false) => RampBounds::Exact,
                    _ => RampBounds::Truncated,
                },
                attention_factor: Some(self.number("attention_factor")?),
                mscale: None,
                mscale_all_dim: None,
            }),
            Some("longrope") => Scaling::LongRope(LongRope {
                short_factor: self.list("short_factor")?,
                long_factor: self.list("long_factor")?,
                original_length: self.length("original_length")?,
                attention: LongRopeAttention::Switched {
                    short: self.number("short_mscale")?,
                    long: self.number("long_mscale")?,
                },
            }),
            Some("llama3") => Scaling::Llama3(Llama3 {
                factor: factor()?,
                original_length: self.length("original_length")?,
                low_freq_factor: self.number("low_freq_factor")?,
                high_freq_factor: self.number("high_freq_factor")?,
            }),
            Some("proportional") => Scaling::Proportional(Proportional {
                factor: factor()?,
                share: self.number("partial_rotary_factor")?,
            }),
            other => return Err(format!("no scaling of type {}", other.unwrap_or("null"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn site(scaling: Value) -> Value {
        json!({"theta": 1e4, "rotary_dim": 8, "head_dim": 8, "scaling": scaling})
    }

    #[test]
    fn every_scaling_that_is_written_down_is_read_back() {
        let lists = vec![1.0, 1.0, 2.0, 4.0];
        let all = [
            Scaling::None,
            Scaling::Linear(Linear { factor: 4.0 }),
            Scaling::Ntk(Ntk { factor: 4.0 }),
            Scaling::Dynamic(Dynamic::new(2.0, 64).unwrap()),
            Scaling::Yarn(Yarn {
                attention_factor: Some(1.2),
                bounds: RampBounds::Exact,
                ..Yarn::new(4.0, 64).unwrap()
            }),
            Scaling::LongRope(LongRope {
                short_factor: lists.clone(),
                long_factor: lists,
                original_length: 64,
                attention: LongRopeAttention::Switched {
                    short: 1.0,
                    long: 1.1,
                },
            }),
            Scaling::Llama3(Llama3 {
                factor: 8.0,
                original_length: 64,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
            }),
            Scaling::Proportional(Proportional::new(0.5, 2.0).unwrap()),
        ];
        for scaling in all {
            let written = crate::record::scaling(&scaling);
            let (_, read) = law(&site(written)).unwrap();
            assert_eq!(read, scaling);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_words() {
        let cases = [
            (site(json!({"type": "linear"})), "factor is missing"),
            (site(json!({"type": "new"})), "no scaling of type new"),
            (site(json!({"factor": 2.0})), "no scaling of type null"),
            (json!({"theta": 1e4}), "rotary_dim is missing"),
        ];
        for (site, words) in cases {
            assert_eq!(law(&site).unwrap_err(), words);
        }
        assert!(law(&site(json!({"type": "linear", "factor": 0.0}))).is_err());
    }
}
