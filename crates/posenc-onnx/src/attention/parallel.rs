//! Sites of one layer in branches of their own: they read the same, and what they give meets again
//! before any other site.

use std::collections::BTreeMap;

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
    let mut numbers = FxHashMap::default();
    for site in sites {
        // A body that runs several times is walked once.
        let next = numbers.len();
        numbers.entry(site.node).or_insert(next);
    }
    let inputs = graph.scope(graph.main()).inputs();
    let mut walk = Upstream {
        graph,
        classes,
        sets: Interned::new(numbers.len() + inputs.len()),
        numbers,
        values: vec![EMPTY; graph.value_count()],
    };
    for (i, input) in inputs.iter().enumerate() {
        walk.values[input.index()] = walk.sets.with(EMPTY, walk.numbers.len() + i);
    }
    walk.scope(graph.main());
    let before: Vec<Set> = sites
        .iter()
        .map(|site| walk.of(&[Some(site.query.value), Some(site.key.value)]))
        .collect();
    let depends = |a: usize, b: usize| walk.sets.has(before[a], walk.numbers[&sites[b].node]);
    let after = |a: usize| (0..sites.len()).filter(move |b| depends(*b, a));
    let mut alike: BTreeMap<Set, Vec<usize>> = BTreeMap::new();
    for (site, set) in before.iter().enumerate() {
        alike.entry(*set).or_default().push(site);
    }
    let mut found = FxHashMap::default();
    for (i, a) in alike.values().flat_map(|all| all.iter().enumerate()) {
        for b in &alike[&before[*a]][..i] {
            let separate = sites[*a].node != sites[*b].node && !depends(*a, *b) && !depends(*b, *a);
            if separate && after(*a).eq(after(*b)) && walk.meet(sites[*a].node, sites[*b].node) {
                found.insert(*a, *b);
                found.insert(*b, *a);
            }
        }
    }
    found
}

/// A set of bits, by its number among those that occur.
type Set = u32;

const EMPTY: Set = 0;

/// Sets of bits. Values depend on few different ones, so that each is stored and united once.
struct Interned {
    sets: Vec<Vec<u64>>,
    numbers: FxHashMap<Vec<u64>, Set>,
    unions: FxHashMap<[Set; 2], Set>,
}

impl Interned {
    fn new(bits: usize) -> Self {
        let empty = vec![0; bits.div_ceil(64)];
        Self {
            sets: vec![empty.clone()],
            numbers: FxHashMap::from_iter([(empty, EMPTY)]),
            unions: FxHashMap::default(),
        }
    }

    fn number(&mut self, set: Vec<u64>) -> Set {
        let next = Set::try_from(self.sets.len()).expect("there are fewer sets than values");
        let number = *self.numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        number
    }

    fn has(&self, set: Set, bit: usize) -> bool {
        self.sets[set as usize][bit / 64] >> (bit % 64) & 1 == 1
    }

    /// A set with one more bit.
    fn with(&mut self, set: Set, bit: usize) -> Set {
        let mut set = self.sets[set as usize].clone();
        set[bit / 64] |= 1 << (bit % 64);
        self.number(set)
    }

    fn union(&mut self, a: Set, b: Set) -> Set {
        let pair = [a.min(b), a.max(b)];
        if pair[0] == EMPTY || a == b {
            return pair[1];
        }
        if let Some(known) = self.unions.get(&pair) {
            return *known;
        }
        let [a, b] = pair.map(|set| &self.sets[set as usize]);
        let both = a.iter().zip(b).map(|(a, b)| a | b).collect();
        let both = self.number(both);
        self.unions.insert(pair, both);
        both
    }
}

/// The sites and inputs of the model that each value depends on.
struct Upstream<'a> {
    graph: &'a Graph,
    classes: &'a Classes,
    /// The bit of each site, by its node.
    numbers: FxHashMap<NodeId, usize>,
    sets: Interned,
    /// By value.
    values: Vec<Set>,
}

impl Upstream<'_> {
    /// What these values depend on together.
    fn of(&mut self, values: &[Option<ValueId>]) -> Set {
        let sets = &mut self.sets;
        let values = values.iter().flatten().map(|v| self.values[v.index()]);
        values.fold(EMPTY, |all, set| sets.union(all, set))
    }

    fn scope(&mut self, scope: ScopeId) {
        let graph = self.graph;
        for id in graph.order(scope).unwrap_or_default() {
            if shape_only(graph, id) {
                continue;
            }
            let node = graph.node(id);
            let mut set = self.of(node.inputs());
            for (_, body) in node.bodies() {
                for input in graph.scope(body).inputs() {
                    self.values[input.index()] = set;
                }
                self.scope(body);
            }
            if node.bodies().next().is_some() {
                let mut read: Vec<_> = reads(graph, id).into_iter().map(Some).collect();
                let outputs = node.bodies().map(|(_, body)| graph.scope(body).outputs());
                read.extend(outputs.flatten().copied().map(Some));
                set = self.of(&read);
            }
            if let Some(number) = self.numbers.get(&id) {
                set = self.sets.with(set, *number);
            }
            for out in node.outputs().iter().flatten() {
                if self.classes.of_value(*out).has(Class::CONTENT) {
                    self.values[out.index()] = set;
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
