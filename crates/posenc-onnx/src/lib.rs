//! Find, rescale, swap and prove the positional encodings of ONNX transformer models.
//!
//! [`detect::detect`] runs a graph with unknown content and says what encodes position where;
//! [`rewrite::rewrite`] changes it; [`report`] holds what both say, as JSON too.

pub mod attention;
pub mod detect;
pub mod edit;
pub mod error;
pub mod graph;
pub mod inspect;
pub mod plan;
pub mod prove;
pub mod record;
pub mod report;
pub mod request;
pub mod rewrite;
