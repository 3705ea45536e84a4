//! Where numbers meet content that are equal for the first tokens, and follow their positions later: factors on
//! queries that begin behind the length of training (Llama 4, Ministral 3).

use std::collections::BTreeMap;

use ndarray::{ArrayD, ArrayView1, Axis};
use posenc_ir::eval::{Value, probe};
use posenc_ir::{Model, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::finding::Finding;
use super::found::Found;
use super::met::{Meetings, Met, ROUNDING, spread};
use super::rotary::source::{moved, positions_among};
use super::runs::{BUDGET, FAR, LONGER, values_at};
use crate::attention::mask::{HIDES, meets_scores};
use crate::graph::dataflow::Class;
use crate::graph::ports::Role;
use crate::graph::region::ancestors;

/// Numbers that depend on positions and meet content token by token, and are equal in the trial run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Equal {
    node: NodeId,
    numbers: ValueId,
    /// The axis of tokens.
    axis: usize,
}

/// All of them.
pub(super) fn equal(meetings: &Meetings<'_>) -> Vec<Equal> {
    let class = |v: ValueId| meetings.classes.of_value(v);
    let follows = |v: &ValueId| class(*v).has(Class::POSITION) && !class(*v).has(Class::CONTENT);
    // Layers share them.
    let mut known: FxHashMap<(ValueId, usize), bool> = FxHashMap::default();
    let at = |id: &NodeId| {
        let node = meetings.graph.node(*id);
        let following = node.inputs().iter().flatten().copied().filter(follows);
        let following: Vec<ValueId> = following.collect();
        // Most nodes read none.
        let axes = match following[..] {
            [] => vec![],
            _ => meetings.axes(node),
        };
        let along = |numbers: ValueId| {
            let value = meetings.trace.get(numbers);
            let dims = value.dims.as_ref().filter(|_| value.data.is_some())?;
            let axis = axes.iter().find_map(|(from_end, size)| {
                let axis = dims.len().checked_sub(*from_end)?;
                (*size > 1 && dims[axis] == *size).then_some(axis)
            })?;
            let is_equal = known.entry((numbers, axis)).or_insert_with(|| {
                let numbers = value.to_f64();
                numbers.is_some_and(|numbers| spread(&numbers, axis).is_none())
            });
            is_equal.then_some(Equal {
                node: *id,
                numbers,
                axis,
            })
        };
        following.into_iter().filter_map(along).collect::<Vec<_>>()
    };
    meetings.nodes.iter().flat_map(at).collect()
}

/// Those whose numbers change from token to token in longer sequences, or at later positions.
pub(super) fn later(model: &Model, found: &Found, equal: &[Equal]) -> Vec<Met> {
    let mut known: BTreeMap<(ValueId, usize), Option<f64>> = BTreeMap::new();
    let mut change = |at: &Equal| {
        let known = known.entry((at.numbers, at.axis));
        *known.or_insert_with(|| {
            let longer = LONGER.iter().find_map(|n| in_longer(model, found, at, *n));
            longer.or_else(|| far(model, found, at))
        })
    };
    let met = equal.iter().filter_map(|at| {
        Some(Met {
            node: at.node,
            numbers: at.numbers,
            change: Some(change(at)?),
        })
    });
    met.collect()
}

/// New tokens of the sequence in which what meets scores is looked at.
const PAIRS: usize = 256;

/// Numbers that meet scores where no encoding was found: alike for all keys of a query in the trial run, and not in a
/// longer sequence. Hidden keys do not count.
pub(super) fn on_scores(model: &Model, found: &Found) -> Vec<Met> {
    let graph = model.graph();
    let of_scores = |finding: &&Finding| !finding.encoding.is_absolute();
    let explained: FxHashSet<usize> = (found.findings.iter().filter(of_scores))
        .flat_map(|finding| finding.sites.iter().copied())
        .collect();
    let class = |value: ValueId| found.classes.of_value(value);
    let follows = |v: &ValueId| class(*v).has(Class::POSITION) || class(*v).has(Class::LENGTH);
    let sites = found.attention.iter();
    let sites = sites.filter(|site| !explained.contains(&site.index));
    let met = sites.flat_map(|site| meets_scores(graph, &found.classes, site));
    // Layers share them.
    let mut seen = FxHashSet::default();
    let new = met.filter(|numbers| follows(numbers) && seen.insert(*numbers));
    let late = new.filter_map(|numbers| {
        let change = among_more_keys(model, found, numbers)?;
        Some(Met {
            node: graph.uses(numbers).first()?.node,
            numbers,
            change: Some(change),
        })
    });
    late.collect()
}

