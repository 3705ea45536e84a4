//! Two models compared by structure: what one has and the other has not, independent of the names of
//! nodes and inner values, of the order of initializers, and of which order of computation nodes
//! stand in. Names and order of inputs and outputs, names of functions and their domains count.
//! The model's `producer_name`, `producer_version`, `domain`, `model_version` and `doc_string` do not.
//!
//! Nodes are paired from both sides: by what leads to them, and by what they lead to. A change in the
//! middle breaks one of the two for every other node, never both, so that it does not spread.

use crate::error::Result;
use crate::model::Model;

mod align;
mod compare;
mod content;
mod hash;
mod pair;
mod pairs;
mod ports;
mod types;

pub use types::{Aspect, Change, Delta, Diff, Entry, Part};

impl Diff {
    /// Compares two models. A payload in another file is compared by its bytes where every model that
    /// names its place has them at hand, else by its place alone: [`Model::absent_data`] tells.
    ///
    /// # Errors
    /// When the nodes of a graph depend on each other in a circle.
    pub fn between(a: &Model, b: &Model) -> Result<Self> {
        let absent = content::Absent::of(a, b);
        let ports = ports::Ports::of(a.graph(), b.graph());
        let sides = [
            hash::Side::new(a, &absent, &ports.marks[0])?,
            hash::Side::new(b, &absent, &ports.marks[1])?,
        ];
        let pairs = pair::pair(&sides);
        Ok(compare::compare([a, b], &sides, pairs, &ports))
    }

    /// Whether the models are the same but for names and order.
    pub fn is_empty(&self) -> bool {
        let parts = [
            &self.nodes,
            &self.initializers,
            &self.inputs,
            &self.outputs,
            &self.functions,
        ];
        let entries = [&self.order, &self.opsets, &self.metadata, &self.model];
        parts.iter().all(|d| d.is_empty()) && entries.iter().all(|e| e.is_empty())
    }

    /// Both models as text in which what they have in common reads the same: b carries a's names and
    /// order. They must be the models that were compared.
    pub fn texts(&self, a: &Model, b: &Model) -> [String; 2] {
        [
            crate::text::outline(a),
            crate::text::outline(&align::align(self, a, b)),
        ]
    }
}
