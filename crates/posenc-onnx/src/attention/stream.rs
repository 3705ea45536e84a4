//! The residual stream: what content runs through from the embeddings to the queries and keys of
//! every site, and what is added to it.

mod axes;
mod begin;
mod bypass;
mod visits;

use std::collections::BTreeSet;
use std::rc::Rc;

use posenc_ir::eval::Trace;
use posenc_ir::{Def, Graph, Node, NodeId, ScopeKind, Use, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::latents::are_learned;
use crate::attention::site::{Operand, Site};
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::wrap;
use crate::graph::operators::is_projection;

pub(crate) use axes::{Tokens, back};
pub(crate) use begin::{Begin, InsertionPoint};
pub(crate) use bypass::{around, bypass};
use visits::{Visit, Visits, number};

/// A content-free value that joins content.
#[derive(Clone, Debug)]
pub(crate) struct Addition {
    /// Where it enters.
    pub(crate) entry: Use,
    /// How it joins.
    pub(crate) join: Join,
    /// The content that it joins; `None` where the operator gathers that itself.
    pub(crate) content: Option<ValueId>,
    /// The axes of tokens in the sum.
    pub(crate) tokens: Tokens,
    /// The dimensions of the sum.
    pub(crate) dims: Vec<usize>,
    /// The sites that see it.
    pub(crate) sites: Vec<usize>,
}

/// How a value without content joins content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// It is added.
    Summed,
    /// It is concatenated with the features.
    Concatenated,
    /// Features are multiplied with it.
    Multiplied,
    /// Content picks among its rows.
    Picked,
}

impl Join {
    /// How the inputs of this node join; its output has `rank` axes, `tokens` among them. Parts that
    /// are concatenated along the first axis are sequences of the batch.
    fn of(node: &Node, rank: usize, tokens: Tokens) -> Self {
        let axis = |node: &Node| wrap(node.int("axis").ok()??, rank);
        match node.domain() {
            "" if node.is("Mul") => Self::Multiplied,
            "" if node.is("GatherElements") => Self::Picked,
            "" if node.is("Concat") && axis(node).is_some_and(|a| a > 0 && !tokens.has(a)) => {
                Self::Concatenated
            }
            _ => Self::Summed,
        }
    }
}

/// Rows of a table that content picks: embeddings of tokens, types or coordinates.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    /// Where the table enters.
    pub(crate) entry: Use,
    /// The sites that see it.
    pub(crate) sites: Vec<usize>,
}

/// What an operator reads that mixes tokens and is no attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MixedTokens {
    pub(crate) value: ValueId,
    /// The axis of tokens.
    pub(crate) axis: usize,
    /// It is a projection of the residual stream, as queries are.
    pub(crate) is_projected: bool,
}

/// What joins the residual stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) additions: Vec<Addition>,
    pub(crate) lookups: Vec<Lookup>,
    /// Where values without content are added that have one row for all tokens.
    pub(crate) alike: Vec<Use>,
    /// There are more than are examined.
    pub(crate) more: bool,
}

/// What joins a residual stream is no more than this.
const MOST: usize = 1024;

/// The state of a walk.
struct Walk<'a> {
    graph: &'a Graph,
    classes: &'a Classes,
    trace: &'a Trace,
    /// The visited values, and the values before each.
    before: Visits,
    /// The axes of tokens in visited values, by value.
    tokens: Vec<Option<Tokens>>,
    /// What enters at the node that computes a value, by index in `stream`.
    enters: FxHashMap<Visit, Vec<Entry>>,
    /// What enters at each node that was visited.
    done: FxHashMap<NodeId, Vec<Entry>>,
    stream: Stream,
}

/// An index among the additions or the lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Entry {
    Addition(usize),
    Lookup(usize),
}

impl Stream {
    /// What joins before other mixers, which no site sees.
    pub(crate) fn before(
        graph: &Graph,
        classes: &Classes,
        trace: &Trace,
        mixed: &[MixedTokens],
    ) -> Self {
        let mut walk = Walk::new(graph, classes, trace);
        for read in mixed {
            walk.back((read.value, !read.is_projected), Tokens::one(read.axis));
        }
        walk.stream
    }

    /// Walks back from the queries and keys of every site, each value being visited once.
    ///
    /// Sums between a projection and the scores are no part of the stream. The walk ends at
    /// products of content with content, which other sites are, and does not follow the keys of
    /// cross-attention unless its queries are learned.
    pub(crate) fn of(graph: &Graph, classes: &Classes, trace: &Trace, sites: &[Site]) -> Self {
        let mut walk = Walk::new(graph, classes, trace);
        for site in sites {
            for operand in operands(classes, site) {
                walk.back(start(operand), Tokens::one(operand.lane.sequence));
            }
        }
        let mut seen = vec![None; 2 * graph.value_count()];
        for (place, site) in sites.iter().enumerate() {
            let mut entries = BTreeSet::new();
            for operand in operands(classes, site) {
                entries.extend(walk.reach(start(operand), &mut seen).iter());
            }
            for entry in entries {
                match entry {
                    Entry::Addition(i) => walk.stream.additions[i].sites.push(place),
                    Entry::Lookup(i) => walk.stream.lookups[i].sites.push(place),
                }
            }
        }
        walk.stream
    }
}

