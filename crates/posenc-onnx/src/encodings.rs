//! The encodings, one file each.

pub mod rope;
