//! That no position is left where encodings were removed, by numbers.
//!
//! The model runs from its inputs to the queries, keys and scores of its sites, with the same
//! content at every token. Whatever still tells tokens apart is a position: without one, queries
//! are equal, keys are equal, and so are all scores of a query that no mask hides. Nothing here
//! depends on how encodings are found.
//!
//! Tokens of several kinds are compared with those of their kind: rows that do not depend on
//! content, such as class tokens, and as many kinds of content as the model has inputs.

mod kinds;
#[cfg(test)]
mod tests;
mod uneven;

use std::collections::BTreeMap;

use ndarray::{ArrayD, Dimension};
use posenc_ir::{Graph, Model, Tensor, ValueId};
use posenc_runtime::{Backend, ModelSource, Options};
use rustc_hash::FxHashMap;

use super::VerifyError;
use super::feeds::equal_tokens;
use super::run::run;
use super::swap::array;
use super::tolerance::Tolerance;
use crate::attention::Site;
use crate::attention::plane::MASKED;
use crate::detect::Found;
use crate::graph::ports::{Lengths, Role};
use crate::report::SiteCheck;
use kinds::Kinds;
use uneven::uneven;

/// The most bytes of weights that run.
const WEIGHTS: usize = 1 << 28;

/// Equal tokens are computed alike, so that they may differ by less than two correct runs: by this
/// factor.
const STRICTER: f64 = 10.0;

/// By which share of the largest number equal tokens may differ in a quantized model, where the
/// weights of attention do not sum to 1.
const COARSE: f64 = 0.1;

/// The input of `GroupQueryAttention` that takes a number for each head beside the scores.
const SINK: usize = 11;

/// The fewest tokens that show a difference.
const FEWEST: usize = 3;

/// How messages name the whole model.
const MODEL: &str = "the model with equal tokens";

/// Compares the tokens of these sites. A site is left out where tokens of equal content differ for
/// another reason than position, as behind a convolution whose borders are filled up.
///
/// # Errors
/// When the runtime does not run the model, or weights are too large to be run.
pub(crate) fn check(
    (model, found): (&Model, &Found),
    sites: &[usize],
    backend: &dyn Backend,
) -> Result<Vec<SiteCheck>, VerifyError> {
    let graph = model.graph();
    let at = found.ports.fit(Lengths {
        batch: 1,
        past: 0,
        ..found.lengths
    });
    let uneven = uneven(graph, found);
    let read = |site: &Site| [Some(site.query.value), Some(site.key.value), site.scores];
    let is_even = |site: &&Site| {
        let mut values = read(site).into_iter().flatten();
        site.scope == graph.main() && values.all(|v| !uneven.contains(&v))
    };
    let sites: Vec<&Site> = sites
        .iter()
        .map(|i| &found.attention[*i])
        .filter(is_even)
        .collect();
    let mut wanted: Vec<ValueId> = sites.iter().flat_map(|s| read(s)).flatten().collect();
    wanted.sort_unstable();
    wanted.dedup();
    if sites.is_empty() || at.sequence < FEWEST {
        return Ok(vec![]);
    }
    let [first, second] = runs(model, found, at, &wanted, backend)?;
    let contents = found.ports.iter();
    let contents = contents
        .filter(|p| matches!(p.role, Role::Tokens | Role::Content))
        .count();
    let mut compared = Compared {
        runs: [&first, &second],
        kinds: Kinds::new(contents),
        share: if is_quantized(graph) { COARSE } else { 0.0 },
        checks: vec![],
    };
    for site in sites {
        compared.site(site, model, found);
    }
    Ok(compared.checks)
}

type Numbers = FxHashMap<ValueId, ArrayD<f64>>;

/// What the model computes for two contents.
fn runs(
    model: &Model,
    found: &Found,
    at: Lengths,
    wanted: &[ValueId],
    backend: &dyn Backend,
) -> Result<[Numbers; 2], VerifyError> {
    let cut = model.cut(&[], wanted, WEIGHTS)?;
    let source = ModelSource::Bytes {
        model: &cut.bytes,
        folder: None,
    };
    let failed = |e| VerifyError::runtime(MODEL, e);
    let mut session = backend.load(source, &Options::default()).map_err(failed)?;
    let mut compute = |nth| -> Result<Numbers, VerifyError> {
        let feeds = equal_tokens(model.graph(), &found.ports, at, nth)?;
        let outputs = run(&mut *session, &feeds, MODEL)?;
        let by_name: FxHashMap<&str, &Tensor> =
            outputs.iter().map(|(name, t)| (name.as_str(), t)).collect();
        let numbers = wanted.iter().filter_map(|v| {
            let tensor = by_name.get(model.graph().name(*v))?;
            Some((*v, array(tensor)?))
        });
        Ok(numbers.collect())
    };
    Ok([compute(0)?, compute(1)?])
}

