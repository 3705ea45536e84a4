//! Opening runtimes by the names that `--provider` takes.

use std::str::FromStr;

use posenc_runtime::provider::InvalidProvider;
use posenc_runtime::{Backend, EvaluatorBackend, Provider, RuntimeError};

use crate::places::Search;

/// A runtime to run a model on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The embedded runtime.
    Tract,
    /// ONNX Runtime, on a provider.
    Ort(Provider),
    /// The evaluator in f64, in builds without a runtime. No word names it.
    Evaluator,
}

impl FromStr for Choice {
    type Err = String;

    /// Any word but `tract` names a provider of ONNX Runtime.
    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word.split([':', ',']).next() {
            Some("tract") if word == "tract" => Ok(Self::Tract),
            Some("tract") => Err("tract takes no device and no options".to_owned()),
            _ => {
                let provider = word.parse();
                provider
                    .map(Self::Ort)
                    .map_err(|e: InvalidProvider| e.to_string())
            }
        }
    }
}

impl Choice {
    /// The runtimes to try by default: the embedded one, then an installed one; in builds without any, the
    /// evaluator.
    pub(crate) fn defaults() -> Vec<Self> {
        match cfg!(any(feature = "tract", feature = "ort")) {
            true => vec![Self::Tract, Self::Ort(Provider::Cpu)],
            false => vec![Self::Evaluator],
        }
    }

    /// The provider within the runtime.
    pub(crate) fn provider(&self) -> Provider {
        match self {
            Self::Tract | Self::Evaluator => Provider::Cpu,
            Self::Ort(provider) => provider.clone(),
        }
    }

    /// Opens the runtime.
    ///
    /// # Errors
    /// `Unavailable` if the runtime or its provider is not available.
    pub(crate) fn open(&self, search: &Search) -> Result<Box<dyn Backend>, RuntimeError> {
        match self {
            Self::Tract => tract(),
            Self::Ort(provider) => ort(provider, search),
            Self::Evaluator => Ok(Box::new(EvaluatorBackend)),
        }
    }
}

#[cfg(feature = "tract")]
fn tract() -> Result<Box<dyn Backend>, RuntimeError> {
    Ok(Box::new(posenc_runtime::TractBackend::new()))
}

#[cfg(feature = "ort")]
fn ort(provider: &Provider, search: &Search) -> Result<Box<dyn Backend>, RuntimeError> {
    let ort = posenc_runtime::OrtBackend::open(&crate::places::gather(search))?;
    ort.probe(provider)?;
    Ok(Box::new(ort))
}

#[cfg(not(feature = "tract"))]
fn tract() -> Result<Box<dyn Backend>, RuntimeError> {
    Err(RuntimeError::unavailable(
        "tract",
        "this build does not include it",
    ))
}

#[cfg(not(feature = "ort"))]
fn ort(_: &Provider, _: &Search) -> Result<Box<dyn Backend>, RuntimeError> {
    Err(RuntimeError::unavailable(
        "ONNX Runtime",
        "this build does not include it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_are_chosen_by_name() {
        for (word, want) in [
            ("tract", Choice::Tract),
            ("cpu", Choice::Ort(Provider::Cpu)),
            ("cuda", Choice::Ort(Provider::cuda(0))),
            ("cuda:1", Choice::Ort(Provider::cuda(1))),
        ] {
            assert_eq!(word.parse(), Ok(want), "{word}");
        }
        for (word, why) in [
            ("tract:1", "tract takes no device"),
            ("tract,a=1", "tract takes no device and no options"),
            ("tractor", "has no provider \"tractor\""),
            ("gpu", "has no provider \"gpu\""),
        ] {
            let error = word.parse::<Choice>().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
