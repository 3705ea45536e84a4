//! Windows of attention that are wider than the trial run: masks are computed again for sequences that reach
//! beyond the numbers which they are computed from.

use std::collections::BTreeSet;

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::{Budget, Value, probe};
use posenc_ir::{DType, Graph, Model, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::Site;
use crate::attention::mask::HIDES;
use crate::detect::Found;
use crate::graph::dataflow::Class;
use crate::graph::operators::bias_slots;
use crate::graph::ports::Lengths;

/// Elements that a mask of a longer sequence may have.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// The most tokens of a sequence; larger numbers are no windows.
const MOST: usize = 1 << 20;

/// The most sequences that are run for a mask.
const RUNS: usize = 8;

/// The window of each site; `None` where there is none, and where the mask of longer sequences cannot be computed.
pub(super) fn windows(model: &Model, found: &Found) -> Vec<Option<usize>> {
    let mut known = FxHashMap::default();
    let mut of_mask = |mask: ValueId, site: &Site| {
        let is_open = site.mask.causal == Some(false);
        let window = known.entry((mask, is_open));
        *window.or_insert_with(|| {
            Wide {
                model,
                found,
                mask,
                is_open,
            }
            .window()
        })
    };
    let of_site = |site: &Site| {
        let mut masks = masks(model.graph(), found, site)
            .into_iter()
            .filter(|_| !site.cross);
        (site.mask.window).or_else(|| masks.find_map(|mask| of_mask(mask, site)))
    };
    found.attention.iter().map(of_site).collect()
}

/// What depends on positions and meets the scores of a site.
fn masks(graph: &Graph, found: &Found, site: &Site) -> Vec<ValueId> {
    let has = |value: ValueId, class: Class| found.classes.of_value(value).has(class);
    let is_mask = |value: &ValueId| !has(*value, Class::CONTENT) && has(*value, Class::POSITION);
    let (Some(product), Some(scores)) = (site.product, site.scores) else {
        let node = graph.node(site.node);
        let slots = bias_slots(node).iter().filter_map(|slot| node.input(*slot));
        return slots.filter(is_mask).collect();
    };
    let mut all = vec![];
    let mut stack = vec![scores];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        let producer = graph
            .producer(value)
            .filter(|_| value != product && seen.insert(value));
        let Some((id, _)) = producer else { continue };
        for input in graph.node(id).inputs().iter().flatten() {
            if has(*input, Class::CONTENT) {
                stack.push(*input);
            } else if is_mask(input) {
                all.push(*input);
            }
        }
    }
    all
}

/// A mask in longer sequences.
struct Wide<'a> {
    model: &'a Model,
    found: &'a Found,
    mask: ValueId,
    /// Whether later keys are seen.
    is_open: bool,
}

impl Wide<'_> {
    fn window(&self) -> Option<usize> {
        let lengths = self.lengths().into_iter().take(RUNS);
        lengths
            .filter_map(|total| window(&self.at(total)?, self.is_open))
            .next()
    }

    /// Lengths of sequences that show a window: a little more than the numbers of the graph that may be one.
    fn lengths(&self) -> BTreeSet<usize> {
        let graph = self.model.graph();
        let trial = self.found.lengths.past + self.found.lengths.sequence;
        let mut all = BTreeSet::new();
        let mut stack = vec![self.mask];
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            let numbers = self.found.trace.get(value);
            if self.found.classes.of_value(value).is_constant() {
                // A buffer holds the mask of its longest sequence.
                let side = match numbers.dims.as_deref() {
                    Some([.., rows, columns]) if rows == columns => Some(*rows),
                    _ => None,
                };
                let single = numbers.to_f64().filter(|n| n.len() == 1);
                let single = single.and_then(|n| n.first().map(|n| n.abs()));
                let single = single.filter(|n| n.fract() == 0.0 && *n < MOST as f64);
                all.extend(side.into_iter().chain(single.map(|n| n as usize + 2)));
            } else if let Some((id, _)) = graph.producer(value) {
                stack.extend(graph.node(id).inputs().iter().flatten());
            }
        }
        all.retain(|total| *total > trial);
        all
    }

    /// The mask of sequences of so many tokens, as many of them past as there can be.
    fn at(&self, total: usize) -> Option<Value> {
        let (model, found) = (self.model, self.found);
        let sequence = match found.ports.has_past() {
            true => found.lengths.sequence,
            false => total,
        };
        let wanted = Lengths {
            sequence,
            past: total - sequence,
            ..found.lengths
        };
        let lengths = found.ports.fit(wanted);
        if (lengths.sequence, lengths.past) != (wanted.sequence, wanted.past) {
            return None;
        }
        let seeds = found.ports.seeds(model.graph(), lengths);
        let values = probe(model, &found.trace, &seeds, &[self.mask], &BUDGET).ok()?;
        let value = values.into_iter().next()?;
        let keys = value.dims.as_deref().and_then(|dims| dims.last().copied());
        (keys == Some(total)).then_some(value)
    }
}

