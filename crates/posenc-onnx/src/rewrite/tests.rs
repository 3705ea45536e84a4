//! Whole rewrites of small graphs.

mod branches;
mod stacks;
mod swap;
