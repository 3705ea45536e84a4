//! From a request to a scaling of RoPE.

use super::{Parameters, Request, ScaleType};
use crate::report::Inferred;
use posenc_encodings::kind::Kind;
use posenc_encodings::laws::shared::{FACTOR, ORIGINAL_LENGTH};
use posenc_encodings::laws::{Extension, LawError, Rope, Scaling, ScalingError};
use posenc_encodings::param::{Param, ParameterError};
use posenc_encodings::words::Word;

/// The scaling that the parameters describe, checked against `rope`, with the values that none of
/// them gave.
///
/// A factor left out is `max_length / original_length`, with neither the law's default.
///
/// # Errors
/// A needed value that is missing, a value without effect or out of range, or a scaling that is
/// not for RoPE.
///
/// ```
/// use posenc_onnx::encodings::laws::Rope;
/// use posenc_onnx::request::{LawName, Parameters, rope_scaling};
///
/// let parameters = Parameters { factor: Some(4.0), ..Parameters::default() };
/// let rope = Rope::new(10000.0, 64, 64)?;
/// let (scaling, _) = rope_scaling(LawName::Linear.into(), &parameters, &rope)?;
/// assert_eq!(scaling.to_json()["factor"], 4.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn rope_scaling(
    scale: ScaleType,
    parameters: &Parameters,
    rope: &Rope,
) -> Result<(Scaling, Vec<Inferred>), RopeScalingError> {
    match scale {
        ScaleType::None => {
            rope.check()?;
            Ok((Scaling::None, vec![]))
        }
        ScaleType::Law(law) => {
            let extension = Extension {
                factor: parameters.factor,
                original_length: parameters.original_length,
                max_length: parameters.max_length,
            };
            Ok(Scaling::from_given(law, &parameters.law, extension, rope)?)
        }
        _ => Err(RopeScalingError::Table { scale }),
    }
}

impl Request {
    /// Refuses parameters of frequencies that the request's law or config would ignore. It needs no
    /// model.
    ///
    /// # Errors
    /// [`ParameterError::Ineffective`] with the first such parameter.
    ///
    /// ```
    /// # use posenc_onnx::request::Request;
    /// let text = r#"{"scale": "linear", "parameters": {"law": {"beta_fast": 31.0}}}"#;
    /// let request: Request = serde_json::from_str(text)?;
    /// let error = request.check_law().unwrap_err();
    /// assert!(error.to_string().contains("beta-fast"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_law(&self) -> Result<(), ParameterError> {
        if self.keeps_or_makes_rope() {
            match (&self.hf_config, self.scale) {
                (Some(_), _) => self.check_next_to_config()?,
                (None, None) => self.check_extension(NO_LAW, &[])?,
                (None, Some(ScaleType::None)) => {
                    self.check_extension(ScaleType::None.name(), &[])?;
                }
                (None, Some(ScaleType::Law(law))) => {
                    self.check_extension(law.name(), law.facts().params)?;
                }
                // Lengths of tables.
                (None, Some(_)) => {}
            }
        }
        let Some(scale) = self.scale else {
            let of = if self.hf_config.is_some() {
                CONFIG
            } else {
                NO_LAW
            };
            return self.parameters.law.only(of, &[]);
        };
        scale.check(&self.parameters)
    }

    /// Whether frequencies of RoPE are all that a law can apply to. Of another kind,
    /// [`Request::ineffective`] says what has no effect.
    fn keeps_or_makes_rope(&self) -> bool {
        matches!(self.to, None | Some(Kind::Rope))
    }

    /// Refuses a factor and an original length that are no parameters of the law.
    fn check_extension(&self, of: &str, params: &[Param]) -> Result<(), ParameterError> {
        let p = &self.parameters;
        let options = [
            (FACTOR.name, p.factor.is_some()),
            (ORIGINAL_LENGTH.name, p.original_length.is_some()),
        ];
        let takes = |name: &str| params.iter().any(|param| param.name == name);
        let mut options = options.into_iter();
        match options.find(|(name, given)| *given && !takes(name)) {
            Some((name, _)) => Err(ineffective(name, of)),
            None => Ok(()),
        }
    }

    /// Refuses what a config decides alone. With the kind `rope`, layout and width may say that the
    /// rotations of the model are to be replaced; otherwise they stay.
    fn check_next_to_config(&self) -> Result<(), ParameterError> {
        let p = &self.parameters;
        let keeps = self.to.is_none();
        let options = [
            ("scale", self.scale.is_some()),
            ("theta", p.theta.is_some()),
            (FACTOR.name, p.factor.is_some()),
            (ORIGINAL_LENGTH.name, p.original_length.is_some()),
            ("layout", keeps && p.layout.is_some()),
            ("rotary-dim", keeps && p.rotary_dim.is_some()),
        ];
        match options.into_iter().find(|(_, given)| *given) {
            Some((name, _)) => Err(ineffective(name, CONFIG)),
            None => Ok(()),
        }
    }
}

