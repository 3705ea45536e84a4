//! What detection is told about a model.

use std::collections::BTreeMap;

use posenc_encodings::family::Family;

use crate::graph::ports::Role;

/// Options of detection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Roles of inputs by name, for inputs whose role cannot be inferred.
    pub roles: BTreeMap<String, Role>,
    /// Which of the branches of an `If` with attention is examined; those after the first are of
    /// a decoder without earlier keys.
    pub(crate) branch: usize,
    /// Families of score biases outside of the registry.
    pub(crate) custom: Vec<&'static Family>,
}
