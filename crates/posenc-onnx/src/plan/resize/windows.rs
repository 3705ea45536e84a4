//! Attention within windows of the image.

use super::sizes::Wanted;
use super::walk::Walk;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;

impl Walk<'_> {
    /// Refuses windows over which attention would be cut in another way than where the model was made
    /// for images of this size: Swin shifts them where there are several along both sides.
    pub(super) fn check_windows(&self) -> Result<(), RewriteError> {
        for site in &self.context.found.attention {
            let Some(axes) = self.axes.get(&site.query.value) else {
                continue;
            };
            let tokens = axes.get(site.query.lane.sequence);
            if tokens.is_some_and(Extent::changes) || !axes.iter().any(Extent::changes) {
                continue;
            }
            let windows = self.windows(axes);
            let is_shifted = |[down, across]: [usize; 2]| down > 1 && across > 1;
            if windows.is_none_or(|[old, new]| is_shifted(old) != is_shifted(new)) {
                let why =
                    "as many windows as an image of another size has may be shifted in another way";
                let place = self.context.graph().place(site.node);
                return Err(Refusal::unsupported(why).at(place).into());
            }
        }
        Ok(())
    }

    /// Windows down and across the image, before and after; `None` where their number does not follow from
    /// the sides of the image.
    fn windows(&self, axes: &[Extent]) -> Option<[[usize; 2]; 2]> {
        let Wanted::Image { size, old, .. } = &self.wanted else {
            return None;
        };
        let batch = self.context.found.lengths.batch.max(1);
        let count = |of: fn(&Extent) -> usize| {
            let changed = axes.iter().filter(|axis| axis.changes());
            let all: usize = changed.map(of).product();
            all.is_multiple_of(batch).then(|| all / batch)
        };
        let (before, after) = (count(Extent::before)?, count(Extent::after)?);
        // Windows are as many to a pixel down as across.
        let down = before.checked_mul(old[0])?.checked_div(old[1])?.isqrt();
        let is_grid = down.checked_mul(down)?.checked_mul(old[1])? == before * old[0];
        let sides = [down, before.checked_div(down).filter(|_| is_grid)?];
        let scaled = |windows: usize, old: usize, new: usize| {
            let all = windows * new;
            all.is_multiple_of(old).then(|| all / old)
        };
        let new = [
            scaled(sides[0], old[0], size.height)?,
            scaled(sides[1], old[1], size.width)?,
        ];
        (new[0] * new[1] == after).then_some([sides, new])
    }
}
