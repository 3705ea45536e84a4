//! A rotation as a model of its own: from its input to its result.
//!
//! Only the shape of other content matters, so zeros are fed for it. Positions are fed where the
//! graph has them as numbers, so that a few sampled ones check lengths that would not fit into
//! memory; otherwise the graph computes them from the inputs of the model.

use posenc_ir::eval::{Trace, Value};
use posenc_ir::{Cut, CutInput, DType, Dim, Graph, Model, NodeId, Tensor, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::VerifyError;
use super::bound::Precision;
use super::trial::{feed, zeros};
use crate::detect::Found;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::is_rotary;
use crate::graph::region::{Region, reads, shape_only};

/// The most bytes that the constants of one rotation may take: its tables.
const LIMIT: usize = 1 << 29;

/// What the positions of a cut-out rotation are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Positions {
    /// They are fed where the graph has them as numbers.
    Fed,
    /// The graph computes them from its inputs.
    Computed,
}

/// A value that contains positions as numbers.
#[derive(Clone, Debug)]
pub(crate) struct PositionInput {
    /// Its name as an input.
    pub(crate) name: String,
    dtype: DType,
    dims: Vec<usize>,
    /// The axis of the positions.
    axis: usize,
    /// The number for the first position of the rotation, less that position.
    offset: i64,
}

impl PositionInput {
    /// The value for these positions of the rotation's tokens, which are the last ones along the
    /// axis.
    pub(crate) fn feed(&self, positions: &[i64]) -> Tensor {
        let below: usize = self.dims[self.axis + 1..].iter().product();
        let count = self.dims[self.axis];
        let before = count - positions.len();
        let value = |i: usize| {
            let index = (i / below) % count;
            (positions[index.saturating_sub(before)] + self.offset) as f64
        };
        let all: usize = self.dims.iter().product();
        let values: Vec<f64> = (0..all).map(value).collect();
        Tensor::from_f64(self.dtype, &self.dims, &values)
    }
}

/// A rotation that was cut out, with its feeds.
#[derive(Clone, Debug)]
pub(crate) struct Cutout {
    pub(crate) cut: Cut,
    /// The input for the content, its type and dimensions.
    pub(crate) content: String,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    pub(crate) positions: Vec<PositionInput>,
    /// Feeds that do not depend on the positions.
    pub(crate) constant: Vec<(String, Tensor)>,
}

/// The values that a rotation's output depends on.
#[derive(Debug, Default)]
struct Dependencies {
    /// Values in order of discovery.
    values: Vec<ValueId>,
    /// Content of which only the shape matters.
    shapes: Vec<ValueId>,
    positions: Vec<ValueId>,
    /// Whether there are positions other than those.
    other_positions: bool,
}

/// The run that a rotation is cut out for.
#[derive(Clone, Copy)]
pub(crate) struct CutRun<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) seeds: &'a FxHashMap<ValueId, Value>,
    /// The position of the first token that the rotation sees.
    pub(crate) start: i64,
}

/// Cuts a rotation out; `None` if positions are to be fed and cannot be, or if the feeds would be
/// too large.
pub(crate) fn cut_out(
    model: &Model,
    found: &Found,
    run: CutRun<'_>,
    region: &Region,
    positions: Positions,
    site: &str,
) -> Result<Option<Cutout>, VerifyError> {
    let graph = model.graph();
    let shape = |value: ValueId, what: &str| {
        let why = || VerifyError::unsupported(site, format!("the shape of {what} is unknown"));
        shape(graph, run.trace, value).ok_or_else(why)
    };
    let (dtype, dims) = shape(region.input, "the rotated input")?;
    let tokens = dims[region.input_lane.sequence];
    let content_path = region.content(graph, &found.classes);
    let mut feedable: FxHashMap<ValueId, (usize, i64)> = FxHashMap::default();
    let stop = |v: ValueId| -> bool {
        let fed = match positions {
            Positions::Fed => fed_positions(graph, &found.classes, run, tokens, v),
            Positions::Computed => None,
        };
        feedable.extend(fed.map(|fed| (v, fed)));
        fed.is_some()
    };
    let needed = dependencies(graph, &found.classes, region, &content_path, stop);
    if positions == Positions::Fed && (needed.other_positions || needed.positions.is_empty()) {
        return Ok(None);
    }
    let mut inputs = vec![input(region.input, dtype, &dims)];
    let mut constant = vec![];
    for value in &needed.shapes {
        let (dtype, dims) = shape(*value, "content that the rotation depends on")?;
        inputs.push(input(*value, dtype, &dims));
        let Some(zeros) = zeros(dtype, &dims) else {
            return Ok(None);
        };
        constant.push((graph.name(*value).to_owned(), zeros));
    }
    let mut positions = vec![];
    for value in &needed.positions {
        let (axis, offset) = feedable[value];
        let (dtype, dims) = shape(*value, "the positions")?;
        inputs.push(input(*value, dtype, &dims));
        positions.push(PositionInput {
            name: graph.name(*value).to_owned(),
            dtype,
            dims,
            axis,
            offset,
        });
    }
    let cut = model.cut(&inputs, &[region.output], LIMIT)?;
    // The remaining inputs of the cut are inputs of the model.
    for port in &cut.inputs[inputs.len()..] {
        let known = run.seeds.get(&port.value).ok_or_else(|| {
            let why = format!("no values are known for the input {}", port.name);
            VerifyError::unsupported(site, why)
        })?;
        let Some(feed) = feed(known) else {
            return Ok(None);
        };
        constant.push((port.name.clone(), feed));
    }
    Ok(Some(Cutout {
        content: graph.name(region.input).to_owned(),
        cut,
        dtype,
        dims,
        positions,
        constant,
    }))
}

