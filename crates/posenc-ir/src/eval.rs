//! A partial evaluator in f64 and i64: runs a graph at concrete lengths with unknown content.
//!
//! A [`Value`] is what is known: element type, dimensions, data. An operator computes data where
//! its inputs are known and the [`Budget`] allows it, and otherwise infers type and dimensions.
//! Floats of every type are computed in f64; integers are computed, and wrap, in i64.
//!
//! Unknown operators give [`Value::unknown`]. Nodes that break a rule of their operator (a missing
//! attribute, shapes that do not fit) give an [`EvalError`].

mod apply;
mod array;
mod attention;
mod binary;
mod blocked;
mod buckets;
mod budget;
mod call;
mod cast;
mod concat;
mod constant;
mod contrib;
mod control;
mod convolve;
mod data;
mod einsum;
mod error;
mod fourier;
mod gather;
mod interpolate;
mod layout;
mod make;
mod memo;
mod memory;
mod normalize;
mod pad;
mod probe;
mod product;
mod quantize;
mod recurrent;
mod reduce;
mod rotary;
mod run;
mod scan;
mod scatter;
mod sequence;
mod shape;
mod slice;
mod spatial;
mod table;
mod trace;
mod trips;
mod unary;
mod value;
mod window;

pub use apply::apply;
pub use budget::Budget;
pub use data::{Data, Shared};
pub use error::{EvalError, Why};
pub use probe::probe;
pub use rotary::position_streams;
pub use trace::{Trace, trace};
pub use unary::gelu_erf;
pub use value::Value;

#[cfg(test)]
mod testing;
