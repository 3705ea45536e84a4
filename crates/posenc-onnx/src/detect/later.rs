//! Where numbers meet content that are equal for the first tokens, and follow their positions later: factors on
//! queries that begin behind the length of training (Llama 4, Ministral 3).

use std::collections::BTreeMap;

use ndarray::{ArrayD, ArrayView1, Axis};
use posenc_ir::eval::{Trace, Value, probe};
use posenc_ir::{DType, Graph, Model, NodeId, ValueId};
use rustc_hash::FxHashMap;

use super::found::Found;
use super::met::{Met, of_scores, spread, trailing};
use super::runs::{BUDGET, FAR, LONGER, values_at};
use crate::attention::Site;
use crate::graph::dataflow::{Class, Classes, live};
use crate::graph::mixing::Tokens;
use crate::graph::region::ancestors;

/// Numbers that depend on positions and meet content token by token.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meeting {
    node: NodeId,
    numbers: ValueId,
    /// The axis of tokens.
    axis: usize,
}

/// All of them that are equal in the trial run, but those beside scores.
pub(super) fn meetings(
    (graph, trace, classes): (&Graph, &Trace, &Classes),
    tokens: &Tokens,
    sites: &[Site],
) -> Vec<Meeting> {
    let class = |v: ValueId| classes.of_value(v);
    let follows = |v: ValueId| class(v).has(Class::POSITION) && !class(v).has(Class::CONTENT);
    let live = live(graph);
    let of_scores = of_scores(graph, classes, sites);
    let mut meetings = vec![];
    for (id, node) in graph.nodes() {
        let Some(trailing) = trailing(node).filter(|_| live[id.index()]) else {
            continue;
        };
        let inputs = || node.inputs().iter().flatten().copied();
        let following: Vec<ValueId> = inputs().filter(|v| follows(*v)).collect();
        if following.is_empty() || of_scores.contains(&id) {
            continue;
        }
        let content = inputs().filter(|v| class(*v).has(Class::CONTENT));
        let axes = content.filter_map(|v| {
            let dims = trace.get(v).dims.as_ref()?;
            let axis = tokens.only_axis(v, dims.len())?;
            Some((dims.len() - axis, dims[axis]))
        });
        let axes: Vec<(usize, usize)> = axes.filter(|axis| axis.0 > trailing).collect();
        let along = |numbers: ValueId| {
            let known = trace.get(numbers).to_f64()?;
            let axis = |from_end: usize| known.ndim().checked_sub(from_end);
            let is = |(from_end, size): &&(usize, usize)| {
                *size > 1 && axis(*from_end).is_some_and(|axis| known.shape()[axis] == *size)
            };
            let axis = axis(axes.iter().find(is)?.0)?;
            spread(&known, axis).is_none().then_some(axis)
        };
        let found = following.into_iter();
        let found = found.filter_map(|numbers| Some((numbers, along(numbers)?)));
        meetings.extend(found.map(|(numbers, axis)| Meeting {
            node: id,
            numbers,
            axis,
        }));
    }
    meetings
}

/// Those whose numbers change from token to token in longer sequences, or at later positions.
pub(super) fn later(model: &Model, found: &Found, meetings: &[Meeting]) -> Vec<Met> {
    let mut known: BTreeMap<(ValueId, usize), Option<f64>> = BTreeMap::new();
    let mut change = |at: &Meeting| {
        let known = known.entry((at.numbers, at.axis));
        *known.or_insert_with(|| {
            let longer = LONGER.iter().find_map(|n| in_longer(model, found, at, *n));
            longer.or_else(|| far(model, found, at))
        })
    };
    let met = meetings.iter().filter_map(|at| {
        Some(Met {
            node: at.node,
            numbers: at.numbers,
            change: Some(change(at)?),
        })
    });
    met.collect()
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
fn in_longer(model: &Model, found: &Found, at: &Meeting, tokens: usize) -> Option<f64> {
    let values = values_at(model, found, &[at.numbers], tokens, &BUDGET)?;
    let numbers = values.first()?.to_f64()?;
    (at.axis < numbers.ndim()).then(|| spread(&numbers, at.axis))?
}

/// By how much numbers change where positions are far later, against those of the trial run.
fn far(model: &Model, found: &Found, at: &Meeting) -> Option<f64> {
    let graph = model.graph();
    let all = ancestors(graph, &found.classes, vec![at.numbers]);
    let counted: Vec<ValueId> = (all.into_iter()).filter(|v| counts(found, *v)).collect();
    let before = found.trace.get(at.numbers).to_f64()?;
    (FAR.map(|power| 1_i64 << power)).find_map(|by| {
        let moved = |v: &ValueId| {
            let numbers = found.trace.get(*v).to_i64()?;
            Some((*v, Value::int(numbers.mapv(|n| n + by))))
        };
        let seeds: FxHashMap<ValueId, Value> = counted.iter().map(moved).collect::<Option<_>>()?;
        let after = probe(model, &found.trace, &seeds, &[at.numbers], &BUDGET).ok()?;
        differs(&before, &after.first()?.to_f64()?)
    })
}

/// Whether a value holds the positions of the trial run, as integers that count up along an axis.
fn counts(found: &Found, value: ValueId) -> bool {
    let known = found.trace.get(value);
    let is_whole = known.dtype.is_some_and(DType::is_int);
    let Some(numbers) = known.to_i64().filter(|_| is_whole) else {
        return false;
    };
    let tokens = found.lengths.sequence;
    let Some(axis) = numbers.shape().iter().position(|size| *size == tokens) else {
        return false;
    };
    let count =
        |row: ArrayView1<'_, i64>| row.iter().zip(row.iter().skip(1)).all(|(a, b)| b - a == 1);
    numbers.lanes(Axis(axis)).into_iter().all(count)
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
    use crate::graph::sketch::Sketch;

    /// Whether factors on queries are found that follow positions from one on: `1 + ln(1 + ⌊p / first⌋)`.
    fn is_found(first: f64) -> bool {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let positions = s.input("position_ids", DType::I64, &["batch", "sequence"]);
        let p = s.cast(&positions, DType::F32);
        let (first, one) = (s.float(first), s.float(1.0));
        let p = s.op("Div", &[&p, &first]);
        let p = s.op("Floor", &[&p]);
        let p = s.op("Add", &[&p, &one]);
        let p = s.op("Log", &[&p]);
        let p = s.op("Add", &[&p, &one]);
        let p = s.unsqueeze(&p, &[1]);
        let p = s.unsqueeze(&p, &[3]);
        let q = s.op("Mul", &[&q, &p]);
        let y = s.weighted(&q, &k, &v);
        let model = s.model(17, &[&y]);
        let found = detect(&model, &Options::default());
        assert_eq!(found.attention.len(), 1);
        !found.later.is_empty()
    }

    #[test]
    fn factors_that_begin_later_are_found_up_to_the_lengths_of_common_models() {
        for first in [64.0, 300.0, 16_384.0, 200_000.0] {
            assert!(is_found(first), "{first}");
        }
        // They begin behind every position that is tried.
        assert!(!is_found(1e9));
    }
}
