//! The suites, in one binary.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod damage;
mod examples;
mod extend;
mod folders;
mod form;
mod fuzz;
mod grouped;
mod inspect;
mod layout;
mod logits;
mod minimal_diff;
mod planted;
mod readme;
mod renamed;
mod rescale;
mod rotating;
mod roundtrip;
mod runtime;
mod snapshots;
mod swap;
mod target;
mod verify;
