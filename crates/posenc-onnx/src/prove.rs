//! The numeric proof: rotations against the formula in f64, and whole models against each other.
//!
//! [`check_rope`] cuts the rotation of every site out, runs it in a runtime and compares cos, sin,
//! q and k with the formula, at positions up to the full length: numbers show that a rewrite is
//! right, although the whole model's output changes by design. [`verify`] runs whole models at
//! several lengths, with optimizations off and on, and compares them with another model or another
//! runtime, and prefill with decode for models with a cache. [`bisect`](bisect::bisect) names the
//! first node whose value differs.
//!
//! A comparison never passes by default: NaN, an empty output and another shape are failures.

pub mod bisect;
pub(crate) mod bound;
pub mod compare;
mod cutout;
mod decode;
pub mod error;
pub mod expected;
pub mod feeds;
pub mod formula;
pub mod invariants;
mod measure;
pub mod options;
pub mod readback;
pub(crate) mod rescaled;
pub mod run;
mod sample;
pub mod sites;
mod subject;
pub mod swap;
mod sweep;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod tolerance;
pub(crate) mod trial;
mod verify;

pub use compare::{Difference, compare};
pub use error::{Reason, VerifyError};
pub use expected::{Expected, ExpectedFrequencies, expectations};
pub use options::{Bisect, VerifyOptions};
pub use run::RuntimeTarget;
pub use sites::check_rope;
pub use tolerance::Tolerance;
pub use verify::verify;
