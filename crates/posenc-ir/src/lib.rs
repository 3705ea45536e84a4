//! ONNX models as a graph.
//!
//! Reading maps the file and copies no tensor. A [`Graph`] gives typed handles to values, nodes
//! and scopes. Edits are recorded by an [`Emitter`] as a [`Patch`], which is applied completely or
//! not at all. Messages that no patch changed are written with the bytes that were read.
//!
//! The crate knows nothing of positional encodings. Models are run only by its own partial
//! evaluator in f64, [`eval`].
//!
//! ```
//! use posenc_ir::{Model, text::Weights};
//!
//! let model = Model::parse("<ir_version: 8, opset_import: [\"\" : 17]> \
//!     g (float[n] x) => (float[n] y) { y = Relu(x) }")?;
//! model.check()?;
//! let bytes = model.to_bytes()?;
//! let again = Model::from_bytes(bytes)?;
//! assert_eq!(again.text(Weights::Full).to_string(), model.text(Weights::Full).to_string());
//! # Ok::<(), posenc_ir::Error>(())
//! ```
//!
//! The crate compiles for `wasm32-unknown-unknown`. Models are read with [`Model::from_bytes`] and
//! written with [`Model::to_bytes`] there; functions that write files are left out.

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
mod mistaken;
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
mod upgrade;
mod wire;

pub use check::Warning;
pub use cut::{Cut, CutInput, CutPort};
pub use diff::Diff;
pub use dtype::DType;
pub use emitter::{Attr, Emitter};
pub use error::{Error, ErrorKind, Result};
pub use external::ExternalData;
pub use file::{copy_to, write_file};
pub use fingerprint::fingerprint_of;
pub use graph::{Def, Dim, Graph, Scope, ScopeKind, Type, Use, Value};
pub use id::{NodeId, ScopeId, ValueId};
pub use model::Model;
pub use node::Node;
pub use patch::{Applied, Patch};
pub use schema::is_operator;
pub use stored::{External, Payload, Stored};
pub use tensor::Tensor;
pub use text::Weights;
