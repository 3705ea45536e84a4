//! posenc-onnx
