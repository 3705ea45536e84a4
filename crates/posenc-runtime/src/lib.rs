//! Runs ONNX models and cut-out subgraphs with tract or ONNX Runtime, through one trait.
//!
//! | feature | runtime | how it is linked |
//! |---|---|---|
//! | `tract` | [`TractBackend`] | compiled in |
//! | `ort` | [`OrtBackend`] | a library found at run time, see [`discover`] |
//! | | [`EvaluatorBackend`] | the evaluator of `posenc-ir` in f64: no runtime, where there is none |
//!
//! All implement [`Backend`], which loads a model into a [`Session`]. A model that a runtime may
//! compute wrongly is refused.
//!
//! This crate names no positional encoding, reads no environment variable and prints nothing.

pub mod backend;
#[cfg(any(feature = "tract", feature = "ort"))]
mod convert;
pub mod discover;
pub mod error;
pub mod evaluator;
pub mod feeds;
#[cfg(feature = "ort")]
pub mod ort;
pub mod provider;
pub mod runtimes;
#[cfg(feature = "tract")]
pub mod tract;

pub use backend::{
    Backend, Dim, Fallback, ModelSource, Optimization, Options, Placement, Port, Session,
};
pub use discover::{Candidate, Places};
pub use error::{Result, RuntimeError};
pub use evaluator::EvaluatorBackend;
#[cfg(feature = "ort")]
pub use ort::OrtBackend;
pub use provider::{ExecutionProvider, Provider};
pub use runtimes::{NOT_BUILT, ProviderState, RuntimeInfo, runtimes};
#[cfg(feature = "tract")]
pub use tract::TractBackend;
