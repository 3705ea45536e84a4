//! Why numbers do not fit a family.

/// Why numbers are not those of a family.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{why}")]
pub struct Miss {
    /// A fact about the numbers, as a phrase that may follow "no alibi: ".
    pub why: String,
}

impl Miss {
    /// A miss for this reason.
    pub fn new(why: impl Into<String>) -> Self {
        Self { why: why.into() }
    }
}
