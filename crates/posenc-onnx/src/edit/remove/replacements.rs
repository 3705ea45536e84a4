//! Values to remove, and the values that replace them.
//!
//! A replacement may itself be replaced, for example when a convolution is added to a sum that a
//! table was added to. Values are named in execution order, so a replacement is final before a
//! later one refers to it.

use posenc_ir::{Def, Emitter, Node, ValueId};
use rustc_hash::FxHashMap;

use crate::detect::context::Context;
use crate::error::RewriteError;

/// Values to remove, with their replacements.
pub(crate) struct Replacements<'a> {
    context: &'a Context<'a>,
    /// In the order in which they were named.
    pairs: Vec<(ValueId, ValueId)>,
    current: FxHashMap<ValueId, ValueId>,
}

impl<'a> Replacements<'a> {
    pub(crate) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            pairs: vec![],
            current: FxHashMap::default(),
        }
    }

    /// The replacement of a value; the value itself if it has none.
    pub(crate) fn current(&self, value: ValueId) -> ValueId {
        self.current.get(&value).copied().unwrap_or(value)
    }

    /// Replaces `old` by `new`.
    pub(crate) fn replace(&mut self, old: ValueId, new: ValueId) {
        let new = self.current(new);
        if self.current.insert(old, new).is_none() {
            self.pairs.push((old, new));
        }
    }

    /// Replaces the outputs of a node, one by one; `None` leaves an output as it is.
    pub(crate) fn replace_outputs(&mut self, node: &Node, new: &[Option<ValueId>]) {
        for (old, new) in node.outputs().iter().zip(new) {
            if let (Some(old), Some(new)) = (old, new) {
                self.replace(*old, *new);
            }
        }
    }

    /// Redirects every reader.
    pub(crate) fn apply(self, out: &mut Emitter<'_>) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let mut outputs = vec![];
        for (old, mut new) in self.pairs.iter().copied() {
            if graph.value(old).is_output() {
                // Redirecting an output renames the new value. That is not possible for an input,
                // for another output, or for a value of the graph around a body.
                if !self.can_rename(new, old) || outputs.contains(&new) {
                    out.set_scope(graph.value(old).scope());
                    new = out.op("Identity", &[new]);
                }
                outputs.push(new);
            }
            out.redirect(old, new)?;
        }
        Ok(())
    }

    /// Whether `new` can take the name of the output `old`.
    fn can_rename(&self, new: ValueId, old: ValueId) -> bool {
        let graph = self.context.graph();
        if new.index() >= graph.value_count() {
            return true;
        }
        let value = graph.value(new);
        matches!(value.def(), Def::Node(..))
            && !value.is_output()
            && value.scope() == graph.value(old).scope()
    }
}
