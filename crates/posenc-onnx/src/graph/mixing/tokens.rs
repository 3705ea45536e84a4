//! The order of tokens along an axis.

use posenc_ir::ValueId;

use rustc_hash::FxHashSet;

use super::sets::{BITS, Sets};

/// How many inputs may lie one behind another.
const MOST_INPUTS: usize = 4;

/// The tokens that each value depends on; `None` for one that depends on none.
#[derive(Debug)]
pub(crate) struct Tokens(pub(super) Vec<Option<Sets>>);

/// The tokens along an axis of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Along {
    /// A set for each index; tokens of earlier runs are the lower bits.
    sets: Vec<u64>,
    /// Whether elements at one index depend on the same tokens.
    alone: bool,
}

impl Tokens {
    /// The only axis along which the tokens of a value of this rank differ.
    pub(crate) fn only_axis(&self, value: ValueId, rank: usize) -> Option<usize> {
        let mut varying = (0..rank).filter(|axis| self.differ_along(value, *axis));
        varying.next().filter(|_| varying.next().is_none())
    }

    /// The only axis along which the tokens of a value of these dimensions differ; each index stands
    /// for others, or for none.
    pub(crate) fn axis(&self, value: ValueId, dims: &[usize]) -> Option<usize> {
        let axis = self.only_axis(value, dims.len())?;
        let sets = self.0.get(value.index())?.as_ref()?;
        let (mut along, _) = sets.along(axis, dims[axis])?;
        along.retain(|set| *set != 0);
        let count = along.len();
        along.sort_unstable();
        along.dedup();
        (along.len() == count).then_some(axis)
    }

    /// The same, where tokens of one input may lie behind those of another.
    pub(crate) fn axis_of_inputs(&self, value: ValueId, dims: &[usize]) -> Option<usize> {
        let axis = self.only_axis(value, dims.len())?;
        let sets = self.0.get(value.index())?.as_ref()?;
        let (along, _) = sets.along(axis, dims[axis])?;
        let mut seen = FxHashSet::default();
        let mut parts = 1;
        for set in along.into_iter().filter(|set| *set != 0) {
            if !seen.insert(set) {
                parts += 1;
                seen = FxHashSet::from_iter([set]);
            }
        }
        (parts <= MOST_INPUTS).then_some(axis)
    }

    /// Whether the tokens of a value differ along an axis.
    pub(crate) fn differ_along(&self, value: ValueId, axis: usize) -> bool {
        let sets = self.0.get(value.index()).and_then(Option::as_ref);
        sets.is_some_and(|sets| !sets.is_uniform(axis))
    }

    /// Whether the tokens of a value differ along some axis.
    pub(crate) fn has_axis(&self, value: ValueId) -> bool {
        let sets = self.0.get(value.index()).and_then(Option::as_ref);
        sets.is_some_and(|sets| (0..sets.rank()).any(|axis| !sets.is_uniform(axis)))
    }

    /// The tokens along an axis of this length; `None` for a value that depends on none.
    pub(crate) fn along(&self, value: ValueId, axis: usize, len: usize) -> Option<Along> {
        let (sets, alone) = self.0.get(value.index())?.as_ref()?.along(axis, len)?;
        let new = (1 << BITS) - 1;
        let sorted = |set: &u64| (set & new) << BITS | set >> BITS;
        Some(Along {
            sets: sets.iter().map(sorted).collect(),
            alone,
        })
    }
}

impl Along {
    /// How many indices there are.
    pub(crate) fn len(&self) -> usize {
        self.sets.len()
    }

    /// Whether indices stand for different tokens, of which one index may have several.
    pub(crate) fn is_of_tokens(&self) -> bool {
        let first = self.sets.first();
        self.sets.iter().any(|set| Some(set) != first)
    }

    /// Whether indices stand for different tokens, each for some.
    pub(crate) fn is_of_each(&self) -> bool {
        let mut sets = self.sets.clone();
        sets.sort_unstable();
        sets.dedup();
        sets.len() == self.sets.len() && sets.len() > 1 && sets[0] != 0
    }

    /// Whether every index has one token.
    pub(crate) fn is_exact(&self) -> bool {
        self.alone && self.sets.iter().all(|set| set.count_ones() == 1)
    }

