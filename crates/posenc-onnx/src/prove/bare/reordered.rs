//! Tokens of different content in another order.
//!
//! Where no mask makes order matter, everything moves with the tokens: queries, keys and values, the
//! scores of each pair, the rows of outputs. This shows what equal tokens hide: a position that is
//! multiplied with a difference of contents.

use ndarray::{ArrayD, Axis};
use posenc_encodings::kind::Stack;
use posenc_ir::{Graph, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::compared::{check_of, visible};
use super::kinds::Kinds;
use super::runs::Numbers;
use super::uneven::after;
use crate::attention::Site;
use crate::attention::plane::MASKED;
use crate::detect::Found;
use crate::detect::rows::{Rows, What};
use crate::graph::mixing::{Mixer, Mixing};
use crate::prove::feeds::order;
use crate::report::SiteCheck;

/// Two runs of different tokens, and what is known of their places.
pub(super) struct Reordered<'a> {
    /// With equal tokens, in the order of the inputs, and in another order.
    pub(super) runs: [&'a Numbers; 3],
    pub(super) kinds: &'a Kinds<'a>,
    /// How many tokens the inputs have.
    pub(super) lengths: &'a [usize],
    /// What is computed behind a mask by which order matters.
    pub(super) behind: &'a FxHashSet<ValueId>,
    /// Stacks whose tokens may be at other places than those of the inputs.
    pub(super) turned: &'a [Option<Stack>],
    /// By which share of the largest number tokens may differ.
    pub(super) share: f64,
}

/// The stacks of decoders whose tokens have content, and that of the encoder where one input has tokens, so many:
/// they may have its ids one place later. Queries that are learned have none.
pub(super) fn turned(found: &Found, kinds: &Kinds<'_>, lengths: &[usize]) -> Vec<Option<Stack>> {
    let crossed = found.attention.iter().filter(|site| site.cross);
    let stacks = crossed.map(|site| site.place.stack);
    let shared = |stack: &Option<Stack>| lengths.len() == 1 && kinds.has_content((*stack, false));
    stacks.filter(shared).collect()
}

/// What is computed behind a mask or an operator by which the order of tokens matters. `equal` has
/// the scores of the sites that are compared; nodes that are `alone` mix nothing.
pub(super) fn behind(
    (graph, found): (&Graph, &Found),
    sites: &[&Site],
    alone: &FxHashSet<NodeId>,
    equal: &Numbers,
) -> FxHashSet<ValueId> {
    let is_free = |site: &Site| {
        let is_compared = sites.iter().any(|other| other.index == site.index);
        let moves = is_compared && !site.is_ordered() && !hides(site, equal);
        moves || alone.contains(&site.node)
    };
    let ordered = found.attention.iter().filter(|site| !is_free(site));
    let mixes = |m: &&Mixer| m.mixing != Mixing::Pooling && !alone.contains(&m.node);
    let mixers = found.mixers.iter().filter(mixes);
    let begins: FxHashSet<_> = ordered
        .map(|site| site.node)
        .chain(mixers.map(|mixer| mixer.node))
        .collect();
    let has_body = |id: NodeId| graph.node(id).bodies().next().is_some();
    after(graph, |id| {
        begins.contains(&id) || has_body(id) && !alone.contains(&id)
    })
}

/// Whether scores of a site are hidden.
fn hides(site: &Site, numbers: &Numbers) -> bool {
    let (Some(scores), Some([_, keys])) = (site.scores, site.plane) else {
        return false;
    };
    let Some(scores) = numbers.get(&scores).filter(|s| keys < s.ndim()) else {
        return true;
    };
    let mut rows = scores.lanes(Axis(keys)).into_iter();
    rows.any(|row| visible(row.to_vec()).len() < row.len())
}

impl Reordered<'_> {
    /// Compares the queries, keys, values and scores of a site.
    pub(super) fn site(&self, site: &Site, rows: &[Rows]) -> Vec<SiteCheck> {
        let [equal, ..] = self.runs;
        let size = |value: ValueId, axis: usize| equal.get(&value)?.shape().get(axis).copied();
        let is_turned = self.turned.contains(&site.place.stack);
        let moved = |value: ValueId, axis: usize, is_other: bool| {
            if is_turned && !is_other {
                return None;
            }
            let kinds = self
                .kinds
                .known((site.place.stack, is_other), size(value, axis)?);
            self.moved(kinds?).filter(|_| !self.behind.contains(&value))
        };
        let (query, key) = (&site.query, &site.key);
        let queries = moved(query.value, query.lane.sequence, false);
        let keys = moved(key.value, key.lane.sequence, site.cross);
        let mut checks = vec![];
        let mut add =
            |name: &str, value: ValueId, axes: &[(usize, &[usize])], masked: Option<usize>| {
                checks.extend(self.check(&site.name, name, (value, axes), masked));
            };
        if let Some(queries) = &queries {
            add(
                "queries",
                query.value,
                &[(query.lane.sequence, queries)],
                None,
            );
        }
        if let Some(keys) = &keys {
            add("keys", key.value, &[(key.lane.sequence, keys)], None);
        }
        for values in rows.iter().filter(|r| r.what == What::Values(site.index)) {
            if let Some(moved) = moved(values.value, values.axis, site.cross) {
                add("values", values.value, &[(values.axis, &moved)], None);
            }
        }
        if let (Some(queries), Some(keys)) = (&queries, &keys)
            && let (Some(scores), Some([across, along])) = (site.scores, site.plane)
            && site.mask.window.is_none()
            && (site.is_ordered() || !hides(site, equal))
        {
            let masked = site.is_ordered().then_some(along);
            let axes = [(across, &queries[..]), (along, &keys[..])];
            add("scores", scores, &axes, masked);
        }
        checks
    }

    /// Compares rows that belong to no site.
    pub(super) fn rows(&self, rows: &Rows, name: &str) -> Option<SiteCheck> {
        let size = *self.runs[0].get(&rows.value)?.shape().get(rows.axis)?;
        let moved = self.moved(&self.kinds.of_size(size)?)?;
        // Whether they are of such a stack is not known.
        if !self.turned.is_empty() || self.behind.contains(&rows.value) {
            return None;
        }
        self.check(name, "rows", (rows.value, &[(rows.axis, &moved)]), None)
    }

    /// Where each token of the second run is in the first, where those of each kind are those of an input;
    /// `None` where that is not known.
    fn moved(&self, kinds: &[Option<usize>]) -> Option<Vec<usize>> {
        let mut moved: Vec<usize> = (0..kinds.len()).collect();
        let most = kinds.iter().flatten().max()?;
        for kind in 0..=*most {
            let content = (0..kinds.len()).filter(|i| kinds[*i] == Some(kind));
            let content: Vec<usize> = content.collect();
            if !self.lengths.contains(&content.len()) {
                return None;
            }
            for (to, from) in content.iter().zip(order(content.len())) {
                moved[*to] = content[from];
            }
        }
        Some(moved)
    }

    /// Compares each number with that at the place where its tokens were; where scores are masked along an
    /// axis, only those of keys that are seen in both orders.
    fn check(
        &self,
        site: &str,
        name: &str,
        (value, axes): (ValueId, &[(usize, &[usize])]),
        masked: Option<usize>,
    ) -> Option<SiteCheck> {
        let [_, first, second] = self.runs.map(|run| run.get(&value));
        let (first, second) = (first?, second?);
        let sized = |(axis, moved): &(usize, &[usize])| {
            first.shape().get(*axis) == Some(&moved.len()) && second.shape() == first.shape()
        };
        if !axes.iter().all(sized) {
            return None;
        }
        let seen = masked.map(|keys| [first, second].map(|scores| seen(scores, keys)));
        let mut pairs = vec![];
        for (index, number) in second.indexed_iter() {
            let mut place = ndarray::Dimension::slice(&index).to_vec();
            for (axis, moved) in axes {
                place[*axis] = moved[place[*axis]];
            }
            let is_seen = seen
                .as_ref()
                .is_none_or(|[before, now]| before[&place[..]] && now[&index]);
            if is_seen {
                pairs.push(vec![*first.get(&place[..])?, *number]);
            }
        }
        let quantity = format!("{name} of tokens in another order");
        check_of(site, quantity, &pairs, (self.share, 0.0))
    }
}

