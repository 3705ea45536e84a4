//! Attention sites: finding them, their operands, keys, masks and scores, and the residual stream.

mod describe;
mod find;
pub mod frontier;
mod fused;
pub mod keys;
pub mod mask;
mod operands;
pub(crate) mod plane;
pub(crate) mod planes;
pub mod scale;
pub mod scores;
pub mod site;
mod stacks;
pub mod stream;
mod walk;

pub use find::sites;
pub(crate) use keys::per_token;
pub use site::{Mask, Operand, Site, StackLayer};
