//! Where a graph stores the numbers of a rotation: frequencies that angles are computed from,
//! or tables of cos and sin whose rows are picked by position.
//!
//! A constant is taken for what it does: it is replaced by codes, the rotation is probed again,
//! and the result shows which element feeds which pair.

mod cone;
mod data;
mod table;

use std::borrow::Cow;
use std::collections::BTreeSet;

use ndarray::{ArrayD, IxDyn};
use posenc_ir::eval::Value;
use posenc_ir::{Graph, Model, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::matrices::{ROOM, matrices_again};
use super::read::read_again;
use super::site::Rotation;
use super::unrounded::unrounded;
use crate::detect::found::Found;
use crate::detect::rotary::site::RotaryOperand;
use crate::graph::dataflow::Class;
use cone::Cone;
pub(crate) use cone::{derives, positions_among};
pub(crate) use data::{Column, Computed, RotarySource, Table, Wave};
use table::TableProbe;

/// Finds where a graph stores the numbers of its rotations.
#[derive(Debug)]
pub(crate) struct Sources<'a> {
    /// The model without rounding to integers and back, which codes would not survive.
    model: Cow<'a, Model>,
    found: &'a Found,
}

impl<'a> Sources<'a> {
    pub(crate) fn of(model: &'a Model, found: &'a Found) -> Self {
        let exact = unrounded(model, &found.trace);
        Self {
            model: exact.map_or(Cow::Borrowed(model), Cow::Owned),
            found,
        }
    }

    /// Where the numbers of a rotation are.
    ///
    /// # Errors
    /// A sentence with the reason why no constant contains them.
    pub(crate) fn find(&self, half: &RotaryOperand) -> Result<RotarySource, String> {
        let (model, found) = (&*self.model, self.found);
        let cone = Cone::of(model.graph(), &found.classes, half);
        if cone.waves.is_empty() {
            tables(model, found, half, &cone)
        } else {
            computed(model, found, half, cone)
        }
    }
}

/// The positions of a rotation: integers, where the graph has them so, that count up
/// from where the trial run starts.
pub(crate) fn positions(model: &Model, found: &Found, half: &RotaryOperand) -> Option<ValueId> {
    Cone::of(model.graph(), &found.classes, half).positions(model.graph(), found)
}

/// All values that the positions of a rotation are counted in: a graph may count them more than once.
pub(super) fn all_positions(model: &Model, found: &Found, half: &RotaryOperand) -> Vec<ValueId> {
    Cone::of(model.graph(), &found.classes, half).all_positions(model.graph(), found)
}

/// Positions of as many tokens that come so much later; `None` for what has no numbers.
pub(in crate::detect) fn moved(positions: &Value, later: usize) -> Option<Value> {
    let moved = positions.to_f64()?.mapv(|p| p + later as f64);
    Some(if positions.dtype.is_some_and(|t| t.is_int()) {
        Value::int(moved.mapv(|p| p as i64))
    } else {
        Value::float(moved)
    })
}

/// Lengths that decide between frequencies: scalars that contain the trial run's length and that a
/// comparison or a branch before the rotation reads.
pub(crate) fn lengths(model: &Model, found: &Found, half: &RotaryOperand) -> Vec<ValueId> {
    let graph = model.graph();
    let total = (found.lengths.past + found.lengths.sequence) as i64;
    let is_length = |v: ValueId| {
        let class = found.classes.of_value(v);
        let value = found.trace.get(v);
        let data = value.to_i64().filter(|d| d.len() == 1);
        class.has(Class::LENGTH) && data.is_some_and(|d| d.iter().all(|n| *n == total))
    };
    let mut lengths = vec![];
    for id in decisions(model, found, half) {
        let mut stack: Vec<ValueId> = graph.node(id).inputs().iter().flatten().copied().collect();
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            // What counts positions follows them, not the length.
            let class = found.classes.of_value(value);
            if !seen.insert(value) || class.has(Class::POSITION) || class.has(Class::CONTENT) {
                continue;
            }
            if is_length(value) {
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

/// Branches, comparisons and maxima before a rotation, in order.
pub(crate) fn decisions(model: &Model, found: &Found, half: &RotaryOperand) -> Vec<NodeId> {
    let graph = model.graph();
    let cone = Cone::of(graph, &found.classes, half);
    let decides = |id: &NodeId| {
        let op = graph.node(*id).op();
        op == "If" || op.starts_with("Greater") || op.starts_with("Less") || op == "Max"
    };
    let mut nodes: Vec<NodeId> = cone.nodes.iter().copied().filter(decides).collect();
    nodes.sort_unstable();
    nodes
}

/// Codes are spread so that a trial run of a dozen positions distinguishes them.
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
        // A constant with an element for both features of a pair keeps them equal.
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
    Err("no constant contains the frequencies that the angles are computed from".to_owned())
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
    if !all.iter().all(|(_, dims)| ROOM.allows(dims)) {
        return Err("a table of the rotation is too large to be read".into());
    }
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
        let probe = TableProbe {
            found,
            half,
            dims,
            probe,
        };
        let rows = probe.rows();
        if let Some(((axis, row), columns)) = rows.and_then(|r| Some((r, probe.columns(r.0)?))) {
            tables.push(Table {
                root: *root,
                dims: dims.clone(),
                axis,
                first: half.rotation.start.round() as i64 - row,
                columns,
                positions: cone.positions(graph, found),
                cone: cone.nodes.clone(),
            });
        }
    }
    let covered = |wave: Wave| {
        let pairs: BTreeSet<usize> = tables
            .iter()
            .flat_map(|t| &t.columns)
            .filter(|c| c.wave == wave)
            .map(|c| c.pair)
            .collect();
        pairs.len() == half.rotation.rope.pairs.len()
    };
    if covered(Wave::Cos) && covered(Wave::Sin) {
        Ok(RotarySource::Tables(tables))
    } else {
        Err("no constant contains the cosines and sines".to_owned())
    }
}

/// Constants that contain tables: of those that are computed from each other, the stored one.
fn outermost(graph: &Graph, found: &Found, cone: &Cone, pairs: usize) -> Vec<ValueId> {
    let all = cone.constants(graph, found, pairs.max(2));
    let set: FxHashSet<ValueId> = all.iter().copied().collect();
    // A value that is computed from another candidate does not contain the numbers itself.
    all.iter()
        .copied()
        .filter(|v| !derives(graph, *v, &set))
        .collect()
}
