//! Where the numbers of a rotation stand in the graph: frequencies that angles are computed from,
//! or tables of cos and sin whose rows are picked by position.
//!
//! A constant is taken for what it does: it is replaced by codes, the rotation is probed again,
//! and what comes out tells which element feeds which pair.

use std::collections::BTreeSet;

use ndarray::{ArrayD, Dimension, IxDyn};
use posenc_ir::eval::Value;
use posenc_ir::{Graph, Model, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::matrices::matrices_again;
use super::read::read_again;
use super::site::Rotation;
use crate::detect::found::Found;
use crate::detect::rotary::site::RotaryOperand;
use crate::graph::dataflow::{Class, Classes};

/// Where the numbers of a rotation stand.
#[derive(Clone, Debug)]
pub enum RotarySource {
    /// Angles are computed as position times frequency.
    Computed(Computed),
    /// cos and sin stand in tables.
    Tables(Vec<Table>),
}

/// Frequencies that angles are computed from.
#[derive(Clone, Debug)]
pub struct Computed {
    /// The constant that holds them.
    pub root: ValueId,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// For each element the pair that it turns.
    pub pair: Vec<usize>,
    /// Whether it holds reciprocals.
    pub reciprocal: bool,
    /// The positions, as integers where the graph has them so.
    pub positions: Option<ValueId>,
    /// What `Cos` and `Sin` give.
    pub waves: Vec<ValueId>,
    /// The nodes between the constants and the rotation.
    pub cone: FxHashSet<NodeId>,
}

/// A table with a row per position.
#[derive(Clone, Debug)]
pub struct Table {
    /// The constant.
    pub root: ValueId,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// The axis of positions.
    pub axis: usize,
    /// The position of row 0.
    pub first: i64,
    /// What each column holds; columns run over the other axes in row-major order.
    pub columns: Vec<Column>,
    /// The positions that pick rows, where they can be told.
    pub positions: Option<ValueId>,
    /// The nodes between the table and the rotation.
    pub cone: FxHashSet<NodeId>,
}

impl Table {
    /// The first position without a row.
    pub fn end(&self) -> i64 {
        self.first
            .saturating_add_unsigned(self.dims[self.axis] as u64)
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Column {
    /// The pair.
    pub pair: usize,
    /// cos or sin.
    pub wave: Wave,
    /// 1, or −1 where the column is stored negated.
    pub sign: f64,
}

/// Which function of the angle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wave {
    /// The cosine.
    Cos,
    /// The sine.
    Sin,
}

impl RotarySource {
    /// Counts nodes among those between the constants and the rotation.
    pub(crate) fn enter(&mut self, nodes: impl Iterator<Item = NodeId> + Clone) {
        match self {
            Self::Computed(computed) => computed.cone.extend(nodes),
            Self::Tables(tables) => {
                for table in tables {
                    table.cone.extend(nodes.clone());
                }
            }
        }
    }
}

/// Finds where the numbers of a rotation stand.
///
/// # Errors
/// A sentence that says why no constant can be told to hold them.
pub fn source(model: &Model, found: &Found, half: &RotaryOperand) -> Result<RotarySource, String> {
    let cone = Cone::of(model.graph(), &found.classes, half);
    if cone.waves.is_empty() {
        tables(model, found, half, &cone)
    } else {
        computed(model, found, half, cone)
    }
}

/// The positions that a rotation turns by: integers, where the graph has them so, that count up
/// from where the trial run starts.
pub fn positions(model: &Model, found: &Found, half: &RotaryOperand) -> Option<ValueId> {
    Cone::of(model.graph(), &found.classes, half).positions(model.graph(), found)
}

/// Lengths that decide between frequencies: scalars that hold the trial run's length and that a
/// comparison or a branch before the rotation reads.
pub(crate) fn lengths(model: &Model, found: &Found, half: &RotaryOperand) -> Vec<ValueId> {
    let graph = model.graph();
    let total = (found.lengths.past + found.lengths.sequence) as i64;
    let holds = |v: ValueId| {
        let class = found.classes.of_value(v);
        let value = found.trace.get(v);
        let data = value.to_i64().filter(|d| d.len() == 1);
        class.has(Class::LENGTH) && data.is_some_and(|d| d.iter().all(|n| *n == total))
    };
    let cone = Cone::of(graph, &found.classes, half);
    let mut nodes: Vec<NodeId> = cone.nodes.iter().copied().collect();
    nodes.sort_unstable();
    let decides = |id: &NodeId| {
        let op = graph.node(*id).op();
        op == "If" || op.starts_with("Greater") || op.starts_with("Less") || op == "Max"
    };
    let mut lengths = vec![];
    for id in nodes.into_iter().filter(decides) {
        let mut stack: Vec<ValueId> = graph.node(id).inputs().iter().flatten().copied().collect();
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            // What counts positions follows them, not the length.
            let class = found.classes.of_value(value);
            if !seen.insert(value) || class.has(Class::POSITION) || class.has(Class::CONTENT) {
                continue;
            }
            if holds(value) {
                lengths.push(value);
            } else if let Some((id, _)) = graph.producer(value) {
                stack.extend(graph.node(id).inputs().iter().flatten());
            }
        }
    }
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// What the values that enter a rotation are computed from.
struct Cone {
    /// Every value that carries no content, in order of discovery from the rotation backwards.
    values: Vec<ValueId>,
    nodes: FxHashSet<NodeId>,
    waves: Vec<ValueId>,
    /// The positions, where a fused operator is told them.
    told: Option<ValueId>,
}

/// Whether a branch chooses this value among constants.
fn is_choice(graph: &Graph, found: &Found, value: ValueId) -> bool {
    let Some((id, output)) = graph.producer(value) else {
        return false;
    };
    let node = graph.node(id);
    let constant = |v: &ValueId| found.classes.of_value(*v).is_constant();
    node.is("If")
        && node.bodies().all(|(_, body)| {
            let made = graph.scope(body).outputs().get(output);
            made.is_some_and(constant)
        })
}

impl Cone {
    fn of(graph: &Graph, classes: &Classes, half: &RotaryOperand) -> Self {
        let mut cone = Self {
            values: vec![],
            nodes: half.region.entries.iter().map(|u| u.node).collect(),
            waves: vec![],
            told: half.region.inside.and_then(|i| i.positions),
        };
        let entry = |u: &Use| graph.node(u.node).input(u.slot());
        let mut queue: std::collections::VecDeque<ValueId> =
            half.region.entries.iter().filter_map(entry).collect();
        let mut seen = FxHashSet::default();
        while let Some(value) = queue.pop_front() {
            if !seen.insert(value) || classes.of_value(value).has(Class::CONTENT) {
                continue;
            }
            cone.values.push(value);
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            let node = graph.node(id);
            // What only tells a length holds no frequency.
            if node.is("Shape") || node.is("Size") {
                continue;
            }
            cone.nodes.insert(id);
            if node.is("Cos") || node.is("Sin") {
                cone.waves.push(value);
            }
            queue.extend(node.inputs().iter().flatten());
        }
        cone
    }

    /// Constant float values of at least `elements`, stored ones first, then by distance.
    fn constants(&self, graph: &Graph, found: &Found, elements: usize) -> Vec<ValueId> {
        let is_candidate = |v: &ValueId| {
            let value = found.trace.get(*v);
            (found.classes.of_value(*v).is_constant() || is_choice(graph, found, *v))
                && value.dtype.is_some_and(|t| t.is_float())
                && value
                    .dims
                    .as_ref()
                    .is_some_and(|d| d.iter().product::<usize>() >= elements)
        };
        let mut out: Vec<ValueId> = self.values.iter().copied().filter(is_candidate).collect();
        out.sort_by_key(|v| graph.stored(*v).is_none());
        out
    }

    /// The positions: integers, where the graph has them so, that count up to the last token of
    /// the trial run and follow from no others that do.
    fn positions(&self, graph: &Graph, found: &Found) -> Option<ValueId> {
        if self.told.is_some() {
            return self.told;
        }
        let counts = |v: &ValueId| -> bool {
            let Some(data) = found.trace.get(*v).to_f64() else {
                return false;
            };
            let got: BTreeSet<i64> = data.iter().map(|x| *x as i64).collect();
            let last = (found.lengths.past + found.lengths.sequence) as i64 - 1;
            let whole = data.iter().all(|x| x.fract() == 0.0);
            whole && got.len() >= found.lengths.sequence.min(2) && got.last() == Some(&last)
        };
        let positional = |v: &&ValueId| found.classes.of_value(**v).has(Class::POSITION);
        let all: Vec<ValueId> = self.values.iter().filter(positional).copied().collect();
        let is_int = |v: &ValueId| found.trace.get(*v).dtype.is_some_and(|t| t.is_int());
        let counting: Vec<ValueId> = all.into_iter().filter(counts).collect();
        let ints: Vec<ValueId> = counting.iter().copied().filter(is_int).collect();
        let all = if ints.is_empty() { counting } else { ints };
        // What is counted from others follows them; what follows nothing can replace a table.
        let set: FxHashSet<ValueId> = all.iter().copied().collect();
        all.iter().copied().find(|v| !derives(graph, *v, &set))
    }
}

/// Codes are spread over these, so that a trial run of a dozen positions tells them apart.
fn code(i: usize, n: usize) -> f64 {
    0.4 * (i + 1) as f64 / (n + 1) as f64
}

fn computed(
    model: &Model,
    found: &Found,
    half: &RotaryOperand,
    cone: Cone,
) -> Result<RotarySource, String> {
    let graph = model.graph();
    let pairs = &half.rotation.rope.pairs;
    for root in cone.constants(graph, found, pairs.len()) {
        let Some(dims) = found.trace.get(root).dims.clone() else {
            continue;
        };
        let Some(old) = found.trace.get(root).to_f64() else {
            continue;
        };
        let old: Vec<f64> = old.iter().copied().collect();
        // A constant with an element for both features of a pair keeps them alike.
        let groups = groups(&old, pairs.len());
        let n = groups.iter().max().map_or(0, |m| m + 1);
        for reciprocal in [false, true] {
            let codes = groups.iter().map(|g| {
                if reciprocal {
                    1.0 / code(*g, n)
                } else {
                    code(*g, n)
                }
            });
            let Ok(array) = ArrayD::from_shape_vec(IxDyn(&dims), codes.collect()) else {
                continue;
            };
            let change = FxHashMap::from_iter([(root, Value::float(array))]);
            let read = read_again(model, &found.trace, &change, &half.region, &half.rotation);
            let Ok(read) = read else { continue };
            if let Some(pair) = decode(&groups, n, &half.rotation, &read) {
                return Ok(RotarySource::Computed(Computed {
                    root,
                    dims,
                    pair,
                    reciprocal,
                    positions: cone.positions(graph, found),
                    waves: cone.waves,
                    cone: cone.nodes,
                }));
            }
        }
    }
    Err("no constant holds the frequencies that the angles are computed from".to_owned())
}

/// Which elements share a code: each its own, or, where there are more elements than pairs, those
/// of equal value.
fn groups(old: &[f64], pairs: usize) -> Vec<usize> {
    if old.len() == pairs {
        return (0..pairs).collect();
    }
    let mut distinct: Vec<u64> = vec![];
    old.iter()
        .map(|v| {
            let bits = v.to_bits();
            distinct.iter().position(|d| *d == bits).unwrap_or_else(|| {
                distinct.push(bits);
                distinct.len() - 1
            })
        })
        .collect()
}

/// The pair of each element, when every frequency read is a code and every pair has one.
fn decode(groups: &[usize], n: usize, old: &Rotation, read: &Rotation) -> Option<Vec<usize>> {
    let mut pair_of = vec![None; n];
    for (i, features) in read.rope.pairs.iter().enumerate() {
        let f = read.rope.inv_freq[i];
        let group = (0..n).find(|g| (code(*g, n) - f).abs() < 1e-9)?;
        pair_of[group] = Some(old.rope.pairs.iter().position(|p| p == features)?);
    }
    let pairs: Option<Vec<usize>> = groups.iter().map(|g| pair_of[*g]).collect();
    let pairs = pairs?;
    let all: BTreeSet<usize> = pairs.iter().copied().collect();
    (all.len() == old.rope.pairs.len()).then_some(pairs)
}

fn tables(
    model: &Model,
    found: &Found,
    half: &RotaryOperand,
    cone: &Cone,
) -> Result<RotarySource, String> {
    let graph = model.graph();
    let candidates = outermost(graph, found, cone, half.rotation.rope.pairs.len());
    let zeros = |dims: &[usize]| Value::float(ArrayD::zeros(IxDyn(dims)));
    let all: Vec<(ValueId, Vec<usize>)> = candidates
        .into_iter()
        .filter_map(|v| Some((v, found.trace.get(v).dims.clone()?)))
        .collect();
    let mut tables = vec![];
    for (root, dims) in &all {
        let probe = |array: ArrayD<f64>| {
            let mut change: FxHashMap<ValueId, Value> = all
                .iter()
                .map(|(other, dims)| (*other, zeros(dims)))
                .collect();
            change.insert(*root, Value::float(array));
            let mode = half.rotation.mode;
            matrices_again(model, &found.trace, &change, &half.region, mode).ok()
        };
        if let Some(table) = table(graph, found, half, cone, *root, dims, probe) {
            tables.push(table);
        }
    }
    let covered = |wave: Wave| {
        let held: BTreeSet<usize> = tables
            .iter()
            .flat_map(|t| &t.columns)
            .filter(|c| c.wave == wave)
            .map(|c| c.pair)
            .collect();
        held.len() == half.rotation.rope.pairs.len()
    };
    if covered(Wave::Cos) && covered(Wave::Sin) {
        Ok(RotarySource::Tables(tables))
    } else {
        Err("no constant holds the cosines and sines".to_owned())
    }
}

/// Constants that hold tables: of those that are computed from each other, the stored one.
fn outermost(graph: &Graph, found: &Found, cone: &Cone, pairs: usize) -> Vec<ValueId> {
    let all = cone.constants(graph, found, pairs.max(2));
    let set: FxHashSet<ValueId> = all.iter().copied().collect();
    // A value that is computed from another candidate is not where the numbers stand.
    all.iter()
        .copied()
        .filter(|v| !derives(graph, *v, &set))
        .collect()
}

/// Whether a value is computed from another one of a set.
fn derives(graph: &Graph, value: ValueId, set: &FxHashSet<ValueId>) -> bool {
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    while let Some(at) = stack.pop() {
        let Some((id, _)) = graph.producer(at) else {
            continue;
        };
        for input in graph.node(id).inputs().iter().flatten() {
            if *input != value && set.contains(input) {
                return true;
            }
            if seen.insert(*input) {
                stack.push(*input);
            }
        }
    }
    false
}

fn table(
    graph: &Graph,
    found: &Found,
    half: &RotaryOperand,
    cone: &Cone,
    root: ValueId,
    dims: &[usize],
    probe: impl Fn(ArrayD<f64>) -> Option<ndarray::Array3<f64>>,
) -> Option<Table> {
    let rope = &half.rotation.rope;
    let offset = usize::try_from(half.region.output_lane.offset).ok()?;
    let local = |i: usize| (rope.pairs[i].0 - offset, rope.pairs[i].1 - offset);
    // What a pair's matrix holds of the table at one position: cos, then sin with its sign.
    let at = |maps: &ndarray::Array3<f64>, p: usize, i: usize| {
        let (a, b) = local(i);
        (maps[[p, a, a]], maps[[p, b, a]])
    };
    let mut rows = None;
    for axis in 0..dims.len() {
        if dims[axis] < found.lengths.sequence {
            continue;
        }
        let maps = probe(ArrayD::from_shape_fn(IxDyn(dims), |i| i[axis] as f64 + 1.0))?;
        let read: Option<Vec<i64>> = (0..maps.shape()[0])
            .map(|p| {
                let values = (0..rope.pairs.len()).flat_map(|i| {
                    let (c, s) = at(&maps, p, i);
                    [c.abs(), s.abs()]
                });
                let held: BTreeSet<i64> = values
                    .filter(|v| *v > 0.5)
                    .map(|v| v.round() as i64)
                    .collect();
                let one = held.iter().next().copied();
                one.filter(|_| held.len() == 1).map(|row| row - 1)
            })
            .collect();
        if let Some(read) = read
            && read.windows(2).all(|w| w[1] == w[0] + 1)
            && read.len() > 1
        {
            rows = Some((axis, read[0]));
            break;
        }
    }
    let (axis, row) = rows?;
    let count: usize = dims.iter().product::<usize>() / dims[axis].max(1);
    let column_of = |index: &[usize]| {
        let mut column = 0;
        for (a, i) in index.iter().enumerate().filter(|(a, _)| *a != axis) {
            column = column * dims[a] + i;
        }
        column
    };
    let maps = probe(ArrayD::from_shape_fn(IxDyn(dims), |i| {
        column_of(i.slice()) as f64 + 1.0
    }))?;
    let mut columns: Vec<Option<Column>> = vec![None; count];
    for pair in 0..rope.pairs.len() {
        let (c, s) = at(&maps, 0, pair);
        let (a, b) = local(pair);
        // The second feature may read columns of its own.
        let held = [
            (c, Wave::Cos, 1.0),
            (maps[[0, b, b]], Wave::Cos, 1.0),
            (s, Wave::Sin, 1.0),
            (maps[[0, a, b]], Wave::Sin, -1.0),
        ];
        for (value, wave, turn) in held {
            if value.abs() < 0.5 {
                continue;
            }
            let slot = columns.get_mut(value.abs().round() as usize - 1)?;
            *slot = Some(Column {
                pair,
                wave,
                sign: value.signum() * turn,
            });
        }
    }
    let start = half.rotation.start.round() as i64;
    Some(Table {
        root,
        dims: dims.to_vec(),
        axis,
        first: start - row,
        columns: columns.into_iter().collect::<Option<Vec<_>>>()?,
        positions: cone.positions(graph, found),
        cone: cone.nodes.clone(),
    })
}
