//! The values of a scope by name.

use std::hash::BuildHasher;

use hashbrown::hash_table::{Entry, HashTable};
use rustc_hash::FxBuildHasher;

use super::value::Value;
use crate::id::ValueId;

/// A table of values by name. The names are stored only in the values, so that every call takes the
/// values of the graph. A value must be removed before it is renamed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names(HashTable<ValueId>);

impl Names {
    pub(crate) fn reserve(&mut self, more: usize, values: &[Value]) {
        self.0.reserve(more, |id| hash(&values[id.index()].name));
    }

    pub(crate) fn get(&self, name: &str, values: &[Value]) -> Option<ValueId> {
        let has_name = |id: &ValueId| values[id.index()].name == name;
        self.0.find(hash(name), has_name).copied()
    }

    /// Adds a value by name, also before the value exists; returns whether the name was free.
    pub(crate) fn insert(&mut self, name: &str, id: ValueId, values: &[Value]) -> bool {
        let has_name = |id: &ValueId| values[id.index()].name == name;
        let hash_of = |id: &ValueId| hash(&values[id.index()].name);
        match self.0.entry(hash(name), has_name, hash_of) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(id);
                true
            }
        }
    }

    pub(crate) fn remove(&mut self, id: ValueId, values: &[Value]) {
        let hash = hash(&values[id.index()].name);
        if let Ok(entry) = self.0.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
    }
}

fn hash(name: &str) -> u64 {
    FxBuildHasher.hash_one(name)
}
