//! Biases of slopes at the new length, compared with their formula: a table of them may have ended before.

use posenc_encodings::bias::{At, ScoreBias};
use posenc_ir::eval::Budget;
use rustc_hash::FxHashSet;
use serde_json::Value as Json;

use crate::attention::mask::HIDES;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::run_at;
use crate::error::RewriteError;
use crate::graph::ports::Lengths;

/// Roundings of the element type between a bias and its formula.
const ROUNDINGS: f64 = 8.0;

/// Compares every bias of slopes in a run of the new length; models ended at the `old` one. `budget` is that
/// of the run.
///
/// # Errors
/// With the node, where a bias cannot be computed or is not that of the formula.
pub(super) fn check(
    after: &Context<'_>,
    [old, length]: [usize; 2],
    budget: &Budget,
) -> Result<(), RewriteError> {
    let findings = after.found.findings.iter();
    let sloped: Vec<(&Finding, &dyn ScoreBias)> = findings
        .filter_map(|finding| match &finding.encoding {
            Encoding::ScoreBias(_, bias) if bias.is_sloped() => Some((finding, &**bias)),
            _ => None,
        })
        .collect();
    if sloped.is_empty() {
        return Ok(());
    }
    let wanted = Lengths {
        batch: 1,
        sequence: length,
        past: 0,
    };
    let run = run_at(after.model, after.found, wanted, budget);
    for (finding, bias) in sloped {
        let sees_both = bias.params().get("symmetric") == Some(&Json::Bool(true));
        let mut known = FxHashSet::default();
        for entry in &finding.entries {
            let refuse = |why: &str| after.refuse(entry.node, why);
            let value = after.graph().node(entry.node).input(entry.slot());
            if !known.insert(value) {
                continue;
            }
            let numbers = value.and_then(|value| run.as_ref()?.get(value).to_f64());
            let (Some(value), Some(numbers)) = (value, numbers) else {
                let why =
                    "the bias at the new length cannot be computed, so that it cannot be compared";
                return Err(refuse(why));
            };
            let epsilon = after
                .dtype(value)
                .epsilon()
                .unwrap_or(f64::from(f32::EPSILON));
            let share = ROUNDINGS * epsilon * (1.0 + length as f64 / old as f64);
            // `[head, query, key]` from the last axis on.
            let (numbers, dims) = (
                numbers.as_standard_layout().into_owned(),
                numbers.shape().to_vec(),
            );
            let size = |behind: usize| dims.len().checked_sub(behind).map_or(1, |axis| dims[axis]);
            let (keys, queries, heads) = (size(1), size(2), size(3));
            let flat = numbers.as_slice().expect("numbers in their order");
            if keys != length
                || ![1, bias.heads()].contains(&heads)
                || ![1, length].contains(&queries)
            {
                return Err(refuse(
                    "the bias at the new length has another shape than its scores",
                ));
            }
            let rows = flat.chunks(keys).enumerate();
            for (row, numbers) in rows {
                let head = row / queries % heads;
                let query = if queries == 1 {
                    keys - 1
                } else {
                    row % queries
                };
                if departs(bias, sees_both, [head, query, old], numbers, share) {
                    return Err(refuse(
                        "the bias at the new length is not that of its slopes",
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Whether a row of a bias differs from the formula by more than a share of its largest number. A number
/// that all keys of a query have in common does not count. The bias may be added before the scores are
/// scaled; the factor is read from the keys within the `old` length. Keys after the query are compared
/// only with `sees_both`.
fn departs(
    bias: &dyn ScoreBias,
    sees_both: bool,
    [head, query, old]: [usize; 3],
    numbers: &[f64],
    share: f64,
) -> bool {
    let keys = numbers.len();
    let want = |key: usize| {
        let [query, key] = [query, key].map(|n| n as i64);
        bias.reference(&[], head, At { query, key, keys }).value
    };
    // Where later keys are hidden, the formula says nothing of them.
    let hides = |key: &usize| numbers[*key] <= HIDES;
    let seen = |key: &usize| !hides(key) && (*key <= query || sees_both);
    let all: Vec<usize> = (0..keys).filter(seen).collect();
    let near = all.iter().copied().filter(|key| key.abs_diff(query) < old);
    let farthest = near.max_by_key(|key| key.abs_diff(query));
    let Some((here, there)) = Some(query).filter(seen).zip(farthest) else {
        return false;
    };
    let scale = match want(there) - want(here) {
        0.0 => 1.0,
        step => (numbers[there] - numbers[here]) / step,
    };
    let largest = all.iter().map(|key| numbers[*key].abs());
    let bound = share * largest.fold(f64::MIN_POSITIVE, f64::max);
    all.iter().any(|key| {
        let off = numbers[*key] - numbers[here] - scale * (want(*key) - want(here));
        off.is_nan() || off.abs() > bound
    })
}

#[cfg(test)]
mod tests {
    use posenc_encodings::families::alibi::Alibi;

    #[test]
    fn a_bias_that_stops_growing_is_told_from_slopes() {
        let bias = Alibi {
            heads: 1,
            slopes: vec![0.25],
            symmetric: None,
        };
        let departs = |f: &dyn Fn(usize) -> f64| {
            let numbers: Vec<f64> = (0..20).map(f).collect();
            super::departs(&bias, false, [0, 19, 8], &numbers, 1e-6)
        };
        assert!(!departs(&|key| 0.25 * key as f64));
        assert!(!departs(&|key| 2.0 * 0.25 * (key as f64 - 19.0)), "scaled");
        assert!(departs(&|key| 0.25 * key.max(12) as f64), "ends");
        assert!(departs(&|key| if key == 3 {
            0.0
        } else {
            0.25 * key as f64
        }));
        assert!(departs(&|key| if key == 3 {
            f64::NAN
        } else {
            0.25 * key as f64
        }));
    }
}
