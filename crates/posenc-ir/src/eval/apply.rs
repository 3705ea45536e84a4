//! Evaluating one node.

use super::call::Call;
use super::table::kernel;
use super::{Budget, EvalError, Value};
use crate::node::Node;

/// Evaluates one node as far as its inputs are known; returns one value per declared output.
///
/// `opset` is the version of the node's domain that its scope imports. `inputs` are in the order of
/// the node, `None` for omitted ones. Unknown operators give [`Value::unknown`].
///
/// # Errors
/// When an attribute is invalid or the shapes do not fit.
pub fn apply(
    node: &Node,
    opset: i64,
    inputs: &[Option<&Value>],
    budget: &Budget,
) -> Result<Vec<Value>, EvalError> {
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
