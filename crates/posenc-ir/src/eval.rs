//! A partial evaluator in f64 and i64: runs a graph at concrete lengths with unknown content.
//!
//! Every [`Value`] carries what is known of it: element type, dimensions, data. An operator
//! computes data where all that it needs is known and the [`Budget`] allows it, and otherwise
//! infers type and dimensions. Floats are held in f64 whatever type the graph gives them;
//! integers are held and wrap as i64.
//!
//! What is not known stays unknown: an operator that this module does not name yields
//! [`Value::unknown`]. What cannot be (a missing attribute, shapes that do not fit) is a [`Miss`].

mod array;
mod attention;
mod binary;
mod buckets;
mod call;
mod cast;
mod concat;
mod constant;
mod contrib;
mod control;
mod convolve;
mod einsum;
mod gather;
mod layout;
mod make;
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
mod unary;
mod value;
mod window;

pub use probe::probe;
pub use trace::{Trace, trace};
pub use unary::gelu_erf;
pub use value::{Data, Shared, Value};

use crate::node::Node;
use call::Call;

/// How much an evaluation may allocate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The most elements of one computed tensor. Above it, only type and dimensions are inferred.
    pub elements: usize,
}

impl Budget {
    /// Multiplications per allowed element that one product may take.
    const WORK: usize = 64;

    /// Whether a tensor of these dimensions may be computed. A dimension of 0 counts as 1, so
    /// that the dimensions of every allowed tensor can be multiplied without overflow.
    pub fn allows(&self, dims: &[usize]) -> bool {
        dims.iter()
            .try_fold(1usize, |n, d| n.checked_mul((*d).max(1)))
            .is_some_and(|n| n <= self.elements)
    }

    /// Whether a product of so many terms may be computed.
    fn allows_work(&self, factors: &[usize]) -> bool {
        factors
            .iter()
            .try_fold(1usize, |n, d| n.checked_mul((*d).max(1)))
            .is_some_and(|n| n <= self.elements.saturating_mul(Self::WORK))
    }
}

/// Why an operator has no result: the node breaks a rule of its operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Miss {
    /// The rule.
    pub why: Why,
}

/// The reasons of a [`Miss`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// A required input is left out.
    #[error("input {0} is left out")]
    NoInput(usize),
    /// An attribute is absent though required, of another type, or has an impossible value.
    #[error("attribute {0} is missing or unusable")]
    Attribute(&'static str),
    /// A parameter that is an input or attribute (axes, repeats, pads) has another length or
    /// value than the operator takes.
    #[error("parameter {0} is unusable")]
    Parameter(&'static str),
    /// An axis lies outside the rank, or stands twice.
    #[error("an axis lies outside the rank")]
    Axis,
    /// An input has another rank than the operator takes.
    #[error("an input has another rank than the operator takes")]
    Rank,
    /// The dimensions of the inputs contradict each other.
    #[error("the shapes do not fit together")]
    Shapes,
    /// A dimension would be negative or beyond what can be counted.
    #[error("a dimension is negative or too large")]
    Dimension,
    /// A target of a probe is not reached.
    #[error("the value does not follow from what is given")]
    NotReached,
}

impl From<Why> for Miss {
    fn from(why: Why) -> Self {
        Self { why }
    }
}

/// What one operator gives: its outputs in order.
type Outputs = Result<Vec<Value>, Miss>;

/// Evaluates one node, as far as its inputs are known; one value per declared output.
///
/// `opset` is the version of the node's domain that its scope imports. `inputs` stand in the
/// node's order, `None` for one left out. An operator or form that is not known here gives
/// [`Value::unknown`].
///
/// # Errors
/// A [`Miss`] where an attribute is malformed or the shapes cannot be.
pub fn apply(
    node: &Node,
    opset: i64,
    inputs: &[Option<&Value>],
    budget: &Budget,
) -> Result<Vec<Value>, Miss> {
    let count = node.outputs().len();
    let mut outputs = match table::kernel(node.domain(), node.op()) {
        Some(kernel) => kernel(&Call {
            node,
            opset,
            inputs,
            budget,
        })?,
        None => Vec::new(),
    };
    outputs.resize_with(count, Value::unknown);
    Ok(outputs)
}

#[cfg(test)]
mod testing;
