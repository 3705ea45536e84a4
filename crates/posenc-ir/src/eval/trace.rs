//! A run of a whole model.

use rustc_hash::FxHashMap;

use super::memo::Memo;
use super::memory::{Memory, State};
use super::run::Run;
use super::{Budget, Value};
use crate::id::{NodeId, ValueId};
use crate::model::Model;

/// The values of one run of a model.
#[derive(Clone, Debug)]
pub struct Trace {
    values: Vec<Value>,
    states: Vec<State>,
    /// The number of nodes that had run when each node had run; 0 for nodes that did not.
    steps: Vec<u32>,
    last_step: u32,
    unknown: Value,
}

impl Trace {
    /// A value; unknown where the run did not reach it.
    ///
    /// Large values that depend on constants only, and that are used only as weights, have dimensions
    /// but no elements.
    pub fn get(&self, id: ValueId) -> &Value {
        self.values.get(id.index()).unwrap_or(&self.unknown)
    }

    /// The step of the run at which a node was run, from 1; 0 for a node that was not run. In
    /// topological order for nodes of one scope.
    pub fn step(&self, id: NodeId) -> u32 {
        self.steps.get(id.index()).copied().unwrap_or(0)
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
        self.last_step += 1;
        self.steps[id.index()] = self.last_step;
    }
}

/// Runs the main graph once in topological order, with the bodies of its control flow.
///
/// `seeds` are values of inputs, or of any other value, which replace what its node computes. Other
/// inputs have their declared type and shape. Of values for which `opaque` is true, only type and
/// dimensions are inferred.
///
/// Of an `If` with a known condition, only that branch is run; otherwise both are, and outputs have
/// the type and dimensions that are the same in both. Bodies of `Loop` and `Scan` are run trip by
/// trip where that tells their outputs; what the trace holds of them is one run with unknown carried
/// values. Calls of local functions, and nodes that break a rule of their operator,
/// give unknown values.
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
        steps: vec![0; graph.node_count()],
        last_step: 0,
        unknown: Value::unknown(),
    };
    let mut run = Run::new(model, seeds, opaque, budget, memory);
    run.memo = Some(Memo::default());
    run.scope(graph.main());
    run.memory
}
