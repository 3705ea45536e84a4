//! Extends constants that limit the sequence length, if their numbers continue by a rule: position
//! ids, token types, causal masks. Learned tables follow no rule and are not changed.

use ndarray::{ArrayD, IxDyn};
use posenc_ir::{DType, Emitter, NodeId, Tensor, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::Runs;
use crate::detect::context::Context;
use crate::detect::limits::bounds;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::report::LimitCause;

/// The most elements of an extended buffer: a mask of 8,192 tokens. A buffer that would be larger
/// is not changed and is reported as a limit.
const MAX_ELEMENTS: usize = 1 << 26;

/// Extends the buffers that are shorter than `wanted`, and raises what keeps the length at theirs or at
/// one of `lengths`. Returns the number of changed constants.
pub(crate) fn extend_buffers(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    wanted: usize,
    lengths: &[usize],
) -> Result<usize, RewriteError> {
    let graph = context.graph();
    let mut tables: Vec<(ValueId, usize, Vec<Use>)> = vec![];
    for bound in bounds(&Runs::new(context.model, context.found)) {
        let buffer = matches!(
            bound.cause,
            LimitCause::CausalBuffer | LimitCause::PositionBuffer | LimitCause::TokenTypeBuffer
        );
        if !buffer || bound.length >= wanted {
            continue;
        }
        let at = Use::new(bound.node, 0);
        match tables.iter_mut().find(|(table, ..)| *table == bound.table) {
            Some((.., uses)) => uses.push(at),
            None => tables.push((bound.table, bound.length, vec![at])),
        }
    }
    let shorter = lengths.iter().copied().filter(|length| *length < wanted);
    let mut lengths: FxHashSet<usize> = shorter.collect();
    let mut changed = 0;
    for (table, length, uses) in tables {
        let Some(tensor) = extend(context, table, length, wanted) else {
            continue;
        };
        lengths.insert(length);
        changed += 1;
        if graph.stored(table).is_some() {
            out.replace_constant(table, &uses, tensor)?;
            continue;
        }
        out.set_scope(graph.value(table).scope());
        let new = out.constant("buffer", tensor);
        for at in uses {
            out.redirect_use(table, at, new)?;
        }
    }
    if !lengths.is_empty() {
        for (id, _) in graph.nodes() {
            changed += raise_limits(out, context, id, &lengths, wanted)?;
        }
    }
    Ok(changed)
}

/// Raises the limits that a `Min` node puts on a length, if they are lengths of extended buffers.
/// Returns the number of changed limits.
fn raise_limits(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    id: NodeId,
    lengths: &FxHashSet<usize>,
    wanted: usize,
) -> Result<usize, RewriteError> {
    let node = context.graph().node(id);
    let reads_length = |v: &ValueId| {
        let class = context.found.classes.of_value(*v);
        class.has(Class::LENGTH) && !class.has(Class::CONTENT)
    };
    if !node.is("Min") || !node.inputs().iter().flatten().any(reads_length) {
        return Ok(0);
    }
    if !node.output(0).is_some_and(|v| only_shapes(context, v)) {
        return Ok(0);
    }
    let mut changed = 0;
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
        if !dtype.is_int() || !length.is_some_and(|n| lengths.contains(&n)) {
            continue;
        }
        out.set_scope(node.scope());
        let cap = Tensor::from_f64(dtype, dims, &[wanted as f64]);
        let new = out.constant("length", cap);
        out.redirect_use(value, Use::new(id, slot), new)?;
        changed += 1;
    }
    Ok(changed)
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
fn extend(context: &Context<'_>, table: ValueId, length: usize, wanted: usize) -> Option<Tensor> {
    let known = context.found.trace.get(table);
    let data = known.to_f64()?;
    let dtype = known.dtype?;
    let axes: Vec<usize> = (0..data.ndim())
        .filter(|a| data.shape()[*a] >= length)
        .collect();
    let data = match axes[..] {
        [axis] => {
            let count = (data.shape()[axis] - length).checked_add(wanted)?;
            extend_line(&data, axis, count)?
        }
        [rows, columns]
            if wanted
                .checked_mul(wanted)
                .is_some_and(|n| n <= MAX_ELEMENTS) =>
        {
            extend_square(&data, [rows, columns], wanted)?
        }
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

/// Extends numbers that grow by a constant step along an axis; `None` if they do not, or if the
/// result would be too large.
fn extend_line(data: &ArrayD<f64>, axis: usize, wanted: usize) -> Option<ArrayD<f64>> {
    let count = data.shape()[axis];
    let at = |index: &[usize], along: usize| {
        let mut index = index.to_vec();
        index[axis] = along;
        data[IxDyn(&index)]
    };
    let first: Vec<usize> = vec![0; data.ndim()];
    let step = if count > 1 {
        at(&first, 1) - at(&first, 0)
    } else {
        0.0
    };
    let is_line = data.indexed_iter().all(|(index, v)| {
        let index: &[usize] = ndarray::Dimension::slice(&index);
        *v == at(index, 0) + step * index[axis] as f64
    });
    let mut dims = data.shape().to_vec();
    dims[axis] = wanted;
    let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    (is_line && count <= MAX_ELEMENTS).then(|| {
        ArrayD::from_shape_fn(dims, |index| {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            at(index, 0) + step * index[axis] as f64
        })
    })
}

/// Extends a mask that depends only on the distance and has one number up to some distance and another
/// beyond: larger distances get the number of the largest one.
fn extend_square(
    data: &ArrayD<f64>,
    [rows, columns]: [usize; 2],
    wanted: usize,
) -> Option<ArrayD<f64>> {
    let length = data.shape()[rows];
    if data.shape()[columns] != length || data.len() != length * length {
        return None;
    }
    let last = length as i64 - 1;
    let of = |distance: i64| {
        let distance = distance.clamp(-last, last);
        let mut index = vec![0; data.ndim()];
        index[rows] = usize::try_from(-distance).unwrap_or(0);
        index[columns] = usize::try_from(distance).unwrap_or(0);
        data[IxDyn(&index)]
    };
    let distance = |index: &[usize]| index[columns] as i64 - index[rows] as i64;
    let by_distance = data.indexed_iter().all(|(index, v)| {
        let index: &[usize] = ndarray::Dimension::slice(&index);
        *v == of(distance(index))
    });
    // Numbers that come again and again would not go on by the last one.
    let is_step = |sign: i64| {
        let changes = (1..=last).filter(|d| of(sign * d) != of(sign * (d - 1)));
        changes.count() < 2
    };
    let mut dims = data.shape().to_vec();
    (dims[rows], dims[columns]) = (wanted, wanted);
    (by_distance && is_step(1) && is_step(-1)).then(|| {
        ArrayD::from_shape_fn(dims, |index| {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            of(distance(index))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dims: &[usize], f: impl Fn(&[usize]) -> f64) -> ArrayD<f64> {
        ArrayD::from_shape_fn(dims.to_vec(), |index| f(ndarray::Dimension::slice(&index)))
    }

    #[test]
    fn sequences_with_a_constant_step_are_extended() {
        for (start, step) in [(0.0, 1.0), (2.0, 1.0), (0.0, 0.0), (7.0, -1.0)] {
            let row = |n| of(&[1, n], |i| start + step * i[1] as f64);
            assert_eq!(extend_line(&row(6), 1, 9), Some(row(9)));
        }
    }

    #[test]
    fn buffers_that_would_be_too_large_are_not_extended() {
        let row = of(&[1, 6], |i| i[1] as f64);
        for wanted in [MAX_ELEMENTS + 1, 1_000_000_000_000, usize::MAX] {
            assert_eq!(extend_line(&row, 1, wanted), None);
            let rows = of(&[2, 6], |i| i[1] as f64);
            assert_eq!(extend_line(&rows, 1, wanted), None);
        }
        assert!(extend_line(&row, 1, 7).is_some());
    }

    #[test]
    fn masks_by_distance_are_extended() {
        let causal = |i: &[usize]| f64::from(u8::from(i[3] <= i[2]));
        let window = |i: &[usize]| f64::from(u8::from(i[3] <= i[2] && i[2] - i[3] < 3));
        for mask in [causal, window] {
            let wide = |n| of(&[1, 1, n, n], mask);
            assert_eq!(extend_square(&wide(6), [2, 3], 11), Some(wide(11)));
        }
    }

    #[test]
    fn numbers_without_a_rule_are_not_extended() {
        let learned = of(&[6, 2], |i| (i[0] * i[0]) as f64);
        assert_eq!(extend_line(&learned, 0, 9), None);
        let jump = of(&[1, 6], |i| if i[1] == 5 { 9.0 } else { i[1] as f64 });
        assert_eq!(extend_line(&jump, 1, 9), None);
        let hole = of(&[6, 6], |i| {
            f64::from(u8::from(i[1] <= i[0] && i != [4, 2]))
        });
        assert_eq!(extend_square(&hole, [0, 1], 9), None);
        let dilated = of(&[6, 6], |i| {
            f64::from(u8::from(i[0].abs_diff(i[1]) % 3 == 0))
        });
        assert_eq!(extend_square(&dilated, [0, 1], 9), None);
        let prefix = of(&[6, 6], |i| f64::from(u8::from(i[1] <= i[0] || i[1] < 2)));
        assert_eq!(extend_square(&prefix, [0, 1], 9), None);
        let two = of(&[2, 6, 6], |i| i[0] as f64);
        assert_eq!(extend_square(&two, [1, 2], 9), None);
        let oblong = of(&[6, 7], |_| 1.0);
        assert_eq!(extend_square(&oblong, [0, 1], 9), None);
    }
}
