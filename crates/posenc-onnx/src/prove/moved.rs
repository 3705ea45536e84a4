//! Outputs whose elements another model has in another order.

use posenc_ir::Tensor;

use super::VerifyError;
use super::run::Outputs;
use crate::graph::reorder::Order;

/// Outputs in the order of another model, which has some `moved`, by name.
pub(super) fn in_order(
    outputs: Outputs,
    moved: &[(String, Order)],
) -> Result<Outputs, VerifyError> {
    let outputs = outputs.into_iter().map(|(name, tensor)| {
        let order = moved.iter().find(|(moved, _)| *moved == name);
        let tensor = match order {
            Some((_, order)) => ordered(order, &tensor, &name)?,
            None => tensor,
        };
        Ok((name, tensor))
    });
    outputs.collect()
}

/// A tensor of this name in an order.
pub(super) fn ordered(order: &Order, tensor: &Tensor, name: &str) -> Result<Tensor, VerifyError> {
    let made = order.apply(tensor);
    made.ok_or_else(|| VerifyError::unsupported(name, "its elements cannot be moved"))
}
