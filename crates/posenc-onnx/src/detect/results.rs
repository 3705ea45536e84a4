//! What the searches for encodings other than rotations give. Data only.

use super::finding::Finding;
use super::found::Refused;

/// Fields of [`Found`](super::found::Found), collected by one search after another.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) findings: Vec<Finding>,
    pub(crate) no_encodings: Vec<Refused>,
    pub(crate) not_evaluated: Vec<String>,
}
