//! Values that go, and what stands in for them.
//!
//! What stands in for one value may go itself, as where a convolution is added to the sum that a
//! table was added to. Values that go are named in the order of computation, so that what stands
//! in for one is settled before another asks for it.

use posenc_ir::{Def, Emitter, ValueId};
use rustc_hash::FxHashMap;

use crate::detect::context::Context;
use crate::error::RewriteError;

/// Values that go.
pub(crate) struct Replacements<'a> {
    context: &'a Context<'a>,
    /// In the order in which they were named.
    pairs: Vec<(ValueId, ValueId)>,
    stands: FxHashMap<ValueId, ValueId>,
}

impl<'a> Replacements<'a> {
    pub(crate) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            pairs: vec![],
            stands: FxHashMap::default(),
        }
    }

    /// What stands for a value now: itself, where it stays.
    pub(crate) fn now(&self, value: ValueId) -> ValueId {
        self.stands.get(&value).copied().unwrap_or(value)
    }

    /// Lets `new` stand in for `old`.
    pub(crate) fn replace(&mut self, old: ValueId, new: ValueId) {
        let new = self.now(new);
        if self.stands.insert(old, new).is_none() {
            self.pairs.push((old, new));
        }
    }

    /// Moves every reader.
    pub(crate) fn apply(self, out: &mut Emitter<'_>) -> Result<(), RewriteError> {
        let graph = self.context.graph();
        let mut given = vec![];
        for (old, new) in self.pairs {
            let own = match new.index() < graph.value_count() {
                // An output is renamed, which inputs, other outputs and values of the graph
                // around a body cannot be.
                true => {
                    let value = graph.value(new);
                    matches!(value.def(), Def::Node(..))
                        && !value.is_output()
                        && value.scope() == graph.value(old).scope()
                }
                false => true,
            };
            let is_output = graph.value(old).is_output();
            let new = match is_output && (!own || given.contains(&new)) {
                true => {
                    out.set_scope(graph.value(old).scope());
                    out.op("Identity", &[new])
                }
                false => new,
            };
            if is_output {
                given.push(new);
            }
            out.redirect(old, new)?;
        }
        Ok(())
    }
}
