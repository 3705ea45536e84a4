//! posenc-ir
