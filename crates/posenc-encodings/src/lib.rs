//! The mathematics of positional encodings: families of encodings and the laws that rescale
//! rotary frequencies. Numbers and formulas in f64, recognition from samples, and the nodes that
//! compute them; nothing here knows how an encoding is found in a model.

// So that a file of test data can be shared with the tests of other crates.
#[cfg(test)]
extern crate self as posenc_encodings;

pub mod bias;
pub mod describe;
#[cfg(test)]
mod emitted;
pub mod encoding;
pub mod families;
pub mod family;
pub mod hf;
pub mod inferred;
pub mod input_term;
pub mod kind;
pub mod laws;
pub mod layout;
pub mod miss;
pub mod opset;
pub mod param;
pub mod params;
pub mod resize;
pub mod rotation;
pub mod round;
pub mod samples;
pub mod score_term;
pub mod words;

#[doc(hidden)]
pub use serde;
