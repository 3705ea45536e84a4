//! Attention sites: finding them, their operands, keys, masks and scores, and the residual stream.

mod crossed;
mod describe;
mod find;
mod folded;
pub(crate) mod frontier;
mod fused;
pub(crate) mod heads;
pub(crate) mod keys;
pub(crate) mod latents;
pub(crate) mod left_out;
pub(crate) mod mask;
mod operands;
pub(crate) mod order;
mod parallel;
pub(crate) mod plane;
pub(crate) mod planes;
mod pruned;
pub(crate) mod reads;
pub(crate) mod scale;
pub(crate) mod scores;
pub(crate) mod site;
mod stacks;
pub(crate) mod stream;
mod walk;

pub(crate) use crossed::mark_crossed;
pub(crate) use find::{number, sites};
pub(crate) use fused::fused;
pub(crate) use keys::per_token;
pub(crate) use site::{Operand, Site, StackLayer};
