//! The differences of two models whose nodes are paired.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::hash::Side;
use super::pairs::{Pairs, producer};
use super::ports::Ports;
use super::types::{Aspect, Change, Delta, Diff, Entry, Part};
use crate::graph::{Def, Graph, ScopeKind};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;
use crate::text;

/// Domain, name and overload of a function.
pub(super) type Key<'a> = (&'a str, &'a str, &'a str);

struct Comparison<'a> {
    models: [&'a Model; 2],
    sides: &'a [Side<'a>; 2],
    pairs: &'a Pairs,
    ports: &'a Ports,
    functions: [BTreeMap<Key<'a>, ScopeId>; 2],
    /// Corresponding initializers: with the same content, or read at the same inputs.
    initial: BTreeMap<ValueId, ValueId>,
}

pub(super) fn compare(
    models: [&Model; 2],
    sides: &[Side<'_>; 2],
    pairs: Pairs,
    ports: &Ports,
) -> Diff {
    let mut this = Comparison {
        models,
        sides,
        pairs: &pairs,
        ports,
        functions: models.map(|m| functions(m.graph()).collect()),
        initial: BTreeMap::new(),
    };
    let initializers = this.initializers();
    let nodes = this.nodes();
    let inputs = this.ports(&ports.inputs, false);
    let outputs = this.ports(&ports.outputs, true);
    let functions = this.functions();
    let [a, b] = models;
    let version = |m: &Model| [("ir_version".to_owned(), m.ir_version())].into();
    let metadata = |m: &Model| {
        let entries = m.metadata_entries().into_iter();
        entries.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    Diff {
        nodes,
        initializers,
        inputs,
        outputs,
        functions,
        order: ports.order.clone(),
        opsets: entries(a.opsets(), b.opsets()),
        metadata: entries(metadata(a), metadata(b)),
        model: entries(version(a), version(b)),
        initial: this.initial,
        pairs,
    }
}

/// Corresponding initializers.
#[derive(Default)]
struct Partners {
    initial: BTreeMap<ValueId, ValueId>,
    /// Those of b.
    taken: BTreeSet<ValueId>,
}

impl Partners {
    fn add(&mut self, a: ValueId, b: ValueId) {
        self.initial.insert(a, b);
        self.taken.insert(b);
    }
}

/// Keys whose values differ.
fn entries<T: Display + PartialEq>(a: BTreeMap<String, T>, b: BTreeMap<String, T>) -> Vec<Entry> {
    let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
    let differing = keys.into_iter().filter(|k| a.get(*k) != b.get(*k));
    let entry = |k: &String| Entry {
        key: k.clone(),
        a: a.get(k).map(ToString::to_string),
        b: b.get(k).map(ToString::to_string),
    };
    differing.map(entry).collect()
}

impl Comparison<'_> {
    fn graph(&self, side: usize) -> &Graph {
        self.sides[side].graph
    }

    /// Pairs initializers by content, then the others by their readers.
    fn initializers(&mut self) -> Delta<Part> {
        let list = |side: usize| -> Vec<ValueId> {
            let graph = self.graph(side);
            let scopes = graph.scopes().flat_map(|s| graph.scope(s).initializers());
            scopes
                .filter(|v| !graph.dropped.contains(v))
                .copied()
                .collect()
        };
        let (of_a, of_b) = (list(0), list(1));
        let mut found = Partners::default();
        let content = |side: usize, v: ValueId| self.sides[side].contents[v.index()];
        let alike = |a, b| content(0, a) == content(1, b);
        self.by_readers(&mut found, alike);
        let mut by_content: BTreeMap<Option<u128>, Vec<ValueId>> = BTreeMap::new();
        for value in of_b.iter().rev().filter(|v| !found.taken.contains(v)) {
            let content = content(1, *value);
            by_content.entry(content).or_default().push(*value);
        }
        for value in &of_a {
            if !found.initial.contains_key(value)
                && let Some(partners) = by_content.get_mut(&content(0, *value))
                && let Some(partner) = partners.pop()
            {
                found.add(*value, partner);
            }
        }
        let same: BTreeSet<ValueId> = found.initial.keys().copied().collect();
        self.by_readers(&mut found, |_, _| true);
        let Partners { initial, taken } = found;
        let mut delta = Delta::default();
        for value in &of_a {
            match initial.get(value) {
                Some(_) if same.contains(value) => {}
                Some(partner) => {
                    let shape = |side: usize, v: ValueId| {
                        let stored = self.graph(side).stored(v);
                        stored.map(|s| (s.dtype, s.dims.clone()))
                    };
                    let what = if shape(0, *value) == shape(1, *partner) {
                        vec![Aspect::Value]
                    } else {
                        vec![Aspect::Type, Aspect::Value]
                    };
                    delta.changed.push(Change {
                        a: self.initializer(0, *value),
                        b: self.initializer(1, *partner),
                        what,
                    });
                }
                None => delta.removed.push(self.initializer(0, *value)),
            }
        }
        let new = of_b.iter().filter(|v| !taken.contains(v));
        delta.added = new.map(|v| self.initializer(1, *v)).collect();
        self.initial = initial;
        delta
    }

    /// Pairs initializers that paired nodes read at the same input, where `fits`.
    fn by_readers(&self, found: &mut Partners, fits: impl Fn(ValueId, ValueId) -> bool) {
        let is_initial = |side: usize, v: ValueId| self.sides[side].contents[v.index()].is_some();
        for a in &self.sides[0].sequence {
            let Some(b) = self.pairs.partner(0, *a) else {
                continue;
            };
            let inputs = self.graph(0).node(*a).inputs().iter();
            for pair in inputs.zip(self.graph(1).node(b).inputs()) {
                if let (Some(a), Some(b)) = pair
                    && is_initial(0, *a)
                    && is_initial(1, *b)
                    && !found.initial.contains_key(a)
                    && !found.taken.contains(b)
                    && fits(*a, *b)
                {
                    found.add(*a, *b);
                }
            }
        }
    }

    fn initializer(&self, side: usize, value: ValueId) -> Part {
        Part {
            place: self.graph(side).name(value).to_owned(),
            text: text::initializer(self.graph(side), value),
            read_by: vec![],
        }
    }

    fn nodes(&self) -> Delta<Part> {
        let mut delta = Delta::default();
        for a in &self.sides[0].sequence {
            match self.pairs.partner(0, *a) {
                Some(b) => {
                    let what = self.aspects(*a, b);
                    if !what.is_empty() {
                        let [a, b] = [self.node(0, *a), self.node(1, b)];
                        delta.changed.push(Change { a, b, what });
                    }
                }
                None if self.is_outermost(0, *a) => delta.removed.push(self.lone(0, *a)),
                None => {}
            }
        }
        for b in &self.sides[1].sequence {
            if self.pairs.partner(1, *b).is_none() && self.is_outermost(1, *b) {
                delta.added.push(self.lone(1, *b));
            }
        }
        delta
    }

    /// Whether the scope of the node is in both models.
    fn is_outermost(&self, side: usize, node: NodeId) -> bool {
        let graph = self.graph(side);
        let scope = graph.node(node).scope();
        match graph.scope(scope).kind() {
            ScopeKind::Main => true,
            ScopeKind::Function { .. } => {
                key(graph, scope).is_some_and(|k| self.functions[1 - side].contains_key(&k))
            }
            ScopeKind::Body(owner, _) => self.pairs.partner(side, *owner).is_some(),
        }
    }

    fn node(&self, side: usize, node: NodeId) -> Part {
        Part {
            place: self.graph(side).place(node),
            text: text::node(self.graph(side), node),
            read_by: vec![],
        }
    }

    /// A node that only one model has.
    fn lone(&self, side: usize, node: NodeId) -> Part {
        let graph = self.graph(side);
        let outputs = graph.node(node).outputs().iter().flatten();
        let readers = outputs.flat_map(|v| graph.uses(*v)).map(|at| at.node);
        let readers: BTreeSet<NodeId> = readers.collect();
        let common = readers
            .into_iter()
            .filter(|n| self.pairs.partner(side, *n).is_some());
        Part {
            read_by: common.map(|n| graph.place(n)).collect(),
            ..self.node(side, node)
        }
    }

    /// How the nodes of a pair differ.
    fn aspects(&self, a: NodeId, b: NodeId) -> Vec<Aspect> {
        let [left, right] = [self.graph(0).node(a), self.graph(1).node(b)];
        let mut what = vec![];
        if self.sides[0].hashes(a).own != self.sides[1].hashes(b).own {
            what.push(Aspect::Attributes);
        }
        let [x, y] = [left.inputs(), right.inputs()];
        if x.len() != y.len() || x.iter().zip(y).any(|(a, b)| !self.is_same_read(*a, *b)) {
            what.push(Aspect::Inputs);
        }
        let present = |outputs: &[Option<ValueId>]| -> Vec<bool> {
            outputs.iter().map(Option::is_some).collect()
        };
        if present(left.outputs()) != present(right.outputs()) {
            what.push(Aspect::Outputs);
        }
        let bodies = |side: usize, id| -> BTreeMap<String, ScopeId> {
            let bodies = self.graph(side).node(id).bodies();
            bodies.map(|(name, s)| (name.to_owned(), s)).collect()
        };
        let [x, y] = [bodies(0, a), bodies(1, b)];
        let alike = |(name, a): (&String, &ScopeId)| {
            y.get(name).is_some_and(|b| self.is_same_frame(*a, *b))
        };
        if x.len() != y.len() || !x.iter().all(alike) {
            what.push(Aspect::Body);
        }
        what
    }

    /// Whether two bodies or functions have as many inputs and the same outputs.
    fn is_same_frame(&self, a: ScopeId, b: ScopeId) -> bool {
        let [a, b] = [self.graph(0).scope(a), self.graph(1).scope(b)];
        a.inputs().len() == b.inputs().len()
            && a.outputs().len() == b.outputs().len()
            && a.outputs()
                .iter()
                .zip(b.outputs())
                .all(|(a, b)| self.is_same_read(Some(*a), Some(*b)))
    }

    /// Whether the values are the same, or computed by a node that is itself reported.
    fn is_same_read(&self, a: Option<ValueId>, b: Option<ValueId>) -> bool {
        let (Some(a), Some(b)) = (a, b) else {
            return a.is_none() && b.is_none();
        };
        let lone = |side: usize, v: ValueId| {
            producer(self.graph(side), v).is_some_and(|n| self.pairs.partner(side, n).is_none())
        };
        self.is_same_value(a, b) || lone(0, a) || lone(1, b)
    }

    fn is_same_value(&self, a: ValueId, b: ValueId) -> bool {
        let [left, right] = [self.graph(0).value(a), self.graph(1).value(b)];
        match (left.def(), right.def()) {
            (Def::Node(a, i), Def::Node(b, j)) => i == j && self.pairs.partner(0, a) == Some(b),
            (Def::Input(i), Def::Input(j)) => match [left.scope(), right.scope()] {
                [x, y] if x == self.graph(0).main() && y == self.graph(1).main() => {
                    let [a, b] = [
                        self.ports.marks[0].inputs.get(&a),
                        self.ports.marks[1].inputs.get(&b),
                    ];
                    a == b
                }
                [x, y] => i == j && self.is_same_scope(x, y),
            },
            (Def::Initializer, Def::Initializer) => {
                let content = |side: usize, v: ValueId| self.sides[side].contents[v.index()];
                content(0, a) == content(1, b) || self.initial.get(&a) == Some(&b)
            }
            _ => false,
        }
    }

    fn is_same_scope(&self, a: ScopeId, b: ScopeId) -> bool {
        let [left, right] = [self.graph(0), self.graph(1)];
        match (left.scope(a).kind(), right.scope(b).kind()) {
            (ScopeKind::Main, ScopeKind::Main) => true,
            (ScopeKind::Body(x, i), ScopeKind::Body(y, j)) => {
                i == j && self.pairs.partner(0, *x) == Some(*y)
            }
            (ScopeKind::Function { .. }, ScopeKind::Function { .. }) => {
                key(left, a) == key(right, b)
            }
            _ => false,
        }
    }

    fn ports(&self, ports: &[[Option<ValueId>; 2]], computed: bool) -> Delta<Part> {
        let mut delta = Delta::default();
        let part = |side: usize, value: ValueId| Part {
            place: self.graph(side).name(value).to_owned(),
            text: text::value(self.graph(side), value),
            read_by: vec![],
        };
        for pair in ports {
            match *pair {
                [Some(a), Some(b)] => {
                    let mut what = vec![];
                    let [left, right] = [self.graph(0), self.graph(1)];
                    if text::value_type(left, a) != text::value_type(right, b) {
                        what.push(Aspect::Type);
                    }
                    if left.name(a) != right.name(b) {
                        what.push(Aspect::Name);
                    }
                    if computed && !self.is_same_read(Some(a), Some(b)) {
                        what.push(Aspect::Value);
                    }
                    if !what.is_empty() {
                        let [a, b] = [part(0, a), part(1, b)];
                        delta.changed.push(Change { a, b, what });
                    }
                }
                [Some(a), None] => delta.removed.push(part(0, a)),
                [None, Some(b)] => delta.added.push(part(1, b)),
                [None, None] => {}
            }
        }
        delta
    }

    fn functions(&self) -> Delta<Part> {
        let mut delta = Delta::default();
        let part = |side: usize, scope: ScopeId| {
            let (domain, name, overload) = key(self.graph(side), scope).unwrap_or_default();
            let parts = [domain, name, overload];
            let parts = parts.iter().filter(|p| !p.is_empty()).copied();
            Part {
                place: parts.collect::<Vec<_>>().join("."),
                text: text::function_head(self.models[side], scope),
                read_by: vec![],
            }
        };
        for (key, a) in functions(self.graph(0)) {
            let Some(&b) = self.functions[1].get(&key) else {
                delta.removed.push(part(0, a));
                continue;
            };
            let heads = [part(0, a), part(1, b)];
            let mut what = vec![];
            if heads[0].text != heads[1].text {
                what.push(Aspect::Attributes);
            }
            if !self.is_same_frame(a, b) {
                what.push(Aspect::Body);
            }
            if !what.is_empty() {
                let [a, b] = heads;
                delta.changed.push(Change { a, b, what });
            }
        }
        for (key, b) in functions(self.graph(1)) {
            if !self.functions[0].contains_key(&key) {
                delta.added.push(part(1, b));
            }
        }
        delta
    }
}

/// The functions of a model in its order.
pub(super) fn functions(graph: &Graph) -> impl Iterator<Item = (Key<'_>, ScopeId)> {
    graph.scopes().filter_map(|s| Some((key(graph, s)?, s)))
}

/// The key of a function; `None` for another scope.
pub(super) fn key(graph: &Graph, scope: ScopeId) -> Option<Key<'_>> {
    let s = graph.scope(scope);
    match s.kind() {
        ScopeKind::Function { domain, overload } => Some((domain, s.name(), overload)),
        ScopeKind::Main | ScopeKind::Body(..) => None,
    }
}
