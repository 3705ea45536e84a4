//! Find, rescale, swap and prove the positional encodings of ONNX transformer models.
//!
//! [`detect::detect`] runs a graph with unknown content and says what encodes position where;
//! [`rewrite::rewrite`] changes it; [`report`] holds what both say, as JSON too.

pub mod attention;
pub mod dataflow;
pub mod detect;
mod einsum;
pub mod encoding;
pub mod frontier;
pub mod hf_config;
pub mod inspect;
mod keys;
pub mod lane;
mod limits;
mod mask;
pub mod plan;
pub mod ports;
mod product;
pub mod region;
pub mod report;
pub mod request;
pub mod rewrite;
mod scores;
mod signature;
#[cfg(test)]
mod sketch;
mod stream;
mod swap;
pub mod verify;
