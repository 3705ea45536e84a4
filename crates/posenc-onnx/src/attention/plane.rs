//! Bias and mask of the scores of a site, as numbers.

use ndarray::{Array3, Array4, Axis, Zip};
use posenc_encodings::samples::most;

/// Scores this far below the best of a row are hidden.
pub(crate) const HIDDEN: f64 = 500.0;

/// What a mask that hides less takes off at the least.
pub(crate) const MASKED: f64 = 20.0;

/// How much of what a mask takes off may be rounded off where its sum with a bias is stored in half precision.
const ROUNDED: f64 = 1e-3;

/// The input of the softmax of a site where queries and keys are zero.
#[derive(Clone, Debug)]
pub(crate) struct Plane {
    /// `[group, head, query, key]`: a group is a sequence of the batch, or a window. Hidden pairs
    /// are −∞.
    pub(crate) bias: Array4<f64>,
    /// Keys that came before the first query.
    pub(crate) past: usize,
}

impl Plane {
    pub(crate) fn new(mut bias: Array4<f64>) -> Self {
        for mut row in bias.lanes_mut(Axis(3)) {
            let seen = row.iter().copied().filter(|v| !v.is_nan());
            let best = seen.fold(f64::NEG_INFINITY, f64::max);
            let all = !best.is_finite();
            row.mapv_inplace(|v| {
                if all || v.is_nan() || best - v > HIDDEN {
                    f64::NEG_INFINITY
                } else {
                    v
                }
            });
        }
        // A query that sees nothing, or numbers far below all that others see, fills up a block or
        // is padding: next to it a bias disappears in rounding. Where all queries do, nothing is hidden.
        let best = bias.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if !best.is_finite() {
            bias.fill(0.0);
        }
        for mut row in bias.lanes_mut(Axis(3)) {
            if row.iter().all(|v| best - v > HIDDEN) {
                row.fill(f64::NEG_INFINITY);
            }
        }
        let past = bias.dim().3.saturating_sub(bias.dim().2);
        Self { bias, past }
    }

    /// Whether a score is hidden by a mask: far below the best of its row, or of all.
    pub(crate) fn is_hidden(&self, at: [usize; 4]) -> bool {
        self.bias[at] == f64::NEG_INFINITY
    }

    /// The same without the keys at the end that no query sees; `None` where there are none.
    pub(crate) fn without_empty(&self) -> Option<Self> {
        let is_empty = |key: usize| {
            let column = self.bias.index_axis(Axis(3), key);
            column.iter().all(|v| *v == f64::NEG_INFINITY)
        };
        let keys = self.bias.dim().3;
        let filled = (0..keys).rfind(|key| !is_empty(*key))? + 1;
        let bias = self.bias.slice(ndarray::s![.., .., .., ..filled]);
        (filled < keys).then(|| Self {
            bias: bias.to_owned(),
            past: filled.saturating_sub(bias.dim().2),
        })
    }

    /// Whether all heads of the first group hide the same pairs.
    pub(crate) fn hides_alike(&self) -> bool {
        let hides = |v: &f64| *v == f64::NEG_INFINITY;
        self.bias.outer_iter().next().is_none_or(|group| {
            let mut heads = group.outer_iter();
            heads.next().is_none_or(|first| {
                heads.all(|head| {
                    Zip::from(&head)
                        .and(&first)
                        .all(|a, b| hides(a) == hides(b))
                })
            })
        })
    }

    /// Whether every query sees the same number everywhere: no bias, for a softmax.
    pub(crate) fn is_flat(&self) -> bool {
        let near = 1e-9 * most(self.bias.iter());
        self.bias.lanes(Axis(3)).into_iter().all(|row| {
            let mut seen = row.iter().filter(|v| v.is_finite());
            let first = seen.next().copied().unwrap_or(0.0);
            seen.all(|v| (v - first).abs() <= near)
        })
    }

    /// The bias `[head, query, key]` that all groups share: what hides pairs in some of them
    /// alone, as the masks of shifted windows do, is lifted. `None` where groups differ otherwise.
    pub(crate) fn shared(&self) -> Option<Array3<f64>> {
        self.lifted().map(|(best, _)| best)
    }

