//! NTK-alpha of Hunyuan: plain RoPE of `θ' = θ · α^(d/(d-2))`, at every length.
//!
//! The formula of [`Ntk`](super::Ntk) with an α that is chosen freely, 1000 in
//! published configs: it is no ratio of lengths. The numbers alone are those of
//! a model that was trained with θ'.
//!
//! Source: Tencent Hunyuan, `HunYuanDenseV1RotaryEmbedding` and
//! `HunYuanMoEV1RotaryEmbedding` of Hugging Face transformers, whose configs say
//! `type: dynamic` with a key `alpha`.

use serde::{Deserialize, Serialize};

use super::error::{self, LawError, ScalingError};
use super::facts::Facts;
use super::given::Chosen;
use super::law::Law;
use super::plain;
use super::rope::Rope;
use crate::hf::{HfConfigError, HfType, Reader, Writer};
use crate::param::{Param, Values};

const ALPHA: Param = Param {
    name: "alpha",
    values: Values::Positive,
    help: "strength α of the larger base, at least 1",
    unit: "",
    default: "",
};

const FACTS: Facts = Facts {
    word: "alpha",
    about: "RoPE of a larger base by Hunyuan's α",
    source: "Tencent Hunyuan 2024, transformers `hunyuan_v1_dense`",
    params: &[ALPHA],
    hf_types: &[
        HfType {
            word: "dynamic",
            with: &["alpha"],
        },
        HfType::word("alpha"),
    ],
    // All but `alpha` are in Hunyuan's configs and have no effect there.
    hf_keys: &[
        "alpha",
        "factor",
        "original_max_position_embeddings",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
    ],
    reads_as_plain: true,
    ..Facts::NONE
};

/// The parameter of NTK-alpha.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Alpha {
    /// Strength α, at least 1.
    pub alpha: f64,
}

impl Alpha {
    /// A checked parameter.
    ///
    /// # Errors
    ///
    /// An α below 1 or not finite.
    pub fn new(alpha: f64) -> Result<Self, ScalingError> {
        error::factor(ALPHA.name, alpha)?;
        Ok(Self { alpha })
    }

    /// The enlarged base θ'.
    pub fn base(&self, rope: &Rope) -> f64 {
        plain::grown_base(rope, self.alpha)
    }
}