fn operands<'a>(classes: &Classes, site: &'a Site) -> impl Iterator<Item = &'a Operand> {
    let learned = are_learned(classes, site);
    let key = (!site.cross || learned).then_some(&site.key);
    let query = (!learned).then_some(&site.query);
    query.into_iter().chain(key)
}

/// An operator that projects by itself reads the stream as it is.
fn start(operand: &Operand) -> Visit {
    (operand.value, operand.lane.feature.is_none())
}

impl<'a> Walk<'a> {
    fn new(graph: &'a Graph, classes: &'a Classes, trace: &'a Trace) -> Self {
        Self {
            graph,
            classes,
            trace,
            before: Visits::new(graph.value_count()),
            tokens: vec![None; graph.value_count()],
            enters: FxHashMap::default(),
            done: FxHashMap::default(),
            stream: Stream::default(),
        }
    }

    /// Visits everything that a value is computed from.
    fn back(&mut self, start: Visit, tokens: Tokens) {
        let mut stack = vec![(start, tokens)];
        while let Some(((value, outer), tokens)) = stack.pop() {
            if self.before.contains((value, outer)) {
                continue;
            }
            self.tokens[value.index()].get_or_insert(tokens);
            let next = self.step(value, outer, tokens);
            self.before
                .insert((value, outer), next.iter().map(|(step, _)| *step));
            stack.extend(next);
        }
    }

    /// The values before this one, with their tokens.
    fn step(&mut self, value: ValueId, outer: bool, tokens: Tokens) -> Vec<(Visit, Tokens)> {
        let graph = self.graph;
        let (id, output) = match graph.value(value).def() {
            Def::Node(id, output) => (id, output as usize),
            Def::Input(place) => return self.outside(value, place as usize, outer, tokens),
            Def::Initializer => return vec![],
        };
        let node = graph.node(id);
        if node.bodies().next().is_some() {
            // A body's last outputs are stacked where a loop has more of them than states.
            let inner = node.bodies().filter_map(|(_, body)| {
                let outputs = graph.scope(body).outputs();
                let skip = outputs.len().saturating_sub(node.outputs().len());
                outputs.get(output + skip).copied()
            });
            let inner: Vec<_> = inner.filter(|v| self.is_content(*v)).collect();
            return inner.into_iter().map(|v| ((v, outer), tokens)).collect();
        }
        if node.is("SequenceAt") {
            // Parts of a value that was split.
            let list = node.input(0).and_then(|v| graph.producer(v));
            let split = list
                .map(|(id, _)| graph.node(id))
                .filter(|n| n.is("SplitToSequence"));
            let whole = split
                .and_then(|n| n.input(0))
                .filter(|v| self.is_content(*v));
            return whole.map(|v| ((v, outer), tokens)).into_iter().collect();
        }
        let mixes = is_projection(node);
        let operands = axes::operands(node);
        let content = self.content(node);
        let content: Vec<(usize, ValueId)> = content
            .filter(|(slot, _)| operands.is_none_or(|o| o.contains(slot)))
            .collect();
        if ends(node) || mixes && content.len() > 1 {
            return vec![];
        }
        if outer {
            let entries = self.enter(id, value, &tokens);
            self.enters.insert((value, outer), entries);
        }
        let beyond = outer || mixes;
        let back = |(slot, v)| {
            let tokens = back(graph, self.trace, id, output, slot, tokens)?;
            Some(((v, beyond), tokens))
        };
        content.into_iter().filter_map(back).collect()
    }

    /// What enters at a node, which may have several outputs.
    fn enter(&mut self, id: NodeId, value: ValueId, tokens: &Tokens) -> Vec<Entry> {
        if let Some(known) = self.done.get(&id) {
            return known.clone();
        }
        let entries = self.entries(id, value, tokens);
        self.done.insert(id, entries.clone());
        entries
    }

    fn entries(&mut self, id: NodeId, value: ValueId, tokens: &Tokens) -> Vec<Entry> {
        let node = self.graph.node(id);
        if node.domain().is_empty() && node.op() == "Gather" {
            let slot = |i: usize| node.input(i).is_some_and(|v| self.is_content(v));
            if slot(1) && !slot(0) && self.has_budget() {
                self.stream.lookups.push(Lookup {
                    entry: Use::new(id, 0),
                    sites: vec![],
                });
                return vec![Entry::Lookup(self.stream.lookups.len() - 1)];
            }
            return vec![];
        }
        let Some(dims) = self.trace.get(value).dims.clone() else {
            return vec![];
        };
        let mut entries = vec![];
        let content = self.content(node).map(|(_, v)| v).next();
        let join = Join::of(node, dims.len(), *tokens);
        let slots = match join {
            Join::Summed => added(node).to_vec(),
            Join::Concatenated | Join::Multiplied => (0..node.inputs().len()).collect(),
            Join::Picked => vec![0],
        };
        for slot in slots {
            let Some(free) = node.input(slot).filter(|v| !self.is_content(*v)) else {
                continue;
            };
            let varies = embeds(node) || self.varies(id, slot, free, *tokens);
            if !varies && join == Join::Summed {
                self.stream.alike.push(Use::new(id, slot));
            }
            if !varies || !self.has_budget() {
                continue;
            }
            self.stream.additions.push(Addition {
                entry: Use::new(id, slot),
                join,
                content: content.filter(|_| !embeds(node)),
                tokens: *tokens,
                dims: dims.clone(),
                sites: vec![],
            });
            entries.push(Entry::Addition(self.stream.additions.len() - 1));
        }
        entries
    }

