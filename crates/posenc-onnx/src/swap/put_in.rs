//! Putting an encoding into a graph that has none.

mod convolution;
mod positions;
mod rotation;
mod scores;
mod stream;
mod terms;

use posenc_ir::{Emitter, ValueId};

use super::{Asked, Ground, New};
use crate::rewrite::RewriteError;

/// Positions of the graph as it was, held for the patch to come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// A node that nothing reads yet.
    pub(super) positions: ValueId,
}

/// Holds the positions of a graph that heeds padding, where what is taken out is all that reads
/// them.
pub(super) fn keep_positions(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    asked: &Asked,
) -> Result<Option<Kept>, RewriteError> {
    positions::keep(out, ground, asked)
}

/// Puts in what is asked for, group by group.
pub(super) fn put_in(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    asked: &Asked,
    kept: Option<Kept>,
) -> Result<(), RewriteError> {
    let mut positions = positions::Positions::new(ground, asked, kept);
    let mut scores = scores::Scores::new(ground);
    for group in &asked.groups {
        match &group.new {
            New::Learned { .. } | New::Sinusoidal { .. } => {
                stream::put_in(out, ground, &mut positions, group)?;
            }
            New::Conv { .. } => convolution::put_in(out, ground, group)?,
            New::Rope { .. } => rotation::put_in(out, ground, &mut positions, group)?,
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
