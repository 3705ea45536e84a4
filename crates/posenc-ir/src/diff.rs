//! The structural difference of two models: what only one of them has. The names of nodes and inner
//! values, the order of initializers, and the topological order of nodes do not count; names and
//! order of inputs and outputs, and names and domains of functions do. The model's `producer_name`,
//! `producer_version`, `domain`, `model_version` and `doc_string` do not count.
//!
//! Nodes are paired by a hash of everything that they depend on, and by a hash of everything that
//! depends on them. A change breaks one of the two for every other node, never both, so that it does
//! not spread.

use crate::error::Result;
use crate::model::Model;

mod align;
mod compare;
mod content;
mod digest;
mod hash;
mod pair;
mod pairs;
mod ports;
mod types;

pub use digest::Digests;
pub use types::{Aspect, Change, Delta, Diff, Entry, Part};

impl Diff {
    /// Compares two models. External payloads are compared by their bytes, or by their location where
    /// one of the models cannot read them (see [`Model::missing_external_data`]).
    ///
    /// # Errors
    /// When the nodes of a graph depend on each other in a cycle.
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

    /// Whether the models differ only in names and order.
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

    /// Both models as text in which common parts are equal: b has the names and the order of a. They
    /// must be the models that were compared.
    pub fn texts(&self, a: &Model, b: &Model) -> [String; 2] {
        [
            crate::text::outline(a),
            crate::text::outline(&align::align(self, a, b)),
        ]
    }
}
