//! Operators that rotate, in another layout.

use posenc_encodings::kind::Layout;
use posenc_ir::{Attr, Emitter, NodeId};

use super::Writer;
use crate::error::RewriteError;
use crate::graph::operators::is_rotary;

impl Writer<'_> {
    /// Replaces an operator that rotates by one that rotates in a layout.
    pub(super) fn turned(
        &mut self,
        out: &mut Emitter<'_>,
        id: NodeId,
        layout: Layout,
    ) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let name = match is_rotary(node) {
            true => "interleaved",
            false => "rotary_interleaved",
        };
        let flag = i64::from(layout == Layout::Interleaved);
        let inputs = node.inputs().iter();
        let inputs: Vec<_> = inputs
            .map(|v| v.map(|v| self.replacements.current(v)))
            .collect();
        out.set_scope(node.scope());
        let new = out.copy(id, &inputs, &[(name, Attr::Int(flag))])?;
        self.replacements.replace_outputs(node, &new);
        Ok(())
    }
}
