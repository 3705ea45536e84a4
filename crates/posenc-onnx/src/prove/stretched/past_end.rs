//! What the first token beyond the old length meets: comparisons, limits and cuts that have no effect on
//! shorter sequences.

use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{Node, NodeId, ValueId};

use crate::detect::context::Context;
use crate::detect::run_at;
use crate::error::RewriteError;
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;

/// Refuses a model in which something other than a table ends at the old length. `budget` is that of
/// each run.
///
/// # Errors
/// With the node, where a token beyond `old` is treated in another way than all before.
pub(super) fn check(after: &Context<'_>, old: usize, budget: &Budget) -> Result<(), RewriteError> {
    let run = |sequence: usize| {
        let wanted = Lengths {
            batch: 1,
            sequence,
            past: 0,
        };
        run_at(after.model, after.found, wanted, budget)
    };
    let Some(less) = old.checked_sub(1) else {
        return Ok(());
    };
    let (Some(shorter), Some(full), Some(longer)) = (run(less), run(old), run(old + 1)) else {
        return Ok(());
    };
    let runs = [&shorter, &full, &longer];
    for (id, node) in after.graph().nodes() {
        let Some(output) = node.output(0).filter(|_| node.domain().is_empty()) else {
            continue;
        };
        let ends = match node.op() {
            "Less" | "LessOrEqual" | "Greater" | "GreaterOrEqual" | "Equal" => {
                is_new(after, runs, output)
            }
            "Div" => is_new(after, runs, output) && full.get(output).elements() != Some(1),
            "Min" | "Max" | "Clip" | "Mod" => is_held(after, runs, id, output),
            "Slice" | "Pad" => is_cut(runs, node, output),
            _ => false,
        };
        if ends {
            let why = format!(
                "this {} has no effect up to {old} tokens, and how it goes on beyond is not known",
                node.op()
            );
            return Err(after.refuse(id, why));
        }
    }
    Ok(())
}

/// Whether a value has one number up to the old length, and another one beyond.
fn is_new(after: &Context<'_>, [shorter, full, longer]: [&Trace; 3], value: ValueId) -> bool {
    let is_integral = after.dtype(value).is_int() || after.dtype(value) == posenc_ir::DType::Bool;
    if after.is_content(value) || !is_integral {
        return false;
    }
    let only = |run: &Trace| {
        let numbers = run.get(value).to_f64()?;
        let first = *numbers.first()?;
        numbers.iter().all(|v| *v == first).then_some(first)
    };
    match (only(shorter), only(full)) {
        (Some(a), Some(b)) => {
            a == b && longer.get(value).to_f64().is_some() && only(longer) != Some(a)
        }
        _ => false,
    }
}

/// Whether an operand grows with the length, and the result only up to the old length.
fn is_held(
    after: &Context<'_>,
    [_, full, longer]: [&Trace; 3],
    id: NodeId,
    output: ValueId,
) -> bool {
    let classes = &after.found.classes;
    let follows = |v: &ValueId| {
        let class = classes.of_value(*v);
        !class.has(Class::CONTENT) && (class.has(Class::POSITION) || class.has(Class::LENGTH))
    };
    let ends = |run: &Trace, value: ValueId, sign: f64| {
        let numbers = run.get(value).to_f64()?;
        numbers.iter().map(|v| sign * v).reduce(f64::max)
    };
    let node = after.graph().node(id);
    let mut operands = node.inputs().iter().flatten().copied().filter(follows);
    operands.any(|operand| {
        [1.0, -1.0].into_iter().any(|sign| {
            let of = |run, value| ends(run, value, sign);
            match (
                of(full, operand),
                of(longer, operand),
                of(full, output),
                of(longer, output),
            ) {
                (Some(a), Some(b), Some(c), Some(d)) => a == c && b > a && d == c,
                _ => false,
            }
        })
    })
}

/// Whether an axis is whole up to the old length and no longer beyond.
fn is_cut([_, full, longer]: [&Trace; 3], node: &Node, output: ValueId) -> bool {
    let Some(data) = node.input(0) else {
        return false;
    };
    let dims = |run: &Trace, value: ValueId| run.get(value).dims.clone().unwrap_or_default();
    let (a, b) = (dims(full, data), dims(longer, data));
    let (c, d) = (dims(full, output), dims(longer, output));
    let is_ranked = [b.len(), c.len(), d.len()]
        .iter()
        .all(|rank| *rank == a.len());
    is_ranked
        && (0..a.len()).any(|axis| a[axis] == c[axis] && b[axis] > a[axis] && d[axis] == c[axis])
}
