//! Where a run keeps what it knows of each value.

use super::Value;
use crate::id::{NodeId, ValueId};

/// How a value is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    /// It may follow from inputs.
    #[default]
    Live,
    /// It follows from constants alone, and is as complete as it can be.
    Frozen,
    /// It follows from constants alone, and its elements wait until they are asked for.
    Deferred,
}

/// What a run reads from and writes to.
pub(super) trait Memory {
    /// What is known of a value.
    fn get(&self, id: ValueId) -> &Value;
    /// How it is known.
    fn state(&self, id: ValueId) -> State;
    /// Replaces what is known.
    fn set(&mut self, id: ValueId, value: Value, state: State);
    /// A node has been run, or passed over for good.
    fn done(&mut self, _: NodeId) {}
}
