//! What a verification runs and which differences it allows.

use std::collections::BTreeMap;

use posenc_runtime::{Fallback, Provider};

use crate::graph::ports::Role;

/// What a verification runs and which differences it allows.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// What whole models run on: indices of runtimes, each with a provider. Empty: every runtime,
    /// on the processor. The others are compared with the first one.
    pub providers: Vec<(usize, Provider)>,
    /// Whether nodes may run on another provider than the one named.
    pub fallback: Fallback,
    /// Sequence lengths of whole runs. Empty: a few usual ones that the model supports.
    pub lengths: Vec<usize>,
    /// Absolute tolerance of whole runs; `None`: by the type of the output.
    pub atol: Option<f64>,
    /// Relative tolerance of whole runs; `None`: by the type of the output.
    pub rtol: Option<f64>,
    /// Whether to search for the first value that differs.
    pub bisect: Bisect,
    /// Roles of inputs, by name, where they cannot be inferred.
    pub roles: BTreeMap<String, Role>,
}

/// Whether a verification searches for the first value that differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bisect {
    /// It does not.
    #[default]
    No,
    /// It does, in the first run that is out of bounds.
    FirstFailure,
}
