//! Whole rewrites of small graphs.

pub(crate) mod branches;
mod config;
mod functions;
mod selection;
mod stacks;
mod swap;
