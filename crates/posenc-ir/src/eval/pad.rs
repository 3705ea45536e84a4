//! Operators that repeat or pad elements: along every axis, the source of each element is known.

use super::array::{Array, flat, from_vec};
use super::call::{Call, Given, Outputs, typed};
use super::data::Shared;
use super::shape::{self, axis, strides};
use super::{EvalError, Why};

/// Along each axis, the index that each element is read from; `None` for the fill value.
type Sources = Vec<Vec<Option<usize>>>;

fn remap<T: Copy>(
    array: &Shared<T>,
    dims: &[usize],
    sources: &Sources,
    fill: T,
) -> Option<Shared<T>> {
    let all = flat(array);
    let mut at: Vec<Option<usize>> = vec![Some(0)];
    for (from, step) in sources.iter().zip(strides(array.shape())) {
        let mut next = Vec::with_capacity(at.len() * from.len());
        for base in &at {
            next.extend(from.iter().map(|i| Some((*base)? + (*i)? * step)));
        }
        at = next;
    }
    let out = at.into_iter().map(|i| match i {
        Some(i) => all.get(i).copied(),
        None => Some(fill),
    });
    from_vec(dims, out.collect::<Option<Vec<T>>>()?)
}

pub(super) fn tile(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let repeats = match c.input_list(1) {
        Given::Known(repeats) => repeats,
        Given::Unknown => return typed(x.dtype),
        Given::Absent => return Err(Why::NoInput(1).into()),
    };
    let Some(old) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    if repeats.len() != old.len() {
        return Err(Why::Parameter("repeats").into());
    }
    let dims = old.iter().zip(&repeats);
    let dims: Result<Vec<usize>, EvalError> = dims
        .map(|(d, r)| shape::product(&[*d, shape::dim(*r)?]))
        .collect();
    Ok(vec![c.value(x.dtype, dims?, |dims| {
        let sources = dims.iter().zip(old);
        let sources = sources
            .map(|(new, old)| (0..*new).map(|i| Some(i % old)).collect())
            .collect();
        Some(match c.array(0)? {
            Array::Float(a) => Array::Float(remap(&a, dims, &sources, 0.0)?),
            Array::Int(a) => Array::Int(remap(&a, dims, &sources, 0)?),
            Array::Bool(a) => Array::Bool(remap(&a, dims, &sources, false)?),
        })
    })])
}

/// The source of elements beyond the edge.
#[derive(Clone, Copy)]
enum Mode {
    Constant,
    Reflect,
    Edge,
    Wrap,
}

impl Mode {
    /// The source of the element at `at`, relative to the first of an axis of `length`.
    fn source(self, at: i64, length: usize) -> Option<usize> {
        let n = i64::try_from(length).ok()?;
        let inside = |at: i64| usize::try_from(at).ok().filter(|at| *at < length);
        match self {
            Self::Constant => inside(at),
            Self::Edge => inside(at.clamp(0, n - 1)),
            Self::Wrap => inside(at.rem_euclid(n)),
            Self::Reflect if n == 1 => Some(0),
            Self::Reflect => {
                let period = 2 * (n - 1);
                let at = at.rem_euclid(period);
                inside(at.min(period - at))
            }
        }
    }
}

/// The sources along an axis. Negative pads crop before the others fill.
fn sources(
    mode: Mode,
    new: usize,
    old: usize,
    (before, after): (i64, i64),
) -> Option<Vec<Option<usize>>> {
    let low = usize::try_from(before.min(0).unsigned_abs()).ok()?;
    let high = usize::try_from(after.min(0).unsigned_abs()).ok()?;
    let length = old.checked_sub(low)?.checked_sub(high)?;
    if length == 0 && new > 0 && !matches!(mode, Mode::Constant) {
        return None;
    }
    let at = |i: usize| Some(low + mode.source(i as i64 - before.max(0), length)?);
    Some((0..new).map(at).collect())
}

/// Negative pads crop. Input 3 gives the axes; all without it.
pub(super) fn pad(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let mode = match c.string("mode")? {
        None | Some("constant") => Mode::Constant,
        Some("reflect") => Mode::Reflect,
        Some("edge") => Mode::Edge,
        Some("wrap") => Mode::Wrap,
        Some(_) => return Err(Why::Attribute("mode").into()),
    };
    let fill = c.float("value")?;
    let Given::Known(pads) = c.list("pads", 1)? else {
        return typed(x.dtype);
    };
    let Some(old) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let axes: Vec<usize> = match c.input_list(3) {
        Given::Absent => (0..old.len()).collect(),
        Given::Unknown => return typed(x.dtype),
        Given::Known(axes) => axes
            .iter()
            .map(|a| axis(*a, old.len()))
            .collect::<Result<_, EvalError>>()?,
    };
    if pads.len() != 2 * axes.len() {
        return Err(Why::Parameter("pads").into());
    }
    let mut edges = vec![(0i64, 0i64); old.len()];
    let mut dims = old.to_vec();
    for (i, &a) in axes.iter().enumerate() {
        edges[a] = (pads[i], pads[i + axes.len()]);
        let total = old[a] as i128 + i128::from(edges[a].0) + i128::from(edges[a].1);
        dims[a] = shape::dim(total)?;
    }
    Ok(vec![c.value(x.dtype, dims, |dims| {
        let axes = dims.iter().zip(old).zip(&edges);
        let sources: Option<Sources> = axes
            .map(|((new, old), edges)| sources(mode, *new, *old, *edges))
            .collect();
        let sources = sources?;
        let given = c.at(2);
        let number = |n: Option<f64>| {
            if given.is_some() {
                n
            } else {
                Some(fill.unwrap_or(0.0))
            }
        };
        Some(match c.array(0)? {
            Array::Float(a) => {
                let fill = number(given.and_then(|v| v.scalar_f64()))?;
                Array::Float(remap(&a, dims, &sources, fill)?)
            }
            Array::Int(a) => {
                let fill = match given {
                    Some(v) => v.scalar_i64()?,
                    None => 0,
                };
                Array::Int(remap(&a, dims, &sources, fill)?)
            }
            Array::Bool(a) => {
                let fill = match given {
                    Some(v) => v.scalar_i64()? != 0,
                    None => false,
                };
                Array::Bool(remap(&a, dims, &sources, fill)?)
            }
        })
    })])
}
