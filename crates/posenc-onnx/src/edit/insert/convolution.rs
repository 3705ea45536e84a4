//! Adds a convolution along the tokens where the residual stream starts.

use posenc_ir::{DType, Emitter};

use super::Preserved;
use super::stream::StreamPoint;
use crate::attention::stream::Begin;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::swap::Group;
use crate::plan::swap::spec::InputSpec;
use posenc_encodings::families::conv::emit::{Axes, added};

pub(crate) fn insert(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    preserved: Option<&Preserved>,
    group: &Group,
    spec: &InputSpec,
    kernel: usize,
) -> Result<(), RewriteError> {
    let past = group.sites.iter().find(|site| context.site(**site).past);
    if let Some(site) = past {
        let why = "a convolution needs the embeddings of earlier tokens, but a cache contains only \
                   keys and values";
        return Err(context.refuse(context.site(*site).node, why));
    }
    // The old place may be one of several summands, of which a convolution has to read all.
    let preserved = preserved.filter(|old| is_whole(context, old, group));
    let point = StreamPoint::of(context, preserved, group, spec.term.width())?;
    let Some(batch) = point.batch.filter(|_| point.rank == 3) else {
        let why = "a convolution needs embeddings with axes of sequences, tokens and features";
        return Err(context.refuse(point.node, why));
    };
    out.set_scope(context.graph().main());
    let dims = spec.term.tensors(point.dim);
    let ([weight, bias], [weight_dims, bias_dims]) = (&spec.tensors[..], &dims[..]) else {
        return Err(context.refuse(point.node, "a convolution needs weights and a bias"));
    };
    // Runtimes have no convolution in double, and the operator has none in bfloat16 before opset 22.
    let computed = match point.dtype {
        DType::F64 | DType::BF16 => DType::F32,
        own => own,
    };
    let weight = weight.tensor(computed, weight_dims)?;
    let bias = bias.tensor(computed, bias_dims)?;
    let numbers = [out.constant("weight", weight), out.constant("bias", bias)];
    out.set_scope(context.graph().value(point.value).scope());
    let axes = Axes {
        batch,
        channel: point.feature,
        token: point.token,
    };
    let sizes = [point.dim, kernel];
    let sum = added(
        out,
        context.opset(),
        point.value,
        axes,
        numbers,
        sizes,
        [point.dtype, computed],
    );
    point.replace(out, context, sum)
}

/// Whether all content that a stack reads runs through the place of its old encoding, and no other
/// content joins it before the stream begins.
fn is_whole(context: &Context<'_>, old: &Preserved, group: &Group) -> bool {
    let (graph, found) = (context.graph(), context.found);
    let site = context.site(group.sites[0]);
    let place = old.place(context, site.place.stack);
    let begin = Begin::of(graph, &found.classes, &found.trace, site);
    let (Some(place), Some(begin)) = (place, begin) else {
        return false;
    };
    begin.places.iter().any(|known| {
        let mut value = known.value;
        while value != place.value {
            let Some((id, _)) = graph.producer(value) else {
                return false;
            };
            let mut content = found.classes.content(graph.node(id));
            match (content.next(), content.next()) {
                (Some(before), None) => value = before,
                _ => return false,
            }
        }
        true
    })
}
