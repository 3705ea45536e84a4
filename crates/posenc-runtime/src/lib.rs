//! posenc-runtime
