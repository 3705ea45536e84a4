//! The values that a run has computed.

use super::Value;
use crate::id::{NodeId, ValueId};

/// What a value depends on, and whether it is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It may depend on inputs.
    #[default]
    Live,
    /// It depends on constants only, and is computed as far as possible.
    Frozen,
    /// It depends on constants only, and its elements are computed when they are needed.
    Deferred,
}

/// The values that a run reads and writes.
pub(super) trait Memory {
    /// A value.
    fn get(&self, id: ValueId) -> &Value;
    /// Its state.
    fn state(&self, id: ValueId) -> State;
    /// Sets a value and its state.
    fn set(&mut self, id: ValueId, value: Value, state: State);
    /// Called after each node.
    fn done(&mut self, _: NodeId) {}
}
