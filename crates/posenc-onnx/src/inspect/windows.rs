//! Windows of attention that are wider than the trial run: masks are computed again with smaller numbers in place of
//! those that may be a window, and those that are stored for longer sequences.

use std::collections::BTreeSet;

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::{Budget, Value, probe};
use posenc_ir::{DType, Model, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::Site;
use crate::attention::mask::{HIDES, meets_scores};
use crate::detect::Found;
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;

/// Elements that a mask of a longer sequence may have.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// Larger numbers are no windows.
const MOST: f64 = 1e9;

/// Numbers in place of one that may be a window, so that it shows in the trial run.
const SMALL: [usize; 2] = [3, 5];

/// The most constants of a kind that are tried for a mask.
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
        let met = meets_scores(model.graph(), &found.classes, site).into_iter();
        let is_mask = |value: &ValueId| found.classes.of_value(*value).has(Class::POSITION);
        let mut masks = met.filter(|value| !site.cross && is_mask(value));
        (site.mask.window).or_else(|| masks.find_map(|mask| of_mask(mask, site)))
    };
    found.attention.iter().map(of_site).collect()
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
        let Constants { singles, sides } = self.constants();
        let by_number = |(at, number): &(ValueId, f64)| self.told(*at, *number);
        let by_length = |total: &usize| window(&self.at(*total)?, self.is_open);
        let told = singles.iter().take(RUNS).find_map(by_number);
        told.or_else(|| sides.iter().take(RUNS).find_map(by_length))
    }

    /// The constants that the mask is computed from.
    fn constants(&self) -> Constants {
        let (graph, found) = (self.model.graph(), self.found);
        let trial = found.lengths.past + found.lengths.sequence;
        let mut all = Constants::default();
        let mut stack = vec![self.mask];
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            if !seen.insert(value) {
                continue;
            }
            let numbers = found.trace.get(value);
            if !found.classes.of_value(value).is_constant() {
                let producer = graph.producer(value);
                stack.extend(
                    producer
                        .iter()
                        .flat_map(|(id, _)| graph.node(*id).inputs().iter().flatten()),
                );
                continue;
            }
            if let Some([.., rows, columns]) = numbers.dims.as_deref()
                && rows == columns
                && *rows > trial
            {
                all.sides.insert(*rows);
            }
            let single = numbers.to_f64().filter(|n| n.len() == 1);
            let is_wide = |n: &f64| n.fract() == 0.0 && n.abs() > trial as f64 && n.abs() < MOST;
            let single = single.and_then(|n| n.first().copied()).filter(is_wide);
            all.singles.extend(single.map(|n| (value, n)));
        }
        all
    }

    /// The window where a number decides it: that of the trial run moves with a smaller number in its place.
    fn told(&self, at: ValueId, number: f64) -> Option<usize> {
        let (model, found) = (self.model, self.found);
        let with = |small: usize| {
            let old = found.trace.get(at);
            let new = old.to_f64()?.mapv(|_| number.signum() * small as f64);
            let new = match old.dtype? {
                dtype if dtype.is_int() => Value::int(new.mapv(|n| n as i64)).with_dtype(dtype),
                dtype => Value::float(new).with_dtype(dtype),
            };
            let change = FxHashMap::from_iter([(at, new)]);
            let values = probe(model, &found.trace, &change, &[self.mask], &BUDGET).ok()?;
            window(values.first()?, self.is_open)
        };
        let [near, far] = SMALL;
        let (width, wider) = (with(near)?, with(far)?);
        let moves = wider.checked_sub(width) == Some(far - near);
        (number.abs() as usize + width)
            .checked_sub(near)
            .filter(|_| moves)
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

/// Constants that a mask is computed from.
#[derive(Default)]
struct Constants {
    /// Single numbers beyond the trial run, which may be windows.
    singles: Vec<(ValueId, f64)>,
    /// The rows of buffers, which hold the mask of their longest sequence.
    sides: BTreeSet<usize>,
}

/// The window of a mask `[.., query, key]`: the distance from which on keys are hidden, at every query alike.
fn window(mask: &Value, is_open: bool) -> Option<usize> {
    let is_bool = mask.dtype == Some(DType::Bool);
    let mut numbers: ArrayD<f64> = mask.to_f64()?;
    while numbers.ndim() > 2 {
        if numbers.is_empty() {
            return None;
        }
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
        // A mask that no pair has.
        for dims in [vec![0, 3, 3], vec![1, 0, 3, 3], vec![3, 0], vec![0, 0]] {
            let none = Value::float(ArrayD::zeros(dims.clone()));
            assert_eq!(window(&none, false), None, "{dims:?}");
        }
        // A bias that falls with the distance hides nothing at once.
        let falls = Array2::from_shape_fn((30, 30), |(i, j)| -900.0 * i.abs_diff(j) as f64);
        assert_eq!(window(&Value::float(falls.into_dyn()), false), None);
    }

    /// The windows of a model of one layer, whose mask `m` is computed from numbers.
    fn windows_of(numbers: &str, mask: &str) -> Vec<Option<usize>> {
        let weights = "1, 2, 0, 1, 0, 1, 1, 0, 1, 0, 2, 1, 0, 1, 0, 1";
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             g (int64[batch,sequence] input_ids) => (float[batch,sequence,4] y)\n\
             <float[4,4] words = {{{weights}}}, float[4,4] wq = {{{weights}}}, float[4,4] wk = {{{weights}}},\n\
             int64 zero = {{0}}, int64 one = {{1}}, int64[1] first = {{0}}, int64[1] second = {{1}},\n\
             {numbers}> {{\n\
             e = Gather(words, input_ids) q = MatMul(e, wq) k1 = MatMul(e, wk)\n\
             k = Transpose <perm = [0, 2, 1]> (k1) s = MatMul(q, k)\n\
             shape = Shape(input_ids) n = Gather(shape, one)\n\
             {mask}\n\
             t = Add(s, m) p = Softmax <axis = -1> (t) y = MatMul(p, e)\n}}"
        );
        let model = Model::parse(&text).unwrap();
        let found = crate::detect::detect(&model, &crate::detect::Options::default());
        windows(&model, &found)
    }

    #[test]
    fn a_window_wider_than_the_trial_run_is_reported() {
        for width in [5, 40, 700, 100_000] {
            let numbers =
                format!("int64 width = {{{width}}}, float none = {{0}}, float least = {{-1e38}}");
            let mask = "r = Range(zero, n, one) rq = Unsqueeze(r, second) rk = Unsqueeze(r, first)\n\
                        d = Sub(rq, rk) near = Less(d, width) past = GreaterOrEqual(d, zero)\n\
                        sees = And(near, past) m = Where(sees, none, least)";
            assert_eq!(windows_of(&numbers, mask), [Some(width)]);
            let causal = mask.replace("And(near, past)", "Identity(past)");
            assert_eq!(windows_of(&numbers, &causal), [None], "control");
        }
    }

    #[test]
    fn the_window_of_a_stored_mask_is_reported() {
        let buffer = |width: usize| {
            let sees = |at: usize| at % 64 <= at / 64 && at / 64 < at % 64 + width;
            let all: Vec<&str> = (0..64 * 64)
                .map(|at| if sees(at) { "0" } else { "-1e38" })
                .collect();
            format!(
                "float[64,64] buffer = {{{}}}, int64[2] axes = {{0, 1}}",
                all.join(", ")
            )
        };
        let mask = "size = Unsqueeze(n, first) ends = Concat <axis = 0> (size, size)\n\
                    starts = Concat <axis = 0> (first, first) m = Slice(buffer, starts, ends, axes)";
        assert_eq!(windows_of(&buffer(30), mask), [Some(30)]);
        assert_eq!(windows_of(&buffer(64), mask), [None], "control");
    }
}
