//! Decomposes fused operators that project queries and keys or add a bias to them, as far as needed
//! to access both.

use posenc_ir::{Emitter, Node, Tensor, ValueId};

use crate::attention::Site;
use crate::detect::context::Context;
use crate::edit::redirect::redirect_outputs;
use crate::error::RewriteError;
use crate::graph::projecting::{projected, separated, widths};

/// Queries and keys `[batch, token, hidden]` of a decomposed operator.
#[derive(Clone, Debug)]
pub(crate) struct Decomposed {
    pub(crate) query: ValueId,
    pub(crate) key: ValueId,
    /// The dimensions of queries in the trial run.
    pub(crate) dims: Vec<usize>,
    value: ValueInput,
    /// A bias on the scores, in place of the operator's own.
    pub(crate) bias: Option<ValueId>,
}

/// The input for values of the new operator.
#[derive(Clone, Debug)]
enum ValueInput {
    /// Values that were projected with queries and keys.
    Projected(ValueId),
    /// Values that were packed with queries and keys.
    Packed(ValueId),
    /// A bias for values only.
    Bias(ValueId),
}

/// Decomposes the operator of a site whose queries and keys are not inputs; `None` for other sites.
///
/// # Errors
/// If the operator has a form that is not supported.
pub(crate) fn decompose(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    site: &Site,
) -> Result<Option<Decomposed>, RewriteError> {
    let node = context.graph().node(site.node);
    let parts = match (node.domain(), node.op()) {
        ("com.microsoft", "Attention") => projecting(out, context, site, node)?,
        ("com.microsoft", "MultiHeadAttention") if node.input(1).is_none() => {
            let why = "queries, keys and values packed in one input are not supported yet";
            return Err(context.refuse(site.node, why));
        }
        ("com.microsoft", "MultiHeadAttention") if node.input(3).is_some() => {
            biased(out, context, site, node)?
        }
        ("com.microsoft", "GroupQueryAttention" | "SparseAttention") if node.input(1).is_none() => {
            packed(out, context, site, node)?
        }
        _ => return Ok(None),
    };
    Ok(Some(parts))
}

/// The operator that projects its input.
fn projecting(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    site: &Site,
    node: &Node,
) -> Result<Decomposed, RewriteError> {
    let refuse = |why: &str| Err(context.refuse(site.node, why));
    let flag = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
    if flag("do_rotary") || flag("past_present_share_buffer") || node.input(6).is_some() {
        return refuse(
            "an Attention that rotates internally or shares its cache buffer is not supported yet",
        );
    }
    // The mask: lengths, or ones for tokens that are not padding, by sequence or by query.
    let mask = node.input(3).map(|v| context.dims(v));
    let lengths = Some(Some(&[context.found.lengths.batch][..]));
    if !matches!(mask, None | Some(Some([_, _] | [_, _, _]))) && mask != lengths {
        return refuse("its mask has a form that only an Attention with projection supports");
    }
    let (Some(x), Some(weight)) = (node.input(0), node.input(1)) else {
        return refuse("its input or weights are missing");
    };
    let (Some([b, s, _]), Some([_, all])) = (context.dims(x), context.dims(weight)) else {
        return refuse("the shapes of its input and its weights are not known");
    };
    let Some(widths) = widths(node, *all) else {
        return refuse("its queries and keys have different widths");
    };
    out.set_scope(site.scope);
    match projected(out, context.opset(), node, widths) {
        Some([query, key, value]) => Ok(Decomposed {
            query,
            key,
            dims: vec![*b, *s, widths[0]],
            value: ValueInput::Projected(value),
            bias: None,
        }),
        None => refuse("cannot separate its queries, keys and values"),
    }
}

/// An operator that adds a bias to queries, keys and values.
fn biased(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    site: &Site,
    node: &Node,
) -> Result<Decomposed, RewriteError> {
    let refuse = |why: &str| Err(context.refuse(site.node, why));
    let [query, key, bias] = [0, 1, 3].map(|slot| node.input(slot));
    let (Some(query), Some(key), Some(bias)) = (query, key, bias) else {
        return refuse("its queries or keys are missing");
    };
    let (Some(dims @ [_, _, width]), Some([_, _, other])) =
        (context.dims(query), context.dims(key))
    else {
        return refuse("a bias on keys that are split into heads is not supported yet");
    };
    let constant = context.graph().constant(bias);
    let Some(all) = constant.as_ref().and_then(Tensor::to_f64s) else {
        return refuse("the bias of its projection is not constant");
    };
    if all.len() < 2 * width || width != other {
        return refuse("the bias of its projection does not fit queries, keys and values");
    }
    let dtype = context.dtype(bias);
    let row = |values: &[f64]| Tensor::from_f64(dtype, &[values.len()], values);
    out.set_scope(context.graph().main());
    let [of_query, of_key] = [
        out.constant("bias", row(&all[..*width])),
        out.constant("bias", row(&all[*width..2 * width])),
    ];
    let zeros = std::iter::repeat_n(0.0, 2 * width);
    let rest: Vec<f64> = zeros.chain(all[2 * width..].iter().copied()).collect();
    let rest = out.constant("bias", row(&rest));
    out.set_scope(site.scope);
    Ok(Decomposed {
        query: out.op("Add", &[query, of_query]),
        key: out.op("Add", &[key, of_key]),
        dims: dims.to_vec(),
        value: ValueInput::Bias(rest),
        bias: None,
    })
}

/// An operator whose first input packs queries, keys and values.
fn packed(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    site: &Site,
    node: &Node,
) -> Result<Decomposed, RewriteError> {
    let refuse = |why: &str| Err(context.refuse(site.node, why));
    let (Some(x), Some(heads), Some(kv_heads), Some(head_dim)) =
        (node.input(0), site.heads, site.kv_heads, site.head_dim)
    else {
        return refuse("cannot determine its heads");
    };
    let [query, key] = [heads, kv_heads].map(|n| n * head_dim);
    let Some([b, s, all]) = context.dims(x) else {
        return refuse("the shape of its input is not known");
    };
    if *all != query + 2 * key {
        return refuse("cannot determine its heads");
    }
    out.set_scope(site.scope);
    match context.opset().split(out, x, 2, &[query, key, key])[..] {
        [q, k, value] => Ok(Decomposed {
            query: q,
            key: k,
            dims: vec![*b, *s, query],
            value: ValueInput::Packed(value),
            bias: None,
        }),
        _ => refuse("cannot separate its queries, keys and values"),
    }
}

impl Decomposed {
    /// Replaces the operator of the site by one that takes these queries and keys.
    ///
    /// # Errors
    /// If the operator cannot be replaced.
    pub(crate) fn replace(
        self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        site: &Site,
    ) -> Result<(), RewriteError> {
        let node = context.graph().node(site.node);
        let mut inputs = node.inputs().to_vec();
        out.set_scope(site.scope);
        let (slot, with) = match self.value {
            ValueInput::Projected(value) => {
                let operands = [self.query, self.key, value];
                let replaced = separated(out, context.opset(), site.node, operands, self.bias);
                for (old, new) in replaced {
                    out.redirect(old, new)?;
                }
                return Ok(());
            }
            ValueInput::Packed(value) => (2, value),
            ValueInput::Bias(bias) => (3, bias),
        };
        inputs.resize(inputs.len().max(slot + 1), None);
        inputs[0] = Some(self.query);
        inputs[1] = Some(self.key);
        inputs[slot] = Some(with);
        let made = out.copy(site.node, &inputs, &[])?;
        Ok(redirect_outputs(out, node, &made)?)
    }
}
