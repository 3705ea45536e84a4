//! Pairing the nodes of two models.

use rustc_hash::FxHashMap;

use super::hash::{Hashes, Side};
use super::pairs::{Pairs, producer};
use crate::graph::{Graph, Use};
use crate::id::{NodeId, ValueId};

/// The most candidates that are compared for one node.
const CHOICE: usize = 16;

/// A hash that nodes are paired by; `None` for nodes without one.
type Key = fn(&Hashes) -> Option<u128>;

/// What neighbors of pairs must have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Operator and attributes; of several candidates, none is chosen.
    Own,
    /// The operator; of several candidates, the most similar one is chosen.
    Op,
}

impl Kind {
    fn of(self, hashes: &Hashes) -> u128 {
        match self {
            Self::Own => hashes.own,
            Self::Op => hashes.op,
        }
    }
}

struct Matcher<'a> {
    sides: &'a [Side<'a>; 2],
    pairs: Pairs,
    /// Pairs whose neighbors were not compared yet.
    open: Vec<[NodeId; 2]>,
}

/// Pairs nodes that are equal in both directions, then in one, then neighbors of pairs, and last
/// those that differ in attributes.
pub(super) fn pair(sides: &[Side<'_>; 2]) -> Pairs {
    let mut matcher = Matcher {
        sides,
        pairs: Pairs::new(sides.each_ref().map(|side| side.nodes.len())),
        open: vec![],
    };
    let exact: Key = |h| Some(h.forward.rotate_left(1) ^ h.backward);
    let either: [Key; 2] = [|h| Some(h.forward), |h| Some(h.backward)];
    matcher.unique(exact);
    either.iter().for_each(|key| matcher.unique(*key));
    matcher.unique(|h| h.weights);
    matcher.unique(|h| Some(h.forward_op.rotate_left(1) ^ h.backward_op));
    matcher.unique(|h| Some(h.backward_op));
    matcher.unique(|h| Some(h.forward_op));
    matcher.alike(exact);
    either.iter().for_each(|key| matcher.alike(*key));
    matcher.neighbors();
    matcher.pairs
}

impl Matcher<'_> {
    fn is_free(&self, side: usize, node: NodeId) -> bool {
        self.pairs.partner(side, node).is_none()
    }

    /// Free nodes of a side by their key, in order.
    fn groups(&self, side: usize, key: Key) -> FxHashMap<u128, Vec<NodeId>> {
        let mut groups: FxHashMap<u128, Vec<NodeId>> = FxHashMap::default();
        for id in &self.sides[side].sequence {
            if let Some(key) = key(self.sides[side].hashes(*id)).filter(|_| self.is_free(side, *id))
            {
                groups.entry(key).or_default().push(*id);
            }
        }
        groups
    }

    /// Pairs nodes whose key is unique in both models.
    fn unique(&mut self, key: Key) {
        let groups = [self.groups(0, key), self.groups(1, key)];
        for a in &self.sides[0].sequence {
            let Some(key) = key(self.sides[0].hashes(*a)) else {
                continue;
            };
            let of = |side: usize| groups[side].get(&key).map(Vec::as_slice);
            if let (Some([_]), Some([b])) = (of(0), of(1))
                && self.is_free(0, *a)
                && self.is_free(1, *b)
            {
                self.add(*a, *b);
            }
        }
        self.spread();
    }

    /// Pairs nodes that share a key with others, one after the other; each pair is followed to its
    /// neighbors.
    fn alike(&mut self, key: Key) {
        let mut groups = self.groups(1, key);
        for a in &self.sides[0].sequence {
            let Some(key) = key(self.sides[0].hashes(*a)).filter(|_| self.is_free(0, *a)) else {
                continue;
            };
            let Some(group) = groups.get_mut(&key) else {
                continue;
            };
            group.retain(|b| self.pairs.partner(1, *b).is_none());
            let candidates: Vec<NodeId> = group.iter().copied().take(CHOICE).collect();
            if let Some(b) = self.best(*a, &candidates) {
                self.add(*a, b);
                self.spread();
            }
        }
    }

    /// The first of the most similar candidates.
    fn best(&self, a: NodeId, candidates: &[NodeId]) -> Option<NodeId> {
        let mut best = None;
        for b in candidates {
            let similarity = self.similarity(a, *b);
            if best.is_none_or(|(most, _)| similarity > most) {
                best = Some((similarity, *b));
            }
        }
        best.map(|(_, b)| b)
    }

    /// The similarity of two nodes: neighbors that are paired at the same position, less those that are
    /// paired otherwise; then equal hashes.
    fn similarity(&self, a: NodeId, b: NodeId) -> (i64, usize) {
        let [left, right] = self.sides;
        let (x, y) = (left.graph.node(a), right.graph.node(b));
        let mut sum = 0;
        for (a, b) in x.inputs().iter().zip(y.inputs()) {
            let maker = |graph: &Graph, v: &Option<ValueId>| v.and_then(|v| producer(graph, v));
            if let (Some(a), Some(b)) = (maker(left.graph, a), maker(right.graph, b)) {
                sum += self.vote(a, b);
            }
        }
        for (a, b) in x.outputs().iter().zip(y.outputs()) {
            let (Some(a), Some(b)) = (a, b) else { continue };
            let to = right.graph.uses(*b);
            for at in left.graph.uses(*a).iter().take(CHOICE) {
                if let Some(partner) = self.pairs.partner(0, at.node) {
                    let reads = |u: &Use| u.node == partner && u.slot() == at.slot();
                    sum += if to.iter().take(4 * CHOICE).any(reads) {
                        1
                    } else {
                        -1
                    };
                }
            }
        }
        let (h, k) = (left.hashes(a), right.hashes(b));
        let equal = [
            h.forward == k.forward,
            h.backward == k.backward,
            h.weights.is_some() && h.weights == k.weights,
            h.own == k.own,
        ];
        (sum, equal.iter().filter(|e| **e).count())
    }

    /// 1 for nodes that are paired, -1 for nodes that are paired otherwise, else 0.
    fn vote(&self, a: NodeId, b: NodeId) -> i64 {
        match (self.pairs.partner(0, a), self.pairs.partner(1, b)) {
            (Some(partner), _) if partner == b => 1,
            (None, None) => 0,
            _ => -1,
        }
    }

    fn add(&mut self, a: NodeId, b: NodeId) {
        self.pairs.add(a, b);
        self.open.push([a, b]);
    }

    /// Pairs neighbors of pairs with the same operator and attributes.
    fn spread(&mut self) {
        while let Some(pair) = self.open.pop() {
            self.around(pair, Kind::Own);
        }
    }

    /// Pairs neighbors of all pairs with the same operator.
    fn neighbors(&mut self) {
        loop {
            let mut grown = false;
            for a in &self.sides[0].sequence {
                let Some(b) = self.pairs.partner(0, *a) else {
                    continue;
                };
                self.around([*a, b], Kind::Op);
                grown |= !self.open.is_empty();
                self.spread();
            }
            if !grown {
                return;
            }
        }
    }

    fn around(&mut self, [a, b]: [NodeId; 2], kind: Kind) {
        let [left, right] = self.sides;
        let (a, b) = (left.graph.node(a), right.graph.node(b));
        for (a, b) in a.inputs().iter().zip(b.inputs()) {
            let (Some(a), Some(b)) = (a, b) else { continue };
            let makers = (producer(left.graph, *a), producer(right.graph, *b));
            if let (Some(a), Some(b)) = makers
                && self.is_free(0, a)
                && self.is_free(1, b)
                && kind.of(left.hashes(a)) == kind.of(right.hashes(b))
            {
                self.add(a, b);
            }
        }
        for (a, b) in a.outputs().iter().zip(b.outputs()) {
            if let (Some(a), Some(b)) = (a, b) {
                self.readers(*a, *b, kind);
            }
        }
    }

    /// Pairs readers of two values.
    fn readers(&mut self, a: ValueId, b: ValueId, kind: Kind) {
        let free = |side: usize, value: ValueId| {
            let of = &self.sides[side];
            let uses = of.graph.uses(value).iter();
            let uses = uses.filter(|at| self.is_free(side, at.node));
            let mut found: Vec<_> = uses
                .map(|at| ((kind.of(of.hashes(at.node)), at.slot()), at.node))
                .collect();
            found.sort_unstable();
            found
        };
        let (of_a, of_b) = (free(0, a), free(1, b));
        let mut start = 0;
        for group in of_a.chunk_by(|x, y| x.0 == y.0) {
            let key = group[0].0;
            start += of_b[start..].partition_point(|x| x.0 < key);
            let len = of_b[start..].partition_point(|x| x.0 == key);
            let others: Vec<NodeId> = of_b[start..start + len].iter().map(|x| x.1).collect();
            if kind == Kind::Own && (group.len() > 1 || others.len() > 1) {
                continue;
            }
            for (_, a) in group {
                let free = others.iter().copied().filter(|b| self.is_free(1, *b));
                let free: Vec<NodeId> = free.take(CHOICE).collect();
                if self.is_free(0, *a)
                    && let Some(b) = self.best(*a, &free)
                {
                    self.add(*a, b);
                }
            }
        }
    }
}
