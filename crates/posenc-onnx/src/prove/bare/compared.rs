//! The comparison of tokens of equal content, one site after another.

use std::collections::BTreeMap;

use ndarray::{ArrayD, Dimension};
use posenc_ir::{DType, Model, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::kinds::{Kinds, is_mixed};
use super::roundings::Depths;
use super::runs::Numbers;
use crate::attention::plane::MASKED;
use crate::attention::{Site, scale};
use crate::detect::Found;
use crate::detect::rows::{Rows, What};
use crate::prove::tolerance::Tolerance;
use crate::report::SiteCheck;

/// Equal tokens are computed alike, so that they may differ by less than two correct runs: by this
/// factor.
const STRICTER: f64 = 10.0;

/// The comparison of one site after another.
pub(super) struct Compared<'a> {
    pub(super) runs: [&'a Numbers; 2],
    pub(super) kinds: Kinds<'a>,
    /// Attention in whose place something of each token alone runs.
    pub(super) alone: &'a FxHashSet<NodeId>,
    /// By which share of the largest number equal tokens may differ, whatever the type.
    pub(super) share: f64,
    /// The tokens of a sequence.
    pub(super) sequence: usize,
    /// The layers before each value.
    pub(super) depths: Depths,
    /// The coarsest type in which content is computed.
    pub(super) coarsest: DType,
    pub(super) checks: Vec<SiteCheck>,
}

impl Compared<'_> {
    /// Compares the queries, the keys, the values and the scores of a site.
    pub(super) fn site(&mut self, site: &Site, model: &Model, found: &Found, rows: &[Rows]) {
        let dtype = found.trace.get(site.query.value).dtype;
        let Some(dtype) = dtype.or(model.graph().dtype(site.query.value)) else {
            return;
        };
        let Some((query, largest_query)) = self.operand(site, Side::Queries, dtype) else {
            return;
        };
        let Some((key, largest_key)) = self.operand(site, Side::Keys, dtype) else {
            return;
        };
        for values in rows.iter().filter(|r| r.what == What::Values(site.index)) {
            self.values(site, values);
        }
        if site.is_ordered() && !self.alone.contains(&site.node) {
            // How much a query sees of each kind, or of a sink, depends on its place.
            let sequence = (site.place.stack, false);
            let has_sink = site.has_sink(model.graph(), &found.trace);
            self.kinds.split(sequence, has_sink != Some(false));
        }
        if let (Some(value), Some([rows, columns])) = (site.scores, site.plane)
            && let Some(scores) = self.runs[0].get(&value)
        {
            // A number that is added to a whole row does not change its softmax.
            let each = query.iter().enumerate().map(|(i, kind)| kind.map(|_| i));
            let each: Vec<Option<usize>> = each.collect();
            let groups = groups(scores, &[(rows, &each), (columns, &key)]);
            let visible = groups.map(|groups| groups.into_iter().map(visible).collect());
            let (graph, classes) = (model.graph(), &found.classes);
            let sides = [&site.query, &site.key];
            let before = sides.map(|side| scale::before(graph, classes, &found.trace, side));
            let more = roundings(dtype, site.head_dim, before.iter().product());
            let scale = largest_query * largest_key * more;
            let share = self.share_of(dtype, value);
            self.compare(&site.name, "scores", visible, (share, scale));
        }
    }

    /// Compares the queries or the keys of a site; returns the kinds of their tokens, and the
    /// largest number.
    fn operand(&mut self, site: &Site, side: Side, dtype: DType) -> Option<(Kind, f64)> {
        let (operand, name, is_other) = match side {
            Side::Queries => (&site.query, "queries", false),
            Side::Keys => (&site.key, "keys", site.cross),
        };
        let axis = operand.lane.sequence;
        let [first, second] = self.runs.map(|run| run.get(&operand.value));
        let (first, second) = (first?, second?);
        let kinds = self.kinds.of(
            (site.place.stack, is_other),
            operand.value,
            [first, second],
            axis,
        )?;
        let share = self.share_of(dtype, operand.value);
        self.compare(
            &site.name,
            name,
            groups(first, &[(axis, &kinds)]),
            (share, 0.0),
        );
        let largest = first.iter().fold(0.0, |a: f64, v| a.max(v.abs()));
        Some((kinds, largest))
    }

    /// Compares the values of a site, whose tokens are those of its keys.
    fn values(&mut self, site: &Site, rows: &Rows) {
        let [first, second] = self.runs.map(|run| run.get(&rows.value));
        let (Some(first), Some(second)) = (first, second) else {
            return;
        };
        let sequence = (site.place.stack, site.cross);
        let kinds = self
            .kinds
            .of(sequence, rows.value, [first, second], rows.axis);
        let groups = kinds.and_then(|kinds| groups(first, &[(rows.axis, &kinds)]));
        let share = self.share_of(self.coarsest, rows.value);
        self.compare(&site.name, "values", groups, (share, 0.0));
    }

    /// Compares rows that belong to no site. `is_ordered`: somewhere, how much a token sees of each
    /// kind depends on its place.
    pub(super) fn rows(&mut self, rows: &Rows, name: &str, is_ordered: bool) {
        let Some(numbers) = self.runs[0].get(&rows.value) else {
            return;
        };
        let kinds = match self.runs[1].get(&rows.value) {
            Some(other) => self.kinds.of_rows(rows.value, [numbers, other], rows.axis),
            None => None,
        };
        let kinds = kinds.filter(|kinds| !is_ordered || !is_mixed(kinds));
        let groups = kinds.and_then(|kinds| groups(numbers, &[(rows.axis, &kinds)]));
        let share = self.share_of(self.coarsest, rows.value);
        self.compare(name, "rows", groups, (share, 0.0));
    }

    fn share_of(&self, dtype: DType, value: ValueId) -> f64 {
        let more = self.depths.more(dtype, value, self.sequence);
        self.share.max(more * Tolerance::of(dtype).rtol / STRICTER)
    }

    /// Compares the numbers of each group with each other.
    fn compare(
        &mut self,
        site: &str,
        name: &str,
        groups: Option<Vec<Vec<f64>>>,
        bound: (f64, f64),
    ) {
        let quantity = format!("{name} of equal tokens");
        let check = check_of(site, quantity, &groups.unwrap_or_default(), bound);
        self.checks.extend(check);
    }
}

