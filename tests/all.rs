//! The suites, in one binary.

mod inspect;
mod minimal_diff;
mod readme;
mod rescale;
mod roundtrip;
mod runtime;
mod snapshots;
