//! The file format as Rust types, generated from `proto/onnx.proto` by `cargo xtask proto`.
//!
//! Payloads are [`bytes::Bytes`]: slices of the buffer that a message was decoded from.

#![allow(missing_docs, unreachable_pub)] // generated; the schema file carries the comments
#![allow(clippy::all)] // generated

mod filled;

include!("proto/onnx.rs");
