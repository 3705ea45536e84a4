//! Slice, in all its versions.

use ndarray::{Axis, Slice};

use super::array::{Array, each};
use super::call::{Call, Given, Outputs, typed};
use super::data::Data;
use super::shape::{axis, offsets, strides};
use super::{EvalError, Why};

/// A slice of one axis: `count` elements from `start` in steps of `step`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    start: usize,
    step: i64,
    count: usize,
}

impl Run {
    /// Starts and ends count from the end where negative, and are clamped to the axis.
    fn new(start: i64, end: i64, step: i64, length: usize) -> Result<Self, EvalError> {
        let n = i64::try_from(length).map_err(|_| Why::Dimension)?;
        let place = |at: i64, low: i64, high: i64| {
            let at = if at < 0 { at.saturating_add(n) } else { at };
            at.clamp(low, high)
        };
        let (start, span) = match step {
            0 => return Err(Why::Parameter("steps").into()),
            1.. => {
                let start = place(start, 0, n);
                (start, place(end, 0, n) - start)
            }
            // An empty axis has no last element to start from.
            _ if n == 0 => (0, 0),
            _ => {
                let start = place(start, 0, n - 1);
                (start, start - place(end, -1, n - 1))
            }
        };
        let count = span.max(0).unsigned_abs().div_ceil(step.unsigned_abs());
        Ok(Self {
            start: start as usize,
            step,
            count: count as usize,
        })
    }

    /// The same slice for ndarray: a range, and a step whose sign gives the order.
    fn range(self) -> Slice {
        if self.count == 0 {
            return Slice::new(0, Some(0), 1);
        }
        let distance = (self.count as i64 - 1).saturating_mul(self.step);
        let last = self.start as i64 + distance;
        let (low, high) = (last.min(self.start as i64), last.max(self.start as i64));
        Slice::new(low as isize, Some(high as isize + 1), self.step as isize)
    }
}

pub(super) fn slice(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let starts = c.list("starts", 1)?;
    let ends = c.list("ends", 2)?;
    let axes = c.list("axes", 3)?;
    let steps = c.list("steps", 4)?;
    if starts == Given::Absent || ends == Given::Absent {
        return Err(Why::Parameter("starts").into());
    }
    let (Given::Known(starts), Given::Known(ends)) = (starts, ends) else {
        return typed(x.dtype);
    };
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let axes = match axes {
        Given::Known(axes) => axes,
        Given::Unknown => return typed(x.dtype),
        Given::Absent => (0..starts.len() as i64).collect(),
    };
    let steps = match steps {
        Given::Known(steps) => steps,
        Given::Unknown => return typed(x.dtype),
        Given::Absent => vec![1; starts.len()],
    };
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] {
        return Err(Why::Parameter("starts").into());
    }
    let whole = |&length: &usize| Run {
        start: 0,
        step: 1,
        count: length,
    };
    let mut runs: Vec<Run> = dims.iter().map(whole).collect();
    let mut seen = vec![false; dims.len()];
    for (i, &a) in axes.iter().enumerate() {
        let a = axis(a, dims.len())?;
        if std::mem::replace(&mut seen[a], true) {
            return Err(Why::Axis.into());
        }
        runs[a] = Run::new(starts[i], ends[i], steps[i], dims[a])?;
    }
    let result = runs.iter().map(|r| r.count).collect();
    Ok(vec![c.value(x.dtype, result, |result| {
        if let Some(Data::Stored(tensor)) = x.data.as_deref() {
            let whole = strides(dims);
            let start = runs
                .iter()
                .zip(&whole)
                .map(|(r, s)| r.start.wrapping_mul(*s));
            let start = start.fold(0, usize::wrapping_add);
            let steps: Vec<isize> = runs
                .iter()
                .zip(&whole)
                .map(|(r, s)| (r.step as isize).wrapping_mul(*s as isize))
                .collect();
            let at = offsets(result, &steps, start);
            return Array::read(tensor, result, at.into_iter().map(Some));
        }
        Some(each!(c.array(0)?, |a| {
            let mut a = a;
            for (i, run) in runs.iter().enumerate() {
                if run.step != 1 || run.count != dims[i] {
                    a.slice_axis_inplace(Axis(i), run.range());
                }
            }
            a
        }))
    })])
}

/// `ReverseSequence`: the first so many elements along `time_axis` in reverse order, by sequence.
pub(super) fn reverse_sequence(c: &Call<'_>) -> Outputs {
    let time = c.int("time_axis")?.unwrap_or(0);
    let batch = c.int("batch_axis")?.unwrap_or(1);
    let lengths = c.input_list(1);
    c.map(c.dtype(0), |array| {
        let Given::Known(lengths) = lengths else {
            return None;
        };
        let rank = array.dims().len();
        let (time, batch) = (axis(time, rank).ok()?, axis(batch, rank).ok()?);
        let (steps, sequences) = (array.dims()[time], array.dims()[batch]);
        let length = |n: &i64| usize::try_from(*n).ok().filter(|n| *n <= steps);
        let lengths: Vec<usize> = lengths.iter().map(length).collect::<Option<_>>()?;
        if time == batch || lengths.len() != sequences {
            return None;
        }
        Some(each!(array, |a| {
            let from = |mut at: ndarray::IxDyn| {
                let length = lengths[at[batch]];
                if at[time] < length {
                    at[time] = length - 1 - at[time];
                }
                a[at]
            };
            ndarray::ArrayD::from_shape_fn(a.raw_dim(), from).into_shared()
        }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_clamp_as_in_the_standard() {
        let cases = [
            // start, end, step, length → start, count
            (0, i64::MAX, 1, 5, 0, 5),
            (-3, -1, 1, 5, 2, 2),
            (-100, 100, 2, 5, 0, 3),
            (7, 9, 1, 5, 5, 0),
            (3, 1, 1, 5, 3, 0),
            (-1, i64::MIN, -1, 5, 4, 5),
            (100, 0, -2, 5, 4, 2),
            (1, 3, -1, 5, 1, 0),
            (-100, i64::MIN, -1, 5, 0, 1),
            (i64::MAX, i64::MIN, i64::MIN, 5, 4, 1),
            (0, i64::MAX, i64::MAX, 5, 0, 1),
            (-1, i64::MIN, -1, 0, 0, 0),
            (0, 3, 1, 0, 0, 0),
        ];
        for (start, end, step, length, first, count) in cases {
            let run = Run::new(start, end, step, length).unwrap();
            let at = (start, end, step, length);
            assert_eq!(run.count, count, "{at:?}");
            if count > 0 {
                assert_eq!(run.start, first, "{at:?}");
            }
        }
        let zero = Run::new(0, 1, 0, 5);
        assert_eq!(zero, Err(Why::Parameter("steps").into()));
        let long = Run::new(0, 1, 1, 1 << 63);
        assert_eq!(long, Err(Why::Dimension.into()));
    }
}
