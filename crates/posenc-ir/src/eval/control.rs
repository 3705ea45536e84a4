//! Control flow.

use ndarray::arr0;

use super::memory::{Memory, State};
use super::run::Run;
use super::{EvalError, Value, shape, trips};
use crate::dtype::DType;
use crate::id::{NodeId, ScopeId, ValueId};
use crate::node::Node;

/// Runs a node with bodies, and its bodies.
pub(super) fn run<M: Memory>(run: &mut Run<'_, M>, id: NodeId) {
    let node = run.graph.node(id);
    let outputs = match node.op() {
        "If" if node.domain().is_empty() => branch(run, node),
        "Loop" if node.domain().is_empty() => repeat(run, node),
        "Scan" if node.domain().is_empty() => scan(run, node).unwrap_or_default(),
        _ => Vec::new(),
    };
    let outputs = outputs.into_iter().map(Some).chain(std::iter::repeat(None));
    for (out, value) in node.outputs().iter().zip(outputs) {
        if let Some(out) = *out {
            let mut value = value.unwrap_or_default();
            let declared = run.declared(out);
            value.dtype = value.dtype.or(declared.dtype);
            value.dims = value.dims.or(declared.dims);
            run.put(out, value, State::Live);
        }
    }
}

fn body(node: &Node, name: &str) -> Option<ScopeId> {
    let mut bodies = node.bodies();
    bodies.find(|(n, _)| *n == name).map(|(_, scope)| scope)
}

/// The outputs of a body.
fn results<M: Memory>(run: &Run<'_, M>, body: ScopeId) -> Vec<Value> {
    let outputs = run.graph.scope(body).outputs();
    outputs.iter().map(|v| run.memory.get(*v).clone()).collect()
}

fn branch<M: Memory>(run: &mut Run<'_, M>, node: &Node) -> Vec<Value> {
    let condition = node.input(0).map(|v| run.memory.get(v));
    let known = condition.and_then(Value::scalar_bool);
    let mut all = Vec::new();
    for (name, when) in [("then_branch", true), ("else_branch", false)] {
        if let Some(body) = body(node, name).filter(|_| known.is_none_or(|k| k == when)) {
            run.scope(body);
            all.push(results(run, body));
        }
    }
    let mut all = all.into_iter();
    let mut first = all.next().unwrap_or_default();
    if let Some(second) = all.next() {
        for (a, b) in first.iter_mut().zip(&second) {
            *a = common(a, b);
        }
    } else if known.is_none() {
        first.clear();
    }
    first
}

/// The type and dimensions that two values have in common.
fn common(a: &Value, b: &Value) -> Value {
    Value::shaped(
        a.dtype.filter(|_| a.dtype == b.dtype),
        a.dims.clone().filter(|_| a.dims == b.dims),
    )
}

/// Sets the inputs of a body.
fn feed<M: Memory>(run: &mut Run<'_, M>, inputs: &[ValueId], values: Vec<Value>) {
    for (input, value) in inputs.iter().zip(values) {
        run.put(*input, value, State::Live);
    }
}

/// `Loop`. Inputs: the most iterations, the condition, carried values. Outputs: carried values, and
/// stacked results of all iterations.
fn repeat<M: Memory>(run: &mut Run<'_, M>, node: &Node) -> Vec<Value> {
    let Some(body) = body(node, "body") else {
        return Vec::new();
    };
    let graph = run.graph;
    let carried: Vec<Value> = node.inputs()[node.inputs().len().min(2)..]
        .iter()
        .map(|v| v.map_or_else(Value::unknown, |v| run.memory.get(v).clone()))
        .collect();
    let followed = bounds(run, node).and_then(|bounds| {
        let budget = run.budget;
        trips::of_loop(bounds, &carried, &budget, &mut |given| {
            trip(run, body, given)
        })
    });
    let carried: Vec<Value> = carried.into_iter().map(Value::without_data).collect();
    // Where the body runs, its condition is true.
    let goes_on = Value::bool(arr0(true).into_dyn());
    let mut inputs = vec![Value::opaque(DType::I64, []), goes_on];
    inputs.extend(carried.iter().cloned());
    feed(run, graph.scope(body).inputs(), inputs);
    run.scope(body);
    let results = results(run, body);
    let iterations = iterations(run, node, results.first());
    let mut outputs = Vec::new();
    for (i, result) in results.into_iter().skip(1).enumerate() {
        outputs.push(match carried.get(i) {
            Some(start) => common(start, &result),
            None => {
                let dims = iterations
                    .zip(result.dims)
                    .map(|(n, dims)| [&[n], &*dims].concat());
                Value::shaped(result.dtype, dims)
            }
        });
    }
    with_numbers(outputs, followed)
}