/// The window of a mask `[.., query, key]`: the distance from which on keys are hidden, at every query alike.
fn window(mask: &Value, is_open: bool) -> Option<usize> {
    let is_bool = mask.dtype == Some(DType::Bool);
    let mut numbers: ArrayD<f64> = mask.to_f64()?;
    while numbers.ndim() > 2 {
        numbers = numbers.index_axis_move(Axis(0), 0);
    }
    let numbers = numbers.into_dimensionality::<ndarray::Ix2>().ok()?;
    let (queries, keys) = numbers.dim();
    let jumps = |a: f64, b: f64| match is_bool {
        true => a != b,
        false => (a - b).abs() >= -HIDES,
    };
    // The distance of the only jump from a query on, in one direction.
    let edge = |query: usize, other: &dyn Fn(usize) -> Option<usize>| {
        let own = (keys - queries) + query;
        let at = |distance: usize| Some(numbers[[query, other(distance)?]]);
        let far = (1..=keys).take_while(|d| other(*d).is_some());
        let mut edges = far.filter(|d| at(d - 1).zip(at(*d)).is_some_and(|(a, b)| jumps(a, b)));
        let first = edges.next().filter(|_| edges.next().is_none());
        // What is hidden is not what the query itself sees.
        first.filter(|d| {
            other(0) == Some(own) && at(0).zip(at(*d)).is_some_and(|(a, b)| is_bool || a > b)
        })
    };
    let before = |query: usize| {
        let own = keys.checked_sub(queries)? + query;
        edge(query, &|d| own.checked_sub(d))
    };
    let after = |query: usize| {
        let own = keys.checked_sub(queries)? + query;
        edge(query, &|d| Some(own + d).filter(|j| *j < keys))
    };
    let last = queries.checked_sub(1)?;
    let width = before(last)?;
    let is_same = last == 0 || before(last - 1).is_none_or(|other| other == width);
    let is_symmetric = !is_open || queries == keys && after(0) == Some(width);
    (is_same && is_symmetric).then_some(width)
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    fn of(queries: usize, keys: usize, sees: impl Fn(usize, usize) -> bool) -> [Value; 2] {
        let seen = Array2::from_shape_fn((queries, keys), |(i, j)| sees(i + keys - queries, j));
        let added = seen.mapv(|s| if s { 0.0 } else { f64::from(f32::MIN) });
        let seen = seen.mapv(f64::from).into_dyn();
        [
            Value::float(seen).with_dtype(DType::Bool),
            Value::float(added.into_dyn()),
        ]
    }

    #[test]
    fn what_hides_far_keys_at_every_query_is_a_window() {
        let causal = |w: usize| move |i: usize, j: usize| j <= i && i - j < w;
        for mask in of(30, 30, causal(20))
            .into_iter()
            .chain(of(3, 30, causal(20)))
        {
            assert_eq!(window(&mask, false), Some(20));
        }
        for mask in of(30, 30, |i, j| i.abs_diff(j) < 9) {
            assert_eq!(window(&mask, true), Some(9));
        }
    }

    #[test]
    fn other_masks_have_no_window() {
        let open = |i: usize, j: usize| i < 20 + j;
        let cases: [&dyn Fn(usize, usize) -> bool; 5] = [
            &|i, j| j <= i,
            &|_, _| true,
            // The first key is seen by all.
            &|i, j| j <= i && (j == 0 || i - j < 20),
            // Blocks.
            &|i, j| j <= i && i / 16 == j / 16,
            // Every query but the last.
            &|i, j| j <= i && (i < 29 && i - j < 9 || i == 29 && i - j < 12),
        ];
        for (at, sees) in cases.into_iter().enumerate() {
            for mask in of(30, 30, sees) {
                assert_eq!(window(&mask, false), None, "{at}");
            }
        }
        for mask in of(30, 30, open) {
            assert_eq!(window(&mask, true), None, "later keys are all seen");
        }
        // A bias that falls with the distance hides nothing at once.
        let falls = Array2::from_shape_fn((30, 30), |(i, j)| -900.0 * i.abs_diff(j) as f64);
        assert_eq!(window(&Value::float(falls.into_dyn()), false), None);
    }

    #[test]
    fn a_window_wider_than_the_trial_run_is_reported() {
        let windows_of = |width: usize| {
            let weights = "1, 2, 0, 1, 0, 1, 1, 0, 1, 0, 2, 1, 0, 1, 0, 1";
            let text = format!(
                "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                 g (int64[batch,sequence] input_ids) => (float[batch,sequence,4] y)\n\
                 <float[4,4] words = {{{weights}}}, float[4,4] wq = {{{weights}}}, float[4,4] wk = {{{weights}}},\n\
                 int64 zero = {{0}}, int64 one = {{1}}, int64[1] first = {{0}}, int64[1] second = {{1}},\n\
                 int64 width = {{{width}}}, float none = {{0}}, float least = {{-1e38}}> {{\n\
                 e = Gather(words, input_ids) q = MatMul(e, wq) k1 = MatMul(e, wk)\n\
                 k = Transpose <perm = [0, 2, 1]> (k1) s = MatMul(q, k)\n\
                 shape = Shape(input_ids) n = Gather(shape, one) r = Range(zero, n, one)\n\
                 rq = Unsqueeze(r, second) rk = Unsqueeze(r, first) d = Sub(rq, rk)\n\
                 near = Less(d, width) past = GreaterOrEqual(d, zero) sees = And(near, past)\n\
                 m = Where(sees, none, least) t = Add(s, m) p = Softmax <axis = -1> (t) y = MatMul(p, e)\n}}"
            );
            let model = Model::parse(&text).unwrap();
            let found = crate::detect::detect(&model, &crate::detect::Options::default());
            windows(&model, &found)
        };
        for width in [5, 40, 700] {
            assert_eq!(windows_of(width), [Some(width)]);
        }
        // Too wide to be computed, as there are no earlier tokens to be passed over.
        assert_eq!(windows_of(100_000), [None]);
    }
}
