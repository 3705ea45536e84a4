//! The tokens that each element of a value depends on.

use std::sync::Arc;

use ndarray::{ArrayD, Axis, IxDyn, Zip};
use posenc_ir::eval::Budget;

/// For each element of a value, a set of tokens as bits. An axis along which all sets are equal has
/// length 1, whatever the length of the value's. Values whose elements depend on the same tokens share
/// them.
#[derive(Clone, Debug)]
pub(super) struct Sets(Arc<ArrayD<u64>>);

/// Sets that were united, and whether the sets of different tokens were: whether a union is none of
/// its parts.
pub(super) type United = (Sets, bool);

/// Bits for the tokens of this run, and as many for those of earlier runs. Tokens beyond these share
/// a bit, so that two of them that meet only each other are not seen to.
pub(super) const BITS: usize = 31;

/// The most sets of a union: pairs of that many tokens are seen to mix without them.
const UNION: Budget = Budget { elements: 1 << 22 };

/// The most sets of an input or of a value of another shape.
const MOST: Budget = Budget { elements: 1 << 24 };

impl PartialEq for Sets {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Sets {}

impl From<ArrayD<u64>> for Sets {
    fn from(sets: ArrayD<u64>) -> Self {
        Self(Arc::new(sets))
    }
}

impl Sets {
    /// The same set everywhere.
    pub(super) fn uniform(rank: usize, set: u64) -> Self {
        ArrayD::from_elem(vec![1; rank], set).into()
    }

    /// A token for each index along `axes`, counted in their order; `None` where there are too many.
    pub(super) fn numbered(dims: &[usize], axes: &[usize], past: bool) -> Option<Self> {
        let own = |(i, n): (usize, &usize)| if axes.contains(&i) { *n } else { 1 };
        let shape: Vec<usize> = dims.iter().enumerate().map(own).collect();
        let first = if past { BITS } else { 0 };
        let count = MOST.allows(&shape).then(|| shape.iter().product())?;
        let tokens = (0..count).map(|i| 1 << (first + i % BITS)).collect();
        let sets = ArrayD::from_shape_vec(shape, tokens);
        Some(Self::from(sets.unwrap_or_default()).compact())
    }

    /// Sets by their elements, as integers.
    pub(super) fn of_numbers(numbers: &ArrayD<i64>) -> Self {
        Self::from(numbers.mapv(i64::cast_unsigned)).compact()
    }

    /// The sets of a value of these dimensions as integers.
    pub(super) fn to_numbers(&self, dims: &[usize]) -> Option<ArrayD<i64>> {
        let full = self.0.broadcast(dims)?;
        Some(full.mapv(u64::cast_signed))
    }

    pub(super) fn rank(&self) -> usize {
        self.0.ndim()
    }

    /// Whether the sets are equal along an axis.
    pub(super) fn is_uniform(&self, axis: usize) -> bool {
        self.0.shape().get(axis).is_none_or(|n| *n == 1)
    }

    /// Whether some sets differ.
    pub(super) fn varies(&self) -> bool {
        let mut sets = self.0.iter();
        let first = sets.next();
        sets.any(|other| Some(other) != first)
    }

    /// The union of all sets.
    pub(super) fn all(&self) -> u64 {
        self.0.iter().fold(0, |a, b| a | b)
    }

    /// The sets along an axis of this length, and whether those along all other axes are equal; `None`
    /// where there are too many.
    pub(super) fn along(&self, axis: usize, len: usize) -> Option<(Vec<u64>, bool)> {
        let sets: Vec<u64> = (self.0.shape().get(axis).is_some())
            .then(|| self.0.axis_iter(Axis(axis)))?
            .map(|lane| lane.iter().fold(0, |a, b| a | b))
            .collect();
        let alone = (0..self.rank()).all(|other| other == axis || self.is_uniform(other));
        match sets[..] {
            [one] => MOST.allows(&[len]).then(|| (vec![one; len], alone)),
            _ => Some((sets, alone)),
        }
    }

