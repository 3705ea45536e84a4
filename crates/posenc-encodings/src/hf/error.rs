//! Why a config cannot be applied.

use crate::laws::ScalingError;

/// A config that cannot be applied.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum HfConfigError {
    /// Text that is not JSON.
    #[error("the config is not JSON: {0}")]
    Json(String),
    /// JSON of another shape.
    #[error("the config must be a JSON object")]
    NotAnObject,
    /// A value of the wrong type.
    #[error("{key} must be {want}, got {got}")]
    WrongType {
        /// Path of the key.
        key: String,
        /// What was expected.
        want: &'static str,
        /// The value as JSON.
        got: String,
    },
    /// A value that is needed and not there.
    #[error("{needed_for} needs {key}, which is missing")]
    Missing {
        /// Path of the key.
        key: String,
        /// What needs it.
        needed_for: String,
    },
    /// A key that the scaling type does not have.
    #[error("{key} is not a key of {kind} scaling, which knows {known}")]
    UnknownKey {
        /// Path of the key.
        key: String,
        /// The scaling type.
        kind: String,
        /// The keys it has.
        known: String,
    },
    /// A scaling type that is not known.
    #[error("{key} must be one of {known}, got {got}")]
    UnknownType {
        /// Path of the key.
        key: String,
        /// What it was.
        got: String,
        /// The types there are.
        known: String,
    },
    /// Two keys that contradict each other.
    #[error("{first} and {second} contradict each other, keep one")]
    Conflict {
        /// Path of one key.
        first: String,
        /// Path of the other.
        second: String,
    },
    /// Something that is known and not supported.
    #[error("{key} means {what}, which is not supported yet")]
    NotSupported {
        /// Path of the key.
        key: String,
        /// What it means, in words.
        what: &'static str,
    },
    /// A layer for which a list has no entry.
    #[error("{key} has {entries} entries and none for layer {layer}")]
    Layer {
        /// Path of the list.
        key: String,
        /// Its length.
        entries: usize,
        /// The layer, counted from 0.
        layer: usize,
    },
    /// Parameters that are out of range.
    #[error("the config's rotary embedding is impossible: {}", .0.of_file())]
    Scaling(ScalingError),
}

impl From<ScalingError> for HfConfigError {
    fn from(error: ScalingError) -> Self {
        Self::Scaling(error)
    }
}
