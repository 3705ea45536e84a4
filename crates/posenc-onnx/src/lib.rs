//! posenc-onnx

pub mod scaling;
