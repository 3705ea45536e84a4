//! A rotation as a model of its own: from the content that enters to the content that leaves.
//!
//! Content beside that on the way enters by its shape alone, so zeros stand in for it. Positions
//! are fed where the graph has them as numbers, so that a few sampled ones tell what happens at
//! lengths that no memory would hold; otherwise they come from the inputs of the model.

use posenc_ir::eval::{Trace, Value};
use posenc_ir::{Cut, CutInput, DType, Dim, Graph, Model, Tensor, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::VerifyError;
use super::bound::Precision;
use crate::detect::Detection;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::region::{Region, reads};

/// The most that the constants of one rotation may take: its tables.
const LIMIT: usize = 1 << 29;

/// Where positions come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// They are fed where the graph has them as numbers.
    Fed,
    /// The graph computes them from its inputs.
    Computed,
}

/// A value that holds positions as numbers.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    /// Its name as an input.
    pub(crate) name: String,
    dtype: DType,
    dims: Vec<usize>,
    /// The axis along which it counts.
    axis: usize,
    /// What it holds for the first position that the rotation sees, less that position.
    offset: i64,
}

impl Counter {
    /// The value for these positions of the rotation's tokens, which stand last.
    pub(crate) fn feed(&self, positions: &[i64]) -> Tensor {
        let below: usize = self.dims[self.axis + 1..].iter().product();
        let count = self.dims[self.axis];
        let before = count - positions.len();
        let value = |i: usize| {
            let place = (i / below) % count;
            (positions[place.saturating_sub(before)] + self.offset) as f64
        };
        let all: usize = self.dims.iter().product();
        let values: Vec<f64> = (0..all).map(value).collect();
        Tensor::from_f64(self.dtype, &self.dims, &values)
    }
}

/// A rotation that was cut out, with everything that it has to be fed.
#[derive(Clone, Debug)]
pub(crate) struct Cutout {
    pub(crate) cut: Cut,
    /// The input for the content, its type and dimensions.
    pub(crate) content: String,
    pub(crate) dtype: DType,
    pub(crate) dims: Vec<usize>,
    pub(crate) counters: Vec<Counter>,
    /// Feeds that stay the same.
    pub(crate) rest: Vec<(String, Tensor)>,
}

/// What a walk back from the rotation's output comes by.
#[derive(Debug, Default)]
struct Seen {
    /// Values in order of discovery.
    values: Vec<ValueId>,
    /// Content that enters by its shape.
    shapes: Vec<ValueId>,
    counters: Vec<ValueId>,
    /// Whether positions enter by another way than the counters.
    loose: bool,
}

/// Cuts a rotation out for a run with what `trace` and `seeds` say of lengths; `start` is the
/// position of the first token that it sees then. `None` where positions are to be fed and cannot
/// be, or more zeros would have to be fed than memory should hold.
pub(crate) fn cut_out(
    model: &Model,
    found: &Detection,
    (trace, seeds): (&Trace, &FxHashMap<ValueId, Value>),
    region: &Region,
    origin: Origin,
    (site, start): (&str, i64),
) -> Result<Option<Cutout>, VerifyError> {
    let graph = model.graph();
    let refuse = |why: &str| VerifyError::unsupported(site, why);
    let (dtype, dims) = shape(graph, trace, region.input)
        .ok_or_else(|| refuse("the shape of what is rotated is not known"))?;
    let tokens = dims[region.input_lane.sequence];
    let on_the_way = region.content(graph, &found.classes);
    let mut counting: FxHashMap<ValueId, (usize, i64)> = FxHashMap::default();
    let stop = |v: ValueId| -> bool {
        origin == Origin::Fed
            && match counts(graph, &found.classes, trace, v) {
                Some((axis, first)) => {
                    let count = trace.get(v).dims.as_ref().map_or(0, |d| d[axis]);
                    // Of more positions than tokens the last ones are those of the tokens.
                    let fits = count >= tokens;
                    if fits {
                        let first = first + (count - tokens) as i64;
                        counting.insert(v, (axis, first - start));
                    }
                    fits
                }
                None => false,
            }
    };
    let seen = walk(graph, &found.classes, region, &on_the_way, stop);
    if origin == Origin::Fed && (seen.loose || seen.counters.is_empty()) {
        return Ok(None);
    }
    let mut inputs = vec![input(region.input, dtype, &dims)];
    let mut rest = vec![];
    for value in &seen.shapes {
        let (dtype, dims) = shape(graph, trace, *value)
            .ok_or_else(|| refuse("the rotation depends on content whose shape is not known"))?;
        inputs.push(input(*value, dtype, &dims));
        let Some(zeros) = zeros(dtype, &dims) else {
            return Ok(None);
        };
        rest.push((graph.name(*value).to_owned(), zeros));
    }
    let mut counters = vec![];
    for value in &seen.counters {
        let (axis, offset) = counting[value];
        let (dtype, dims) = shape(graph, trace, *value)
            .ok_or_else(|| refuse("the shape of the positions is not known"))?;
        inputs.push(input(*value, dtype, &dims));
        counters.push(Counter {
            name: graph.name(*value).to_owned(),
            dtype,
            dims,
            axis,
            offset,
        });
    }
    let cut = model.cut(&inputs, &[region.output], LIMIT)?;
    // What the cut reached beside the values it was told of are inputs of the model.
    for port in &cut.inputs[inputs.len()..] {
        let known = seeds.get(&port.value).ok_or_else(|| {
            let why = format!(
                "nothing is known of the input {}, which it reads",
                port.name
            );
            refuse(&why)
        })?;
        let Some(feed) = tensor(known) else {
            return Ok(None);
        };
        rest.push((port.name.clone(), feed));
    }
    Ok(Some(Cutout {
        content: graph.name(region.input).to_owned(),
        cut,
        dtype,
        dims,
        counters,
        rest,
    }))
}

