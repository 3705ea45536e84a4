//! Whole rewrites of small graphs.

mod branches;
mod selection;
mod stacks;
mod swap;
