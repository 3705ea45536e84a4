//! Operators that write elements at computed indices.

use super::array::{Array, flat, from_vec};
use super::call::{Call, Given, Outputs};
use super::data::Shared;
use super::gather::{element_places, same_rank, tuple_places};
use super::shape;
use super::{EvalError, Why};

/// How a new element is combined with the old one.
#[derive(Clone, Copy)]
enum Meeting {
    Replace,
    Add,
    Mul,
    Min,
    Max,
}

impl Meeting {
    fn of(c: &Call<'_>) -> Result<Self, EvalError> {
        Ok(match c.string("reduction")? {
            None | Some("none") => Self::Replace,
            Some("add") => Self::Add,
            Some("mul") => Self::Mul,
            Some("min") => Self::Min,
            Some("max") => Self::Max,
            Some(_) => return Err(Why::Attribute("reduction").into()),
        })
    }

    fn float(self, old: f64, new: f64) -> f64 {
        match self {
            Self::Replace => new,
            Self::Add => old + new,
            Self::Mul => old * new,
            Self::Min => old.min(new),
            Self::Max => old.max(new),
        }
    }

    fn int(self, old: i64, new: i64) -> i64 {
        match self {
            Self::Replace => new,
            Self::Add => old.wrapping_add(new),
            Self::Mul => old.wrapping_mul(new),
            Self::Min => old.min(new),
            Self::Max => old.max(new),
        }
    }

    fn bool(self, old: bool, new: bool) -> bool {
        match self {
            Self::Replace => new,
            Self::Add | Self::Max => old | new,
            Self::Mul | Self::Min => old & new,
        }
    }
}

/// Writes slices of `inner` elements at `starts`.
fn write<T: Copy>(
    data: &Shared<T>,
    updates: &Shared<T>,
    starts: &[usize],
    inner: usize,
    meet: impl Fn(T, T) -> T,
) -> Option<Shared<T>> {
    let mut out = flat(data).into_owned();
    let updates = flat(updates);
    if updates.len() != starts.len().checked_mul(inner)? {
        return None;
    }
    for (n, &start) in starts.iter().enumerate() {
        let target = out.get_mut(start..start.checked_add(inner)?)?;
        for (old, new) in target.iter_mut().zip(&updates[n * inner..]) {
            *old = meet(*old, *new);
        }
    }
    from_vec(data.shape(), out)
}

/// Writes input `updates` into input 0, `inner` elements from each of the starts on.
fn write_any(
    c: &Call<'_>,
    updates: usize,
    starts: &[usize],
    inner: usize,
    meeting: Meeting,
) -> Option<Array> {
    Some(match (c.array(0)?, c.array(updates)?) {
        (Array::Float(a), Array::Float(b)) => {
            Array::Float(write(&a, &b, starts, inner, |x, y| meeting.float(x, y))?)
        }
        (Array::Int(a), Array::Int(b)) => {
            Array::Int(write(&a, &b, starts, inner, |x, y| meeting.int(x, y))?)
        }
        (Array::Bool(a), Array::Bool(b)) => {
            Array::Bool(write(&a, &b, starts, inner, |x, y| meeting.bool(x, y))?)
        }
        _ => return None,
    })
}

pub(super) fn scatter_elements(c: &Call<'_>) -> Outputs {
    let (x, indices) = (c.need(0)?, c.need(1)?);
    c.need(2)?;
    let meeting = Meeting::of(c)?;
    let along = c.int("axis")?.unwrap_or(0);
    let along = match (&x.dims, &indices.dims) {
        (Some(dims), Some(index_dims)) => Some(same_rank(dims, index_dims, along)?),
        _ => None,
    };
    c.map(x.dtype, |_| {
        let (dims, index_dims) = (x.dims.as_ref()?, indices.dims.as_ref()?);
        let starts = element_places(dims, index_dims, along?, &indices.ints(c.budget)?)?;
        write_any(c, 2, &starts, 1, meeting)
    })
}

pub(super) fn scatter_nd(c: &Call<'_>) -> Outputs {
    let (x, indices) = (c.need(0)?, c.need(1)?);
    c.need(2)?;
    let meeting = Meeting::of(c)?;
    if let (Some(dims), Some(index_dims)) = (&x.dims, &indices.dims)
        && index_dims.last().is_none_or(|tuple| *tuple > dims.len())
    {
        return Err(Why::Rank.into());
    }
    c.map(x.dtype, |_| {
        let (dims, index_dims) = (x.dims.as_ref()?, indices.dims.as_ref()?);
        let inner = shape::elements(&dims[*index_dims.last()?..])?;
        let starts = tuple_places(dims, 0, index_dims, &indices.ints(c.budget)?)?;
        write_any(c, 2, &starts, inner, meeting)
    })
}

/// New slots of a cache, written from an index of each sequence on; where it is circular, those behind its end go
/// to its beginning.
pub(super) fn tensor_scatter(c: &Call<'_>) -> Outputs {
    let (cache, update) = (c.need(0)?, c.need(1)?);
    let circular = match c.string("mode")? {
        None | Some("linear") => false,
        Some("circular") => true,
        Some(_) => return Err(Why::Attribute("mode").into()),
    };
    let along = c.int("axis")?.unwrap_or(-2);
    let along = match &cache.dims {
        Some(dims) => Some(shape::axis(along, dims.len())?),
        None => None,
    };
    c.map(cache.dtype, |_| {
        let (dims, new, along) = (cache.dims.as_ref()?, update.dims.as_ref()?, along?);
        let first = match c.input_list(2) {
            Given::Absent => vec![0; dims[0]],
            Given::Known(first) => first,
            Given::Unknown => return None,
        };
        let starts = slots(dims, new, along, &first, circular)?;
        let inner = shape::elements(&dims[along + 1..])?;
        write_any(c, 1, &starts, inner, Meeting::Replace)
    })
}

/// Where the new slots of each sequence and head begin.
fn slots(
    dims: &[usize],
    new: &[usize],
    along: usize,
    first: &[i64],
    circular: bool,
) -> Option<Vec<usize>> {
    let mut axes = dims.iter().zip(new).enumerate();
    let fits = axes.all(|(axis, (all, new))| all == new || axis == along && new < all);
    if along == 0 || dims.len() != new.len() || first.len() != dims[0] || !fits {
        return None;
    }
    let heads = shape::elements(&dims[1..along])?;
    let inner = shape::elements(&dims[along + 1..])?;
    let mut starts = vec![];
    for (sequence, first) in first.iter().enumerate() {
        let first = usize::try_from(*first).ok()?;
        for head in 0..heads {
            for slot in 0..new[along] {
                let mut slot = first.checked_add(slot)?;
                if circular {
                    slot = slot.checked_rem(dims[along])?;
                } else if slot >= dims[along] {
                    return None;
                }
                starts.push(((sequence * heads + head) * dims[along] + slot) * inner);
            }
        }
    }
    Some(starts)
}
