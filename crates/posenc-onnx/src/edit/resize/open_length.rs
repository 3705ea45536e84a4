//! Opening a graph of one length: it computes sizes, positions and masks of the tokens that come in, and cuts
//! what is stored for each position.

use posenc_ir::{Applied, Emitter, Model};

use super::follow::Sizes;
use super::symbols::symbol;
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::resize::OpenLength;

/// Applies a plan to a model, and says what changed.
///
/// # Errors
/// When the result would be no valid model.
pub(crate) fn open_length(
    context: &Context<'_>,
    plan: &OpenLength,
) -> Result<(Model, Applied), RewriteError> {
    let graph = context.graph();
    let out = graph.emitter(graph.main(), "posenc");
    let counted = plan
        .inputs
        .iter()
        .find_map(|(input, axes)| Some((*input, *axes.first()?)));
    let Some((input, axis)) = counted else {
        return Ok(context.model.clone().with_patch(out.finish())?);
    };
    let mut sizes = Sizes::new(out, (input, [axis; 2]));
    sizes.replace(context, &plan.constants)?;
    let mut out = sizes.out;
    redeclare(&mut out, context, plan)?;
    Ok(context.model.clone().with_patch(out.finish())?)
}

/// Declares the length as a symbol that no other dimension has.
fn redeclare(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    plan: &OpenLength,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let length = symbol(graph, "sequence");
    for value in plan.axes.keys().copied() {
        let declared = graph.value(value).shape();
        if let Some(dims) = declared.and_then(|dims| plan.declared(value, dims, &length)) {
            out.redeclare(value, dims)?;
        }
    }
    Ok(())
}
