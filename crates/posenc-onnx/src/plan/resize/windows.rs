//! Attention within windows of the image.

use super::walk::Walk;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;

impl Walk<'_> {
    /// Refuses windows over which attention would be cut in another way than where the model was made
    /// for images of this size.
    pub(super) fn check_windows(&self) -> Result<(), RewriteError> {
        for site in &self.context.found.attention {
            let Some(axes) = self.axes.get(&site.query.value) else {
                continue;
            };
            let tokens = axes.get(site.query.lane.sequence);
            if tokens.is_none_or(|tokens| !tokens.changes()) && axes.iter().any(Extent::changes) {
                let why = "attention within windows is not supported yet for another image size";
                let place = self.context.graph().place(site.node);
                return Err(Refusal::unsupported(why).at(place).into());
            }
        }
        Ok(())
    }
}
