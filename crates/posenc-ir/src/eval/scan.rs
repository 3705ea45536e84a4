//! Running sums.

use super::Why;
use super::array::{Array, flat, from_vec};
use super::call::{Call, Given, Outputs};
use super::data::Shared;
use super::shape::{around, axis};

/// `CumSum`: the sum of all elements before each one (and itself, unless `exclusive`), from the end
/// with `reverse`.
pub(super) fn cum_sum(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let exclusive = c.flag("exclusive")?;
    let reverse = c.flag("reverse")?;
    let along = match (c.number("axis", 1)?, x.dims.as_deref()) {
        (Given::Absent, _) => return Err(Why::NoInput(1).into()),
        (Given::Known(along), Some(dims)) => Some(axis(along, dims.len())?),
        _ => None,
    };
    c.map(x.dtype, |a| {
        let along = along?;
        Some(match a {
            Array::Float(a) => Array::Float(run(&a, along, exclusive, reverse, |a, b| a + b)?),
            Array::Int(a) => Array::Int(run(&a, along, exclusive, reverse, i64::wrapping_add)?),
            Array::Bool(_) => return None,
        })
    })
}

fn run<T: Copy + Default>(
    a: &Shared<T>,
    along: usize,
    exclusive: bool,
    reverse: bool,
    add: impl Fn(T, T) -> T,
) -> Option<Shared<T>> {
    let (outer, length, inner) = around(a.shape(), along).ok()?;
    let all = flat(a);
    let mut out = all.clone().into_owned();
    for lane in 0..outer * inner {
        let base = lane / inner * length * inner + lane % inner;
        let mut total = T::default();
        for i in 0..length {
            let i = if reverse { length - 1 - i } else { i };
            let at = base + i * inner;
            let next = add(total, all[at]);
            out[at] = if exclusive { total } else { next };
            total = next;
        }
    }
    from_vec(a.shape(), out)
}