    /// The axes without their lengths where all sets along them are equal.
    pub(super) fn compact(self) -> Self {
        let mut sets = Arc::unwrap_or_clone(self.0);
        for axis in 0..sets.ndim() {
            let axis = Axis(axis);
            if sets.len_of(axis) > 1 {
                let first = sets.index_axis(axis, 0);
                if sets.axis_iter(axis).skip(1).all(|other| other == first) {
                    sets = first.to_owned().insert_axis(axis);
                }
            }
        }
        sets.into()
    }

    /// The unions of elements at equal places, after broadcasting; `None` where shapes do not fit, and
    /// where there are too many.
    pub(super) fn union(&self, other: &Self) -> Option<United> {
        if self == other {
            return Some((self.clone(), false));
        }
        let rank = self.rank().max(other.rank());
        // Axes are aligned at the end.
        let size = |sets: &Self, axis: usize| {
            let own = (axis + sets.rank()).checked_sub(rank);
            own.map_or(1, |axis| sets.0.len_of(Axis(axis)))
        };
        let dims: Vec<usize> = (0..rank)
            .map(|i| size(self, i).max(size(other, i)))
            .collect();
        if !UNION.allows(&dims) {
            return None;
        }
        let (a, b) = (self.0.broadcast(&*dims)?, other.0.broadcast(&*dims)?);
        let mut mixed = false;
        let sets = Zip::from(a).and(b).map_collect(|a, b| {
            let both = a | b;
            mixed |= both != *a && both != *b;
            both
        });
        Some((sets.into(), mixed))
    }

    /// The unions along axes, which stay with length 1.
    pub(super) fn over(&self, axes: &[usize]) -> United {
        let mut mixed = false;
        let mut united = self.clone();
        for axis in axes.iter().filter(|axis| !self.is_uniform(**axis)) {
            let sets = united.0.map_axis(Axis(*axis), |lane| {
                let all = lane.iter().fold(0, |a, b| a | b);
                mixed |= lane.iter().all(|set| *set != all);
                all
            });
            united = sets.insert_axis(Axis(*axis)).into();
        }
        (united, mixed)
    }

    /// The same without axes of length 1.
    pub(super) fn without(&self, axes: &[usize]) -> Self {
        let mut axes = axes.to_vec();
        axes.sort_unstable();
        let mut sets = ArrayD::clone(&self.0);
        for axis in axes.into_iter().rev() {
            if axis < sets.ndim() && sets.len_of(Axis(axis)) == 1 {
                sets = sets.remove_axis(Axis(axis));
            }
        }
        sets.into()
    }

    /// These sets along an axis, the same along all others.
    pub(super) fn along_axis(sets: &[u64], axis: usize, rank: usize) -> Self {
        let shape: Vec<usize> = (0..rank)
            .map(|a| if a == axis { sets.len() } else { 1 })
            .collect();
        let sets = ArrayD::from_shape_vec(shape, sets.to_vec());
        Self::from(sets.unwrap_or_default()).compact()
    }

    /// The same with an axis of length 1 at this place.
    pub(super) fn with_axis(&self, axis: usize) -> Self {
        let sets = ArrayD::clone(&self.0);
        sets.insert_axis(Axis(axis.min(self.rank()))).into()
    }

    /// The axes in another order.
    pub(super) fn transposed(&self, order: &[usize]) -> Option<Self> {
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        let fits = sorted.into_iter().eq(0..self.rank());
        fits.then(|| ArrayD::clone(&self.0).permuted_axes(IxDyn(order)).into())
    }

