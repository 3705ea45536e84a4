//! posenc-onnx

pub mod hf_config;
pub mod kind;
pub mod report;
pub mod request;
pub mod scaling;
pub mod words;