    /// The bias that all groups share, and what is lifted of it, `[group, query, key]`: the number that a mask
    /// takes off, and zero where a group has the bias.
    pub(crate) fn lifted(&self) -> Option<(Array3<f64>, Array3<f64>)> {
        let [groups, heads, queries, keys] = self.bias.dim().into();
        let mut masks = Array3::zeros([groups, queries, keys]);
        let first = self.bias.index_axis(Axis(0), 0);
        if (1..groups).all(|g| self.bias.index_axis(Axis(0), g) == first) {
            return Some((first.to_owned(), masks));
        }
        let best = self
            .bias
            .fold_axis(Axis(0), f64::NEG_INFINITY, |a, b| a.max(*b));
        let near = 1e-6 * most(best.iter());
        for ((g, i, j), mask) in masks.indexed_iter_mut() {
            let less = |h: usize| {
                if self.is_hidden([g, h, i, j]) {
                    f64::INFINITY
                } else {
                    best[[h, i, j]] - self.bias[[g, h, i, j]]
                }
            };
            let of_first = less(0);
            let allowed = match of_first {
                _ if of_first <= near => near,
                _ if of_first >= MASKED => ROUNDED * of_first,
                _ => return None,
            };
            let equal = |h: usize| less(h) == of_first || (less(h) - of_first).abs() <= allowed;
            if !(0..heads).all(equal) {
                return None;
            }
            if of_first >= MASKED {
                *mask = of_first;
            }
        }
        Some((best, masks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of two keys two queries see, by the numbers of both.
    fn seen(bias: [[f64; 2]; 2]) -> [[bool; 2]; 2] {
        let plane = Plane::new(Array4::from_shape_fn([1, 1, 2, 2], |(_, _, i, j)| {
            bias[i][j]
        }));
        [0, 1].map(|i| [0, 1].map(|j| !plane.is_hidden([0, 0, i, j])))
    }

    #[test]
    fn heads_hide_alike_where_they_hide_the_same_pairs() {
        let plane = |of_second: f64| {
            Plane::new(Array4::from_shape_fn([1, 2, 2, 2], |(_, h, i, j)| {
                let hidden = if h == 1 { of_second } else { -1e9 };
                if j > i { hidden } else { h as f64 }
            }))
        };
        assert!(plane(-1e9).hides_alike());
        assert!(!plane(0.0).hides_alike());
    }

    /// Two windows, of which the second hides a pair from both heads.
    fn windows(masks: [f64; 2]) -> Option<(Array3<f64>, Array3<f64>)> {
        let plane = Plane::new(Array4::from_shape_fn([2, 2, 2, 2], |(g, h, i, j)| {
            let bias = 0.37 * h as f64 + 0.11 * i as f64 - 0.23 * j as f64;
            let mask = if g == 1 && i == 0 && j == 1 {
                masks[h]
            } else {
                0.0
            };
            // As it is stored.
            f64::from((bias - mask) as f32)
        }));
        plane.lifted()
    }

    #[test]
    fn masks_of_windows_are_lifted_from_a_sum_that_was_rounded() {
        let (best, masks) = windows([100.0, 100.0]).unwrap();
        assert!((best[[1, 0, 1]] - 0.14).abs() < 1e-6);
        let hidden = masks.mapv(|mask| mask > 0.0);
        assert_eq!(hidden.iter().filter(|hides| **hides).count(), 1);
        assert!((masks[[1, 0, 1]] - 100.0).abs() < 1e-4);
        // What hides less may be a bias, and what differs between heads is no mask.
        assert_eq!(windows([3.0, 3.0]), None);
        assert_eq!(windows([100.0, 0.0]), None);
        assert_eq!(windows([100.0, 120.0]), None);
    }

    #[test]
    fn a_query_that_sees_nothing_next_to_one_that_does_is_hidden() {
        const NONE: f64 = f64::NEG_INFINITY;
        let first = [[true, true], [false, false]];
        for low in [NONE, f64::NAN, -1e10, f64::from(f32::MIN)] {
            assert_eq!(seen([[0.5, -3.0], [low, low]]), first, "{low}");
            assert_eq!(
                seen([[0.5, low], [low, 0.0]]),
                [[true, false], [false, true]]
            );
            // Where all are equal, nothing is hidden.
            assert_eq!(seen([[low, low], [low, low]]), [[true; 2]; 2], "{low}");
        }
        assert_eq!(
            seen([[0.0, -1000.0], [-3.0, 0.0]]),
            [[true, false], [true, true]]
        );
        assert_eq!(seen([[0.5, -3.0], [-400.0, -401.0]]), [[true; 2]; 2]);
    }
}
