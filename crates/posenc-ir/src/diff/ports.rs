//! Inputs and outputs of the two graphs, paired by name and then by place.

use std::collections::BTreeMap;

use super::content::Hasher;
use crate::graph::Graph;
use crate::id::ValueId;

/// Which inputs and outputs belong together.
pub(super) struct Ports {
    pub(super) inputs: Vec<[Option<ValueId>; 2]>,
    pub(super) outputs: Vec<[Option<ValueId>; 2]>,
    /// For each model: a hash for each input, and hashes for each output.
    pub(super) marks: [Marks; 2],
}

/// What stands for inputs and outputs in hashes.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) inputs: BTreeMap<ValueId, u128>,
    pub(super) outputs: BTreeMap<ValueId, Vec<u128>>,
}

impl Ports {
    pub(super) fn of(a: &Graph, b: &Graph) -> Self {
        let list = |pick: fn(&Graph) -> Vec<ValueId>| paired([a, b], [pick(a), pick(b)]);
        let inputs = list(|g| g.scope(g.main()).inputs().to_vec());
        let outputs = list(|g| g.scope(g.main()).outputs().to_vec());
        let mut marks = [Marks::default(), Marks::default()];
        for (i, pair) in inputs.iter().enumerate() {
            for (side, value) in pair.iter().enumerate() {
                if let Some(value) = value {
                    marks[side].inputs.insert(*value, mark("input", i));
                }
            }
        }
        for (i, pair) in outputs.iter().enumerate() {
            for (side, value) in pair.iter().enumerate() {
                if let Some(value) = value {
                    let of_value = marks[side].outputs.entry(*value).or_default();
                    of_value.push(mark("output", i));
                }
            }
        }
        Self {
            inputs,
            outputs,
            marks,
        }
    }
}

fn mark(tag: &str, i: usize) -> u128 {
    let mut hasher = Hasher::new(tag);
    hasher.number(i as u128);
    hasher.finish()
}

/// Values of the same name, then those left of the same place, then those that have no partner.
fn paired(graphs: [&Graph; 2], [a, b]: [Vec<ValueId>; 2]) -> Vec<[Option<ValueId>; 2]> {
    let mut of_b: BTreeMap<&str, ValueId> = BTreeMap::new();
    for value in &b {
        of_b.entry(graphs[1].name(*value)).or_insert(*value);
    }
    let mut found: Vec<[Option<ValueId>; 2]> = a
        .iter()
        .map(|v| [Some(*v), of_b.remove(graphs[0].name(*v))])
        .collect();
    let taken: Vec<ValueId> = found.iter().filter_map(|pair| pair[1]).collect();
    for (i, value) in b.iter().enumerate().filter(|(_, v)| !taken.contains(v)) {
        match found.get_mut(i) {
            Some(pair) if pair[1].is_none() => pair[1] = Some(*value),
            _ => found.push([None, Some(*value)]),
        }
    }
    found
}
