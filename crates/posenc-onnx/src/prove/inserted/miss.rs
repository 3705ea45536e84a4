//! Why an inserted encoding is not run against its formula.

/// Why nothing was run.
#[derive(Debug)]
pub(super) enum Miss {
    /// A site differs from the record: its name, and how.
    Differs(String, String),
    /// It cannot be compared, with the reason.
    Unchecked(String),
}
