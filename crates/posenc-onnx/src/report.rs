//! What the tool says of a model, of a rewrite and of a check: the JSON contract as types.
//!
//! Fields are in the order in which they are written. Numbers that the graph does not determine are
//! `null` or a range, never a guess; a field that is `null` is written, not left out.
//!
//! ```
//! # use posenc_onnx::Model;
//! let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
//! let json = serde_json::to_value(model.inspect())?;
//! assert_eq!(json["encodings"][0]["kind"], "rope");
//! assert!(json["encodings"][0]["max_length"].is_null());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attention;
mod encoding;
mod figure;
mod inspect;
mod limit;
mod rewrite;
mod verify;

pub use attention::{Attention, AttentionKind};
pub use encoding::Encoding;
pub use figure::{Figure, Line, Picture, Quantity, Shape};
pub use inspect::{Inspect, ModelSummary, Refusal};
pub use limit::{Limit, LimitCause};
pub use posenc_encodings::inferred::Inferred;
pub use rewrite::{Check, ConfigFile, Edit, Endpoint, Guarantee, Limits, Rewrite};
pub use verify::{Neighbour, Run, SiteCheck, Ulp, Verify};

/// The version of the JSON: it is raised when a field changes its meaning or is removed.
///
/// ```
/// # use posenc_onnx::{Model, report::SCHEMA};
/// let model = Model::open("../../fixtures/mini/rope/model.onnx")?;
/// let json = serde_json::to_value(model.inspect())?;
/// assert_eq!(json["schema"], SCHEMA);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub const SCHEMA: u32 = 1;