/// What follows a config, in refusals.
const CONFIG: &str = "what a config says";

/// What has neither a config nor a law, in refusals.
pub(super) const NO_LAW: &str = "a rewrite without `scale`";

fn ineffective(parameter: &'static str, of: impl Into<String>) -> ParameterError {
    ParameterError::Ineffective {
        parameter,
        of: of.into(),
    }
}

impl ScaleType {
    /// Refuses a parameter of laws that this one would ignore.
    ///
    /// # Errors
    /// [`ParameterError::Ineffective`] with the first such parameter.
    ///
    /// ```
    /// # use posenc_onnx::request::{LawName, Parameters, ScaleType};
    /// let parameters: Parameters = serde_json::from_str(r#"{"law": {"beta_fast": 31.0}}"#)?;
    /// assert_eq!(ScaleType::from(LawName::Yarn).check(&parameters), Ok(()));
    /// let error = ScaleType::from(LawName::Linear).check(&parameters).unwrap_err();
    /// assert!(error.to_string().contains("beta-fast"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check(self, parameters: &Parameters) -> Result<(), ParameterError> {
        let takes_factor = match self {
            Self::Law(law) => {
                law.check(&parameters.law)?;
                law.facts().has(&FACTOR)
            }
            _ => {
                parameters.law.only(self.name(), &[])?;
                self != Self::None
            }
        };
        if parameters.factor.is_some() && !takes_factor {
            return Err(ineffective(FACTOR.name, self.name()));
        }
        Ok(())
    }
}

/// Parameters that make no scaling of RoPE.
///
/// ```
/// use posenc_onnx::encodings::laws::Rope;
/// use posenc_onnx::request::{Parameters, RopeScalingError, ScaleType, rope_scaling};
///
/// let rope = Rope::new(10000.0, 64, 64)?;
/// let error = rope_scaling(ScaleType::Tile, &Parameters::default(), &rope).unwrap_err();
/// assert_eq!(error, RopeScalingError::Table { scale: ScaleType::Tile });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RopeScalingError {
    /// The scaling resizes tables.
    #[error("{scale} resizes position tables and is no scaling of RoPE")]
    Table {
        /// The scaling.
        scale: ScaleType,
    },
    /// A parameter is missing, has no effect or is out of range.
    #[error(transparent)]
    Law(#[from] LawError),
}

