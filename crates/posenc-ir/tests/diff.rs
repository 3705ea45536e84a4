//! Two models compared by structure: renamed and reordered they are the same, and one change is one
//! difference.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

#[path = "../../../tests/shared.rs"]
pub mod shared;

mod diff {
    mod external;
    mod made;
    mod real;
    mod rewrite;
}
