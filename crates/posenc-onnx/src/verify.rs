//! The numeric proof: rotations against the formula in f64, and whole models against each other.
//!
//! Three questions, three parts. [`check_rope`] cuts the rotation of every site out, runs it in a
//! runtime and compares cos, sin, q and k with the formula, at positions up to the full length:
//! numbers say that a rewrite is right, although the whole model's output changes by design.
//! [`verify`] runs whole models at several lengths, with optimizations off and on, and compares
//! them with another model or another runtime; for models with a cache, prefill with decode.
//! [`bisect`](bisect::bisect) names the first node whose value differs.
//!
//! A comparison never passes by default: NaN, an empty output and another shape are failures.

mod bound;
pub mod compare;
mod cutout;
pub mod error;
pub mod expected;
mod measure;
mod recorded;
mod sample;
mod signature;
pub mod sites;
#[cfg(test)]
mod testing;

pub use compare::{Difference, Tolerance, compare};
pub use error::{Reason, VerifyError};
pub use expected::{Expected, Law, expectations};
pub use sites::{check_rope, summary};
