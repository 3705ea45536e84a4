//! The norm of a fused operator, as separate operators.

use posenc_ir::{Attr, DType, Emitter, Node, NodeId, ValueId};

use crate::detect::context::Context;

/// A norm, with its mean and inverse deviation if they were requested and are available.
pub(crate) struct Norm {
    pub(crate) norm: ValueId,
    pub(crate) mean: Option<ValueId>,
    pub(crate) inverse: Option<ValueId>,
}

/// The scale and shift of a norm.
#[derive(Clone, Copy)]
pub(crate) struct Affine {
    pub(crate) scale: ValueId,
    pub(crate) shift: Option<ValueId>,
}

/// The epsilon of an operator of com.microsoft.
pub(crate) fn epsilon(node: &Node) -> f32 {
    let set = node.float("epsilon").ok().flatten();
    set.unwrap_or(1e-12) as f32
}

/// Normalizes `x` along its last axis with the epsilon of the node `like`, by one operator if the
/// opset has it. `statistics` requests mean and inverse deviation, which only that operator has.
pub(crate) fn norm(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    like: NodeId,
    x: ValueId,
    affine: Affine,
    statistics: bool,
) -> Norm {
    let node = context.graph().node(like);
    if context.model.opset() < 17 {
        let dtype = node.output(0).map_or(DType::F32, |v| context.dtype(v));
        return Norm {
            norm: in_parts(out, x, affine, dtype, f64::from(epsilon(node))),
            mean: None,
            inverse: None,
        };
    }
    let epsilon = ("epsilon", Attr::Float(epsilon(node)));
    let inputs = [Some(x), Some(affine.scale), affine.shift];
    let given = if affine.shift.is_some() { 3 } else { 2 };
    let outputs = if statistics { 3 } else { 1 };
    let attrs = [("axis", Attr::Int(-1)), epsilon];
    let made = out.node("", "LayerNormalization", &inputs[..given], &attrs, outputs);
    let at = |output: usize| made.get(output).copied();
    Norm {
        norm: at(0).unwrap_or(x),
        mean: at(1),
        inverse: at(2),
    }
}

/// The same in plain operators, which compute in f32 like the fused operator.
fn in_parts(
    out: &mut Emitter<'_>,
    x: ValueId,
    affine: Affine,
    dtype: DType,
    epsilon: f64,
) -> ValueId {
    let computed = match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    };
    let wide = |out: &mut Emitter<'_>, v: ValueId| {
        if computed == dtype {
            v
        } else {
            out.cast(v, computed)
        }
    };
    let x = wide(out, x);
    let last = [("axes", Attr::Ints(vec![-1]))];
    let mean = out.op_with("ReduceMean", &[x], &last);
    let centered = out.op("Sub", &[x, mean]);
    let square = out.op("Mul", &[centered, centered]);
    let variance = out.op_with("ReduceMean", &[square], &last);
    let epsilon = out.scalar("epsilon", computed, epsilon);
    let variance = out.op("Add", &[variance, epsilon]);
    let deviation = out.op("Sqrt", &[variance]);
    let norm = out.op("Div", &[centered, deviation]);
    let scale = wide(out, affine.scale);
    let mut norm = out.op("Mul", &[norm, scale]);
    if let Some(shift) = affine.shift {
        let shift = wide(out, shift);
        norm = out.op("Add", &[norm, shift]);
    }
    if computed == dtype {
        norm
    } else {
        out.cast(norm, dtype)
    }
}
