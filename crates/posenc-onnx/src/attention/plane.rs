//! Bias and mask of the scores of a site, as numbers.

use ndarray::{Array3, Array4, Axis};
use posenc_encodings::samples::most;

/// Scores this far below the best of a row are hidden.
pub(crate) const HIDDEN: f64 = 500.0;

/// What a mask that hides less takes off at the least.
pub(crate) const MASKED: f64 = 20.0;

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
        let [groups, heads, queries, keys] = self.bias.dim().into();
        let first = self.bias.index_axis(Axis(0), 0);
        if (1..groups).all(|g| self.bias.index_axis(Axis(0), g) == first) {
            return Some(first.to_owned());
        }
        let best = self
            .bias
            .fold_axis(Axis(0), f64::NEG_INFINITY, |a, b| a.max(*b));
        let near = 1e-6 * most(best.iter());
        for g in 0..groups {
            for (i, j) in (0..queries).flat_map(|i| (0..keys).map(move |j| (i, j))) {
                let less = |h: usize| {
                    if self.is_hidden([g, h, i, j]) {
                        f64::INFINITY
                    } else {
                        best[[h, i, j]] - self.bias[[g, h, i, j]]
                    }
                };
                let of_first = less(0);
                let masks = of_first <= near || of_first >= MASKED;
                let equal = |h: usize| less(h) == of_first || (less(h) - of_first).abs() <= near;
                if !masks || !(0..heads).all(equal) {
                    return None;
                }
            }
        }
        Some(best)
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
