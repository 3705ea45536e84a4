//! Evaluating one node.

use super::call::Call;
use super::table::kernel;
use super::{Budget, Miss, Value};
use crate::node::Node;

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
    let mut outputs = match kernel(node.domain(), node.op()) {
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
