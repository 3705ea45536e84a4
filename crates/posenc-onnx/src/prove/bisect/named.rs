//! The first value that differs between two models, among those that have one name in both.
//!
//! Positions and content are computed side by side, so that a value that is equal says nothing of those
//! before it: all are compared, in order, as many in one run as memory allows.

use std::ops::Range;

use posenc_ir::eval::Budget;
use posenc_ir::{Graph, Tensor, ValueId};

use super::side::{Point, Side, values};
use crate::detect::run_at;
use crate::graph::dataflow::Class;
use crate::prove::VerifyError;
use crate::prove::compare::compare_values;
use crate::prove::points::Point as RunPoint;
use crate::prove::tolerance::Tolerance;

/// Elements of the values that one run gives.
const ELEMENTS: usize = 1 << 24;

/// Elements that a value of unknown size counts for.
const UNKNOWN: usize = ELEMENTS / 16;

/// Elements up to which the run that tells the sizes of values computes numbers.
const BUDGET: Budget = Budget { elements: 1 << 12 };

/// Values that a runtime may fail to give, or that cannot be cut out, before the search ends.
const REFUSED: usize = 8;

/// Integers are not rounded.
const EXACT: Tolerance = Tolerance {
    atol: 0.0,
    rtol: 0.0,
    share: 0.0,
    rms: None,
};

/// The values of the main graphs with one name and one type in both models, in order of computation; none
/// where names are alike by chance, as after another export.
pub(super) fn named_values(a: &Side<'_>, b: &Side<'_>) -> Vec<Point> {
    let (graph, other) = (a.model.graph(), b.model.graph());
    let inputs = |graph: &Graph, value: ValueId| -> Vec<Option<String>> {
        let Some((node, _)) = graph.producer(value) else {
            return vec![];
        };
        let inputs = graph.node(node).inputs().iter();
        inputs
            .map(|v| v.map(|v| graph.name(v).to_owned()))
            .collect()
    };
    let mut points = vec![];
    let mut alike = 0;
    for node in graph.order(graph.main()).unwrap_or_default() {
        for of_a in graph.node(node).outputs().iter().flatten().copied() {
            let of_b = other.find(other.main(), graph.name(of_a));
            let Some(of_b) = of_b.filter(|of_b| is_compared(a, of_a) && is_compared(b, *of_b))
            else {
                continue;
            };
            if a.found.trace.get(of_a).dtype == b.found.trace.get(of_b).dtype {
                alike += usize::from(inputs(graph, of_a) == inputs(other, of_b));
                points.push(Point { node, of_a, of_b });
            }
        }
    }
    match 2 * alike >= points.len() {
        true => points,
        false => vec![],
    }
}

/// Whether a value is computed, and says more than sizes. Integers that content is rounded to may differ by a
/// step where nothing is wrong.
fn is_compared(side: &Side<'_>, value: ValueId) -> bool {
    let graph = side.model.graph();
    let class = side.found.classes.of_value(value);
    let counts = |dtype: posenc_ir::DType| {
        let is_position = class.has(Class::POSITION) || class.has(Class::PADDING);
        dtype.is_float() || is_position && !class.has(Class::CONTENT)
    };
    let is_computed = graph.producer(value).is_some() && graph.stored(value).is_none();
    is_computed && side.found.trace.get(value).dtype.is_some_and(counts)
}

