//! Arithmetic on dimensions, without overflow.

use super::{EvalError, Why};

/// More dimensions than any model has.
pub(super) const MAX_RANK: usize = 64;

/// The number of elements; `None` on overflow.
pub(super) fn elements(dims: &[usize]) -> Option<usize> {
    if dims.contains(&0) {
        return Some(0);
    }
    dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))
}

/// The number of elements.
pub(super) fn count(dims: &[usize]) -> Result<usize, EvalError> {
    elements(dims).ok_or(Why::Dimension.into())
}

/// A dimension from a computed number.
pub(super) fn dim(n: impl TryInto<usize>) -> Result<usize, EvalError> {
    let n = n.try_into().map_err(|_| Why::Dimension)?;
    if n > isize::MAX as usize {
        return Err(Why::Dimension.into());
    }
    Ok(n)
}

/// The product of dimensions as a dimension.
pub(super) fn product(dims: &[usize]) -> Result<usize, EvalError> {
    dim(count(dims)?)
}

/// The sum of dimensions as a dimension.
pub(super) fn sum(dims: impl IntoIterator<Item = usize>) -> Result<usize, EvalError> {
    let n = dims
        .into_iter()
        .try_fold(0usize, |n, d| n.checked_add(d))
        .ok_or(Why::Dimension)?;
    dim(n)
}

/// An axis, from the end where negative.
pub(super) fn axis(axis: i64, rank: usize) -> Result<usize, EvalError> {
    let from_start = if axis < 0 {
        axis.checked_add(rank as i64)
    } else {
        Some(axis)
    };
    from_start
        .and_then(|a| usize::try_from(a).ok())
        .filter(|a| *a < rank)
        .ok_or(Why::Axis.into())
}

/// Which axes are listed; each may be listed once.
pub(super) fn axis_set(axes: &[i64], rank: usize) -> Result<Vec<bool>, EvalError> {
    let mut set = vec![false; rank];
    for &a in axes {
        let a = axis(a, rank)?;
        if std::mem::replace(&mut set[a], true) {
            return Err(Why::Axis.into());
        }
    }
    Ok(set)
}

/// The common dimensions of two operands, aligned at the last axis.
pub(super) fn broadcast(a: &[usize], b: &[usize]) -> Result<Vec<usize>, EvalError> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let mut dims = long.to_vec();
    for (d, &s) in dims[long.len() - short.len()..].iter_mut().zip(short) {
        *d = match (*d, s) {
            (x, y) if x == y => x,
            (1, y) => y,
            (x, 1) => x,
            _ => return Err(Why::Shapes.into()),
        };
    }
    Ok(dims)
}

/// The distance between elements along each axis in row-major order. Saturates on overflow, which
/// only empty arrays allow.
pub(super) fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; dims.len()];
    for i in (1..dims.len()).rev() {
        strides[i - 1] = strides[i].saturating_mul(dims[i]);
    }
    strides
}

/// The offsets of all elements of `dims`, in row-major order, in a buffer where the first is at
/// `start` and each axis has its own step. The dimensions must be within a budget.
pub(super) fn offsets(dims: &[usize], steps: &[isize], start: usize) -> Vec<usize> {
    let mut all = vec![start];
    if dims.contains(&0) {
        all.clear();
        return all;
    }
    for (&d, &step) in dims.iter().zip(steps) {
        if d == 1 {
            continue;
        }
        let mut next = Vec::with_capacity(all.len() * d);
        for &o in &all {
            next.extend((0..d).map(|i| o.wrapping_add_signed(step.wrapping_mul(i as isize))));
        }
        all = next;
    }
    all
}

/// The number of elements before, along and after an axis.
pub(super) fn around(dims: &[usize], axis: usize) -> Result<(usize, usize, usize), EvalError> {
    Ok((count(&dims[..axis])?, dims[axis], count(&dims[axis + 1..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting_aligns_the_last_axes() {
        type Dims = &'static [usize];
        let cases: [(Dims, Dims, Option<Dims>); 7] = [
            (&[2, 3], &[3], Some(&[2, 3])),
            (&[], &[4, 1], Some(&[4, 1])),
            (&[5, 1], &[1, 6], Some(&[5, 6])),
            (&[0], &[1], Some(&[0])),
            (&[2], &[3], None),
            (&[0], &[2], None),
            (&[2, 3], &[2], None),
        ];
        for (a, b, want) in cases {
            assert_eq!(broadcast(a, b).ok().as_deref(), want, "{a:?} {b:?}");
            assert_eq!(broadcast(b, a).ok().as_deref(), want, "{b:?} {a:?}");
        }
    }

    #[test]
    fn axes_are_counted_from_both_ends_and_checked() {
        for (a, want) in [(0, Some(0)), (2, Some(2)), (-1, Some(2)), (-3, Some(0))] {
            assert_eq!(axis(a, 3).ok(), want);
        }
        for a in [3, -4, i64::MIN, i64::MAX] {
            assert_eq!(axis(a, 3), Err(Why::Axis.into()), "{a}");
        }
        assert_eq!(axis_set(&[0, -3], 3), Err(Why::Axis.into()));
        assert_eq!(axis_set(&[0, -1], 3), Ok(vec![true, false, true]));
    }

    #[test]
    fn dimensions_that_overflow_are_refused() {
        assert_eq!(elements(&[usize::MAX, 2]), None);
        assert_eq!(elements(&[usize::MAX, 2, 0]), Some(0));
        assert_eq!(dim(usize::MAX), Err(Why::Dimension.into()));
        assert_eq!(dim(-1i64), Err(Why::Dimension.into()));
        assert_eq!(sum([usize::MAX, 1]), Err(Why::Dimension.into()));
    }

    #[test]
    fn offsets_walk_the_last_axis_fastest() {
        assert_eq!(offsets(&[2, 3], &[3, 1], 0), [0, 1, 2, 3, 4, 5]);
        assert_eq!(offsets(&[3, 2], &[1, 3], 0), [0, 3, 1, 4, 2, 5]);
        assert_eq!(offsets(&[2], &[-2], 5), [5, 3]);
        assert_eq!(offsets(&[], &[], 7), [7]);
        assert!(offsets(&[2, 0], &[0, 1], 0).is_empty());
    }
}
