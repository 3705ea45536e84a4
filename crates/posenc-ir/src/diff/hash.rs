//! Hashes of nodes and values: of everything they depend on, and of everything that depends on them.

use super::content::{Absent, Hasher, attributes, initializer, revalued};
use super::ports::Marks;
use crate::error::Result;
use crate::graph::{Def, Graph, ScopeKind};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;

/// One of the two models.
pub(super) struct Side<'a> {
    pub(super) graph: &'a Graph,
    /// The nodes in topological order, those of bodies before the node of the body.
    pub(super) sequence: Vec<NodeId>,
    /// Hashes by the index of the node.
    pub(super) nodes: Vec<Hashes>,
    /// Contents of initializers by the index of the value.
    pub(super) contents: Vec<Option<u128>>,
}

/// The hashes of a node.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hashes {
    /// Operator and kind of scope.
    pub(super) op: u128,
    /// `op` and attributes.
    pub(super) own: u128,
    /// `own`, and everything the node depends on.
    pub(super) forward: u128,
    /// As `forward`, without the attributes of the node itself.
    pub(super) forward_op: u128,
    /// `own`, constants that are read, and everything that depends on the node.
    pub(super) backward: u128,
    /// As `backward`, without the attributes and constants of the node itself.
    pub(super) backward_op: u128,
    /// `own` and the constants that are read; `None` where there are none.
    pub(super) weights: Option<u128>,
}

impl<'a> Side<'a> {
    pub(super) fn new(model: &'a Model, absent: &Absent, marks: &Marks) -> Result<Self> {
        let graph = model.graph();
        let mut sequence = vec![];
        let roots = graph
            .scopes()
            .filter(|s| graph.scope(*s).parent().is_none());
        for root in roots {
            walk(graph, root, &mut sequence)?;
        }
        let content = |v| match graph.value(v).def() {
            Def::Node(..) => None,
            Def::Input(_) | Def::Initializer => initializer(model, v, absent),
        };
        let mut this = Self {
            graph,
            sequence,
            nodes: vec![Hashes::default(); graph.node_count()],
            contents: graph.values().map(content).collect(),
        };
        this.own(model, absent);
        this.forward(marks);
        this.backward(marks);
        Ok(this)
    }

    pub(super) fn hashes(&self, node: NodeId) -> &Hashes {
        &self.nodes[node.index()]
    }

    fn own(&mut self, model: &Model, absent: &Absent) {
        let graph = self.graph;
        let mut tags = vec![0u128; graph.scopes.len()];
        // A body has a higher index than the scope around it.
        for scope in graph.scopes() {
            let s = graph.scope(scope);
            let mut hasher = Hasher::new("scope");
            match s.kind() {
                ScopeKind::Main => {}
                ScopeKind::Function { domain, overload } => {
                    hasher.bytes(domain.as_bytes());
                    hasher.bytes(s.name().as_bytes());
                    hasher.bytes(overload.as_bytes());
                }
                ScopeKind::Body(node, attribute) => {
                    let node = graph.node(*node);
                    hasher.number(tags[node.scope().index()]);
                    hasher.bytes(node.op().as_bytes());
                    hasher.bytes(attribute.as_bytes());
                }
            }
            tags[scope.index()] = hasher.finish();
        }
        for id in &self.sequence {
            let node = graph.node(*id);
            let mut hasher = Hasher::new("op");
            hasher.number(tags[node.scope().index()]);
            for text in [node.domain(), node.op(), graph.overload(*id)] {
                hasher.bytes(text.as_bytes());
            }
            let op = hasher.finish();
            let mut hasher = Hasher::new("own");
            hasher.number(op);
            let output = node.output(0).and_then(|v| graph.revalued.get(&v));
            match output.filter(|_| node.is("Constant")) {
                Some(tensor) => hasher.number(revalued(model, tensor, absent)),
                None => hasher.number(attributes(model, node.attributes(), absent)),
            }
            let hashes = &mut self.nodes[id.index()];
            hashes.op = op;
            hashes.own = hasher.finish();
        }
    }

