//! Whole rewrites of small graphs.

mod branches;
mod swap;
