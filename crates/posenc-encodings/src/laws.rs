//! Frequencies of rotary position embeddings (RoPE) and the laws that stretch
//! them to longer contexts: numbers only, no graph.
//!
//! Pair `i` of a head rotates by `pos · f_i`, and cos and sin carry the factor
//! `m` ([`Frequencies`]). Plain RoPE has `f_i = θ^(-2i/d)` and `m = 1`; every
//! law changes `f`, `m` or both. A law is one file, which says everything about
//! it: formula, source, parameters, the f64 reference, the same in the order of
//! operations that Hugging Face transformers 4.57 uses in f32, how it is made
//! from flags and from configs, how a record keeps it and how frequencies show
//! it. The list in this file is the only other place that names it.
//!
//! [`identify`] is the inverse, from numbers to a law.

#[macro_use]
mod registry;

mod config;
mod error;
mod facts;
mod given;
mod identify;
mod law;
mod name;
mod plain;
mod record;
mod rope;
mod scaling;
pub mod shared;
pub mod table;
mod torch;

#[cfg(test)]
mod docs;
#[cfg(test)]
pub(crate) mod golden;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod written;

pub use config::{EVERYWHERE, scaling_of_config};
pub use dynamic::identify_growth;
pub use error::{LawError, ScalingError};
pub use facts::Facts;
pub use given::Extension;
pub use identify::found::{Identified, IdentifiedScaling};
pub use identify::identify;
pub use longrope::{LongRopeAttention, identify_lists};
pub use name::params;
pub use rope::{Frequencies, FrequenciesF32, Rope};
pub use yarn::RampBounds;

laws! {
    linear::Linear,
    ntk::Ntk,
    dynamic::Dynamic,
    yarn::Yarn,
    longrope::LongRope,
    llama3::Llama3,
    proportional::Proportional,
    alpha::Alpha,
}