impl Law for Alpha {
    fn facts() -> &'static Facts {
        &FACTS
    }

    fn from_given(given: &mut Chosen<'_>) -> Result<Self, LawError> {
        let alpha = given.needed(&ALPHA, given.number(&ALPHA))?;
        Ok(Self { alpha })
    }

    fn from_hf(config: &mut Reader<'_>) -> Result<Self, HfConfigError> {
        Ok(Self::new(config.needed_number(ALPHA.name)?)?)
    }

    fn to_hf(&self, rope: &Rope, config: &mut Writer) {
        config.theta = self.base(rope);
    }

    fn check(&self, rope: &Rope) -> Result<(), ScalingError> {
        error::factor(ALPHA.name, self.alpha)?;
        plain::needs_two_pairs(FACTS.word, rope)
    }

    fn inv_freq(&self, rope: &Rope, _: usize) -> Vec<f64> {
        plain::inv_freq(self.base(rope), rope.rotary_dim)
    }

    fn inv_freq_hf(&self, rope: &Rope, _: usize) -> Vec<f32> {
        plain::inv_freq_hf(self.base(rope) as f32, rope.rotary_dim)
    }

    fn is_identity(&self, _: &Rope) -> bool {
        self.alpha == 1.0
    }

    fn extension(&self) -> f64 {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::hf::Dict;
    use crate::laws::{Extension, LawName, Scaling, identify, scaling_of_config};
    use crate::param::{self, Given};

    fn near(got: f64, want: f64, share: f64) -> bool {
        (got / want - 1.0).abs() < share
    }

    /// d = 8: the exponent is 4/3, and 16^(4/3) = 2^(16/3), so `f_i` = 10^-i · 2^(-4i/3).
    #[test]
    fn frequencies_are_those_worked_out_by_hand() {
        let rope = Rope::new(10_000.0, 8, 8).unwrap();
        let alpha = Alpha::new(16.0).unwrap();
        assert!(near(alpha.base(&rope), 403_174.735_966_359_4, 1e-15));
        let want = [
            1.0,
            3.968_502_629_920_498_7e-2,
            1.574_901_312_368_591_5e-3,
            6.25e-5,
        ];
        let scaling = Scaling::Alpha(alpha);
        for length in [1, 64, 1_000_000] {
            let got = scaling.frequencies(&rope, length);
            let hf = scaling.frequencies_hf(&rope, length);
            for (i, want) in want.into_iter().enumerate() {
                assert!(near(got.inv_freq[i], want, 1e-14), "{i}");
                assert!(near(hf.inv_freq[i].into(), want, 3e-7), "{i}");
            }
            assert_eq!((got.attention_factor, hf.attention_factor), (1.0, 1.0));
        }
        let wrong = Scaling::Alpha(Alpha { alpha: 16.1 }).frequencies(&rope, 1);
        assert!(!near(wrong.inv_freq[3], want[3], 1e-3), "control");
    }

    /// θ = 10000, α = 1000, d = 128 as in Hunyuan's configs; computed with 50 decimal digits.
    #[test]
    fn hunyuans_frequencies_equal_those_of_decimal_arithmetic() {
        let rope = Rope::new(10_000.0, 128, 128).unwrap();
        let scaling = Scaling::Alpha(Alpha::new(1000.0).unwrap());
        let got = scaling.frequencies(&rope, 1).inv_freq;
        let hf = scaling.frequencies_hf(&rope, 1).inv_freq;
        let want = [
            (0, 1.0),
            (1, 7.760_343_630_469_744e-1),
            (31, 3.857_531_879_086_757e-4),
            (32, 2.993_577_294_720_482e-4),
            (63, 1.154_781_984_689_458_2e-7),
        ];
        for (i, want) in want {
            assert!(near(got[i], want, 1e-13), "{i}");
            assert!(near(hf[i].into(), want, 1e-6), "{i}");
        }
    }

    #[test]
    fn it_changes_nothing_with_the_length_and_names_no_length() {
        let rope = Rope::new(10_000.0, 16, 16).unwrap();
        let scaling = Scaling::Alpha(Alpha::new(1000.0).unwrap());
        assert!(!scaling.depends_on_length());
        assert_eq!(scaling.original_length(), None);
        assert_eq!(scaling.extended(4096), Some(4096));
        assert!(!scaling.is_identity(&rope));
        let one = Scaling::Alpha(Alpha::new(1.0).unwrap());
        assert!(one.is_identity(&rope));
        assert_eq!(
            one.frequencies(&rope, 1),
            Scaling::None.frequencies(&rope, 1)
        );
    }

    #[test]
    fn its_numbers_read_as_a_larger_theta() {
        let rope = Rope::new(500_000.0, 16, 16).unwrap();
        let alpha = Alpha::new(2.5).unwrap();
        let list = Scaling::Alpha(alpha).frequencies(&rope, 1).inv_freq;
        let found = identify(&list, 1.0, 16, 16, 1e-6);
        assert_eq!(found.scaling, None);
        assert!(near(found.theta.unwrap(), 1_424_815.351_309_496, 1e-4));
    }

    #[test]
    fn flags_and_records_give_it() {
        let rope = Rope::new(10_000.0, 16, 16).unwrap();
        let given = |alpha| Given::from_iter([("alpha", param::Value::Number(alpha))]);
        let of =
            |given: &Given| Scaling::from_given(LawName::Alpha, given, Extension::default(), &rope);
        let want = Scaling::Alpha(Alpha { alpha: 1000.0 });
        assert_eq!(of(&given(1000.0)), Ok((want.clone(), vec![])));
        let text = r#"{"alpha":1000.0,"type":"alpha"}"#;
        assert_eq!(serde_json::to_string(&want).unwrap(), text);
        assert_eq!(serde_json::from_str::<Scaling>(text).unwrap(), want);
        let error = |result: Result<_, LawError>| result.unwrap_err().to_string();
        let missing = error(of(&Given::default()));
        assert!(missing.starts_with("alpha needs alpha: "), "{missing}");
        let small = "`alpha` must be a finite number of at least 1, got 0.5";
        assert_eq!(error(of(&given(0.5))), small);
        let other = Given::from_iter([("beta-fast", param::Value::Number(8.0))]);
        let ineffective = "beta-fast has no effect on alpha; remove it";
        assert_eq!(error(of(&other)), ineffective);
    }

    fn of_config(section: Value) -> Result<Scaling, HfConfigError> {
        let Value::Object(section) = section else {
            panic!("a section is an object");
        };
        let config = Map::new();
        let section = Dict::new(&section, "rope_scaling");
        scaling_of_config(&Dict::new(&config, ""), &section, &mut vec![])
    }

    #[test]
    fn configs_give_it() {
        let want = Scaling::Alpha(Alpha { alpha: 1000.0 });
        for section in [
            json!({"type": "dynamic", "alpha": 1000.0, "factor": 1.0, "beta_fast": 32,
                   "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 0.0}),
            json!({"rope_type": "dynamic", "alpha": 1000}),
            json!({"type": "alpha", "alpha": 1000.0}),
        ] {
            assert_eq!(of_config(section.clone()), Ok(want.clone()), "{section}");
        }
        let cases = [
            (
                json!({"type": "alpha"}),
                "alpha scaling needs rope_scaling.alpha, which is missing",
            ),
            (
                json!({"type": "dynamic", "alpha": "1000"}),
                "rope_scaling.alpha must be a number, got \"1000\"",
            ),
            (
                json!({"type": "dynamic", "alpha": 0.5}),
                "the config's rotary embedding is impossible: alpha must be a finite number of at least 1, got 0.5",
            ),
            (
                json!({"type": "alpha", "alpha": 2.0, "truncate": true}),
                "rope_scaling.truncate is not a key of alpha scaling, which knows alpha, factor, original_max_position_embeddings, beta_fast, beta_slow, mscale, mscale_all_dim, rope_type, type, rope_theta, partial_rotary_factor",
            ),
            (
                json!({"type": "linear", "factor": 2.0, "alpha": 2.0}),
                "rope_scaling.alpha is not a key of linear scaling, which knows factor, rope_type, type, rope_theta, partial_rotary_factor",
            ),
        ];
        for (section, want) in cases {
            assert_eq!(of_config(section).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn a_single_pair_is_refused() {
        let rope = Rope::new(10_000.0, 2, 8).unwrap();
        let error = Scaling::Alpha(Alpha { alpha: 2.0 }).check(&rope);
        let want = "alpha scaling needs a rotary width of at least 4, got 2";
        assert_eq!(error.unwrap_err().to_string(), want);
    }
}
