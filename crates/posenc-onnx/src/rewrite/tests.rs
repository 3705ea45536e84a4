//! Whole rewrites of small graphs.

pub(crate) mod branches;
mod config;
mod functions;
mod ids;
mod precision;
mod rescaled;
mod selection;
mod stacks;
mod swap;
