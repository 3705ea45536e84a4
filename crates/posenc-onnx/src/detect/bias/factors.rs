//! Numbers that the scores are multiplied with or bounded by: where queries and keys are zero, these
//! leave no trace.

use ndarray::{ArrayView1, Axis};
use posenc_ir::Use;

use crate::attention::Site;
use crate::attention::scores::{entries, product_path};
use crate::detect::finding::{Encoding, Finding};
use crate::detect::runs::Runs;

/// Differences between factors that count, as a share of the larger.
const NEAR: f64 = 1e-6;

/// Bounds of this size are masks.
const MASK: f64 = 1e4;

/// Factors and bounds of the scores at a site, its place given, that differ from key to key or from query
/// to query. Factors of masks are 0 and one other number.
pub(crate) fn find(runs: &Runs<'_>, place: usize, site: &Site) -> Option<Finding> {
    let (graph, found) = (runs.model.graph(), runs.found);
    let (classes, trace) = (&found.classes, &found.trace);
    let plane = site.plane?;
    let rank = trace.get(site.scores?).dims.as_ref()?.len();
    let differs = |at: &Use| {
        let node = graph.node(at.node);
        let is_bound = matches!(node.op(), "Min" | "Max");
        let is_factor = matches!(node.op(), "Mul" | "Div" | "Pow" | "Mod" | "PRelu");
        let value = node.input(at.slot()).filter(|_| is_factor || is_bound);
        let Some(data) = value.and_then(|v| trace.get(v).to_f64()) else {
            return false;
        };
        plane.into_iter().any(|axis| {
            let axis = rank
                .checked_sub(axis)
                .and_then(|n| data.ndim().checked_sub(n));
            let mut lanes = axis.into_iter().flat_map(|axis| data.lanes(Axis(axis)));
            lanes.any(|lane| is_uneven(lane, is_bound))
        })
    };
    let mut uneven = entries(graph, classes, trace, site);
    uneven.retain(differs);
    if uneven.is_empty() {
        return None;
    }
    // Numbers under a gate of content are a bias.
    let path = product_path(graph, classes, site);
    let scores = |at: &Use| {
        let mut inputs = graph.node(at.node).inputs().iter().flatten();
        inputs.any(|v| path.contains(v))
    };
    uneven.retain(scores);
    (!uneven.is_empty()).then(|| Finding {
        encoding: Encoding::Unknown,
        sites: vec![place],
        entries: uneven,
        table: None,
        form: site.form,
        fit_error: None,
        max_length: None,
        lead: 0,
        evidence: vec![
            "the scores are multiplied with numbers that follow the position, or bounded by them"
                .into(),
        ],
    })
}

/// Whether factors other than 0 differ, or bounds that are no masks.
fn is_uneven(lane: ArrayView1<'_, f64>, are_bounds: bool) -> bool {
    let counts = |v: &&f64| {
        v.is_finite()
            && if are_bounds {
                v.abs() < MASK
            } else {
                **v != 0.0
            }
    };
    let mut seen = lane.iter().filter(counts);
    let Some(first) = seen.next() else {
        return false;
    };
    seen.any(|v| (v - first).abs() > NEAR * v.abs().max(first.abs()))
}
