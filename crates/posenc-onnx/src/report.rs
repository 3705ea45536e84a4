//! What the tool says of a model, of a rewrite and of a check: the JSON contract as types.
//!
//! Fields are in the order in which they are written. Numbers that the graph does not determine are
//! `null` or a range, never a guess; a field that is `null` is written, not left out.

mod attention;
mod encoding;
mod inspect;
mod limit;
mod rewrite;
mod verify;

pub use attention::{Attention, AttentionKind};
pub use encoding::Encoding;
pub use inspect::{Inspect, ModelSummary, Refusal};
pub use limit::{Limit, LimitCause};
pub use posenc_encodings::inferred::Inferred;
pub use rewrite::{Check, Edit, Endpoint, Guarantee, Limits, Rewrite};
pub use verify::{Run, SiteCheck, Verify};

/// The version of the JSON: it is raised when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;