    /// Whether an index stands for no token that comes before those of the index before it: of sets
    /// of several neither the first nor the last. Indices without tokens stand for none.
    pub(crate) fn is_rising(&self) -> bool {
        let sets: Vec<u64> = self.sets.iter().copied().filter(|set| *set != 0).collect();
        // Where there are more tokens than bits, these begin again.
        let all = sets.iter().fold(0, |all, set| all | set);
        let full = |all: u64| all & ((1 << BITS) - 1) == (1 << BITS) - 1;
        if full(all) || full(all >> BITS) {
            return !self.is_exact() || steps(&sets);
        }
        sets.windows(2).all(|pair| {
            let [a, b] = [pair[0], pair[1]];
            let one = a.count_ones() == 1 && b.count_ones() == 1;
            let ends = |set: u64| (set.trailing_zeros(), 64 - set.leading_zeros());
            if one {
                a < b
            } else {
                ends(a).0 <= ends(b).0 && ends(a).1 <= ends(b).1
            }
        })
    }

    /// Whether these are tokens in their order, and then the same ones again.
    pub(crate) fn is_repeated(&self) -> bool {
        let (first, second) = self.sets.split_at(self.sets.len() / 2);
        let alone = self.alone;
        let sets = first.to_vec();
        first == second && self.is_exact() && Self { sets, alone }.is_rising()
    }

    /// Whether the tokens of one index differ by another axis, as those of blocks do.
    pub(crate) fn is_folded(&self) -> bool {
        !self.alone
    }

    /// Whether some index of both stands for different tokens.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let one = |set: u64| set.count_ones() == 1;
        let mut pairs = self.sets.iter().zip(&other.sets);
        let fits = self.alone && other.alone && self.sets.len() == other.sets.len();
        fits && pairs.any(|(a, b)| one(*a) && one(*b) && a != b)
    }

    /// Whether the last index of both stands for the same token.
    pub(crate) fn ends_with(&self, other: &Self) -> bool {
        let fits = other.sets.len() <= self.sets.len();
        fits && self.sets[self.sets.len() - other.sets.len()..] == other.sets
    }
}

/// Whether each token is the one after that before it, where the last bit is followed by the first.
fn steps(sets: &[u64]) -> bool {
    let next = |at: u32| match at as usize + 1 {
        n if n == BITS || n == 2 * BITS => n - BITS,
        n => n,
    };
    sets.windows(2).all(|pair| {
        let [a, b] = [pair[0].trailing_zeros(), pair[1].trailing_zeros()];
        let begins = (a as usize) < BITS && b as usize == BITS;
        next(a) == b as usize || begins
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn along(sets: &[u64]) -> Along {
        Along {
            sets: sets.to_vec(),
            alone: true,
        }
    }

    #[test]
    fn tokens_in_their_order_rise() {
        let long: Vec<u64> = (0..40).map(|i| 1 << (BITS + i % BITS)).collect();
        for sets in [
            &[1, 2, 4][..],
            &[1, 4, 16],
            &[0, 0, 1, 2],
            &[3, 6, 12],
            &[7, 7, 7],
            &[1, 2, 1 << BITS, 2 << BITS],
            &long,
        ] {
            assert!(along(sets).is_rising(), "{sets:?}");
        }
    }

    #[test]
    fn tokens_in_another_order_do_not_rise() {
        let long: Vec<u64> = (0..40).rev().map(|i| 1 << (BITS + i % BITS)).collect();
        for sets in [
            &[4, 2, 1][..],
            &[1, 4, 2],
            &[1, 1, 2],
            &[12, 6, 3],
            &[2, 0, 1],
            &[1 << BITS, 2 << BITS, 1, 2],
            &long,
        ] {
            assert!(!along(sets).is_rising(), "{sets:?}");
        }
    }

    #[test]
    fn the_same_tokens_again_are_repeated() {
        assert!(along(&[1, 2, 4, 1, 2, 4]).is_repeated());
        for others in [
            &[1, 2, 4, 1, 2][..],
            &[4, 2, 1, 4, 2, 1],
            &[1, 2, 4],
            &[3, 3],
        ] {
            assert!(!along(others).is_repeated(), "{others:?}");
        }
    }

    #[test]
    fn indices_without_tokens_contradict_nothing() {
        let all = along(&[1, 2, 4]);
        for (others, differ) in [
            (&[1, 2, 4][..], false),
            (&[0, 1, 2], true),
            (&[0, 2, 4], false),
            (&[3, 6, 4], false),
            (&[1, 2], false),
            (&[4, 2, 1], true),
        ] {
            assert_eq!(all.contradicts(&along(others)), differ, "{others:?}");
        }
    }

    #[test]
    fn queries_are_the_last_tokens_or_others() {
        let keys = along(&[1, 2, 4, 8]);
        assert!(keys.ends_with(&along(&[4, 8])));
        assert!(keys.ends_with(&keys));
        for others in [&[1, 2][..], &[2, 4], &[8, 16], &[0, 1, 2, 4, 8]] {
            assert!(!keys.ends_with(&along(others)), "{others:?}");
        }
    }
}
