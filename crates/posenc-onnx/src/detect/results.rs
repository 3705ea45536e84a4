//! What the searches for encodings other than rotations give. Data only.

use super::finding::Finding;
use super::found::Refused;

/// Encodings, refused candidates and warnings, collected by one search after another.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) findings: Vec<Finding>,
    pub(crate) refused: Vec<Refused>,
    pub(crate) warnings: Vec<String>,
}