    /// The sets of the same elements in order, of dimensions `from`, with dimensions `to`.
    pub(super) fn reshaped(&self, from: &[usize], to: &[usize]) -> Option<Self> {
        let product = |dims: &[usize]| dims.iter().product::<usize>();
        if from.len() != self.rank() || product(from) != product(to) || product(to) == 0 {
            return None;
        }
        // Of axes that are split or joined, those stay short along which no set differs.
        let (mut before, mut after) = (vec![], vec![]);
        let (mut i, mut j) = (0, 0);
        while i < from.len() || j < to.len() {
            let (start, first) = (i, j);
            let (mut left, mut right) = (1, 1);
            loop {
                if left <= right && i < from.len() && (left < right || i == start) {
                    left *= from[i];
                    i += 1;
                } else if j < to.len() && (right < left || j == first) {
                    right *= to[j];
                    j += 1;
                } else if left == right {
                    break;
                } else {
                    return None;
                }
            }
            let uniform = (start..i).all(|axis| self.is_uniform(axis));
            let kept = |n: &usize| if uniform { 1 } else { *n };
            before.extend(from[start..i].iter().map(kept));
            after.extend(to[first..j].iter().map(kept));
        }
        if !MOST.allows(&before) {
            return None;
        }
        let sets = self.0.broadcast(before)?;
        let sets: Vec<u64> = sets.iter().copied().collect();
        Some(Self::from(ArrayD::from_shape_vec(after, sets).ok()?).compact())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> Sets {
        numbered(&[2, 3, 8], 1)
    }

    fn numbered(dims: &[usize], axis: usize) -> Sets {
        Sets::numbered(dims, &[axis], false).unwrap()
    }

    #[test]
    fn heads_are_split_from_features_and_folded_into_the_batch() {
        let split = tokens().reshaped(&[2, 3, 8], &[2, 3, 4, 2]).unwrap();
        assert_eq!(split, numbered(&[2, 3, 4, 2], 1));
        let heads = split.transposed(&[0, 2, 1, 3]).unwrap();
        let folded = heads.reshaped(&[2, 4, 3, 2], &[8, 3, 2]).unwrap();
        assert_eq!(folded, numbered(&[8, 3, 2], 1));
        let rows = tokens().reshaped(&[2, 3, 8], &[6, 8]).unwrap();
        assert!(!rows.is_uniform(0));
        assert_eq!(rows.reshaped(&[6, 8], &[2, 3, 8]), Some(tokens()));
        assert_eq!(tokens().reshaped(&[2, 3, 8], &[6, 9]), None);
        let ones = tokens().reshaped(&[2, 3, 8], &[1, 2, 1, 3, 8, 1]).unwrap();
        assert_eq!(ones, numbered(&[1, 2, 1, 3, 8, 1], 3));
    }

    #[test]
    fn only_a_union_that_is_none_of_its_parts_is_a_mixture() {
        let (sum, mixed) = tokens().union(&tokens()).unwrap();
        assert!(!mixed && sum == tokens());
        let keys = numbered(&[2, 1, 3], 2);
        assert!(tokens().over(&[2]).0.union(&keys).unwrap().1);
        let first = Sets::uniform(0, 1);
        assert!(tokens().union(&first).unwrap().1);
        assert!(!Sets::uniform(3, 7).union(&first).unwrap().1);
        assert!(tokens().over(&[1]).1);
        assert!(!tokens().over(&[0, 2]).1);
        assert!(tokens().union(&numbered(&[4, 8], 0)).is_none());
    }

    #[test]
    fn too_many_pairs_are_not_united() {
        for (count, fits) in [(64, true), (4096, false)] {
            let rows = numbered(&[count, 1], 0);
            let columns = numbered(&[1, count], 1);
            assert_eq!(rows.union(&columns).is_some(), fits, "{count}");
        }
    }

    #[test]
    fn tokens_beyond_memory_are_not_numbered() {
        for length in [1 << 31, 1 << 62] {
            let dims = [2, length];
            assert_eq!(Sets::numbered(&dims, &[1], false), None);
            assert_eq!(numbered(&dims, 0).along(1, length), None);
            // The longer axis stays short, unless it is joined with tokens.
            assert!(
                numbered(&dims, 0)
                    .reshaped(&dims, &[2, 1, length])
                    .is_some()
            );
            assert_eq!(numbered(&dims, 0).reshaped(&dims, &[2 * length]), None);
        }
    }
}
