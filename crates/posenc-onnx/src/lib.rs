//! posenc-onnx

pub mod kind;
pub mod report;
pub mod request;
pub mod scaling;
pub mod words;
