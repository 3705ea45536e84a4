//! Numbers that the scores are multiplied with: where queries and keys are zero, these leave no
//! trace.

use ndarray::{ArrayView1, Axis};
use posenc_ir::Use;

use crate::attention::Site;
use crate::attention::scores::{entries, product_path};
use crate::detect::finding::{Encoding, Finding};
use crate::detect::runs::Runs;

/// Differences between factors that count, as a share of the larger.
const NEAR: f64 = 1e-6;

/// Factors of the scores at a site, its place given, that differ from key to key. Those of masks
/// are 0 and one other number.
pub(crate) fn find(runs: &Runs<'_>, place: usize, site: &Site) -> Option<Finding> {
    let (graph, found) = (runs.model.graph(), runs.found);
    let (classes, trace) = (&found.classes, &found.trace);
    let [_, keys] = site.plane?;
    let rank = trace.get(site.scores?).dims.as_ref()?.len();
    let from_end = rank.checked_sub(keys)?;
    let differs = |at: &Use| {
        let node = graph.node(at.node);
        let factor = node.is("Mul") || node.is("Div") && at.slot() == 1;
        let value = node.input(at.slot()).filter(|_| factor);
        let Some(data) = value.and_then(|v| trace.get(v).to_f64()) else {
            return false;
        };
        let axis = data.ndim().checked_sub(from_end);
        axis.is_some_and(|axis| data.lanes(Axis(axis)).into_iter().any(is_uneven))
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
        form: site.form,
        fit_error: None,
        max_length: None,
        evidence: vec!["the scores are multiplied with numbers that follow the position".into()],
    })
}

/// Whether factors other than 0 differ.
fn is_uneven(lane: ArrayView1<'_, f64>) -> bool {
    let mut seen = lane.iter().filter(|v| v.is_finite() && **v != 0.0);
    let Some(first) = seen.next() else {
        return false;
    };
    seen.any(|v| (v - first).abs() > NEAR * v.abs().max(first.abs()))
}
