//! Names of laws as words, and the parameters of all of them.

use std::fmt;
use std::str::FromStr;

use super::LawName;
use crate::param::{Given, Param, ParameterError};
use crate::words::{UnknownWord, Word, find};

impl fmt::Display for LawName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for LawName {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, UnknownWord> {
        find("law of RoPE", word)
    }
}

impl LawName {
    /// Refuses values that the law would ignore.
    ///
    /// # Errors
    /// [`ParameterError::Ineffective`] with the first such parameter.
    pub fn check(self, given: &Given) -> Result<(), ParameterError> {
        given.only(self.name(), self.facts().params)
    }
}

/// Every parameter of the laws with the laws that have it, in the order of the laws.
pub fn params() -> Vec<(&'static Param, Vec<LawName>)> {
    let mut all: Vec<(&Param, Vec<LawName>)> = vec![];
    for &law in LawName::ALL {
        for param in law.facts().params {
            match all.iter_mut().find(|(known, _)| known.name == param.name) {
                Some((_, laws)) => laws.push(law),
                None => all.push((param, vec![law])),
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::param::Value;

    #[test]
    fn a_parameter_of_several_laws_means_the_same_in_all() {
        for (param, laws) in params() {
            for law in laws {
                let own = law.facts().params.iter().find(|p| p.name == param.name);
                assert_eq!(own, Some(param), "{law}");
            }
        }
    }

    #[test]
    fn words_and_types_of_configs_mean_one_law() {
        for (i, law) in LawName::ALL.iter().enumerate() {
            assert_eq!(law.name().parse(), Ok(*law));
            for other in &LawName::ALL[i + 1..] {
                assert_ne!(law.name(), other.name());
                for hf in law.facts().hf_types {
                    assert!(!other.facts().hf_types.contains(hf), "{law} {other} {hf:?}");
                }
            }
        }
    }

    #[test]
    fn a_value_that_a_law_ignores_is_refused() {
        let given = Given::from_iter([("beta-fast", Value::Number(8.0))]);
        assert_eq!(LawName::Yarn.check(&given), Ok(()));
        let error = LawName::Linear.check(&given).unwrap_err().to_string();
        assert_eq!(error, "beta-fast has no effect on linear; remove it");
    }
}