/// Whether the angles of a rotation go through `Cos` and `Sin` in the graph.
pub(crate) fn waves(model: &Model, found: &Detection, region: &Region) -> bool {
    let graph = model.graph();
    let on_the_way = region.content(graph, &found.classes);
    let seen = walk(graph, &found.classes, region, &on_the_way, |_| false);
    seen.values.iter().any(|v| is_wave(graph, *v))
}

/// In which types a rotation is computed.
pub(crate) fn precision(model: &Model, found: &Detection, region: &Region) -> Precision {
    let graph = model.graph();
    let on_the_way = region.content(graph, &found.classes);
    let seen = walk(graph, &found.classes, region, &on_the_way, |_| false);
    let epsilon = |v: &ValueId| found.trace.get(*v).dtype.and_then(DType::epsilon);
    let single = f64::from(f32::EPSILON);
    // Everything that Cos and Sin are taken of.
    let mut angles = FxHashSet::default();
    let waves = seen.values.iter().filter(|v| is_wave(graph, **v));
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
        (seen.values.iter().filter(positional)).partition(|v| angles.contains(*v));
    let coarsest =
        |values: &[&ValueId]| values.iter().filter_map(|v| epsilon(v)).fold(0.0, f64::max);
    // The coarsest of the constants that an angle is made of.
    let constants = seen.values.iter().filter(|v| {
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
    let content = on_the_way.iter().filter_map(&epsilon).fold(0.0, f64::max);
    Precision {
        angle: match computed {
            true => coarsest(&before),
            false => single,
        },
        stored,
        content: content
            .max(coarsest(&after))
            .max(epsilon(&region.input).unwrap_or(0.0)),
    }
}

fn walk(
    graph: &Graph,
    classes: &Classes,
    region: &Region,
    on_the_way: &FxHashSet<ValueId>,
    mut stop: impl FnMut(ValueId) -> bool,
) -> Seen {
    let mut seen = Seen::default();
    let mut done = FxHashSet::default();
    let mut stack = vec![region.output];
    while let Some(value) = stack.pop() {
        if value == region.input || !done.insert(value) {
            continue;
        }
        let class = classes.of_value(value);
        if class.has(Class::CONTENT) && !on_the_way.contains(&value) {
            // Inputs of the model are fed whether asked for or not.
            if graph.producer(value).is_some() {
                seen.shapes.push(value);
            }
            continue;
        }
        seen.values.push(value);
        if stop(value) {
            seen.counters.push(value);
            continue;
        }
        match graph.producer(value) {
            None => seen.loose |= class.has(Class::POSITION),
            Some((id, _)) => {
                let inputs = reads(graph, id);
                let before = inputs
                    .iter()
                    .any(|v| classes.of_value(*v).has(Class::POSITION));
                // Position that comes from no position: a Range, a CumSum.
                seen.loose |= class.has(Class::POSITION) && !before;
                stack.extend(inputs);
            }
        }
    }
    seen
}

fn is_wave(graph: &Graph, value: ValueId) -> bool {
    let node = graph.producer(value).map(|(id, _)| graph.node(id));
    node.is_some_and(|n| n.is("Cos") || n.is("Sin"))
}

/// The axis along which a value counts up by ones, and what it starts with; along all other axes
/// it stays the same. Values of a float type count only where they are counted: further on, an
/// angle of frequency 1 looks like a position.
fn counts(graph: &Graph, classes: &Classes, trace: &Trace, value: ValueId) -> Option<(usize, i64)> {
    if !classes.of_value(value).has(Class::POSITION) {
        return None;
    }
    let known = trace.get(value);
    let counted = match graph.producer(value) {
        Some((id, _)) => graph.node(id).is("Range"),
        None => true,
    };
    let dtype = known.dtype?;
    if !(dtype.is_int() || counted && dtype.epsilon().is_some()) {
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
    (first.fract() == 0.0 && !counts_rows(graph, classes, value)).then_some((axis, first as i64))
}

/// Whether a value counts from one position to another, as the rows of a table that is computed
/// while the graph runs do, rather than telling the position of each token.
fn counts_rows(graph: &Graph, classes: &Classes, value: ValueId) -> bool {
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

/// The most elements that stand in for content of which the shape alone matters.
const ZEROS: usize = 1 << 27;

fn zeros(dtype: DType, dims: &[usize]) -> Option<Tensor> {
    let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    if count > ZEROS {
        return None;
    }
    let bytes = dtype.payload(count)?;
    Tensor::new(dtype, dims.to_vec(), vec![0; bytes].into())
}

/// What is fed for a value of a trial run: its elements, or zeros where it is content.
fn tensor(value: &Value) -> Option<Tensor> {
    let (dtype, dims) = (value.dtype?, value.dims.as_deref()?);
    match value.to_f64() {
        None => zeros(dtype, dims),
        Some(data) => {
            let plain = dtype.epsilon().is_some() || dtype.is_int() || dtype == DType::Bool;
            let wide = dtype.bits().is_some_and(|b| b >= 8);
            let values: Vec<f64> = data.iter().copied().collect();
            (plain && wide).then(|| Tensor::from_f64(dtype, dims, &values))
        }
    }
}
