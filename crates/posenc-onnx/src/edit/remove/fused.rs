//! Operators of com.microsoft that gather or add by themselves, in parts.

use std::collections::BTreeMap;

use posenc_ir::{Attr, DType, Emitter, NodeId, ValueId};

use super::norm::{Affine, epsilon, norm};

use super::remainder::Remainder;
use super::sum::{SHAPE, sum_of_rest};
use crate::detect::context::Context;
use crate::edit::remove::replacements::Replacements;
use crate::error::RewriteError;

/// `EmbedLayerNormalization` as the sum of what is gathered without positions, and its norm.
///
/// Inputs: ids, segments, tables of words, positions and segments, scale, shift, mask, position
/// ids. Outputs: the norm, how many tokens of each sequence count, the sum.
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
        return Err(context.refuse(id, "its tables are not as its operator defines"));
    };
    let ((words, scale), shift) = words;
    let sum = match segments {
        Some(segments) => out.op("Add", &[words, segments]),
        None => words,
    };
    let shift = Some(shift);
    let normal = norm(out, context, id, sum, Affine { scale, shift }, false);
    let mut new = vec![Some(normal.norm), None, Some(sum)];
    if let Some(index) = node.output(1).filter(|v| is_read(context, *v)) {
        let Some(mask) = node.input(7) else {
            let why = "what counts the tokens of its mask is read, and there is no mask";
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

/// A norm that adds first, as the norm alone.
///
/// Inputs: two summands, scale, then shift (of the norm that centers), then a third summand.
/// Outputs: the norm, mean, inverse deviation, the sum.
pub(crate) fn skip(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    id: NodeId,
    left: &BTreeMap<usize, Remainder>,
) -> Result<(), RewriteError> {
    let node = context.graph().node(id);
    let centers = node.op() == "SkipLayerNormalization";
    let bias = if centers { 4 } else { 3 };
    let mut left = left.clone();
    // Only the summands are summed.
    for slot in 2..bias {
        left.insert(slot, Remainder::Nothing);
    }
    let sum = sum_of_rest(out, context, replacements, id, &left)?;
    let refuse = |why: &str| context.refuse(id, why);
    let is_read = |place: usize| node.output(place).is_some_and(|v| is_read(context, v));
    let Some(scale) = node.input(2) else {
        return Err(refuse("its inputs are not as its operator defines"));
    };
    if !centers {
        if is_read(1) || is_read(2) {
            return Err(refuse("its mean or deviation is read"));
        }
        // Where there is the operator that adds, there is the one that does not.
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
        return Err(refuse("its mean or deviation is read"));
    }
    replacements.replace_outputs(node, &[Some(new.norm), new.mean, new.inverse, Some(sum)],
    );
    Ok(())
}

/// `QLinearAdd` of which one side goes: the other, with the scale of the sum.
///
/// Inputs: A, its scale and zero point; B, its scale and zero point; those of the sum.
pub(crate) fn quantized(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    replacements: &mut Replacements<'_>,
    id: NodeId,
    left: &BTreeMap<usize, Remainder>,
) -> Result<(), RewriteError> {
    let node = context.graph().node(id);
    let stays = match (left.get(&0), left.get(&3)) {
        (Some(Remainder::Nothing), None) => 3,
        (None, Some(Remainder::Nothing)) => 0,
        _ => {
            let why = "what is added together with the position cannot be told from it";
            return Err(context.refuse(id, why));
        }
    };
    let scaled = |first: usize| -> Option<Vec<ValueId>> {
        let zero = node.input(first + 2);
        let both = [node.input(first)?, node.input(first + 1)?];
        Some(both.into_iter().chain(zero).collect())
    };
    let parts = scaled(stays).zip(node.input(6)).zip(node.output(0));
    let Some(((mut parts, scale), sum)) = parts else {
        return Err(context.refuse(id, "its inputs are not as its operator defines"));
    };
    if context.dims(parts[0]) != context.dims(sum) {
        let why = "what position is added to has another shape than the sum";
        return Err(context.refuse(id, why));
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