/// The most trips of a loop, and whether it makes any.
fn bounds<M: Memory>(run: &Run<'_, M>, node: &Node) -> Option<(usize, bool)> {
    let read = |i: usize| node.input(i).map(|v| run.memory.get(v));
    let most = match read(0) {
        Some(most) => shape::dim(most.scalar_i64()?.max(0)).ok()?,
        None => usize::MAX,
    };
    Some((most, read(1).map_or(Some(true), Value::scalar_bool)?))
}

/// The outputs of a body for these inputs.
fn trip<M: Memory>(run: &mut Run<'_, M>, body: ScopeId, given: Vec<Value>) -> Option<Vec<Value>> {
    let graph = run.graph;
    let inputs = graph.scope(body).inputs();
    if inputs.len() != given.len() {
        return None;
    }
    feed(run, inputs, given);
    run.scope(body);
    Some(results(run, body))
}

/// The outputs of a loop, with what following its trips adds.
fn with_numbers(mut outputs: Vec<Value>, followed: Option<Vec<Value>>) -> Vec<Value> {
    for (out, value) in outputs.iter_mut().zip(followed.unwrap_or_default()) {
        if value.data.is_some() || out.dims.is_none() {
            *out = value;
        }
    }
    outputs
}

/// The number of iterations of a loop, where only its count ends it.
fn iterations<M: Memory>(run: &Run<'_, M>, node: &Node, again: Option<&Value>) -> Option<usize> {
    let read = |i: usize| node.input(i).map(|v| run.memory.get(v));
    let starts = match read(1) {
        None => true,
        Some(condition) => condition.scalar_bool() == Some(true),
    };
    let continues = again.and_then(Value::scalar_bool) == Some(true);
    let most = read(0)?.scalar_i64()?;
    (starts && continues).then(|| shape::dim(most.max(0)).ok())?
}

/// `Scan`. Inputs: states, and tensors that are read slice by slice. Outputs: states, and stacked
/// slices.
fn scan<M: Memory>(run: &mut Run<'_, M>, node: &Node) -> Result<Vec<Value>, EvalError> {
    let Some(body) = body(node, "body") else {
        return Ok(Vec::new());
    };
    let graph = run.graph;
    let count = node.int("num_scan_inputs").ok().flatten().unwrap_or(0);
    let states = node.inputs().len().saturating_sub(shape::dim(count)?);
    let axis_of = |name: &str, i: usize, rank: usize| {
        let axes = node.ints(name).ok().flatten();
        shape::axis(axes.and_then(|all| all.get(i)).copied().unwrap_or(0), rank)
    };
    let mut length = None;
    let mut slices = Vec::new();
    let mut inputs = Vec::with_capacity(node.inputs().len());
    for (i, value) in node.inputs().iter().enumerate() {
        let value = value.map_or_else(Value::unknown, |v| run.memory.get(v).clone());
        let whole = value.clone();
        let mut value = value;
        if let (Some(scanned), Some(dims)) = (i.checked_sub(states), &mut value.dims) {
            let axis = axis_of("scan_input_axes", scanned, dims.len())?;
            length = Some(dims.remove(axis));
            slices.push((whole, axis));
        }
        inputs.push(value);
    }
    let usual = |name: &str| node.attribute(name).is_none();
    let forward = usual("scan_input_directions")
        && usual("scan_output_directions")
        && usual("scan_output_axes")
        && slices.len() + states == inputs.len();
    let followed = forward
        .then(|| {
            let budget = run.budget;
            let states = &inputs[..states];
            trips::of_scan(states, &slices, &budget, &mut |given| {
                trip(run, body, given)
            })
        })
        .flatten();
    let inputs: Vec<Value> = inputs.into_iter().map(Value::without_data).collect();
    let starts: Vec<Value> = inputs[..states].to_vec();
    feed(run, graph.scope(body).inputs(), inputs);
    run.scope(body);
    let mut outputs = Vec::new();
    for (i, result) in results(run, body).into_iter().enumerate() {
        outputs.push(match starts.get(i) {
            Some(start) => common(start, &result),
            None => {
                let dims = match (length, result.dims) {
                    (Some(length), Some(mut dims)) => {
                        let rank = dims.len() + 1;
                        let axis = axis_of("scan_output_axes", i - starts.len(), rank)?;
                        dims.insert(axis, length);
                        Some(dims)
                    }
                    _ => None,
                };
                Value::shaped(result.dtype, dims)
            }
        });
    }
    Ok(with_numbers(outputs, followed))
}
