//! Opening a graph of one length: it computes sizes, positions and masks of the tokens that come in, and cuts
//! what is stored for each position.

use posenc_ir::{Applied, Dim, Emitter, Model};

use super::follow::Sizes;
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
    for (at, own) in &plan.constants {
        // This one repeats what it reads itself.
        let is_expanded = graph.node(at.node).is("Expand") && at.slot() == 0;
        let new = sizes.constant(own, context.dtype(own.value), is_expanded);
        sizes.out.redirect_use(own.value, *at, new)?;
        sizes.out.remove_if_unused(own.value)?;
    }
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
    let is_taken = |name: &str| {
        let mut shapes = graph.values().filter_map(|v| graph.value(v).shape());
        shapes.any(|dims| dims.contains(&Dim::Symbol(name.into())))
    };
    let others = (1..).map(|n| format!("sequence_{n}"));
    let mut names = std::iter::once("sequence".to_owned()).chain(others);
    let Some(name) = names.find(|name| !is_taken(name)) else {
        return Ok(());
    };
    for value in plan.axes.keys().copied() {
        let declared = graph.value(value).shape();
        if let Some(dims) = declared.and_then(|dims| plan.declared(value, dims, &name)) {
            out.redeclare(value, dims)?;
        }
    }
    Ok(())
}