impl From<ScalingError> for RopeScalingError {
    fn from(error: ScalingError) -> Self {
        LawError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Layout;
    use posenc_encodings::laws::LawName;
    use posenc_encodings::param::{Given, Value};

    use super::*;
    use crate::request::Config;

    fn rope() -> Rope {
        Rope::new(10_000.0, 16, 16).unwrap()
    }

    fn lists() -> Given {
        let list = |divisor| Value::Numbers(vec![divisor; 8]);
        Given::from_iter([("short-factor", list(1.0)), ("long-factor", list(2.0))])
    }

    /// What each law needs.
    fn parameters(law: LawName) -> Parameters {
        let law = match law {
            LawName::LongRope => lists(),
            _ => Given::default(),
        };
        Parameters {
            original_length: Some(64),
            law,
            ..Parameters::default()
        }
    }

    #[test]
    fn a_factor_left_out_follows_from_the_lengths_or_is_the_default() {
        let factor = |law: LawName, p: &Parameters| {
            let (scaling, inferred) = rope_scaling(law.into(), p, &rope()).unwrap();
            assert_eq!(scaling.name(), law.to_string());
            let value = inferred.first().map(|i| i.value.as_f64().unwrap());
            (
                value,
                inferred.into_iter().map(|i| i.source).collect::<String>(),
            )
        };
        for &law in LawName::ALL {
            let Some(default) = law.facts().factor else {
                continue;
            };
            let stretched = Parameters {
                max_length: Some(384),
                ..parameters(law)
            };
            let given = Parameters {
                factor: Some(2.0),
                ..stretched.clone()
            };
            let (value, source) = factor(law, &parameters(law));
            assert_eq!((value, &*source), (Some(default), "the default"), "{law}");
            let (value, source) = factor(law, &stretched);
            assert_eq!(value, Some(6.0), "{law}");
            assert!(source.contains("original length"), "{law}");
            assert_eq!(factor(law, &given), (None, String::new()), "{law}");
        }
    }

    #[test]
    fn a_weight_of_yarn_that_acts_with_another_alone_needs_it() {
        let mut p = parameters(LawName::Yarn);
        p.law = Given::from_iter([("mscale", Value::Number(2.0))]);
        let of = |p: &Parameters| rope_scaling(LawName::Yarn.into(), p, &rope());
        let why = of(&p).unwrap_err().to_string();
        assert!(
            why.starts_with("yarn with mscale needs mscale-all-dim: "),
            "{why}"
        );
        let both = [
            ("mscale", Value::Number(2.0)),
            ("mscale-all-dim", Value::Number(1.0)),
        ];
        p.law = Given::from_iter(both);
        assert!(of(&p).is_ok());
    }

    #[test]
    fn the_maximum_length_is_no_parameter_next_to_a_factor() {
        let p = Parameters {
            factor: Some(2.0),
            ..parameters(LawName::Yarn)
        };
        let longer = Parameters {
            max_length: Some(4096),
            ..p.clone()
        };
        let of = |p| rope_scaling(LawName::Yarn.into(), p, &rope()).unwrap();
        assert_eq!(of(&p), of(&longer));
    }

    #[test]
    fn what_is_missing_is_named() {
        let none = Parameters::default();
        let no_lists = parameters(LawName::Yarn);
        let cases = [
            (LawName::Yarn, &none, "yarn needs original-length: "),
            (LawName::Dynamic, &none, "dynamic needs original-length: "),
            (LawName::Llama3, &none, "llama3 needs original-length: "),
            (LawName::LongRope, &none, "longrope needs original-length: "),
            (
                LawName::LongRope,
                &no_lists,
                "longrope needs short-factor: ",
            ),
        ];
        for (law, p, want) in cases {
            let error = rope_scaling(law.into(), p, &rope()).unwrap_err();
            assert!(error.to_string().starts_with(want), "{law}: {error}");
        }
        for scale in [ScaleType::Cubic, ScaleType::Truncate] {
            let error = rope_scaling(scale, &no_lists, &rope()).unwrap_err();
            assert_eq!(error, RopeScalingError::Table { scale });
        }
    }

    #[test]
    fn a_parameter_without_effect_is_refused() {
        let mut request = Request {
            scale: Some(LawName::LongRope.into()),
            ..Request::default()
        };
        request.parameters.law = lists();
        assert_eq!(request.check_law(), Ok(()));
        for scale in [
            ScaleType::from(LawName::Yarn),
            ScaleType::None,
            ScaleType::Tile,
        ] {
            request.scale = Some(scale);
            let error = request.check_law().unwrap_err().to_string();
            let want = format!("long-factor has no effect on {scale}; remove it");
            assert_eq!(error, want);
        }
        request.scale = None;
        let error = request.check_law().unwrap_err().to_string();
        assert!(error.contains("a rewrite without `scale`"), "{error}");
        request.hf_config = Some(config());
        let error = request.check_law().unwrap_err().to_string();
        assert!(error.contains("what a config says"), "{error}");
    }

    #[test]
    fn a_factor_and_an_original_length_that_no_law_takes_are_refused() {
        type Change = fn(&mut Parameters);
        let factor: Change = |p| p.factor = Some(4.0);
        let length: Change = |p| p.original_length = Some(64);
        let check = |to, scale, change: Change| {
            let mut request = Request {
                to,
                scale,
                ..Request::default()
            };
            change(&mut request.parameters);
            request.check_law().map_err(|error| error.to_string())
        };
        let none = (Some(ScaleType::None), "none");
        let alpha = (Some(LawName::Alpha.into()), "alpha");
        for (scale, of) in [(None, "a rewrite without `scale`"), none, alpha] {
            for (name, change) in [("factor", factor), ("original-length", length)] {
                let want = format!("{name} has no effect on {of}; remove it");
                for to in [None, Some(Kind::Rope)] {
                    assert_eq!(check(to, scale, change), Err(want.clone()), "{to:?}");
                }
            }
        }
        for &law in LawName::ALL.iter().filter(|law| **law != LawName::Alpha) {
            for change in [factor, length] {
                assert_eq!(check(None, Some(law.into()), change), Ok(()), "{law}");
            }
        }
        // What has no effect on another kind is said of that kind.
        assert_eq!(check(Some(Kind::Alibi), None, factor), Ok(()));
        assert_eq!(check(None, Some(ScaleType::Tile), factor), Ok(()));
    }

    fn config() -> Config {
        Config::from_text("config.json", "{}")
    }

    /// What the check says of a request that follows a config, with a change.
    fn with_config(to: Option<Kind>, change: fn(&mut Request)) -> Result<(), String> {
        let mut request = Request {
            to,
            hf_config: Some(config()),
            ..Request::default()
        };
        change(&mut request);
        request.check_law().map_err(|error| error.to_string())
    }

    type Change = fn(&mut Request);

    #[test]
    fn what_a_config_decides_is_refused_next_to_it() {
        let cases: [(&str, Change); 4] = [
            ("scale", |r| r.scale = Some(LawName::Yarn.into())),
            ("theta", |r| r.parameters.theta = Some(1e6)),
            ("factor", |r| r.parameters.factor = Some(4.0)),
            ("original-length", |r| {
                r.parameters.original_length = Some(64);
            }),
        ];
        for (name, change) in cases {
            let want = format!("{name} has no effect on what a config says; remove it");
            for to in [None, Some(Kind::Rope)] {
                assert_eq!(with_config(to, change), Err(want.clone()), "{to:?}");
            }
            // The config itself has no effect on another kind.
            assert_eq!(with_config(Some(Kind::Alibi), change), Ok(()));
        }
        let of_model: [(&str, Change); 2] = [
            ("layout", |r| r.parameters.layout = Some(Layout::Half)),
            ("rotary-dim", |r| r.parameters.rotary_dim = Some(8)),
        ];
        for (name, change) in of_model {
            let want = format!("{name} has no effect on what a config says; remove it");
            assert_eq!(with_config(None, change), Err(want));
            // It may say that other features are to rotate.
            assert_eq!(with_config(Some(Kind::Rope), change), Ok(()));
        }
        for to in [None, Some(Kind::Rope)] {
            let longer = |r: &mut Request| r.parameters.max_length = Some(256);
            assert_eq!(with_config(to, longer), Ok(()));
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let p = Parameters {
            factor: Some(0.5),
            ..parameters(LawName::Linear)
        };
        let error = rope_scaling(LawName::Linear.into(), &p, &rope()).unwrap_err();
        let want = "`factor` must be a finite number of at least 1, got 0.5";
        assert_eq!(error.to_string(), want);
        let shrunk = Parameters {
            max_length: Some(32),
            ..parameters(LawName::Yarn)
        };
        let error = rope_scaling(LawName::Yarn.into(), &shrunk, &rope()).unwrap_err();
        let want = "a maximum length of 32 is below the original length 64, and without a factor";
        assert!(error.to_string().starts_with(want), "{error}");
    }
}
