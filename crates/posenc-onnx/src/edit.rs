//! Edits: a plan becomes a patch.

pub(crate) mod extend_buffers;
pub(crate) mod form;
pub(crate) mod insert;
pub(crate) mod layout;
mod redirect;
pub(crate) mod remove;
pub(crate) mod rescale;
pub(crate) mod resize;
pub(crate) mod stretch;
