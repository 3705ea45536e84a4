//! Numbers that follow from the grid of patches, told from what they are for several grids.

/// A size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Number {
    /// A number that is the same for every grid.
    Fixed(i64),
    /// `factor` × the product of the counted sides + `more`.
    Grid {
        /// Whether the rows of the grid are counted, and whether its columns are.
        sides: [bool; 2],
        /// The factor.
        factor: i64,
        /// The number that is added.
        more: i64,
    },
}

impl Number {
    /// The rows of the grid (0), or its columns (1).
    pub(crate) fn side(side: usize) -> Self {
        Self::Grid {
            sides: [side == 0, side == 1],
            factor: 1,
            more: 0,
        }
    }

    /// The number that is each of `values` where the grid has these sides; `None` where it follows in
    /// another way.
    pub(super) fn fitted(values: &[i64], grids: &[[usize; 2]]) -> Option<Self> {
        let first = *values.first()?;
        if values.iter().all(|value| *value == first) {
            return Some(Self::Fixed(first));
        }
        let all = [[true, false], [false, true], [true, true]];
        all.into_iter().find_map(|sides| {
            let count = |grid: &[usize; 2]| -> i128 {
                let own = grid.iter().zip(sides).filter(|(_, counts)| *counts);
                own.map(|(side, _)| *side as i128).product()
            };
            let pairs = || {
                values
                    .iter()
                    .map(|v| i128::from(*v))
                    .zip(grids.iter().map(count))
            };
            let (value, at) = pairs().next()?;
            let (other, far) = pairs().find(|(_, n)| *n != at)?;
            let factor = (other - value).checked_div(far - at)?;
            let more = value - factor * at;
            let fits = pairs().all(|(value, n)| factor * n + more == value);
            Some(Self::Grid {
                sides,
                factor: factor.try_into().ok().filter(|_| fits)?,
                more: more.try_into().ok()?,
            })
        })
    }

    /// Whether it follows from the grid.
    pub(crate) fn follows(self) -> bool {
        matches!(self, Self::Grid { .. })
    }
}

/// Lets a `Reshape` find out of the elements what it can: one length from all of them, and lengths that are
/// those of the same axis before, which `kept` says.
pub(super) fn shorten(each: &mut [Number], kept: impl Fn(usize) -> bool) {
    let follow =
        |all: &[Number]| -> Vec<usize> { (0..all.len()).filter(|at| all[*at].follows()).collect() };
    let rest = Number::Fixed(-1);
    if follow(each).len() > 1 || each.contains(&rest) {
        for at in follow(each).into_iter().filter(|at| kept(*at)) {
            each[at] = Number::Fixed(0);
        }
    }
    let [one] = follow(each)[..] else { return };
    // The batch is what it was.
    if each.first() == Some(&rest) && kept(0) {
        each[0] = Number::Fixed(0);
    }
    if !each.contains(&rest) {
        each[one] = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRIDS: [[usize; 2]; 5] = [[4, 4], [6, 3], [3, 7], [9, 5], [8, 8]];

    fn grid(sides: [bool; 2], factor: i64, more: i64) -> Option<Number> {
        Some(Number::Grid {
            sides,
            factor,
            more,
        })
    }

    fn fitted(of: impl Fn([i64; 2]) -> i64) -> Option<Number> {
        let values = GRIDS.map(|[height, width]| of([height as i64, width as i64]));
        Number::fitted(&values, &GRIDS)
    }

    #[test]
    fn sizes_are_told_from_several_grids() {
        assert_eq!(fitted(|_| 12), Some(Number::Fixed(12)));
        assert_eq!(fitted(|[h, _]| h), grid([true, false], 1, 0));
        assert_eq!(fitted(|[_, w]| 16 * w), grid([false, true], 16, 0));
        assert_eq!(fitted(|[h, w]| h * w + 5), grid([true, true], 1, 5));
        assert_eq!(
            fitted(|[h, w]| 12 * (h * w + 1)),
            grid([true, true], 12, 12)
        );
    }

    #[test]
    fn other_numbers_are_not_guessed() {
        assert_eq!(fitted(|[h, w]| h + w), None);
        assert_eq!(fitted(|[h, w]| h / 2 * w), None);
        assert_eq!(fitted(|[h, w]| h * h * w), None);
        assert_eq!(fitted(|[h, w]| i64::from(h == w)), None);
        assert_eq!(fitted(|[h, _]| if h == 4 { 5 } else { h }), None);
        assert_eq!(Number::fitted(&[], &[]), None);
        assert_eq!(Number::fitted(&[1, 2], &[[4, 4], [4, 4]]), None);
        assert_eq!(Number::fitted(&[i64::MIN, i64::MAX], &GRIDS[..2]), None);
    }

    #[test]
    fn a_reshape_finds_out_what_it_can() {
        let [height, width] = [[true, false], [false, true]].map(|sides| Number::Grid {
            sides,
            factor: 1,
            more: 0,
        });
        let fixed = Number::Fixed;
        let cases: [(&[Number], &[usize], &[Number]); 8] = [
            (&[fixed(2), fixed(4)], &[0, 1], &[fixed(2), fixed(4)]),
            (&[fixed(-1), height], &[1], &[fixed(-1), fixed(0)]),
            (&[fixed(-1), height], &[0], &[fixed(0), fixed(-1)]),
            (&[fixed(2), height], &[], &[fixed(2), fixed(-1)]),
            (&[fixed(-1), height], &[], &[fixed(-1), height]),
            (&[height, width], &[], &[height, width]),
            (&[height, width], &[0], &[fixed(0), fixed(-1)]),
            (
                &[fixed(-1), height, width],
                &[2],
                &[fixed(-1), height, fixed(0)],
            ),
        ];
        for (each, kept, want) in cases {
            let mut made = each.to_vec();
            shorten(&mut made, |at| kept.contains(&at));
            assert_eq!(made, want, "{each:?} {kept:?}");
        }
    }
}
