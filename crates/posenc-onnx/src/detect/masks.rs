//! Masks that hide other keys in longer sequences: what is causal among the first tokens need not be so behind them.

use std::sync::Arc;

use posenc_ir::Model;
use rustc_hash::FxHashMap;

use super::found::Found;
use super::runs::{BUDGET, run_at};
use crate::attention::Site;
use crate::attention::mask::{causal, meets_scores};
use crate::attention::plane::Plane;
use crate::attention::scores::plane;
use crate::attention::site::Mask;
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;

/// New tokens of the longer sequence, and of a shorter one where that cannot be run.
const TOKENS: [usize; 2] = [256, 96];

/// The sites whose mask hides later keys in the trial run or in a longer sequence, and not in the other one.
pub(super) fn later(model: &Model, found: &Found) -> Vec<usize> {
    let graph = model.graph();
    let follows = |site: &&Site| {
        let met = meets_scores(graph, &found.classes, site).into_iter();
        let mut classes = met.map(|value| found.classes.of_value(value));
        site.mask.causal.is_some()
            && classes.any(|c| c.has(Class::POSITION) || c.has(Class::LENGTH))
    };
    let sites: Vec<&Site> = found.attention.iter().filter(follows).collect();
    if sites.is_empty() {
        return vec![];
    }
    let limit = found.limits.iter().map(|limit| limit.length).min();
    let most = limit.map_or(usize::MAX, |limit| limit.saturating_sub(found.lengths.past));
    let longer = |tokens: usize| {
        let sequence = tokens.min(most);
        let wanted = Lengths {
            batch: 1,
            sequence,
            ..found.lengths
        };
        let is_longer = sequence > found.lengths.sequence;
        let trace = is_longer.then(|| run_at(model, found, wanted, &BUDGET))??;
        // Sites that share a plane share the next one.
        let mut known: FxHashMap<*const Plane, Option<bool>> = FxHashMap::default();
        let mut changes = |site: &Site| -> Option<bool> {
            let changes = || {
                // What an operator hides by itself is the same at every length.
                let given = Site {
                    mask: Mask::default(),
                    ..site.clone()
                };
                let read = |trace| plane(model, &found.classes, trace, &given);
                Some(causal(&read(&found.trace)?) != causal(&read(&trace)?))
            };
            let shared = site.bias.as_ref().map(Arc::as_ptr)?;
            *known.entry(shared).or_insert_with(changes)
        };
        let all: Vec<Option<bool>> = sites.iter().map(|site| changes(site)).collect();
        all.iter().any(Option::is_some).then_some(all)
    };
    let Some(changes) = TOKENS.into_iter().find_map(longer) else {
        return vec![];
    };
    let late = sites.iter().zip(changes);
    late.filter(|(_, changes)| *changes == Some(true))
        .map(|(site, _)| site.index)
        .collect()
}

/// What of it a user should know, in one sentence.
pub(crate) fn warning(found: &Found) -> Option<String> {
    let (first, others) = found.late_masks.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "{}{others}: the mask hides other keys in longer sequences than among the first tokens, so that it is neither \
         causal nor open; a rescale leaves it as it is, and a swap is refused",
        found.attention[*first].name
    ))
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Kind;
    use posenc_ir::DType;

    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::Sketch;
    use crate::request::Request;
    use crate::rewrite::rewrite;

    /// A layer whose mask hides pairs by the index of the query and the distance to the key.
    fn model(hides: impl Fn(&mut Sketch, [&str; 2]) -> String) -> Model {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [scores, v] = s.scored(&x, &x);
        let at = s.range();
        let at = s.unsqueeze(&at, &[1]);
        let d = s.distance();
        let [at, d] = [at, d].map(|n| s.cast(&n, DType::F32));
        let hidden = hides(&mut s, [&at, &d]);
        let y = s.masked([&scores, &v], &hidden);
        s.model(17, &[&y])
    }

    /// Later keys, of the queries before one.
    fn until(first: f64) -> Model {
        model(|s, [at, d]| {
            let [first, zero] = [first, 0.0].map(|n| s.float(n));
            let (later, early) = (s.op("Greater", &[d, &zero]), s.op("Less", &[at, &first]));
            s.op("And", &[&later, &early])
        })
    }

    /// Later keys, and those from a distance on.
    fn window(width: f64) -> Model {
        model(|s, [_, d]| {
            let [far, zero] = [-width, 0.0].map(|n| s.float(n));
            let (later, far) = (
                s.op("Greater", &[d, &zero]),
                s.op("LessOrEqual", &[d, &far]),
            );
            s.op("Or", &[&later, &far])
        })
    }

    /// What is read of the mask, and whether it is another one later.
    fn read(model: &Model) -> (Option<bool>, bool) {
        let found = detect(model, &Options::default());
        let warned = crate::inspect::report(model, &found).warnings;
        let is_warned = warned
            .iter()
            .any(|why| why.contains("the mask hides other keys"));
        assert_eq!(is_warned, !found.late_masks.is_empty());
        (found.attention[0].mask.causal, is_warned)
    }

    #[test]
    fn a_mask_that_opens_behind_the_trial_run_is_not_causal() {
        for first in [20.0, 64.0, 200.0] {
            assert_eq!(read(&until(first)), (None, true), "{first}");
        }
        assert_eq!(
            read(&until(1e4)),
            (Some(true), false),
            "behind all that is tried"
        );
    }

    #[test]
    fn windows_that_are_wider_than_the_trial_run_stay_causal() {
        for width in [5.0, 40.0, 120.0, 1e4] {
            assert_eq!(read(&window(width)), (Some(true), false), "{width}");
        }
    }

    #[test]
    fn a_swap_is_refused_where_the_mask_is_another_one_later() {
        let swapped = |model: &Model, kind: Kind, allow_unread: bool| {
            let mut request = Request {
                to: Some(kind),
                ..Request::default()
            };
            request.allowances.allow_unread = allow_unread;
            let done = rewrite(&mut model.clone(), &request);
            done.err().map(|why| why.to_string())
        };
        let why = "the mask hides other keys in longer sequences";
        let refused = swapped(&until(64.0), Kind::Alibi, false).unwrap();
        assert!(
            refused.contains(why) && refused.contains("allow-unread"),
            "{refused}"
        );
        assert_eq!(swapped(&until(64.0), Kind::Alibi, true), None);
        assert_eq!(swapped(&until(1e4), Kind::Alibi, false), None, "control");
        assert_eq!(swapped(&window(120.0), Kind::Alibi, false), None, "control");
    }
}
