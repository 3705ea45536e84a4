//! Operators that read elements at computed indices.

use super::array::{Array, each, flat, from_vec};
use super::call::{Call, Outputs, typed};
use super::data::{Data, Shared};
use super::shape::{self, around, axis, offsets, strides};
use super::{EvalError, Why};

/// An index, from the end where negative; `None` out of range.
pub(super) fn place(index: i64, length: usize) -> Option<usize> {
    let at = if index < 0 {
        index.checked_add(i64::try_from(length).ok()?)?
    } else {
        index
    };
    usize::try_from(at).ok().filter(|at| *at < length)
}

/// The elements of input 0 at these indices; of a stored constant, only these are read.
fn pick(c: &Call<'_>, dims: &[usize], at: Vec<usize>) -> Option<Array> {
    if let Some(Data::Stored(tensor)) = c.at(0)?.data.as_deref() {
        return Array::read(tensor, dims, at.into_iter().map(Some));
    }
    Some(each!(c.array(0)?, |a| choose(&a, dims, &at)?))
}

fn choose<T: Copy>(array: &Shared<T>, dims: &[usize], at: &[usize]) -> Option<Shared<T>> {
    let all = flat(array);
    let out: Option<Vec<T>> = at.iter().map(|i| all.get(*i).copied()).collect();
    from_vec(dims, out?)
}

/// Slices along an axis. With an index out of range, the data is unknown.
pub(super) fn gather(c: &Call<'_>) -> Outputs {
    let (x, indices) = (c.need(0)?, c.need(1)?);
    let along = c.int("axis")?.unwrap_or(0);
    let (Some(dims), Some(index_dims)) = (x.dims.as_deref(), indices.dims.as_deref()) else {
        return typed(x.dtype);
    };
    let along = axis(along, dims.len())?;
    let result = [&dims[..along], index_dims, &dims[along + 1..]].concat();
    if result.len() > shape::MAX_RANK {
        return Err(Why::Rank.into());
    }
    Ok(vec![c.value(x.dtype, result, |result| {
        x.data.as_ref()?;
        let (outer, length, inner) = around(dims, along).ok()?;
        let places: Option<Vec<usize>> = indices
            .ints(c.budget)?
            .into_iter()
            .map(|i| place(i, length))
            .collect();
        let places = places?;
        let mut at = Vec::with_capacity(outer * places.len() * inner);
        for o in 0..outer {
            for p in &places {
                let start = (o * length + p) * inner;
                at.extend(start..start + inner);
            }
        }
        pick(c, result, at)
    })])
}

/// One element per index, which replaces one coordinate of its own position.
pub(super) fn gather_elements(c: &Call<'_>) -> Outputs {
    let (x, indices) = (c.need(0)?, c.need(1)?);
    let along = c.int("axis")?.unwrap_or(0);
    let (Some(dims), Some(result)) = (x.dims.as_deref(), indices.dims.as_deref()) else {
        let mut out = typed(x.dtype)?;
        out[0].dims.clone_from(&indices.dims);
        return Ok(out);
    };
    let along = axis(along, dims.len())?;
    if result.len() != dims.len() {
        return Err(Why::Rank.into());
    }
    Ok(vec![c.value(x.dtype, result.to_vec(), |result| {
        x.data.as_ref()?;
        let at = element_places(dims, result, along, &indices.ints(c.budget)?)?;
        pick(c, result, at)
    })])
}

/// The elements of an array of `dims` that the indices of an array of `index_dims` select.
pub(super) fn element_places(
    dims: &[usize],
    index_dims: &[usize],
    along: usize,
    indices: &[i64],
) -> Option<Vec<usize>> {
    let fits = |i: usize| i == along || index_dims[i] <= dims[i];
    if !(0..dims.len()).all(fits) {
        return None;
    }
    let whole = strides(dims);
    let mut steps: Vec<isize> = whole.iter().map(|s| *s as isize).collect();
    steps[along] = 0;
    let bases = offsets(index_dims, &steps, 0);
    bases
        .into_iter()
        .zip(indices)
        .map(|(base, i)| Some(base + place(*i, dims[along])? * whole[along]))
        .collect()
}

/// Slices at the tuples in the last axis of the indices.
pub(super) fn gather_nd(c: &Call<'_>) -> Outputs {
    let (x, indices) = (c.need(0)?, c.need(1)?);
    let batch = shape::dim(c.int("batch_dims")?.unwrap_or(0))?;
    let (Some(dims), Some(index_dims)) = (x.dims.as_deref(), indices.dims.as_deref()) else {
        return typed(x.dtype);
    };
    let Some((&tuple, outer)) = index_dims.split_last() else {
        return Err(Why::Rank.into());
    };
    let inner_from = shape::sum([batch, tuple])?;
    if inner_from > dims.len() || batch > outer.len() {
        return Err(Why::Rank.into());
    }
    if outer[..batch] != dims[..batch] {
        return Err(Why::Shapes.into());
    }
    let result = [outer, &dims[inner_from..]].concat();
    if result.len() > shape::MAX_RANK {
        return Err(Why::Rank.into());
    }
    Ok(vec![c.value(x.dtype, result, |result| {
        x.data.as_ref()?;
        let starts = tuple_places(dims, batch, index_dims, &indices.ints(c.budget)?)?;
        let inner = shape::elements(&dims[inner_from..])?;
        let at = starts.into_iter().flat_map(|s| s..s + inner).collect();
        pick(c, result, at)
    })])
}

/// The first element in an array of `dims` of the slice of each tuple.
pub(super) fn tuple_places(
    dims: &[usize],
    batch: usize,
    index_dims: &[usize],
    indices: &[i64],
) -> Option<Vec<usize>> {
    let (&tuple, outer) = index_dims.split_last()?;
    let whole = strides(dims);
    let batches = shape::elements(&outer[..batch])?;
    let per_batch = shape::elements(&outer[batch..])?;
    let batch_step = shape::elements(&dims[batch..])?;
    let mut starts = Vec::with_capacity(batches * per_batch);
    for n in 0..batches * per_batch {
        let mut at = n / per_batch * batch_step;
        for k in 0..tuple {
            let index = *indices.get(n * tuple + k)?;
            at += place(index, dims[batch + k])? * whole[batch + k];
        }
        starts.push(at);
    }
    Some(starts)
}

/// Checks the axis, and that data and indices have one rank.
pub(super) fn same_rank(dims: &[usize], indices: &[usize], along: i64) -> Result<usize, EvalError> {
    if dims.len() != indices.len() {
        return Err(Why::Rank.into());
    }
    axis(along, dims.len())
}
