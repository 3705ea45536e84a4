//! all
mod runtime;
