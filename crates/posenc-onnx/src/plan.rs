//! What a request means for the sites that were found, before anything changes.

pub(crate) mod change;
pub(crate) mod numbers;
pub(crate) mod readers;
pub(crate) mod rescale;
pub(crate) mod resize;
pub(crate) mod selection;
pub(crate) mod stretch;
pub(crate) mod swap;
pub(crate) mod unread;
