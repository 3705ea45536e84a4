//! A whole model run forward once.

use rustc_hash::FxHashMap;

use super::memory::{Memory, State};
use super::run::Run;
use super::{Budget, Value};
use crate::id::{NodeId, ValueId};
use crate::model::Model;

/// What one run tells of every value.
#[derive(Clone, Debug)]
pub struct Trace {
    values: Vec<Value>,
    states: Vec<State>,
    /// When each node was run, from 1; 0 for nodes that never were.
    turns: Vec<u32>,
    turn: u32,
    unknown: Value,
}

impl Trace {
    /// What is known of a value; nothing, for a value that the run did not reach.
    ///
    /// A large value that follows from constants alone and meets content only in products of
    /// weights (or nothing at all) has dimensions without elements.
    pub fn get(&self, id: ValueId) -> &Value {
        self.values.get(id.index()).unwrap_or(&self.unknown)
    }

    /// When a node was run, from 1; 0 for one that was not.
    pub fn turn(&self, id: NodeId) -> u32 {
        self.turns.get(id.index()).copied().unwrap_or(0)
    }
}

impl Memory for Trace {
    fn get(&self, id: ValueId) -> &Value {
        Trace::get(self, id)
    }

    fn state(&self, id: ValueId) -> State {
        self.states.get(id.index()).copied().unwrap_or_default()
    }

    fn set(&mut self, id: ValueId, value: Value, state: State) {
        if let Some(slot) = self.values.get_mut(id.index()) {
            *slot = value;
            self.states[id.index()] = state;
        }
    }

    fn done(&mut self, id: NodeId) {
        self.turn += 1;
        self.turns[id.index()] = self.turn;
    }
}

/// Runs the main graph forward once, in an order of computation, and with it the bodies of its
/// control flow.
///
/// `seeds` give values: of graph inputs, or of any value, where a seed wins over what computes
/// it. Other inputs have what their declared type tells. `opaque` names the values that must not
/// get elements: of those only type and dimensions are inferred.
///
/// Of an `If` with a known condition that branch is run; otherwise both are, and the outputs have
/// the type and dimensions on which the branches agree. Bodies of `Loop` and `Scan` are run once,
/// with what changes from turn to turn unknown. Calls of local functions, and whatever breaks the
/// rules of its operator, give nothing.
pub fn trace(
    model: &Model,
    seeds: &FxHashMap<ValueId, Value>,
    opaque: &dyn Fn(ValueId) -> bool,
    budget: &Budget,
) -> Trace {
    let graph = model.graph();
    let memory = Trace {
        values: vec![Value::unknown(); graph.value_count()],
        states: vec![State::Live; graph.value_count()],
        turns: vec![0; graph.node_count()],
        turn: 0,
        unknown: Value::unknown(),
    };
    let mut run = Run::new(model, seeds, opaque, budget, memory);
    run.scope(graph.main());
    run.memory
}
