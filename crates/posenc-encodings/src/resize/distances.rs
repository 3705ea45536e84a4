//! Tables by distance with more rows on either side of the row of distance 0, which stays.

use super::{Weights, linear};

/// Rows before and after that of distance 0, which is row `before`, counted from 0.
///
/// A table may count distances either way: rows before that of distance 0 are of keys before the query
/// in one table, and of keys after it in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sides {
    /// Rows with lower numbers than that of distance 0.
    pub before: usize,
    /// Rows with higher numbers than that of distance 0.
    pub after: usize,
}

impl Sides {
    /// Rows of the table; of sides beyond all numbers, the largest of these.
    pub fn rows(self) -> usize {
        self.before.saturating_add(self.after).saturating_add(1)
    }
}

/// How the rows of a wider table follow from those of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widening {
    /// Old rows stay, and distances beyond them get copies of the outermost one, as if they were
    /// clipped (Shaw et al., arXiv:1803.02155, section 3.2).
    Clamped,
    /// Distance d gets the old row of d · old ÷ new, where old and new are the numbers of rows on its
    /// side: position interpolation (Chen et al., arXiv:2306.15595) of distances.
    Interpolated,
}

impl Widening {
    /// The old rows that make up each row of a table with the sides `new`, and their weights.
    ///
    /// One entry for each of the `new.rows()` rows, in their order: one old row, or the two between
    /// which the distance falls, with weights that sum to 1.
    pub fn weights(self, old: Sides, new: Sides) -> Vec<Weights> {
        let center = old.before as f64;
        let row = |row: usize| {
            let (distance, [old_side, new_side]) = match row < new.before {
                true => (row as f64 - new.before as f64, [old.before, new.before]),
                false => ((row - new.before) as f64, [old.after, new.after]),
            };
            let at = match self {
                Self::Interpolated if new_side > 0 => distance * old_side as f64 / new_side as f64,
                _ => distance,
            };
            linear(center + at, old.rows())
        };
        (0..new.rows()).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Sides = Sides {
        before: 2,
        after: 1,
    };

    fn one(row: usize) -> Weights {
        vec![(row, 1.0)]
    }

    #[test]
    fn clamped_rows_are_those_that_were_there_and_copies_of_the_outermost() {
        let new = Sides {
            before: 4,
            after: 2,
        };
        let got = Widening::Clamped.weights(OLD, new);
        assert_eq!(got, [0, 0, 0, 1, 2, 3, 3].map(one));
    }

    #[test]
    fn interpolated_rows_keep_distance_0_and_the_ends() {
        let new = Sides {
            before: 4,
            after: 4,
        };
        let got = Widening::Interpolated.weights(OLD, new);
        let half = |row: usize| vec![(row, 0.5), (row + 1, 0.5)];
        let [quarter, three] = [0.25, 0.75].map(|share| vec![(2, 1.0 - share), (3, share)]);
        let want = [
            one(0),
            half(0),
            one(1),
            half(1),
            one(2),
            quarter,
            half(2),
            three,
            one(3),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn sides_beyond_all_numbers_have_the_most_rows() {
        let endless = Sides {
            before: usize::MAX,
            after: usize::MAX,
        };
        assert_eq!([OLD, endless].map(Sides::rows), [4, usize::MAX]);
    }

    #[test]
    fn a_side_without_rows_stays_so() {
        let old = Sides {
            before: 3,
            after: 0,
        };
        let new = Sides { before: 6, ..old };
        for by in [Widening::Clamped, Widening::Interpolated] {
            let got = by.weights(old, new);
            assert_eq!((got.len(), &got[6]), (7, &one(3)), "{by:?}");
            assert_eq!(by.weights(old, old), [0, 1, 2, 3].map(one));
        }
    }
}
