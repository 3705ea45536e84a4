//! Sites of one layer in branches of their own: they read the same, and what they give meets again
//! before any other site.

use posenc_ir::{Graph, NodeId, ScopeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::site::Site;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::region::{reads, shape_only};

/// For each site in such a branch, by index, another one.
pub(crate) fn branches(
    graph: &Graph,
    classes: &Classes,
    sites: &[Site],
) -> FxHashMap<usize, usize> {
    let mut walk = Upstream {
        graph,
        classes,
        numbers: FxHashMap::default(),
        words: 0,
        values: FxHashMap::default(),
    };
    for site in sites {
        // A body that runs several times is walked once.
        let next = walk.numbers.len();
        walk.numbers.entry(site.node).or_insert(next);
    }
    let inputs = graph.scope(graph.main()).inputs().to_vec();
    walk.words = (walk.numbers.len() + inputs.len()).div_ceil(64);
    for (i, input) in inputs.into_iter().enumerate() {
        let set = walk.single(walk.numbers.len() + i);
        walk.values.insert(input, set);
    }
    walk.scope(graph.main());
    let before: Vec<Vec<u64>> = sites
        .iter()
        .map(|site| walk.of(&[Some(site.query.value), Some(site.key.value)]))
        .collect();
    let depends = |a: usize, b: usize| {
        let number = walk.numbers[&sites[b].node];
        before[a][number / 64] >> (number % 64) & 1 == 1
    };
    let after =
        |a: usize| -> FxHashSet<usize> { (0..sites.len()).filter(|b| depends(*b, a)).collect() };
    let all: Vec<FxHashSet<usize>> = (0..sites.len()).map(after).collect();
    let mut found = FxHashMap::default();
    for a in 0..sites.len() {
        for b in 0..a {
            let separate = sites[a].node != sites[b].node && !depends(a, b) && !depends(b, a);
            if separate
                && before[a] == before[b]
                && all[a] == all[b]
                && walk.meet(sites[a].node, sites[b].node)
            {
                found.insert(a, b);
                found.insert(b, a);
            }
        }
    }
    found
}

/// The sites and inputs of the model that each value depends on, as bits.
struct Upstream<'a> {
    graph: &'a Graph,
    classes: &'a Classes,
    /// The number of each site, by its node.
    numbers: FxHashMap<NodeId, usize>,
    words: usize,
    values: FxHashMap<ValueId, Vec<u64>>,
}

impl Upstream<'_> {
    fn single(&self, bit: usize) -> Vec<u64> {
        let mut set = vec![0; self.words];
        set[bit / 64] |= 1 << (bit % 64);
        set
    }

    /// What these values depend on together.
    fn of(&self, values: &[Option<ValueId>]) -> Vec<u64> {
        let mut all = vec![0; self.words];
        for set in values.iter().flatten().filter_map(|v| self.values.get(v)) {
            all.iter_mut().zip(set).for_each(|(a, b)| *a |= b);
        }
        all
    }

    fn scope(&mut self, scope: ScopeId) {
        let graph = self.graph;
        for id in graph.order(scope).unwrap_or_default() {
            if shape_only(graph, id) {
                continue;
            }
            let node = graph.node(id);
            let mut read: Vec<Option<ValueId>> = node.inputs().to_vec();
            for (_, body) in node.bodies() {
                let given = self.of(&read);
                for input in graph.scope(body).inputs() {
                    self.values.insert(*input, given.clone());
                }
                self.scope(body);
            }
            if node.bodies().next().is_some() {
                read = reads(graph, id).into_iter().map(Some).collect();
                let bodies = node
                    .bodies()
                    .flat_map(|(_, body)| graph.scope(body).outputs());
                read.extend(bodies.map(|v| Some(*v)));
            }
            let mut set = self.of(&read);
            if let Some(number) = self.numbers.get(&id) {
                set[number / 64] |= 1 << (number % 64);
            }
            for out in node.outputs().iter().flatten() {
                if self.classes.of_value(*out).has(Class::CONTENT) {
                    self.values.insert(*out, set.clone());
                }
            }
        }
    }

    /// Whether a node reads what both of two sites give and no third one in between.
    fn meet(&self, a: NodeId, b: NodeId) -> bool {
        let reached = |from: NodeId| {
            let mut seen: FxHashSet<NodeId> = FxHashSet::default();
            let mut stack = vec![from];
            while let Some(id) = stack.pop() {
                let outputs = self.graph.node(id).outputs().iter().flatten();
                for at in outputs.flat_map(|v| self.graph.uses(*v)) {
                    let is_site = self.numbers.contains_key(&at.node);
                    if !is_site && !shape_only(self.graph, at.node) && seen.insert(at.node) {
                        stack.push(at.node);
                    }
                }
            }
            seen
        };
        !reached(a).is_disjoint(&reached(b))
    }
}
