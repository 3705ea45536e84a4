//! Extends constants that limit the sequence length, if their numbers continue by a rule: position
//! ids, token types, causal masks, biases of slopes. Learned tables follow no rule and are not changed.

mod places;

use posenc_ir::{DType, Emitter, NodeId, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::graph::continued::{extend_line, extend_slopes, extend_square};
use crate::graph::dataflow::Class;
use places::Buffer;

/// Extends the buffers that are shorter than `wanted`, and raises what keeps the length at theirs or at
/// one of `lengths`, in all branches of a model at once. Returns the number of changed constants.
pub(crate) fn extend_buffers(
    out: &mut Emitter<'_>,
    branches: &[Context<'_>],
    wanted: usize,
    lengths: &[usize],
) -> Result<usize, RewriteError> {
    let buffers = places::buffers(branches, wanted);
    let shorter = lengths.iter().copied().filter(|length| *length < wanted);
    let mut lengths: FxHashSet<usize> = shorter.collect();
    let mut changed = 0;
    for (context, constant, buffer) in buffers {
        let graph = context.graph();
        let Some(tensor) = extend(&context, constant, &buffer, wanted) else {
            continue;
        };
        lengths.insert(buffer.length);
        changed += 1;
        for start in &buffer.starts {
            let old = graph.node(start.node).input(start.slot());
            let Some(old) = old else { continue };
            out.set_scope(graph.node(start.node).scope());
            let dims = context.dims(old).unwrap_or_default();
            let rows = Tensor::from_f64(context.dtype(old), dims, &[wanted as f64]);
            let rows = out.constant("rows", rows);
            out.redirect_use(old, *start, rows)?;
        }
        if graph.stored(constant).is_some() {
            let uses: Vec<Use> = buffer.uses.into_iter().collect();
            out.replace_constant(constant, &uses, tensor)?;
            continue;
        }
        out.set_scope(graph.value(constant).scope());
        let new = out.constant("buffer", tensor);
        for at in buffer.uses {
            out.redirect_use(constant, at, new)?;
        }
    }
    let mut raised = FxHashSet::default();
    for context in branches.iter().filter(|_| !lengths.is_empty()) {
        for (id, _) in context.graph().nodes() {
            raise_limits(out, context, (id, &mut raised), &lengths, wanted)?;
        }
    }
    Ok(changed + raised.len())
}

/// Raises the limits that a `Min` node puts on a length, if they are lengths of extended buffers, and adds
/// them to those that were `raised`.
fn raise_limits(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    (id, raised): (NodeId, &mut FxHashSet<Use>),
    lengths: &FxHashSet<usize>,
    wanted: usize,
) -> Result<(), RewriteError> {
    let node = context.graph().node(id);
    let reads_length = |v: &ValueId| {
        let class = context.found.classes.of_value(*v);
        class.has(Class::LENGTH) && !class.has(Class::CONTENT)
    };
    if !node.is("Min") || !node.inputs().iter().flatten().any(reads_length) {
        return Ok(());
    }
    if !node.output(0).is_some_and(|v| only_shapes(context, v)) {
        return Ok(());
    }
    for (slot, input) in node.inputs().iter().enumerate() {
        let Some(value) = *input else { continue };
        // The limit may be computed from constants.
        let is_constant = context.found.classes.of_value(value).is_constant();
        let known = context.found.trace.get(value);
        let cap = known.scalar_i64().filter(|_| is_constant);
        let (Some(dtype), Some(dims), Some(cap)) = (known.dtype, &known.dims, cap) else {
            continue;
        };
        let length = usize::try_from(cap).ok();
        let is_limit = dtype.is_int() && length.is_some_and(|n| lengths.contains(&n));
        let at = Use::new(id, slot);
        if !is_limit || !raised.insert(at) {
            continue;
        }
        out.set_scope(node.scope());
        let cap = Tensor::from_f64(dtype, dims, &[wanted as f64]);
        let new = out.constant("length", cap);
        out.redirect_use(value, at, new)?;
    }
    Ok(())
}

/// Whether a length only says how masks and constants are cut, and what shape the tokens have.
fn only_shapes(context: &Context<'_>, length: ValueId) -> bool {
    let graph = context.graph();
    let mut stack = vec![length];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if graph.value(value).is_output() {
            return false;
        }
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let data = node.input(0).filter(|_| at.slot() > 0);
            let is_shape = match node.op() {
                "Slice" => data.is_some_and(|data| !context.is_content(data)),
                "Reshape" | "Expand" => data.is_some(),
                _ => false,
            };
            let passes = match node.op() {
                "Gather" | "Reshape" | "Squeeze" | "Unsqueeze" => at.slot() == 0,
                "Add" | "Cast" | "Concat" | "Div" | "Identity" => true,
                "Max" | "Min" | "Mul" | "Neg" | "Sub" => true,
                _ => false,
            };
            match node.output(0) {
                _ if !node.domain().is_empty() => return false,
                _ if is_shape => {}
                Some(next) if passes => {
                    if seen.insert(next) {
                        stack.push(next);
                    }
                }
                _ => return false,
            }
        }
    }
    true
}

/// Extends a constant to `wanted` tokens; `None` if its numbers follow no rule.
fn extend(
    context: &Context<'_>,
    constant: ValueId,
    buffer: &Buffer,
    wanted: usize,
) -> Option<Tensor> {
    let known = context.found.trace.get(constant);
    let length = buffer.length;
    let data = known.to_f64()?;
    let dtype = known.dtype?;
    let axes: Vec<usize> = (0..data.ndim())
        .filter(|a| data.shape()[*a] >= length)
        .collect();
    // Slopes are rounded in the type that stores them.
    let share = match buffer.is_sloped {
        true => 4.0 * dtype.epsilon()?,
        false => 0.0,
    };
    let data = match axes[..] {
        [axis] => {
            let count = (data.shape()[axis] - length).checked_add(wanted)?;
            extend_line(&data, axis, count, buffer.from_end, share)?
        }
        [rows, columns] if buffer.is_sloped && !buffer.from_end => {
            extend_slopes(&data, [rows, columns], wanted, share)?
        }
        [rows, columns] if !buffer.is_sloped => extend_square(&data, [rows, columns], wanted)?,
        _ => return None,
    };
    let values: Vec<f64> = data.iter().copied().collect();
    Some(match dtype {
        DType::Bool => {
            let values: Vec<bool> = values.iter().map(|v| *v != 0.0).collect();
            Tensor::from_bool(data.shape(), &values)
        }
        _ => Tensor::from_f64(dtype, data.shape(), &values),
    })
}