/// By how much the roundings of half precision add up over the features of a head, where queries and keys
/// are multiplied with the factor of the scores `before` their product: behind it, the factor takes that
/// back.
fn roundings(dtype: DType, head_dim: Option<usize>, before: f64) -> f64 {
    let is_half = matches!(dtype, DType::F16 | DType::BF16);
    let root = head_dim.map_or(1.0, |n| (n as f64).sqrt());
    match is_half && (before * root - 1.0).abs() < 1e-2 {
        true => root,
        false => 1.0,
    }
}

/// Compares the numbers of each group with each other; `None` where there are none. They may differ
/// by `share` of the largest one, or of `scale` where that is larger.
pub(super) fn check_of(
    site: &str,
    quantity: String,
    groups: &[Vec<f64>],
    (share, scale): (f64, f64),
) -> Option<SiteCheck> {
    let mut largest = scale;
    let mut spread: Option<f64> = None;
    let mut is_number = true;
    for group in groups.iter().filter(|group| group.len() > 1) {
        let numbers = || group.iter().copied().filter(|v| !v.is_nan());
        // Numbers that are undefined everywhere tell nothing.
        let Some(first) = numbers().next() else {
            continue;
        };
        is_number &= numbers().count() == group.len();
        let [least, most] = numbers().fold([first; 2], |[a, b], v| [a.min(v), b.max(v)]);
        let own = if least == most { 0.0 } else { most - least };
        spread = Some(spread.unwrap_or(0.0).max(own));
        largest = numbers().fold(largest, |a, v| a.max(v.abs()));
    }
    let spread = spread.filter(|_| largest > 0.0)?;
    let bound = share * largest;
    Some(SiteCheck {
        site: site.to_owned(),
        quantity,
        max_error: Some(spread).filter(|_| is_number),
        bound,
        ok: is_number && spread <= bound,
    })
}

/// The kind of each token.
type Kind = Vec<Option<usize>>;

#[derive(Clone, Copy, Debug)]
enum Side {
    Queries,
    Keys,
}

/// The scores of a row that no mask hides.
pub(super) fn visible(row: Vec<f64>) -> Vec<f64> {
    let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.into_iter()
        .filter(|v| best - v < MASKED || v.is_nan())
        .collect()
}

/// The numbers that have to be equal; `None` where the kinds are not those of the value.
fn groups(numbers: &ArrayD<f64>, axes: &[(usize, &[Option<usize>])]) -> Option<Vec<Vec<f64>>> {
    let sized = |(axis, kinds): &(usize, &[Option<usize>])| {
        numbers.shape().get(*axis) == Some(&kinds.len())
    };
    if !axes.iter().all(sized) {
        return None;
    }
    let mut groups: BTreeMap<Vec<usize>, Vec<f64>> = BTreeMap::new();
    'numbers: for (index, number) in numbers.indexed_iter() {
        let mut key = index.slice().to_vec();
        for (axis, kinds) in axes {
            match kinds[key[*axis]] {
                Some(kind) => key[*axis] = kind,
                None => continue 'numbers,
            }
        }
        groups.entry(key).or_default().push(*number);
    }
    Some(groups.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roundings_add_up_where_half_precision_is_scaled_before_its_product() {
        for (dtype, head_dim, before, want) in [
            (DType::F16, Some(16), 0.25, 4.0),
            (DType::BF16, Some(64), 0.125, 8.0),
            (DType::F32, Some(16), 0.25, 1.0),
            (DType::F16, Some(16), 1.0, 1.0),
            (DType::F16, Some(16), 0.5, 1.0),
            (DType::F16, None, 0.25, 1.0),
        ] {
            assert_eq!(roundings(dtype, head_dim, before), want, "{dtype} {before}");
        }
    }
}
