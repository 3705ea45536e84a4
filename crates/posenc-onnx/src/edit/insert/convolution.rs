//! A convolution along the tokens, added where the residual stream begins.

use posenc_ir::Emitter;

use super::Kept;
use super::stream::Spot;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::swap::Group;
use crate::plan::swap::spec::EncodingSpec;
use posenc_encodings::families::conv::emit::{Axes, added};

pub(crate) fn insert(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    kept: Option<&Kept>,
    group: &Group,
) -> Result<(), RewriteError> {
    let EncodingSpec::Conv {
        kernel,
        weight,
        bias,
    } = &group.new
    else {
        return Ok(());
    };
    let past = group.sites.iter().find(|site| context.site(**site).past);
    if let Some(site) = past {
        let why = "a convolution reads the embeddings of earlier tokens, and a cache holds keys \
                   and values alone";
        return Err(context.refuse(context.site(*site).node, why));
    }
    let width = weight.dims().and_then(|d| d.first().copied());
    let spot = Spot::of(context, kept, group, width)?;
    let Some(batch) = spot.batch.filter(|_| spot.rank == 3) else {
        let why = "a convolution needs embeddings by sequence, token and feature";
        return Err(context.refuse(spot.node, why));
    };
    out.set_scope(context.graph().main());
    let weight = weight.tensor(spot.dtype, &[spot.dim, 1, *kernel])?;
    let bias = bias.tensor(spot.dtype, &[spot.dim])?;
    let numbers = [out.constant("weight", weight), out.constant("bias", bias)];
    out.set_scope(context.graph().value(spot.value).scope());
    let axes = Axes {
        batch,
        channel: spot.feature,
        token: spot.token,
    };
    let sizes = [spot.dim, *kernel];
    let sum = added(
        out,
        context.opset(),
        spot.value,
        axes,
        numbers,
        sizes,
        spot.dtype,
    );
    spot.replace(out, context, sum)
}