/// Which scores no mask hides, in rows along the axis of keys.
fn seen(scores: &ArrayD<f64>, keys: usize) -> ArrayD<bool> {
    let mut seen = scores.mapv(|_| false);
    let rows = scores.lanes(Axis(keys)).into_iter();
    for (mut seen, row) in seen.lanes_mut(Axis(keys)).into_iter().zip(rows) {
        let best = row.fold(f64::NEG_INFINITY, |most, score| most.max(*score));
        for (is_seen, score) in seen.iter_mut().zip(row) {
            *is_seen = score.is_nan() || best - score < MASKED;
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{HIDDEN, Sketch};
    use crate::prove::testing::fixture;

    /// Queries, keys and scores of all sites, each of one number.
    fn filled(found: &Found, number: f64) -> Numbers {
        let read = |site: &Site| [Some(site.query.value), Some(site.key.value), site.scores];
        let of = |value: ValueId| {
            let dims = found.trace.get(value).dims.clone().expect("it was run");
            (value, ArrayD::from_elem(dims, number))
        };
        let read = found.attention.iter().flat_map(read);
        read.flatten().map(of).collect()
    }

    #[test]
    fn a_decoder_may_have_the_ids_of_its_encoder_at_other_places() {
        let mut s = Sketch::default();
        let x = s.embedded();
        let ids = s.input("decoder_input_ids", DType::I64, &["batch", "later"]);
        let table = s.weights(&[30, HIDDEN]);
        let y = s.gather(&table, &ids, 0);
        let x = s.attends(&x, &x);
        let y = s.attends(&y, &y);
        let y = s.attends(&y, &x);
        let both = detect(&s.model(17, &[&y]), &Options::default());
        let runs = [0.0, 1.0].map(|number| filled(&both, number));
        let (first, decoder) = (&runs[0], Some(Stack::Decoder));
        let of = |second: &Numbers, lengths: &[usize]| {
            let mut kinds = Kinds::new(first, &[], 0.0);
            for site in both
                .attention
                .iter()
                .filter(|site| site.place.stack == decoder)
            {
                let (query, axis) = (site.query.value, site.query.lane.sequence);
                kinds.of(
                    (decoder, false),
                    query,
                    [&first[&query], &second[&query]],
                    axis,
                );
            }
            turned(&both, &kinds, lengths)
        };
        assert_eq!(of(&runs[1], &[8]), [decoder]);
        assert_eq!(of(&runs[1], &[8, 8]), [], "ids of its own");
        assert_eq!(of(&runs[0], &[8]), [], "learned queries");
        let alone = detect(&fixture("mini/none"), &Options::default());
        let kinds = Kinds::new(first, &[], 0.0);
        assert_eq!(turned(&alone, &kinds, &[8]), []);
    }

    #[test]
    fn tokens_at_other_places_are_not_compared() {
        let found = detect(&fixture("mini/none"), &Options::default());
        let site = &found.attention[0];
        let [zeros, ones] = [0.0, 1.0].map(|number| filled(&found, number));
        let mut kinds = Kinds::new(&zeros, &[], 0.0);
        let (query, axis) = (site.query.value, site.query.lane.sequence);
        let own = (site.place.stack, false);
        kinds.of(own, query, [&zeros[&query], &ones[&query]], axis);
        let count = |turned: &[Option<Stack>]| {
            let reordered = Reordered {
                runs: [&ones; 3],
                kinds: &kinds,
                lengths: &[found.lengths.sequence],
                behind: &FxHashSet::default(),
                turned,
                share: 0.0,
            };
            reordered.site(site, &[]).len()
        };
        assert_eq!(count(&[]), 3, "queries, keys and scores");
        assert_eq!(count(&[site.place.stack]), 0);
    }
}
