//! Where a bias is added: to a mask that is added after the last scale, which costs nothing per
//! layer, or to the scores.

use posenc_ir::Use;

use super::layout::Layout;
use super::path::{ScorePath, ScoreStep, Stage};
use crate::attention::Site;
use crate::detect::context::Context;

/// Where a bias is added.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// The index on the path of the scores whose axes the bias has.
    pub(crate) stage: usize,
    /// The use of a mask that is added to these scores.
    pub(crate) mask: Option<Use>,
    pub(crate) layout: Layout,
    /// Whether the bias may depend on the key only.
    pub(crate) by_key: bool,
}

/// The best placement. `linear` means that the bias can be replaced by one that depends on the key
/// only: they differ by a constant for each query.
pub(crate) fn choose(
    context: &Context<'_>,
    site: &Site,
    path: &ScorePath,
    linear: bool,
) -> Option<Placement> {
    let heads = site.heads?;
    let keys = site.keys(&context.found.trace)?;
    let layout = |stage: usize| {
        let stage = path.stages.get(stage)?;
        let dims = context.dims(stage.value)?;
        // Columns that are not keys get no bias.
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
        let by_key = linear && rows == 1 && !path.is_exposed(context, site, from);
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
    // The scores nearest to the product: masks that follow hide the bias, too.
    let mut scores: Vec<(usize, Layout)> = (0..path.stages.len())
        .filter_map(|stage| Some((stage, layout(stage)?)))
        .collect();
    scores.reverse();
    let cost = |layout: &Layout| (layout.is_folded(), !layout.is_plain());
    let (stage, layout) = scores.into_iter().min_by_key(|(_, l)| cost(l))?;
    Some(Placement {
        by_key: linear && !path.is_exposed(context, site, stage),
        stage,
        mask: None,
        layout,
    })
}

/// The number of rows of a mask, and of its elements without the axis of keys; `None` if a bias
/// cannot be added to it.
fn mask_size(context: &Context<'_>, stage: &Stage, at: Use) -> Option<[usize; 2]> {
    let mask = context.graph().node(at.node).input(at.slot())?;
    let (mask, dims) = (context.dims(mask)?, context.dims(stage.value)?);
    // Axes of the mask are aligned with the last axes.
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