/// How positions are fed as this value: the axis along which it contains them, and its number for the
/// first token less that token's position. `None` if it does not contain the positions of all tokens.
fn fed_positions(
    graph: &Graph,
    classes: &Classes,
    run: CutRun<'_>,
    tokens: usize,
    value: ValueId,
) -> Option<(usize, i64)> {
    let (axis, first) = position_axis(graph, classes, run.trace, value)?;
    let count = run.trace.get(value).dims.as_ref().map_or(0, |d| d[axis]);
    // If there are more positions than tokens, the tokens have the last ones.
    let earlier = count.checked_sub(tokens)?;
    Some((axis, first + earlier as i64 - run.start))
}

/// Whether the graph computes cos and sin of the rotation's angles by `Cos` and `Sin`.
pub(crate) fn waves(model: &Model, found: &Found, region: &Region) -> bool {
    let graph = model.graph();
    let content_path = region.content(graph, &found.classes);
    let needed = dependencies(graph, &found.classes, region, &content_path, |_| false);
    needed.values.iter().any(|v| is_wave(graph, *v))
}

/// The types in which a rotation is computed.
pub(crate) fn precision(model: &Model, found: &Found, region: &Region) -> Precision {
    let graph = model.graph();
    let content_path = region.content(graph, &found.classes);
    let needed = dependencies(graph, &found.classes, region, &content_path, |_| false);
    let epsilon = |v: &ValueId| found.trace.get(*v).dtype.and_then(DType::epsilon);
    let single = f64::from(f32::EPSILON);
    // Everything that the arguments of Cos and Sin depend on.
    let mut angles = FxHashSet::default();
    let waves = needed.values.iter().filter(|v| is_wave(graph, **v));
    let mut stack: Vec<ValueId> = waves.copied().collect();
    let computed = !stack.is_empty();
    while let Some(value) = stack.pop() {
        if let Some((id, _)) = graph.producer(value) {
            for read in reads(graph, id) {
                if angles.insert(read) {
                    stack.push(read);
                }
            }
        }
    }
    let positional = |v: &&ValueId| found.classes.of_value(**v).has(Class::POSITION);
    let (before, after): (Vec<&ValueId>, Vec<&ValueId>) =
        (needed.values.iter().filter(positional)).partition(|v| angles.contains(*v));
    let coarsest =
        |values: &[&ValueId]| values.iter().filter_map(|v| epsilon(v)).fold(0.0, f64::max);
    // The constants that angles are computed from; the coarsest one counts.
    let constants = needed.values.iter().filter(|v| {
        let long = found.trace.get(**v).elements().is_some_and(|n| n > 1);
        angles.contains(*v) && long && found.classes.of_value(**v).is_constant()
    });
    let stored = constants
        .filter(|v| epsilon(v).is_some())
        .max_by(|a, b| {
            epsilon(a)
                .unwrap_or(0.0)
                .total_cmp(&epsilon(b).unwrap_or(0.0))
        })
        .and_then(|v| found.trace.get(*v).dtype);
    let content = content_path.iter().filter_map(&epsilon).fold(0.0, f64::max);
    Precision {
        angle: if computed { coarsest(&before) } else { single },
        stored,
        content: content
            .max(coarsest(&after))
            .max(epsilon(&region.input).unwrap_or(0.0)),
    }
}

