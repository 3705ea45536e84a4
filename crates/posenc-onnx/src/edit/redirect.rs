//! Redirects the outputs of a replaced node.

use posenc_ir::{Emitter, Error, Node, ValueId};

/// Redirects the readers of a node's outputs to those of the node that replaces it.
pub(crate) fn redirect_outputs(
    out: &mut Emitter<'_>,
    node: &Node,
    new: &[Option<ValueId>],
) -> Result<(), Error> {
    for (old, new) in node.outputs().iter().zip(new) {
        if let (Some(old), Some(new)) = (old, new) {
            out.redirect(*old, *new)?;
        }
    }
    Ok(())
}
