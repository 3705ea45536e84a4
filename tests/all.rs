//! The suites, in one binary.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod inspect;
mod minimal_diff;
mod readme;
mod rescale;
mod roundtrip;
mod runtime;
mod snapshots;
