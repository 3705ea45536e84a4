//! ONNX models as a graph.
//!
//! Reading maps a file and copies no tensor. A `Graph` gives typed handles to values, nodes and
//! scopes; nothing edits it in place: an `Emitter` records a `Patch`, which is applied whole or
//! not at all. What no patch touched is written back as the bytes that were read.
//!
//! This crate names no positional encoding and runs no model but by its own small f64 evaluator.

pub mod check;
pub mod cut;
pub mod diff;
pub mod dtype;
pub mod emitter;
mod encoded;
pub mod error;
pub mod eval;
pub mod external;
#[cfg_attr(
    target_family = "wasm",
    allow(dead_code, reason = "only saving to files moves external data")
)]
mod field;
mod file;
mod fingerprint;
pub mod graph;
pub mod id;
mod inline;
mod list;
pub mod model;
mod nesting;
pub mod node;
mod order;
pub mod patch;
pub mod proto;
#[cfg(test)]
mod samples;
mod schema;
mod sort;
mod splice;
pub mod stored;
pub mod tensor;
pub mod text;
mod wire;

pub use check::Warning;
pub use cut::{Cut, CutInput, CutPort};
pub use diff::Diff;
pub use dtype::DType;
pub use emitter::{Attr, Emitter};
pub use error::{Error, ErrorKind, Result};
#[cfg(not(target_family = "wasm"))]
pub use external::ExternalData;
pub use fingerprint::fingerprint_of;
pub use graph::{Def, Dim, Graph, Scope, ScopeKind, Type, Use, Value};
pub use id::{NodeId, ScopeId, ValueId};
pub use model::Model;
pub use node::Node;
pub use patch::{Applied, Patch};
pub use stored::{External, Payload, Stored};
pub use tensor::Tensor;
pub use text::Weights;