    fn forward(&mut self, marks: &Marks) {
        let graph = self.graph;
        let mut values = vec![0u128; graph.value_count()];
        for value in graph.values() {
            let v = graph.value(value);
            let mut hasher = Hasher::new("value");
            match (v.def(), self.contents[value.index()]) {
                (Def::Node(..), _) => continue,
                (Def::Initializer, content) => hasher.number(content.unwrap_or(0)),
                (Def::Input(i), _) => match marks.inputs.get(&value) {
                    Some(mark) => hasher.number(*mark),
                    None => hasher.number(i as u128),
                },
            }
            values[value.index()] = hasher.finish();
        }
        for id in self.sequence.clone() {
            let node = graph.node(id);
            let reads = |v: &Option<ValueId>| v.map_or(0, |v| values[v.index()]);
            let mut leads: Vec<u128> = node.inputs().iter().map(reads).collect();
            for (attribute, body) in node.bodies() {
                let body = graph.scope(body);
                let mut inner: Vec<u128> = body
                    .nodes()
                    .iter()
                    .map(|n| self.nodes[n.index()].forward)
                    .collect();
                inner.sort_unstable();
                let mut hasher = Hasher::new("body");
                hasher.bytes(attribute.as_bytes());
                hasher.number(body.inputs().len() as u128);
                let outputs = body.outputs().iter().map(|v| values[v.index()]);
                hasher.all(&outputs.collect::<Vec<_>>());
                hasher.all(&inner);
                leads.push(hasher.finish());
            }
            let here = |first: u128| {
                let mut hasher = Hasher::new("forward");
                hasher.number(first);
                hasher.all(&leads);
                hasher.finish()
            };
            let weights = self.weights(id);
            let hashes = &mut self.nodes[id.index()];
            hashes.forward = here(hashes.own);
            hashes.forward_op = here(hashes.op);
            hashes.weights = weights;
            for (i, value) in node.outputs().iter().enumerate() {
                if let Some(value) = value {
                    let mut hasher = Hasher::new("output of");
                    hasher.number(hashes.forward);
                    hasher.number(i as u128);
                    values[value.index()] = hasher.finish();
                }
            }
        }
    }

    /// The hash of the constants among the inputs: initializers, and outputs of nodes without inputs.
    fn weights(&self, id: NodeId) -> Option<u128> {
        let graph = self.graph;
        let mut hasher = Hasher::new("weights");
        hasher.number(self.hashes(id).own);
        let mut found = false;
        for (slot, value) in graph.node(id).inputs().iter().enumerate() {
            let Some(value) = *value else { continue };
            let constant = match graph.producer(value) {
                Some((maker, _)) => {
                    let node = graph.node(maker);
                    let alone = node.inputs().is_empty() && node.indexed_bodies().is_empty();
                    alone.then(|| self.hashes(maker).own)
                }
                None => self.contents[value.index()],
            };
            if let Some(constant) = constant {
                found = true;
                hasher.number(slot as u128);
                hasher.number(constant);
            }
        }
        found.then(|| hasher.finish())
    }

    fn backward(&mut self, marks: &Marks) {
        let graph = self.graph;
        let mut outputs = marks.outputs.clone();
        for scope in graph.scopes() {
            if let ScopeKind::Function { .. } = graph.scope(scope).kind() {
                for (i, value) in graph.scope(scope).outputs().iter().enumerate() {
                    outputs.entry(*value).or_default().push(i as u128);
                }
            }
        }
        for id in self.sequence.clone().into_iter().rev() {
            let node = graph.node(id);
            let leads = |value: &Option<ValueId>| {
                let Some(value) = value else { return 0 };
                let mut to: Vec<u128> = outputs.get(value).cloned().unwrap_or_default();
                to.extend(graph.uses(*value).iter().map(|at| {
                    let mut hasher = Hasher::new("use");
                    hasher.number(self.nodes[at.node.index()].backward);
                    hasher.number(at.slot() as u128);
                    hasher.finish()
                }));
                to.sort_unstable();
                let mut hasher = Hasher::new("uses");
                hasher.all(&to);
                hasher.finish()
            };
            let leads: Vec<u128> = node.outputs().iter().map(leads).collect();
            let here = |first: u128| {
                let mut hasher = Hasher::new("backward");
                hasher.number(first);
                hasher.all(&leads);
                hasher.finish()
            };
            let hashes = &mut self.nodes[id.index()];
            hashes.backward = here(hashes.weights.unwrap_or(hashes.own));
            hashes.backward_op = here(hashes.op);
            let backward = hashes.backward;
            for (attribute, body) in node.bodies() {
                for (i, value) in graph.scope(body).outputs().iter().enumerate() {
                    let mut hasher = Hasher::new("output of body");
                    hasher.bytes(attribute.as_bytes());
                    hasher.number(backward);
                    hasher.number(i as u128);
                    outputs.entry(*value).or_default().push(hasher.finish());
                }
            }
        }
    }
}

/// Appends the nodes of a scope. The depth is bounded by reading.
pub(super) fn walk(graph: &Graph, scope: ScopeId, out: &mut Vec<NodeId>) -> Result<()> {
    for id in graph.order(scope)? {
        if graph.is_removed(id) {
            continue;
        }
        for (_, body) in graph.node(id).bodies() {
            walk(graph, body, out)?;
        }
        out.push(id);
    }
    Ok(())
}
