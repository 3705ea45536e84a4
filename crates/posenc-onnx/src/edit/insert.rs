//! Inserts an encoding into a graph that has none.

mod align;
mod axes;
mod convolution;
mod decompose;
mod last_index;
mod length;
mod operand;
mod past_tokens;
mod positions;
mod preserved;
mod rotation;
mod scores;
mod stream;
mod terms;
#[cfg(test)]
mod tests;

use posenc_ir::Emitter;

use crate::error::RewriteError;
use crate::plan::swap::SwapPlan;
use crate::plan::swap::spec::EncodingSpec;
use posenc_encodings::input_term::Source;
use posenc_encodings::opset::Opset;

pub(crate) use align::align;
pub(crate) use axes::{Axes, ValueAxis, batch_axis};
pub(crate) use last_index::positions_up_to;
pub(crate) use length::{Length, Lengths};
pub(crate) use preserved::{Preserved, preserve};
pub(crate) use rotation::by_heads;
pub(crate) use terms::WeightedValues;

/// Inserts the encodings of a plan, group by group.
pub(crate) fn insert(
    out: &mut Emitter<'_>,
    axes: &Axes<'_>,
    plan: &SwapPlan,
    preserved: Option<Preserved>,
) -> Result<(), RewriteError> {
    let context = axes.context;
    if let Some(site) = plan
        .sites
        .first()
        .filter(|_| context.opset() < Opset::OLDEST && !plan.groups.is_empty())
    {
        let why = format!(
            "opset {} is too old to insert an encoding; convert the model to opset {} first",
            context.model.opset(),
            Opset::OLDEST.0
        );
        return Err(context.refuse(context.site(*site).node, why));
    }
    let is_paged = |site: &&usize| {
        let node = context.graph().node(context.site(**site).node);
        node.domain() == "com.microsoft" && node.op() == "PagedAttention"
    };
    // Its tokens are of several sequences, which only the operator tells apart.
    if let Some(site) = plan.sites.iter().find(is_paged)
        && !plan.groups.is_empty()
    {
        let why = "an encoding cannot be inserted where keys and values are kept in pages";
        return Err(context.refuse(context.site(*site).node, why));
    }
    let mut positions = positions::Positions::new(axes, plan, preserved);
    let mut rotations = rotation::Rotations::default();
    let mut scores = scores::cache::ScoreCache::new(axes);
    for group in &plan.groups {
        match &group.new {
            EncodingSpec::InputTerm(spec) => match spec.term.source() {
                Source::Convolution(kernel) => {
                    let preserved = positions.preserved();
                    convolution::insert(out, context, preserved, group, spec, kernel)?;
                }
                Source::Table(_) | Source::Computed => {
                    stream::insert(out, context, &mut positions, group, spec)?;
                }
            },
            EncodingSpec::Rotation(new) => {
                rotation::insert(out, context, &mut positions, &mut rotations, group, &**new)?;
            }
            EncodingSpec::ScoreBias(spec) => {
                scores::insert(out, context, &mut scores, group, spec)?;
            }
            EncodingSpec::ScoreTerm(spec) => {
                terms::insert(out, context, &mut scores, group, spec)?;
            }
        }
    }
    positions.finish(out)
}
