//! The library for a page in the browser: files come in as bytes, requests and reports as JSON.
//!
//! The modules compile everywhere, so that tests run without a browser; only `exports` is the interface
//! of the module of WebAssembly.

pub mod model;
pub mod options;
pub mod problem;
pub mod proof;
pub mod rewrite;

#[cfg(target_family = "wasm")]
pub mod exports;