/// By how much numbers change from key to key in a longer sequence, where they do not in the trial run.
fn among_more_keys(model: &Model, found: &Found, numbers: ValueId) -> Option<f64> {
    let before = found.trace.get(numbers);
    let is_alike = before.dtype?.is_float() && among_keys(&before.to_f64()?).is_none();
    let values = is_alike.then(|| values_at(model, found, &[numbers], PAIRS, &BUDGET))??;
    let longer = values.first()?.to_f64()?;
    // A mask may be written as a factor of 0 or 1, with what hides added behind it.
    let graph = model.graph();
    let mut uses = graph.uses(numbers).iter();
    let multiplies = uses.all(|at| graph.node(at.node).is("Mul"));
    let is_mask = multiplies && longer.iter().all(|v| *v == 0.0 || *v == 1.0);
    among_keys(&longer).filter(|_| !is_mask)
}

/// By how much numbers change along the last axis, apart from those that hide keys.
fn among_keys(numbers: &ArrayD<f64>) -> Option<f64> {
    let rows = numbers.lanes(Axis(numbers.ndim().checked_sub(1)?));
    let change = |row: ArrayView1<'_, f64>| {
        let shown = row.iter().copied().filter(|v| *v > HIDES);
        let (least, most) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), v| {
            (least.min(v), most.max(v))
        });
        let size = least.abs().max(most.abs());
        (most - least > ROUNDING * size).then_some(most - least)
    };
    rows.into_iter().filter_map(change).max_by(f64::total_cmp)
}

/// What of it a user should know, in one sentence.
pub(crate) fn warning(model: &Model, found: &Found) -> Option<String> {
    let graph = model.graph();
    let (first, others) = found.later.split_first()?;
    let others = match others.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Some(format!(
        "{}{others}: the numbers {}, which are equal for the first tokens and follow positions later, meet content \
         here; they are no encoding that is known, a rescale leaves them as they are, and a swap is refused",
        graph.place(first.node),
        graph.name(first.numbers)
    ))
}

/// By how much numbers change in a longer sequence.
fn in_longer(model: &Model, found: &Found, at: &Equal, tokens: usize) -> Option<f64> {
    let values = values_at(model, found, &[at.numbers], tokens, &BUDGET)?;
    let numbers = values.first()?.to_f64()?;
    (at.axis < numbers.ndim()).then(|| spread(&numbers, at.axis))?
}

/// By how much numbers change where positions are far later, against those of the trial run.
fn far(model: &Model, found: &Found, at: &Equal) -> Option<f64> {
    let graph = model.graph();
    let all = ancestors(graph, &found.classes, vec![at.numbers]);
    let mut positions = positions_among(graph, found, &all);
    // Lengths of sequences grow by as much.
    let counts = found.ports.iter().filter(|port| port.role == Role::Counts);
    positions.extend(counts.map(|port| port.value));
    let before = found.trace.get(at.numbers).to_f64()?;
    FAR.map(|power| 1 << power).find_map(|by| {
        let moved = |v: &ValueId| Some((*v, moved(found.trace.get(*v), by)?));
        let seeds: FxHashMap<ValueId, Value> =
            positions.iter().map(moved).collect::<Option<_>>()?;
        let after = probe(model, &found.trace, &seeds, &[at.numbers], &BUDGET).ok()?;
        differs(&before, &after.first()?.to_f64()?)
    })
}

