//! From parameters to a scaling of RoPE.

use serde_json::json;

use super::{Parameters, ScaleType};
use crate::report::Inferred;
use posenc_encodings::laws::{
    Dynamic, Linear, Llama3, LongRope, LongRopeAttention, Ntk, Proportional, Rope, Scaling,
    ScalingError, Yarn,
};

/// Context extension where neither a factor nor two lengths are given; [`LLAMA3_FACTOR`] for
/// Llama 3.
pub const FACTOR: f64 = 4.0;

/// The factor of Llama 3.1.
pub const LLAMA3_FACTOR: f64 = 8.0;

/// The scaling that the parameters describe, checked against `rope`, with the values that none of
/// them gave.
///
/// A factor left out is `max_length / original_length`, with neither [`FACTOR`]. The share of
/// [`Proportional`] is that of the rotary width in the head.
///
/// # Errors
/// A needed value that is missing, a value out of range, or a scaling that is not for RoPE.
pub fn rope_scaling(
    scale: ScaleType,
    parameters: &Parameters,
    rope: &Rope,
) -> Result<(Scaling, Vec<Inferred>), RopeScalingError> {
    let p = parameters;
    let mut inferred = vec![];
    if matches!(scale, ScaleType::None) {
        rope.check()?;
        return Ok((Scaling::None, inferred));
    }
    let original = || {
        let missing = RopeScalingError::OriginalLength { scale };
        p.original_length.ok_or(missing)
    };
    let mut factor = |default: f64| {
        p.factor.unwrap_or_else(|| {
            let (value, source) = match (p.max_length, p.original_length) {
                (Some(max), Some(original)) if original > 0 => {
                    let source = "the maximum length ÷ the original length";
                    (max as f64 / original as f64, source)
                }
                _ => (default, "the default"),
            };
            inferred.push(Inferred {
                name: "factor".to_owned(),
                value: json!(value),
                source: source.to_owned(),
            });
            value
        })
    };
    let scaling = match scale {
        ScaleType::None => Scaling::None,
        ScaleType::Linear => Scaling::Linear(Linear {
            factor: factor(FACTOR),
        }),
        ScaleType::Ntk => Scaling::Ntk(Ntk {
            factor: factor(FACTOR),
        }),
        ScaleType::Dynamic => Scaling::Dynamic(Dynamic {
            max_position: original()?,
            factor: factor(FACTOR),
        }),
        ScaleType::Yarn => {
            let default = Yarn::new(1.0, original()?)?;
            Scaling::Yarn(Yarn {
                factor: factor(FACTOR),
                beta_fast: p.beta_fast.unwrap_or(default.beta_fast),
                beta_slow: p.beta_slow.unwrap_or(default.beta_slow),
                bounds: p.bounds,
                attention_factor: p.attention_factor,
                mscale: p.mscale,
                mscale_all_dim: p.mscale_all_dim,
                ..default
            })
        }
        ScaleType::LongRope => {
            let list =
                |list: &Option<Vec<f64>>, flag| list.clone().ok_or(RopeScalingError::List { flag });
            let original_length = original()?;
            Scaling::LongRope(LongRope {
                short_factor: list(&p.short_factor, "`short-factor`")?,
                long_factor: list(&p.long_factor, "`long-factor`")?,
                original_length,
                attention: match p.attention_factor {
                    Some(m) => LongRopeAttention::Explicit(m),
                    None => LongRopeAttention::Extension(factor(FACTOR)),
                },
            })
        }
        ScaleType::Llama3 => Scaling::Llama3(Llama3 {
            original_length: original()?,
            factor: factor(LLAMA3_FACTOR),
            low_freq_factor: p.low_freq_factor.unwrap_or(1.0),
            high_freq_factor: p.high_freq_factor.unwrap_or(4.0),
        }),
        ScaleType::Proportional => Scaling::Proportional(Proportional {
            share: rope.rotary_dim as f64 / rope.head_dim as f64,
            factor: factor(FACTOR),
        }),
        ScaleType::Cubic | ScaleType::Tile | ScaleType::Hierarchical | ScaleType::Truncate => {
            return Err(RopeScalingError::Table { scale });
        }
    };
    scaling.check(rope)?;
    Ok((scaling, inferred))
}

