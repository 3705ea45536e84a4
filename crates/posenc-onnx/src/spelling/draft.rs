//! What a round of replacements writes.

use posenc_ir::{Attr, Emitter, Graph, Patch, ScopeId, ValueId};
use rustc_hash::FxHashMap;

/// What a round writes.
pub(super) struct Draft<'g> {
    emitter: Emitter<'g>,
    replaced: Vec<(ValueId, ValueId)>,
    by_old: FxHashMap<ValueId, ValueId>,
    scope: ScopeId,
    /// Whether something is dropped.
    is_less: bool,
}

impl<'g> Draft<'g> {
    pub(super) fn new(graph: &'g Graph) -> Self {
        Self {
            emitter: graph.emitter(graph.main(), "plain"),
            replaced: vec![],
            by_old: FxHashMap::default(),
            scope: graph.main(),
            is_less: false,
        }
    }

    /// The scope of the nodes that follow.
    pub(super) fn begin(&mut self, scope: ScopeId) {
        self.scope = scope;
        self.emitter.set_scope(scope);
    }

    pub(super) fn op(&mut self, op: &str, inputs: &[ValueId], attrs: &[(&str, Attr)]) -> ValueId {
        self.emitter.op_with(op, inputs, attrs)
    }

    pub(super) fn ints(&mut self, values: &[i64]) -> ValueId {
        self.emitter.ints("axes", values)
    }

    pub(super) fn emitter(&mut self) -> &mut Emitter<'g> {
        &mut self.emitter
    }

    pub(super) fn transpose(&mut self, value: ValueId, order: &[usize]) -> ValueId {
        let perm = order.iter().map(|a| *a as i64).collect();
        self.op("Transpose", &[value], &[("perm", Attr::Ints(perm))])
    }

    /// What a value was replaced by, or itself.
    pub(super) fn now(&self, value: ValueId) -> ValueId {
        self.by_old.get(&value).copied().unwrap_or(value)
    }

    /// Lets all that reads `old` read `new`, which holds the same numbers and does not depend on it.
    pub(super) fn replace(&mut self, old: ValueId, new: ValueId) -> Option<()> {
        let graph = self.emitter.graph();
        // The output of a graph is made by a node of its own.
        let is_own = self.emitter.is_computed(new) && self.emitter.scope_of(new) == self.scope;
        let named = graph.value(old).is_output() && !is_own;
        let new = if named {
            self.op("Identity", &[new], &[])
        } else {
            new
        };
        self.replaced.push((old, new));
        self.by_old.insert(old, new);
        Some(())
    }

    /// Removes a value and what only it needs, unless it is in use.
    pub(super) fn drop_unused(&mut self, value: ValueId) {
        self.is_less |= self.emitter.remove_if_unused(value).is_ok();
    }

    /// Whether nothing is replaced or dropped.
    pub(super) fn is_empty(&self) -> bool {
        self.replaced.is_empty() && !self.is_less
    }

    /// The patch, and whether it replaces something.
    ///
    /// # Errors
    /// When a replacement does not fit what it replaces.
    pub(super) fn finish(mut self) -> posenc_ir::Result<(Patch, bool)> {
        // What one rule wrote reads what others replaced.
        let by_old = &self.by_old;
        let last = |mut value: ValueId| {
            for _ in 0..by_old.len() {
                match by_old.get(&value) {
                    Some(next) => value = *next,
                    None => break,
                }
            }
            value
        };
        self.emitter.redirect_recorded(last);
        for (old, new) in &self.replaced {
            self.emitter.redirect(*old, last(*new))?;
            self.emitter.remove_if_unused(*old)?;
        }
        self.emitter.omit_unused();
        Ok((self.emitter.finish(), !self.replaced.is_empty()))
    }
}
