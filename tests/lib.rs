//! Helpers of the suites: fixtures with their truth, models as encoded fields, runs of the binary.

pub mod binary;
pub mod edit;
pub mod fixture;
#[path = "../fuzz/src/lib.rs"]
pub mod fuzz;
pub mod safetensors;
pub mod shared;
pub mod wire;
