//! Putting an encoding into a graph that has none.

mod align;
mod axes;
mod convolution;
mod keep;
mod length;
mod operand;
mod past;
mod positions;
mod rotation;
mod scores;
mod stream;
mod terms;
#[cfg(test)]
mod tests;
mod unfold;

use posenc_ir::Emitter;

use crate::error::RewriteError;
use crate::plan::swap::SwapPlan;
use crate::plan::swap::spec::EncodingSpec;
use posenc_encodings::opset::Opset;

pub(crate) use axes::Axes;
pub(crate) use keep::{Kept, keep};
pub(crate) use terms::Values;

/// Puts in what is asked for, group by group.
pub(crate) fn insert(
    out: &mut Emitter<'_>,
    axes: &Axes<'_>,
    asked: &SwapPlan,
    kept: Option<Kept>,
) -> Result<(), RewriteError> {
    let context = axes.context;
    if let Some(site) = asked
        .sites
        .first()
        .filter(|_| context.opset() < Opset::OLDEST)
    {
        let why = format!(
            "opset {} is too old to put encodings in",
            context.model.opset()
        );
        return Err(context.refuse(context.site(*site).node, why));
    }
    let mut positions = positions::Positions::new(axes, asked, kept);
    let mut rotations = rotation::Rotations::default();
    let mut scores = scores::Scores::new(axes);
    for group in &asked.groups {
        match &group.new {
            EncodingSpec::Learned { .. } | EncodingSpec::Sinusoidal { .. } => {
                stream::insert(out, context, &mut positions, group)?;
            }
            EncodingSpec::Conv { .. } => {
                convolution::insert(out, context, positions.kept(), group)?
            }
            EncodingSpec::Rope { .. } => {
                rotation::insert(out, context, &mut positions, &mut rotations, group)?;
            }
            EncodingSpec::ScoreBias(spec) => {
                scores::insert(out, context, &mut scores, group, spec)?;
            }
            EncodingSpec::Shaw { .. } | EncodingSpec::TransformerXl { .. } => {
                terms::insert(out, context, &mut scores, group)?;
            }
        }
    }
    positions.finish(out)
}