/// Parameters that make no scaling of RoPE.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RopeScalingError {
    /// The original length is needed and not known.
    #[error("{scale} scaling needs the length the model was trained on; give `original-length`")]
    OriginalLength {
        /// The scaling.
        scale: ScaleType,
    },
    /// A list is needed.
    #[error("longrope scaling needs a list with one entry per rotated pair; give {flag}")]
    List {
        /// The flag that gives it.
        flag: &'static str,
    },
    /// The scaling resizes tables.
    #[error("{scale} resizes position tables and is no scaling of RoPE")]
    Table {
        /// The scaling.
        scale: ScaleType,
    },
    /// A value is out of range.
    #[error(transparent)]
    Value(#[from] ScalingError),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rope() -> Rope {
        Rope::new(10_000.0, 16, 16).unwrap()
    }

    fn parameters() -> Parameters {
        Parameters {
            original_length: Some(64),
            short_factor: Some(vec![1.0; 8]),
            long_factor: Some(vec![2.0; 8]),
            ..Parameters::default()
        }
    }

    #[test]
    fn a_factor_left_out_follows_from_the_lengths_or_is_the_default() {
        let factor = |scale, p: &Parameters| {
            let (scaling, inferred) = rope_scaling(scale, p, &rope()).unwrap();
            assert_eq!(scaling.name(), scale.to_string());
            let value = inferred.first().map(|i| i.value.as_f64().unwrap());
            (
                value,
                inferred.into_iter().map(|i| i.source).collect::<String>(),
            )
        };
        let stretched = Parameters {
            max_length: Some(384),
            ..parameters()
        };
        let given = Parameters {
            factor: Some(2.0),
            ..stretched.clone()
        };
        use ScaleType::{Dynamic, Linear, Llama3, LongRope, Ntk, Proportional, Yarn};
        for scale in [Linear, Ntk, Dynamic, Yarn, LongRope, Llama3, Proportional] {
            let default = if scale == Llama3 { 8.0 } else { 4.0 };
            let (value, source) = factor(scale, &parameters());
            assert_eq!((value, &*source), (Some(default), "the default"), "{scale}");
            let (value, source) = factor(scale, &stretched);
            assert_eq!(value, Some(6.0), "{scale}");
            assert!(source.contains("original length"), "{scale}");
            assert_eq!(factor(scale, &given), (None, String::new()), "{scale}");
        }
    }

    #[test]
    fn the_maximum_length_is_no_parameter_beside_a_factor() {
        let p = Parameters {
            factor: Some(2.0),
            ..parameters()
        };
        let longer = Parameters {
            max_length: Some(4096),
            ..p.clone()
        };
        let of = |p| rope_scaling(ScaleType::Yarn, p, &rope()).unwrap();
        assert_eq!(of(&p), of(&longer));
    }

    #[test]
    fn what_is_missing_is_named_with_its_flag() {
        let none = Parameters::default();
        let no_lists = Parameters {
            original_length: Some(64),
            ..Parameters::default()
        };
        let cases = [
            (ScaleType::Yarn, &none, "`original-length`"),
            (ScaleType::Dynamic, &none, "`original-length`"),
            (ScaleType::Llama3, &none, "`original-length`"),
            (ScaleType::LongRope, &none, "`original-length`"),
            (ScaleType::LongRope, &no_lists, "`short-factor`"),
            (ScaleType::Cubic, &no_lists, "cubic resizes"),
            (ScaleType::Truncate, &no_lists, "truncate resizes"),
        ];
        for (scale, p, want) in cases {
            let error = rope_scaling(scale, p, &rope()).unwrap_err().to_string();
            assert!(error.contains(want), "{scale}: {error}");
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let p = Parameters {
            factor: Some(0.5),
            ..parameters()
        };
        let error = rope_scaling(ScaleType::Linear, &p, &rope()).unwrap_err();
        assert!(matches!(error, RopeScalingError::Value(_)));
        let shrunk = Parameters {
            max_length: Some(32),
            ..parameters()
        };
        assert!(rope_scaling(ScaleType::Yarn, &shrunk, &rope()).is_err());
    }
}
