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

mod angles;
pub(crate) mod bare;
pub(crate) mod bisect;
pub(crate) mod bound;
mod caches;
pub(crate) mod compare;
mod comparison;
pub(crate) mod compute;
mod cutout;
mod decode;
pub(crate) mod error;
pub(crate) mod expected;
pub(crate) mod feeds;
pub(crate) mod formula;
mod found;
mod given;
mod inputs;
pub(crate) mod inserted;
pub(crate) mod invariants;
mod lengths;
mod measure;
mod moved;
mod noise;
pub(crate) mod options;
mod permuted;
mod points;
pub(crate) mod readback;
pub(crate) mod recorded;
mod records;
pub(crate) mod rescaled;
pub(crate) mod resized;
pub(crate) mod respelled;
mod rotations;
mod row;
mod rows;
pub(crate) mod run;
mod sample;
mod seeded;
mod shift;
pub(crate) mod sites;
pub(crate) mod stretched;
mod subject;
pub(crate) mod swap;
mod sweep;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod tokens;
pub(crate) mod tolerance;
pub(crate) mod trial;
pub(crate) mod types;
mod ulp;
pub(crate) mod unchanged;
mod verify;
pub(crate) mod whole;

pub use error::{Reason, VerifyError};
pub(crate) use expected::{check_record, expectations};
pub use options::{Bisect, VerifyOptions};
pub(crate) use sites::check_rope;
pub(crate) use verify::{Beside, Rest, verify_with};
