//! Position that acts on queries or keys and was read as no rotation: seen by its effect. Where the
//! content is the same for every token, queries and keys without position are too.

use std::collections::{BTreeMap, BTreeSet};

use ndarray::{ArrayD, Axis, IxDyn};
use posenc_ir::eval::{Value, probe};
use posenc_ir::{DType, Graph, Model, Node, NodeId, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::{Operand, Site};
use crate::detect::found::Found;
use crate::detect::runs::BUDGET;
use crate::graph::dataflow::Class;
use crate::graph::lane::{Lane, back};
use crate::graph::operators::{is_elementwise, is_norm, is_write, written_slots};

/// Nodes between what queries and keys share and the scores.
const FEW: usize = 512;

/// The node at which position enters between what the queries and keys of a site are both computed
/// from and the scores, with what it does; `None` where none is seen to.
pub(crate) fn unexplained(model: &Model, found: &Found, site: &Site) -> Option<(NodeId, String)> {
    if site.cross || site.query.value == site.key.value {
        return None;
    }
    let between = Between::of(model, found, site)?;
    let count = tokens(found, &site.query)?;
    let node = between.position(model, found, count)?;
    let moves = |operand: &Operand| between.moves(model, found, operand, count);
    let why = match (moves(&site.query), moves(&site.key)) {
        (Some(false), Some(false)) => return None,
        (None, _) | (_, None) => {
            "position may act on queries or keys here, which could not be evaluated"
        }
        _ => "position acts on queries or keys here, by no rotation that was read",
    };
    Some((node, why.to_owned()))
}

fn tokens(found: &Found, operand: &Operand) -> Option<usize> {
    let dims = found.trace.get(operand.value).dims.as_deref()?;
    dims.get(operand.lane.sequence).copied().filter(|n| *n > 1)
}

/// What lies between the queries and keys of a site and the content that both are computed from.
struct Between {
    nodes: Vec<NodeId>,
    /// Where tokens are among the axes of what is computed, where that is known.
    lanes: FxHashMap<ValueId, Lane>,
    /// The content that enters.
    sources: BTreeSet<ValueId>,
}

impl Between {
    /// `None` where queries and keys share nothing near.
    fn of(model: &Model, found: &Found, site: &Site) -> Option<Self> {
        let graph = model.graph();
        let mut between = Self {
            nodes: vec![],
            lanes: FxHashMap::default(),
            sources: BTreeSet::new(),
        };
        // By the step that computes a value, the latest first; whether queries and keys need it.
        let step = |v: ValueId| graph.producer(v).map(|(id, _)| found.trace.step(id));
        let mut open: BTreeMap<_, (ValueId, [bool; 2])> = BTreeMap::new();
        let add = |open: &mut BTreeMap<_, (ValueId, [bool; 2])>, v: ValueId, by: [bool; 2]| {
            let (_, needed) = open.entry((step(v), v)).or_insert((v, [false; 2]));
            *needed = [needed[0] | by[0], needed[1] | by[1]];
        };
        add(&mut open, site.query.value, [true, false]);
        add(&mut open, site.key.value, [false, true]);
        for operand in [&site.query, &site.key] {
            between.lanes.insert(operand.value, operand.lane);
        }
        while let Some((_, (value, by))) = open.pop_last() {
            let made = graph.producer(value).filter(|_| by != [true; 2]);
            let Some((id, _)) = made else {
                between.sources.insert(value);
                continue;
            };
            if between.nodes.len() >= FEW {
                return None;
            }
            between.nodes.push(id);
            let inputs = graph.node(id).inputs().iter().enumerate();
            let inputs = inputs.filter_map(|(slot, value)| Some((slot, (*value)?)));
            let lane = between.lanes.get(&value).copied();
            let output = graph.producer(value).map_or(0, |(_, output)| output);
            for (slot, input) in inputs.filter(|(_, value)| found.is_content(*value)) {
                add(&mut open, input, by);
                let lane = lane.and_then(|lane| before(graph, found, (id, output), slot, lane));
                if let Some(lane) = lane {
                    between.lanes.entry(input).or_insert(lane);
                }
            }
        }
        Some(between)
    }

    /// The first node that reads positions or other numbers which follow the tokens, and no content.
    fn position(&self, model: &Model, found: &Found, count: usize) -> Option<NodeId> {
        let graph = model.graph();
        let follows = |v: &ValueId| {
            let class = found.classes.of_value(*v);
            // A mask is no position, and what is counted from one is.
            let is_position = class.has(Class::POSITION);
            let free = !class.has(Class::CONTENT) && (is_position || !class.has(Class::PADDING));
            let counts = is_position || found.trace.get(*v).dtype.is_some_and(is_float);
            free && counts && varies(found, *v, count)
        };
        // Into which slot of a cache a key is written makes no difference to its product with a query.
        let is_slot = |node: &Node, value: &ValueId| {
            let cached = |data| !found.classes.of_value(data).has(Class::FRESH);
            let places = written_slots(node).and_then(|(places, _)| node.input(places));
            is_write(node) && node.input(0).is_some_and(cached) && places == Some(*value)
        };
        let reads = |id: &&NodeId| {
            let node = graph.node(**id);
            let inputs = node.inputs().iter().flatten();
            let mut inputs = inputs.filter(|value| {
                !is_slot(node, value) && !self.is_of_features(graph, found, **id, **value)
            });
            inputs.any(follows)
        };
        self.nodes.iter().rfind(reads).copied()
    }

    /// Whether a constant that a node reads has no axis where the tokens are, however many features there are: it is
    /// the same for all of them.
    fn is_of_features(&self, graph: &Graph, found: &Found, id: NodeId, value: ValueId) -> bool {
        let node = graph.node(id);
        let dims = |value: ValueId| found.trace.get(value).dims.as_deref();
        // Weights of a convolution are of channels.
        if node.is("Conv") && node.input(0) != Some(value) {
            return true;
        }
        let made = node
            .output(0)
            .and_then(|out| Some((dims(out)?.len(), self.lanes.get(&out)?)));
        let (Some((rank, lane)), Some(own)) = (made, dims(value)) else {
            return false;
        };
        if !found.classes.of_value(value).is_constant() {
            return false;
        }
        let behind = rank - lane.sequence;
        match node.op() {
            // Weights on the right of a product are of features where tokens are rows.
            "MatMul" => node.input(1) == Some(value) && own.len() == 2 && behind == 2,
            op if is_elementwise(op) || is_norm(node) => own
                .len()
                .checked_sub(behind)
                .is_none_or(|axis| own[axis] == 1),
            _ => false,
        }
    }

    /// Whether an operand differs from token to token where what enters does not; `None` where that
    /// cannot be computed.
    fn moves(&self, model: &Model, found: &Found, operand: &Operand, count: usize) -> Option<bool> {
        let mut seeds = FxHashMap::default();
        for source in &self.sources {
            let dims = found.trace.get(*source).dims.as_deref();
            let dims = dims.filter(|dims| BUDGET.allows(dims))?;
            // The same along every axis that may be of tokens.
            let number = |at: IxDyn| {
                let own = (0..dims.len()).filter(|a| !dims[*a].is_multiple_of(count));
                let place = own.fold(1.0, |n, a| n * 31.0 + at[a] as f64);
                (place * 0.754_877_666).fract() + 0.25
            };
            seeds.insert(*source, Value::float(ArrayD::from_shape_fn(dims, number)));
        }
        let got = probe(model, &found.trace, &seeds, &[operand.value], &BUDGET).ok()?;
        let got = got.first()?.to_f64()?;
        // Earlier keys come first, and are of other content.
        let axis = Axis(operand.lane.sequence);
        let all = got.len_of(axis);
        let last = got.index_axis(axis, all.checked_sub(1)?);
        let largest = got.iter().fold(1e-6, |m: f64, x| m.max(x.abs()));
        let differs = |at: usize| {
            let row = got.index_axis(axis, at);
            row.iter()
                .zip(&last)
                .any(|(a, b)| (a - b).abs() > 1e-6 * largest)
        };
        Some((all.checked_sub(count)?..all).any(differs))
    }
}

/// The lane of what a node reads as this input, also before a projection and a norm.
fn before(
    graph: &Graph,
    found: &Found,
    (id, output): (NodeId, usize),
    slot: usize,
    lane: Lane,
) -> Option<Lane> {
    let node = graph.node(id);
    let rank = |slot: usize| Some(found.trace.get(node.input(slot)?).dims.as_ref()?.len());
    let is_row = rank(0).is_some_and(|rank| lane.sequence + 2 == rank);
    match node.op() {
        "MatMul" if slot == 0 && rank(1) == Some(2) && is_row => {
            Some(Lane::of_sequence(lane.sequence))
        }
        _ if slot == 0 && is_norm(node) => Some(lane),
        _ => back(graph, &found.trace, id, output, slot, lane),
    }
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

/// Whether numbers differ along an axis of so many.
fn varies(found: &Found, value: ValueId, count: usize) -> bool {
    let value = found.trace.get(value);
    let dims = value.dims.as_deref().unwrap_or_default();
    let axes: Vec<usize> = (0..dims.len()).filter(|a| dims[*a] == count).collect();
    if axes.is_empty() {
        return false;
    }
    let Some(data) = value.to_f64() else {
        return false;
    };
    axes.into_iter().any(|axis| {
        let first = data.index_axis(Axis(axis), 0);
        data.axis_iter(Axis(axis)).any(|row| row != first)
    })
}
