//! What a request means for the sites that were found, before anything changes.

pub(crate) mod change;
pub mod numbers;
pub mod rescale;
pub mod swap;
