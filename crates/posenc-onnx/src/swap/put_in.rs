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
mod unfold;

use posenc_ir::Emitter;

use super::{Asked, New};
use crate::rewrite::RewriteError;
use posenc_encodings::opset::Opset;

pub(super) use axes::Axes;
pub(super) use keep::{Kept, keep};
pub(super) use terms::Values;

/// Puts in what is asked for, group by group.
pub(super) fn put_in(
    out: &mut Emitter<'_>,
    axes: &Axes<'_>,
    asked: &Asked,
    kept: Option<Kept>,
) -> Result<(), RewriteError> {
    let ground = axes.ground;
    if let Some(site) = asked
        .sites
        .first()
        .filter(|_| ground.opset() < Opset::OLDEST)
    {
        let why = format!(
            "opset {} is too old to put encodings in",
            ground.model.opset()
        );
        return Err(ground.refuse(ground.site(*site).node, why));
    }
    let mut positions = positions::Positions::new(axes, asked, kept);
    let mut rotations = rotation::Rotations::default();
    let mut scores = scores::Scores::new(axes);
    for group in &asked.groups {
        match &group.new {
            New::Learned { .. } | New::Sinusoidal { .. } => {
                stream::put_in(out, ground, &mut positions, group)?;
            }
            New::Conv { .. } => convolution::put_in(out, ground, positions.kept(), group)?,
            New::Rope { .. } => {
                rotation::put_in(out, ground, &mut positions, &mut rotations, group)?;
            }
            New::Alibi { .. } | New::T5Bias { .. } | New::RelativeBias { .. } => {
                scores::put_in(out, ground, &mut scores, group)?;
            }
            New::Shaw { .. } | New::TransformerXl { .. } => {
                terms::put_in(out, ground, &mut scores, group)?;
            }
        }
    }
    positions.finish(out)
}

#[cfg(test)]
mod tests;
