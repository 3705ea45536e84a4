//! Whether a patch fits the graph.

use super::Patch;
use crate::error::{Error, Result};
use crate::graph::{Graph, ScopeKind};
use crate::id::{ScopeId, ValueId};

impl Graph {
    /// Whether the values that the patch reads exist and are in scope.
    pub(super) fn check_reads(&self, patch: &Patch) -> Result<()> {
        let check = |value: ValueId, reader: ScopeId, place: &str| {
            let fault = |why: &str| Err(Error::patch(why.to_owned()).at(place));
            let scope = match value.index().checked_sub(self.values.len()) {
                Some(i) => match patch.values.get(i) {
                    Some(draft) => draft.scope,
                    None => return fault("the node reads a value of another patch"),
                },
                None if self.is_removed_value(value) => {
                    return fault("the node reads a value that was removed from the graph");
                }
                None => self.value(value).scope,
            };
            let mut at = Some(reader);
            while let Some(id) = at.filter(|id| *id != scope) {
                at = self.scope(id).parent;
            }
            match at {
                Some(_) => Ok(()),
                None => fault("the node reads a value of a body that it is not in"),
            }
        };
        for init in &patch.initializers {
            if matches!(self.scope(init.scope).kind, ScopeKind::Function { .. }) {
                let why = "a function cannot contain initializers";
                return Err(Error::patch(why).at(self.scope(init.scope).name.to_string()));
            }
        }
        for node in &patch.nodes {
            for value in node.inputs.iter().flatten() {
                check(*value, node.scope, &node.name)?;
            }
        }
        for (at, new) in &patch.redirects {
            check(*new, self.node(at.node).scope, &self.place(at.node))?;
        }
        for (old, new) in &patch.outputs {
            check(*new, self.value(*old).scope, self.name(*old))?;
        }
        Ok(())
    }
}
