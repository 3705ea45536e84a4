//! The families of encodings, one file each.

pub mod alibi;
pub mod axial;
pub mod conv;
pub mod disentangled;
pub mod learned;
pub mod relative_bias;
pub mod rope;
pub mod shaw;
pub mod sinusoidal;
pub mod t5_bias;
pub mod transformer_xl;