/// The place of the first point whose values differ; `None` where none does, and where the runtime does not
/// give the values.
pub(super) fn first(
    points: &[Point],
    [a, b]: [&Side<'_>; 2],
    run: RunPoint,
    tolerance: Tolerance,
) -> Option<usize> {
    let differing = |range: Range<usize>| -> Result<Option<usize>, VerifyError> {
        let of = |value: fn(&Point) -> ValueId| points[range.clone()].iter().map(value).collect();
        let (of_a, of_b): (Vec<ValueId>, Vec<ValueId>) = (of(|p| p.of_a), of(|p| p.of_b));
        let pairs = values(a, &of_a, run)?
            .into_iter()
            .zip(values(b, &of_b, run)?);
        let mut pairs = range.clone().zip(pairs);
        let first = pairs.find(|(_, (got, want))| differ(got, want, tolerance));
        Ok(first.map(|(at, _)| at))
    };
    let mut left = batches(points, a, run);
    left.reverse();
    let mut refused = 0;
    while let Some(range) = left.pop() {
        match differing(range.clone()) {
            Ok(None) => {}
            Err(_) if range.len() > 1 => {
                let middle = range.start + range.len() / 2;
                left.extend([middle..range.end, range.start..middle]);
            }
            Err(_) if refused < REFUSED => refused += 1,
            Err(_) => return None,
            Ok(first) => return first,
        }
    }
    None
}

/// Points that are compared in one run each.
fn batches(points: &[Point], side: &Side<'_>, run: RunPoint) -> Vec<Range<usize>> {
    let own = run_at(side.model, side.found, run.at, &BUDGET);
    let sizes = own.as_ref().unwrap_or(&side.found.trace);
    let mut all: Vec<Range<usize>> = vec![];
    let mut sum = 0usize;
    for (at, point) in points.iter().enumerate() {
        let elements = sizes.get(point.of_a).elements().unwrap_or(UNKNOWN);
        sum = sum.saturating_add(elements);
        match all.last_mut() {
            Some(last) if sum <= ELEMENTS => last.end = at + 1,
            _ => {
                all.push(at..at + 1);
                sum = elements;
            }
        }
    }
    all
}

/// Whether two values of one shape differ; numbers that are undefined in both do not.
fn differ(got: &Tensor, want: &Tensor, tolerance: Tolerance) -> bool {
    let (Some(mut got_all), Some(mut want_all)) = (got.to_f64s(), want.to_f64s()) else {
        return false;
    };
    if got.dims() != want.dims() || got_all.is_empty() {
        return false;
    }
    for (got, want) in got_all.iter_mut().zip(&mut want_all) {
        if got.is_nan() && want.is_nan() {
            (*got, *want) = (0.0, 0.0);
        }
    }
    let tolerance = match got.dtype().is_float() {
        true => tolerance,
        false => EXACT,
    };
    !compare_values(&got_all, &want_all, tolerance).ok
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::ports::Lengths;
    use crate::prove::feeds::Padding;
    use crate::prove::points::Meaning;
    use crate::prove::run::RuntimeTarget;
    use crate::prove::testing::{Evaluator, fixture};
    use posenc_ir::DType;
    use posenc_runtime::{Fallback, Optimization, Provider};

    /// The points of two fixtures, and where their batches for so many tokens end.
    fn ends(names: [&str; 2], sequence: usize) -> (usize, Vec<usize>) {
        let models = names.map(fixture);
        let found = [0, 1].map(|i| detect(&models[i], &Options::default()));
        let evaluator = Evaluator::default();
        let target = RuntimeTarget {
            backend: &evaluator,
            provider: Provider::Cpu,
            fallback: Fallback::default(),
        };
        let [a, b] = [0, 1].map(|i| Side {
            model: &models[i],
            found: &found[i],
            target: &target,
            optimization: Optimization::Off,
            given: &[],
        });
        let run = RunPoint {
            at: Lengths {
                batch: 2,
                sequence,
                past: 0,
            },
            padding: Padding::None,
            is_optional: false,
            meaning: Meaning::Same,
        };
        let points = named_values(&a, &b);
        let batches = batches(&points, &a, run);
        let starts: Vec<usize> = batches.iter().map(|range| range.start).collect();
        let ends: Vec<usize> = batches.iter().map(|range| range.end).collect();
        // Every point is in one batch, in order.
        let between = &ends[..ends.len().saturating_sub(1)];
        assert_eq!(starts.get(1..).unwrap_or_default(), between);
        (points.len(), ends)
    }

    #[test]
    fn values_of_long_sequences_are_compared_in_several_runs() {
        let same = ["llama/torchscript", "llama-yarn/torchscript"];
        let (count, short) = ends(same, 9);
        assert!(count > 50, "{count}");
        assert_eq!(short, [count]);
        let (_, long) = ends(same, 2048);
        assert!(long.len() > 1, "{long:?}");
        assert_eq!(long.last(), Some(&count));
    }

    #[test]
    fn names_of_another_exporter_are_alike_by_chance() {
        let (count, ends) = ends(["llama/torchscript", "llama/dynamo"], 9);
        assert_eq!((count, ends), (0, vec![]));
    }

    #[test]
    fn values_differ_by_more_than_rounding_and_in_one_shape() {
        let tolerance = Tolerance::of(DType::F32);
        let floats = |all: &[f64]| Tensor::from_f64(DType::F32, &[all.len()], all);
        let ints = |all: &[f64]| Tensor::from_f64(DType::I64, &[all.len()], all);
        let nan = f64::NAN;
        for (got, want, is_other) in [
            (floats(&[1.0, 2.0]), floats(&[1.0, 2.0]), false),
            (floats(&[1.0, 2.0]), floats(&[1.0, 2.1]), true),
            (floats(&[nan, 2.0]), floats(&[nan, 2.0]), false),
            (floats(&[nan, 2.0]), floats(&[nan, 2.1]), true),
            (floats(&[nan, 2.0]), floats(&[1.0, 2.0]), true),
            // Not comparable.
            (floats(&[1.0]), floats(&[1.0, 2.0]), false),
            (floats(&[]), floats(&[]), false),
            (ints(&[1e9]), ints(&[1e9]), false),
            (ints(&[1e9]), ints(&[1e9 + 1.0]), true),
        ] {
            assert_eq!(differ(&got, &want, tolerance), is_other, "{got:?} {want:?}");
        }
    }
}