/// The largest difference, where it is more than roundings.
fn differs(before: &ArrayD<f64>, after: &ArrayD<f64>) -> Option<f64> {
    let both = ndarray::stack(Axis(0), &[before.view(), after.view()]).ok()?;
    spread(&both, 0)
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, SIZE, Sketch};

    /// Whether numbers are found that queries are multiplied with, made of `[batch, sequence]` positions.
    fn is_found(make: impl Fn(&mut Sketch, &str) -> String) -> bool {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let positions = s.input("position_ids", DType::I64, &["batch", "sequence"]);
        let positions = s.cast(&positions, DType::F32);
        let numbers = make(&mut s, &positions);
        let numbers = s.unsqueeze(&numbers, &[1, 3]);
        let q = s.op("Mul", &[&q, &numbers]);
        let y = s.weighted(&q, &k, &v);
        let model = s.model(17, &[&y]);
        let found = detect(&model, &Options::default());
        assert_eq!(found.attention.len(), 1);
        !found.later.is_empty()
    }

    /// `1 + ln(1 + ⌊p / first⌋)`.
    fn grown(s: &mut Sketch, positions: &str, first: f64) -> String {
        let (first, one) = (s.float(first), s.float(1.0));
        let p = s.op("Div", &[positions, &first]);
        let p = s.op("Floor", &[&p]);
        let p = s.op("Add", &[&p, &one]);
        let p = s.op("Log", &[&p]);
        s.op("Add", &[&p, &one])
    }

    #[test]
    fn factors_that_begin_later_are_found_up_to_the_lengths_of_common_models() {
        for first in [64.0, 300.0, 16_384.0, 200_000.0] {
            assert!(is_found(|s, p| grown(s, p, first)), "{first}");
        }
    }

    #[test]
    fn numbers_that_stay_or_that_other_rules_read_are_not_later() {
        let alone = |op: &'static str, number: f64| {
            move |s: &mut Sketch, p: &str| {
                let number = s.float(number);
                s.op(op, &[p, &number])
            }
        };
        assert!(
            !is_found(|s, p| grown(s, p, 1e9)),
            "behind all that is tried"
        );
        assert!(!is_found(|s, p| grown(s, p, 4.0)), "seen in the trial run");
        assert!(!is_found(alone("Mul", 0.0)), "zero everywhere");
        assert!(!is_found(alone("Max", 1e9)), "one number everywhere");
        assert!(
            !is_found(alone("Mul", 0.1)),
            "grows from the first token on"
        );
    }

    /// How many numbers are late that a layer adds to its scores, made of the distances from key to query.
    fn late_on_scores(change: impl Fn(&mut Sketch, &str) -> String) -> usize {
        late_on_scores_by("Add", change)
    }

    /// The same where another operator joins them with the scores.
    fn late_on_scores_by(op: &str, change: impl Fn(&mut Sketch, &str) -> String) -> usize {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let k = s.transpose(&k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[&q, &k]);
        let d = s.distance();
        let d = s.cast(&d, DType::F32);
        let bias = change(&mut s, &d);
        let scores = s.op(op, &[&scores, &bias]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let model = s.model(17, &[&y]);
        detect(&model, &Options::default()).later.len()
    }

    #[test]
    fn biases_that_begin_at_a_distance_are_later_and_masks_are_not() {
        let beyond = |first: f64, step: f64| {
            late_on_scores(|s, d| {
                let d = s.op("Abs", &[d]);
                let [first, step, zero] = [first, step, 0.0].map(|x| s.float(x));
                let more = s.op("Sub", &[&d, &first]);
                let more = s.op("Max", &[&more, &zero]);
                s.op("Mul", &[&more, &step])
            })
        };
        assert_eq!(beyond(100.0, -0.1), 1);
        assert_eq!(beyond(40.0, 0.1), 1);
        assert_eq!(beyond(1e4, -0.1), 0, "behind all that is tried");
        let masked = |first: f64| {
            late_on_scores(|s, d| {
                let d = s.op("Abs", &[d]);
                let [first, low, zero] = [first, -1e9, 0.0].map(|x| s.float(x));
                let hidden = s.op("Greater", &[&d, &first]);
                s.op("Where", &[&hidden, &low, &zero])
            })
        };
        assert_eq!(masked(100.0), 0, "a window");
        assert_eq!(masked(4.0), 0, "a window in the trial run");
        let factor = |shown: f64| {
            late_on_scores_by("Mul", |s, d| {
                let d = s.op("Abs", &[d]);
                let [first, shown, other] = [100.0, shown, 1.0].map(|x| s.float(x));
                let is_far = s.op("Greater", &[&d, &first]);
                s.op("Where", &[&is_far, &shown, &other])
            })
        };
        assert_eq!(factor(0.0), 0, "a mask as a factor");
        assert_eq!(factor(0.5), 1);
    }

    #[test]
    fn rotations_and_masks_are_not_later() {
        let found = |is_masked: bool| {
            let mut s = Sketch::default();
            let x = s.embedded();
            let [q, k, v] = [0; 3].map(|_| s.headed(&x));
            let positions = s.input("position_ids", DType::I64, &["batch", "sequence"]);
            let positions = s.cast(&positions, DType::F32);
            let late = grown(&mut s, &positions, 300.0);
            let k = s.transpose(&k, &[0, 1, 3, 2]);
            let mut scores = s.op("MatMul", &[&q, &k]);
            if is_masked {
                // A bias for each query is beside scores.
                let late = s.unsqueeze(&late, &[1, 3]);
                scores = s.op("Add", &[&scores, &late]);
            } else {
                let late = s.unsqueeze(&late, &[2]);
                let width = s.floats(&[1, 1, SIZE], (0..SIZE).map(|i| i as f64));
                let unread = s.op("Mul", &[&late, &width]);
                s.output(&unread);
            }
            let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
            let y = s.op("MatMul", &[&weights, &v]);
            let model = s.model(17, &[&y]);
            detect(&model, &Options::default()).later.len()
        };
        assert_eq!(found(true), 0, "beside scores");
        assert_eq!(found(false), 0, "no content is met");
    }
}