fn dependencies(
    graph: &Graph,
    classes: &Classes,
    region: &Region,
    content_path: &FxHashSet<ValueId>,
    mut stop: impl FnMut(ValueId) -> bool,
) -> Dependencies {
    let mut needed = Dependencies::default();
    let mut done = FxHashSet::default();
    let mut stack = vec![region.output];
    // What picks the row of each token is no position.
    let mut rows = vec![];
    while let Some(value) = stack.pop() {
        if value == region.input || !done.insert(value) {
            continue;
        }
        let class = classes.of_value(value);
        if class.has(Class::CONTENT) && !content_path.contains(&value) {
            // Inputs of the model are fed in any case.
            if graph.producer(value).is_some() {
                needed.shapes.push(value);
            }
            continue;
        }
        needed.values.push(value);
        if stop(value) {
            needed.positions.push(value);
            continue;
        }
        match graph.producer(value) {
            None => needed.other_positions |= class.has(Class::POSITION),
            Some((id, _)) => {
                let mut inputs = reads(graph, id);
                if let Some(picks) = picks_of_tokens(graph, classes, id) {
                    inputs.retain(|v| *v != picks);
                    rows.push(picks);
                }
                let before = inputs
                    .iter()
                    .any(|v| classes.of_value(*v).has(Class::POSITION));
                // Positions that are made here: by a Range, a CumSum.
                needed.other_positions |= class.has(Class::POSITION) && !before;
                stack.extend(inputs);
            }
        }
    }
    while let Some(value) = rows.pop() {
        if classes.of_value(value).has(Class::CONTENT) || !done.insert(value) {
            continue;
        }
        needed.values.push(value);
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let read = reads(graph, id);
        if shape_only(graph, id) {
            let is_content = |v: &ValueId| classes.of_value(*v).has(Class::CONTENT);
            let is_new = |v: &ValueId| *v != region.input && graph.producer(*v).is_some();
            let measured = read.iter().copied().filter(|v| is_content(v) && is_new(v));
            needed.shapes.extend(measured.filter(|v| done.insert(*v)));
        }
        rows.extend(read);
    }
    needed
}

/// What picks rows for a rotary operator of ONNX Runtime whose cosines are those of the tokens, and not of
/// positions from 0 on.
fn picks_of_tokens(graph: &Graph, classes: &Classes, id: NodeId) -> Option<ValueId> {
    let node = graph.node(id);
    let is_contrib = node.domain() == "com.microsoft" && is_rotary(node);
    let cos = node.input(2).filter(|_| is_contrib)?;
    let is_of_tokens = classes.of_value(cos).has(Class::POSITION);
    node.input(1).filter(|_| is_of_tokens)
}

fn is_wave(graph: &Graph, value: ValueId) -> bool {
    let node = graph.producer(value).map(|(id, _)| graph.node(id));
    node.is_some_and(|n| n.is("Cos") || n.is("Sin"))
}

/// The axis along which a value increases by 1, while it is constant along all others, and its
/// first number. Of values of a float type, only inputs and results of a Range qualify: further
/// on, an angle of frequency 1 looks like a position.
fn position_axis(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    value: ValueId,
) -> Option<(usize, i64)> {
    if !classes.of_value(value).has(Class::POSITION) {
        return None;
    }
    let known = trace.get(value);
    let is_source = match graph.producer(value) {
        Some((id, _)) => graph.node(id).is("Range"),
        None => true,
    };
    let dtype = known.dtype?;
    if !(dtype.is_int() || is_source && dtype.epsilon().is_some()) {
        return None;
    }
    let data = known.to_f64()?;
    let first = *data.first()?;
    let steps = |axis: usize| {
        data.indexed_iter().all(|(index, v)| {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            *v == first + index[axis] as f64
        })
    };
    let axis = (0..data.ndim()).find(|a| data.shape()[*a] > 1 && steps(*a))?;
    (first.fract() == 0.0 && !is_range_of_positions(graph, classes, value))
        .then_some((axis, first as i64))
}

/// Whether a value is a Range between positions, such as the rows of a table that the graph
/// computes, rather than the position of each token.
fn is_range_of_positions(graph: &Graph, classes: &Classes, value: ValueId) -> bool {
    let positional = |v: &ValueId| classes.of_value(*v).has(Class::POSITION);
    let mut stack = vec![value];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        let Some((id, _)) = graph.producer(value).filter(|_| seen.insert(value)) else {
            continue;
        };
        let before: Vec<ValueId> = reads(graph, id).into_iter().filter(positional).collect();
        if graph.node(id).is("Range") && !before.is_empty() {
            return true;
        }
        stack.extend(before);
    }
    false
}

fn shape(graph: &Graph, trace: &Trace, value: ValueId) -> Option<(DType, Vec<usize>)> {
    let known = trace.get(value);
    let dtype = known.dtype.or(graph.dtype(value))?;
    Some((dtype, known.dims.clone()?))
}

fn input(value: ValueId, dtype: DType, dims: &[usize]) -> CutInput {
    CutInput {
        value,
        dtype,
        dims: dims.iter().map(|d| Dim::Known(*d)).collect(),
    }
}
