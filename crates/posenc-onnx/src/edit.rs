//! Edits: a plan becomes a patch.

pub mod extend_buffers;
pub mod insert;
mod redirect;
pub mod remove;
pub mod rescale;
