//! Inputs and outputs of two graphs, paired by name and then by position, and their order.

use std::collections::BTreeMap;

use super::content::Hasher;
use super::types::Entry;
use crate::graph::Graph;
use crate::id::ValueId;

/// Corresponding inputs and outputs.
pub(super) struct Ports {
    pub(super) inputs: Vec<[Option<ValueId>; 2]>,
    pub(super) outputs: Vec<[Option<ValueId>; 2]>,
    /// Under `inputs` and `outputs`: those that both models have, where their order differs.
    pub(super) order: Vec<Entry>,
    /// For each model: a hash for each input, and hashes for each output.
    pub(super) marks: [Marks; 2],
}

/// Hashes of inputs and outputs.
#[derive(Default)]
pub(super) struct Marks {
    pub(super) inputs: BTreeMap<ValueId, u128>,
    pub(super) outputs: BTreeMap<ValueId, Vec<u128>>,
}

impl Ports {
    pub(super) fn of(a: &Graph, b: &Graph) -> Self {
        let graphs = [a, b];
        let of_inputs = graphs.map(|g| g.scope(g.main()).inputs());
        let of_outputs = graphs.map(|g| g.scope(g.main()).outputs());
        let inputs = paired(graphs, of_inputs);
        let outputs = paired(graphs, of_outputs);
        // Inputs with a default are optional.
        let given = |pair: &[ValueId; 2]| {
            let mut values = graphs.iter().zip(pair);
            values.all(|(graph, value)| graph.stored(*value).is_none())
        };
        let order = [
            order(
                "inputs",
                graphs,
                common(&inputs).filter(given),
                of_inputs[1],
            ),
            order("outputs", graphs, common(&outputs), of_outputs[1]),
        ];
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
            order: order.into_iter().flatten().collect(),
            marks,
        }
    }
}

/// The pairs without those that only one model has.
fn common(pairs: &[[Option<ValueId>; 2]]) -> impl Iterator<Item = [ValueId; 2]> + '_ {
    pairs.iter().filter_map(|[a, b]| Some([(*a)?, (*b)?]))
}

/// The names in the order of each model, where the pairs, which are in a's order, have another one in
/// b.
fn order(
    key: &str,
    graphs: [&Graph; 2],
    pairs: impl Iterator<Item = [ValueId; 2]>,
    of_b: &[ValueId],
) -> Option<Entry> {
    let pairs: Vec<[ValueId; 2]> = pairs.collect();
    let places: BTreeMap<ValueId, usize> = of_b.iter().copied().zip(0..).collect();
    let place = |pair: &[ValueId; 2]| places.get(&pair[1]).copied();
    if pairs.is_sorted_by_key(place) {
        return None;
    }
    let mut sorted = pairs.clone();
    sorted.sort_by_key(place);
    let names = |side: usize, pairs: &[[ValueId; 2]]| {
        let names = pairs.iter().map(|pair| graphs[side].name(pair[side]));
        names.collect::<Vec<_>>().join(", ")
    };
    Some(Entry {
        key: key.to_owned(),
        a: Some(names(0, &pairs)),
        b: Some(names(1, &sorted)),
    })
}

fn mark(tag: &str, i: usize) -> u128 {
    let mut hasher = Hasher::new(tag);
    hasher.number(i as u128);
    hasher.finish()
}

/// Pairs values by name, then by position; the others have no partner.
fn paired(graphs: [&Graph; 2], [a, b]: [&[ValueId]; 2]) -> Vec<[Option<ValueId>; 2]> {
    let mut of_b: BTreeMap<&str, ValueId> = BTreeMap::new();
    for value in b {
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
