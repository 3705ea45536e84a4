//! Fused operators of com.microsoft that gather or add, without the encoding.

use std::collections::BTreeMap;

use posenc_ir::{Attr, DType, Emitter, NodeId, ValueId};

use super::norm::{Affine, epsilon, norm};

use super::remainder::Remainder;
use super::sum::{SHAPE, sum_of_rest};
use crate::detect::context::Context;
use crate::edit::remove::replacements::Replacements;
use crate::error::RewriteError;

/// Replaces `EmbedLayerNormalization` by the sum of its rows without positions, and its norm.
///
/// Inputs: ids, segments, tables of words, positions and segments, scale, shift, mask, position
/// ids. Outputs: the norm, the number of tokens of each sequence, the sum.
pub(crate) fn embedding(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    id: NodeId,
) -> Result<(), RewriteError> {
    let node = context.graph().node(id);
    let gathered = |out: &mut Emitter<'_>, table: usize, index: usize| {
        let (table, index) = (node.input(table)?, node.input(index)?);
        Some(out.op("Gather", &[table, index]))
    };
    let words = gathered(out, 2, 0);
    let segments = gathered(out, 4, 1);
    let Some(words) = words.zip(node.input(5)).zip(node.input(6)) else {
        return Err(context.refuse(
            id,
            "cannot remove the encoding: required tables are missing",
        ));
    };
    let ((words, scale), shift) = words;
    let sum = match segments {
        Some(segments) => out.op("Add", &[words, segments]),
        None => words,
    };
    let shift = Some(shift);
    let normed = norm(out, context, id, sum, Affine { scale, shift }, false);
    let mut new = vec![Some(normed.norm), None, Some(sum)];
    if let Some(index) = node.output(1).filter(|v| is_read(context, *v)) {
        let Some(mask) = node.input(7) else {
            let why = "cannot remove the encoding: the token count is used but there is no mask";
            return Err(context.refuse(id, why));
        };
        new[1] = Some(counted(out, context, mask, context.dtype(index)));
    }
    replacements.replace_outputs(node, &new);
    Ok(())
}

/// The number of ones in each row of a mask.
fn counted(out: &mut Emitter<'_>, context: &Context<'_>, mask: ValueId, dtype: DType) -> ValueId {
    let one = posenc_ir::Tensor::from_f64(context.dtype(mask), &[], &[1.0]);
    let one = out.constant("one", one);
    let ones = out.op("Equal", &[mask, one]);
    let ones = out.cast(ones, dtype);
    context.opset().sum(out, ones, &[1])
}

/// Replaces a norm that adds first by the sum without the encoding and the norm.
///
/// Inputs: two summands, scale, then shift (of the norm that centers), then a third summand.
/// Outputs: the norm, mean, inverse deviation, the sum.
pub(crate) fn skip(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    id: NodeId,
    remainders: &BTreeMap<usize, Remainder>,
) -> Result<(), RewriteError> {
    let node = context.graph().node(id);
    let centers = node.op() == "SkipLayerNormalization";
    let bias = if centers { 4 } else { 3 };
    let mut remainders = remainders.clone();
    // Scale and shift are not summands.
    for slot in 2..bias {
        remainders.insert(slot, Remainder::Nothing);
    }
    let sum = sum_of_rest(out, context, replacements, id, &remainders)?;
    let refuse = |why: &str| context.refuse(id, why);
    let is_read = |output: usize| node.output(output).is_some_and(|v| is_read(context, v));
    let Some(scale) = node.input(2) else {
        return Err(refuse(
            "cannot remove the encoding: required inputs are missing",
        ));
    };
    if !centers {
        if is_read(1) || is_read(2) {
            return Err(refuse(
                "cannot remove the encoding: the mean or deviation of the norm is used",
            ));
        }
        // A runtime that has the operator that adds has this one, too.
        let attrs = [
            ("axis", Attr::Int(-1)),
            ("epsilon", Attr::Float(epsilon(node))),
        ];
        let inputs = [Some(sum), Some(scale)];
        let new = out.node("", "SimplifiedLayerNormalization", &inputs, &attrs, 1);
        replacements.replace_outputs(node, &[new.first().copied(), None, None, Some(sum)]);
        return Ok(());
    }
    let shift = node.input(3);
    let statistics = is_read(1) || is_read(2);
    let new = norm(out, context, id, sum, Affine { scale, shift }, statistics);
    if statistics && (new.mean, new.inverse) == (None, None) {
        return Err(refuse(
            "cannot remove the encoding: the mean or deviation of the norm is used",
        ));
    }
    replacements.replace_outputs(node, &[Some(new.norm), new.mean, new.inverse, Some(sum)]);
    Ok(())
}

/// Replaces `QLinearAdd` by the summand to keep, with the scale of the sum.
///
/// Inputs: A, its scale and zero point; B, its scale and zero point; those of the sum.
pub(crate) fn quantized(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    id: NodeId,
    remainders: &BTreeMap<usize, Remainder>,
) -> Result<(), RewriteError> {
    let node = context.graph().node(id);
    let kept = match (remainders.get(&0), remainders.get(&3)) {
        (Some(Remainder::Nothing), None) => 3,
        (None, Some(Remainder::Nothing)) => 0,
        _ => {
            let why = "cannot separate the encoding from what it is added to";
            return Err(context.refuse(id, why));
        }
    };
    let scaled = |first: usize| -> Option<Vec<ValueId>> {
        let zero = node.input(first + 2);
        let both = [node.input(first)?, node.input(first + 1)?];
        Some(both.into_iter().chain(zero).collect())
    };
    let parts = scaled(kept).zip(node.input(6)).zip(node.output(0));
    let Some(((mut parts, scale), sum)) = parts else {
        return Err(context.refuse(
            id,
            "cannot remove the encoding: required inputs are missing",
        ));
    };
    if context.dims(parts[0]) != context.dims(sum) {
        return Err(context.refuse(id, SHAPE));
    }
    parts[0] = replacements.current(parts[0]);
    let plain = out.op("DequantizeLinear", &parts);
    let to: Vec<ValueId> = [plain, scale].into_iter().chain(node.input(7)).collect();
    let new = out.op("QuantizeLinear", &to);
    replacements.replace(sum, new);
    Ok(())
}

fn is_read(context: &Context<'_>, value: ValueId) -> bool {
    let graph = context.graph();
    !graph.uses(value).is_empty() || graph.value(value).is_output()
}