/// The comparison of one site after another.
struct Compared<'a> {
    runs: [&'a Numbers; 2],
    kinds: Kinds,
    /// By which share of the largest number equal tokens may differ, whatever the type.
    share: f64,
    checks: Vec<SiteCheck>,
}

/// Whether a model computes in integers.
fn is_quantized(graph: &Graph) -> bool {
    let quantized = ["Quantize", "Integer", "QLinear", "QAttention"];
    graph
        .nodes()
        .any(|(_, node)| quantized.iter().any(|part| node.op().contains(part)))
}

/// Whether part of the attention goes to no key.
fn has_sink(site: &Site, model: &Model, found: &Found) -> bool {
    let node = model.graph().node(site.node);
    if site.product.is_none() {
        let is_smooth = node
            .int("smooth_softmax")
            .ok()
            .flatten()
            .is_some_and(|n| n != 0);
        return is_smooth || node.op() == "GroupQueryAttention" && node.input(SINK).is_some();
    }
    let size =
        |value: ValueId, axis: usize| found.trace.get(value).dims.as_ref()?.get(axis).copied();
    let keys = size(site.key.value, site.key.lane.sequence);
    let columns = site
        .scores
        .zip(site.plane)
        .and_then(|(scores, [_, axis])| size(scores, axis));
    columns != keys
}

impl Compared<'_> {
    /// Compares the queries, the keys and the scores of a site.
    fn site(&mut self, site: &Site, model: &Model, found: &Found) {
        let dtype = found.trace.get(site.query.value).dtype;
        let Some(dtype) = dtype.or(model.graph().dtype(site.query.value)) else {
            return;
        };
        let share = self.share.max(Tolerance::of(dtype).rtol / STRICTER);
        let Some((query, largest_query)) = self.operand(site, Side::Queries, share) else {
            return;
        };
        let Some((key, largest_key)) = self.operand(site, Side::Keys, share) else {
            return;
        };
        if site.mask.causal != Some(false) || site.mask.window.is_some() {
            // How much a query sees of each kind, or of a sink, depends on its place.
            let sequence = (site.place.stack, false);
            self.kinds.split(sequence, has_sink(site, model, found));
        }
        if let (Some(scores), Some([rows, columns])) = (site.scores, site.plane)
            && let Some(scores) = self.runs[0].get(&scores)
        {
            // A number that is added to a whole row does not change its softmax.
            let each = query.iter().enumerate().map(|(i, kind)| kind.map(|_| i));
            let each: Vec<Option<usize>> = each.collect();
            let groups = groups(scores, &[(rows, &each), (columns, &key)]);
            let visible = groups.map(|groups| groups.into_iter().map(visible).collect());
            self.compare(
                site,
                "scores",
                visible,
                (share, largest_query * largest_key),
            );
        }
    }

    /// Compares the queries or the keys of a site; returns the kinds of their tokens, and the
    /// largest number.
    fn operand(&mut self, site: &Site, side: Side, share: f64) -> Option<(Kind, f64)> {
        let (operand, name, is_other) = match side {
            Side::Queries => (&site.query, "queries", false),
            Side::Keys => (&site.key, "keys", site.cross),
        };
        let axis = operand.lane.sequence;
        let [first, second] = self.runs.map(|run| run.get(&operand.value));
        let (first, second) = (first?, second?);
        let kinds = self
            .kinds
            .of((site.place.stack, is_other), [first, second], axis)?;
        self.compare(site, name, groups(first, &[(axis, &kinds)]), (share, 0.0));
        let largest = first.iter().fold(0.0, |a: f64, v| a.max(v.abs()));
        Some((kinds, largest))
    }

    /// Compares the numbers of each group with each other. They may differ by `share` of the largest
    /// one, or of `scale` where that is larger.
    fn compare(
        &mut self,
        site: &Site,
        name: &str,
        groups: Option<Vec<Vec<f64>>>,
        (share, scale): (f64, f64),
    ) {
        let mut largest = scale;
        let mut spread: Option<f64> = None;
        let mut is_number = true;
        for group in groups
            .unwrap_or_default()
            .iter()
            .filter(|group| group.len() > 1)
        {
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
        let Some(spread) = spread.filter(|_| largest > 0.0) else {
            return;
        };
        let bound = share * largest;
        self.checks.push(SiteCheck {
            site: site.name.clone(),
            quantity: format!("{name} of equal tokens"),
            max_error: Some(spread).filter(|_| is_number),
            bound,
            ok: is_number && spread <= bound,
        });
    }
}

/// The kind of each token.
type Kind = Vec<Option<usize>>;

#[derive(Clone, Copy, Debug)]
enum Side {
    Queries,
    Keys,
}

/// The scores of a row that no mask hides.
fn visible(row: Vec<f64>) -> Vec<f64> {
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
