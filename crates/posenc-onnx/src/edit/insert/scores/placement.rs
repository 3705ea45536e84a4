//! Where a bias is added: to a mask that is added after the last scale, which costs the layers
//! nothing, or else to the scores.

use posenc_ir::Use;

use super::layout::Layout;
use super::path::{Stage, ScoreStep, ScorePath};
use crate::attention::Site;
use crate::detect::context::Context;

/// A place for a bias.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// The scores that the bias has the axes of, by their place on the path.
    pub(crate) stage: usize,
    /// Where a mask is added to these: the use of the mask.
    pub(crate) mask: Option<Use>,
    pub(crate) layout: Layout,
    /// The bias may be that of the key alone.
    pub(crate) by_key: bool,
}

/// The best place. `straight` tells that the bias of a key differs between queries by no more
/// than a constant for each query.
pub(crate) fn choose(
    context: &Context<'_>,
    site: &Site,
    path: &ScorePath,
    straight: bool,
) -> Option<Placement> {
    let heads = site.heads?;
    let keys = *context.dims(site.key.value)?.get(site.key.lane.sequence)?;
    let layout = |stage: usize| {
        let stage = path.stages.get(stage)?;
        let dims = context.dims(stage.value)?;
        // Columns that are no keys get no bias.
        let own = dims.get(stage.plane[1]) == Some(&keys);
        Layout::of(dims, stage.plane, heads).filter(|_| own)
    };
    let mut masks: Vec<(usize, Placement)> = vec![];
    for (from, stage) in path.stages.iter().enumerate() {
        let ScoreStep::Added(mask) = stage.next else {
            continue;
        };
        let (Some(layout), Some([rows, elements])) =
            (layout(from), mask_size(context, stage, mask))
        else {
            continue;
        };
        let by_key = straight && rows == 1 && !path.is_exposed(context, site, from);
        let place = Placement {
            stage: from,
            mask: Some(mask),
            layout,
            by_key,
        };
        let elements = if by_key { 0 } else { elements };
        masks.push((elements, place));
    }
    if let Some((_, place)) = masks.into_iter().min_by_key(|(elements, _)| *elements) {
        return Some(place);
    }
    // The nearest to the product, where masks come behind and leave no trace of it.
    let mut scores: Vec<(usize, Layout)> = (0..path.stages.len())
        .filter_map(|stage| Some((stage, layout(stage)?)))
        .collect();
    scores.reverse();
    let trouble = |layout: &Layout| (layout.is_folded(), !layout.is_plain());
    let (stage, layout) = scores.into_iter().min_by_key(|(_, l)| trouble(l))?;
    Some(Placement {
        by_key: straight && !path.is_exposed(context, site, stage),
        stage,
        mask: None,
        layout,
    })
}

/// How many queries a mask tells apart, and the elements that it has with a bias; `None` where it
/// cannot take one.
fn mask_size(context: &Context<'_>, stage: &Stage, at: Use) -> Option<[usize; 2]> {
    let mask = context.graph().node(at.node).input(at.slot())?;
    let (mask, dims) = (context.dims(mask)?, context.dims(stage.value)?);
    // Axes of the mask are counted from the last.
    let size = |axis: usize| {
        let at = (axis + mask.len()).checked_sub(dims.len());
        at.and_then(|a| mask.get(a).copied()).unwrap_or(1)
    };
    let rows = size(stage.plane[0]);
    let lead = (0..dims.len()).filter(|a| !stage.plane.contains(a));
    let sequences: usize = lead.map(size).product();
    let fits = context.dtype(stage.value).is_float() && mask.len() <= dims.len();
    fits.then_some([rows, rows.max(1) * sequences])
}