    /// Whether a summand differs from token to token, judged by its shape.
    fn varies(&self, id: NodeId, slot: usize, free: ValueId, tokens: Tokens) -> bool {
        let Some(dims) = self.trace.get(free).dims.as_deref() else {
            return false;
        };
        let along = back(self.graph, self.trace, id, 0, slot, tokens);
        let mut lengths = along
            .iter()
            .flat_map(|t| t.iter())
            .filter_map(|a| dims.get(a));
        dims.len() > 1 && lengths.any(|n| *n > 1)
    }

    /// Whether one more may join; if not, that is noted.
    fn has_budget(&mut self) -> bool {
        let joined = self.stream.additions.len() + self.stream.lookups.len();
        self.stream.more |= joined >= MOST;
        joined < MOST
    }

    /// What a value is that a body takes from outside.
    fn outside(
        &self,
        value: ValueId,
        place: usize,
        outer: bool,
        tokens: Tokens,
    ) -> Vec<(Visit, Tokens)> {
        let scope = self.graph.scope(self.graph.value(value).scope());
        let ScopeKind::Body(id, _) = scope.kind() else {
            return vec![];
        };
        // For loops and scans, the last inputs of the body are the node's last.
        let node = self.graph.node(*id);
        let from_end = scope.inputs().len() - place;
        let input = node.inputs().len().checked_sub(from_end);
        let input = input.and_then(|i| node.input(i));
        let input = input.filter(|v| self.is_content(*v));
        input.map(|v| ((v, outer), tokens)).into_iter().collect()
    }

    fn is_content(&self, value: ValueId) -> bool {
        self.classes.of_value(value).has(Class::CONTENT)
    }

    fn content(&self, node: &Node) -> impl Iterator<Item = (usize, ValueId)> {
        let inputs = node.inputs().iter().enumerate();
        inputs.filter_map(|(slot, v)| Some((slot, v.filter(|v| self.is_content(*v))?)))
    }

    /// Everything that enters before a visited value. Values at which nothing more enters share one
    /// set. `known` holds the sets of visits so far.
    fn reach(&self, start: Visit, known: &mut [Option<Entries>]) -> Entries {
        let mut stack = vec![(start, false)];
        while let Some((step, ready)) = stack.pop() {
            if known[number(step)].is_some() {
                continue;
            }
            let before = self.before.get(step).unwrap_or_default();
            if !ready {
                stack.push((step, true));
                stack.extend(before.iter().map(|b| (*b, false)));
                continue;
            }
            let mut sets = before.iter().filter_map(|b| known[number(*b)].as_ref());
            let mut all = sets.next().cloned().unwrap_or_default();
            for set in sets.filter(|set| !set.is_empty()) {
                if !Rc::ptr_eq(&all, set) && !set.is_subset(&all) {
                    Rc::make_mut(&mut all).extend(set.iter());
                }
            }
            let entries = self.enters.get(&step).map_or(&[][..], Vec::as_slice);
            if !entries.is_empty() {
                Rc::make_mut(&mut all).extend(entries);
            }
            known[number(step)] = Some(all);
        }
        known[number(start)].clone().unwrap_or_default()
    }
}

/// What enters before a value.
type Entries = Rc<BTreeSet<Entry>>;

/// Operators at which the stream ends: what they give is no sum of what they read.
fn ends(node: &Node) -> bool {
    match (node.domain(), node.op()) {
        ("", op) => matches!(
            op,
            "Softmax"
                | "LogSoftmax"
                | "Attention"
                | "LSTM"
                | "DynamicQuantizeLSTM"
                | "GRU"
                | "RNN"
                | "CumSum"
                | "TopK"
        ),
        (_, op) => op.ends_with("Attention"),
    }
}

/// The inputs of a node that are summed.
fn added(node: &Node) -> &'static [usize] {
    match (node.domain(), node.op()) {
        ("", "Add" | "Sub" | "Sum") => &[0, 1, 2, 3],
        ("", "Gemm") => &[2],
        (_, "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization") => &[0, 1],
        (_, "BiasAdd") => &[1, 2],
        (_, "QLinearAdd") => &[0, 3],
        (_, "EmbedLayerNormalization") => &[3],
        _ => &[],
    }
}

/// Whether a node gathers what it adds to.
fn embeds(node: &Node) -> bool {
    node.op() == "EmbedLayerNormalization"
}
