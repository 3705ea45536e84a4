//! What a verification runs and which differences it allows.

use std::collections::BTreeMap;

use posenc_ir::Tensor;
use posenc_runtime::{Fallback, Provider};

use crate::detect::Options;
use crate::request::{InputRole, roles};

/// What a verification runs and which differences it allows.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Tract, verify::{VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let options = VerifyOptions { lengths: vec![4, 8], ..VerifyOptions::default() };
/// let report = verify(model.as_ir(), None, &options, &[Box::new(Tract::default())])?;
/// let lengths: Vec<usize> = report.runs.iter().map(|run| run.length).collect();
/// assert!(lengths.contains(&4) && lengths.contains(&8) && !lengths.contains(&16));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// What whole models run on: indices of runtimes, each with a provider. Empty: every runtime,
    /// on the processor. The others are compared with the first one.
    pub providers: Vec<(usize, Provider)>,
    /// Whether nodes may run on another provider than the one named.
    pub fallback: Fallback,
    /// Sequence lengths of whole runs. Empty: a few usual ones that the model supports.
    pub lengths: Vec<usize>,
    /// The inputs of whole runs, by name: one run instead of several with random inputs, at its own length. Each has
    /// the type of the model's input, or numbers that this type holds exactly. Empty: random inputs.
    pub inputs: Vec<(String, Tensor)>,
    /// Absolute tolerance of whole runs; `None`: by the type of the output.
    pub atol: Option<f64>,
    /// Relative tolerance of whole runs; `None`: by the type of the output.
    pub rtol: Option<f64>,
    /// Whether to search for the first value that differs.
    pub bisect: Bisect,
    /// Roles of inputs, by name, where they cannot be inferred.
    pub roles: BTreeMap<String, InputRole>,
}

impl VerifyOptions {
    /// How models are detected.
    pub(crate) fn detection(&self) -> Options {
        Options {
            roles: roles(&self.roles),
            ..Options::default()
        }
    }
}

/// Whether a verification searches for the first value that differs.
///
#[cfg_attr(feature = "tract", doc = "```")]
#[cfg_attr(not(feature = "tract"), doc = "```ignore")]
/// # use posenc_onnx::{Model, Tract, verify::{Bisect, VerifyOptions, verify}};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let other = Model::open("../../fixtures/mini/alibi/model.onnx")?;
/// let options = VerifyOptions { bisect: Bisect::FirstFailure, ..VerifyOptions::default() };
/// let backends = [Box::new(Tract::default()) as _];
/// let report = verify(model.as_ir(), Some(other.as_ir()), &options, &backends)?;
/// assert!(report.runs.iter().any(|run| run.first_divergence.is_some()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bisect {
    /// It does not.
    #[default]
    No,
    /// It does, in the first run that is out of bounds.
    FirstFailure,
}
