//! Symmetry: where a formula gives two tokens the same number either way, the graph does too, whatever its
//! parameters are.

use ndarray::Axis;

use super::pairs::Pairs;
use crate::attention::plane::HIDDEN;
use crate::prove::bound::{ROUNDINGS, Worst};
use crate::prove::formula::Formula;
use posenc_encodings::bias::{At, Sample};

/// The share of a number by which both ways may differ in a formula that is symmetric.
const ROUNDED: f64 = 1e-12;

impl Pairs {
    /// How far both ways between two tokens are apart, over all pairs that no mask hides. From each number that of
    /// its query with itself is taken away, because a softmax cannot tell a constant of a query. `None` for a
    /// formula that is not symmetric, and where a mask hides one of both ways.
    pub(crate) fn symmetry(&self, formula: &Formula) -> Option<Worst> {
        let Formula::ScoreBias(bias, tensors) = formula else {
            return None;
        };
        let (groups, heads, tokens, columns) = self.was.dim();
        if columns != tokens || self.is.dim() != self.was.dim() {
            return None;
        }
        let best = self.was.map_axis(Axis(3), |row| {
            row.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        });
        // What a score got, and the size of the numbers that it is the difference of.
        let added = |at: [usize; 4]| {
            let (was, is) = (self.was[at], self.is[at]);
            let is_seen = was.is_finite() && best[[at[0], at[1], at[2]]] - was < HIDDEN;
            is_seen.then_some((is - was, is.abs() + was.abs()))
        };
        let sample = |head: usize, i: usize, j: usize| {
            let at = At {
                query: i as i64,
                key: j as i64,
                keys: columns,
            };
            bias.reference(tensors, head, at)
        };
        let mut worst = Worst::default();
        for head in 0..heads {
            for (i, j) in (0..tokens).flat_map(|i| (0..i).map(move |j| (i, j))) {
                let samples = ways(i, j).map(|(i, j)| sample(head, i, j));
                if !is_zero(samples) {
                    return None;
                }
                for group in 0..groups {
                    let numbers = ways(i, j).map(|(i, j)| added([group, head, i, j]));
                    let [Some(a), Some(b), Some(c), Some(d)] = numbers else {
                        continue;
                    };
                    let rounded: f64 = samples.iter().map(|s| s.value.abs() + s.rounded).sum();
                    let sizes = [a, b, c, d].map(|(_, size)| size);
                    let size = rounded + sizes.iter().sum::<f64>();
                    let bound = ROUNDINGS * self.epsilon * size;
                    worst.add(a.0 - b.0, c.0 - d.0, bound);
                }
            }
        }
        (worst.count > 0).then_some(worst)
    }
}

/// A query and a key, and the same query with itself; then the other way.
fn ways(i: usize, j: usize) -> [(usize, usize); 4] {
    [(i, j), (i, i), (j, i), (j, j)]
}

/// Whether a formula gives both ways the same number.
fn is_zero([a, b, c, d]: [Sample; 4]) -> bool {
    let all = [a, b, c, d].map(|sample| sample.value);
    let size: f64 = all.iter().map(|value| value.abs()).sum();
    (all[0] - all[1] - all[2] + all[3]).abs() <= ROUNDED * size
}

#[cfg(test)]
mod tests {
    use ndarray::Array4;
    use posenc_encodings::families::alibi::Alibi;

    use super::*;

    const TOKENS: usize = 7;

    fn pairs(bias: impl Fn(i64) -> f64, is_causal: bool) -> Pairs {
        let dims = (1, 2, TOKENS, TOKENS);
        let was = Array4::from_shape_fn(dims, |(_, h, i, j)| match is_causal && j > i {
            true => f64::NEG_INFINITY,
            false => ((h + 3 * i + 5 * j) as f64).sin(),
        });
        let mut is = was.clone();
        for ((.., i, j), score) in is.indexed_iter_mut() {
            *score += bias(j as i64 - i as i64);
        }
        Pairs::of_scores(was, is, f64::from(f32::EPSILON))
    }

    fn alibi(is_symmetric: bool) -> Formula {
        Formula::ScoreBias(
            Box::new(Alibi {
                heads: 2,
                slopes: vec![0.5, 0.25],
                symmetric: Some(is_symmetric),
            }),
            vec![],
        )
    }

    #[test]
    fn a_graph_that_is_not_symmetric_is_seen_whatever_its_slopes() {
        let even = |d: i64| -0.7 * d.abs() as f64;
        assert!(pairs(even, false).symmetry(&alibi(true)).unwrap().ok());
        let uneven = |d: i64| -0.7 * d.abs() as f64 + if d > 2 { 1e-3 } else { 0.0 };
        assert!(!pairs(uneven, false).symmetry(&alibi(true)).unwrap().ok());
        let ramp = |d: i64| 0.7 * d as f64;
        assert!(!pairs(ramp, false).symmetry(&alibi(true)).unwrap().ok());
    }

    #[test]
    fn a_constant_of_each_query_is_no_difference() {
        let mut pairs = pairs(|d| -0.7 * d.abs() as f64, false);
        for ((.., i, _), score) in pairs.is.indexed_iter_mut() {
            *score += i as f64;
        }
        assert!(pairs.symmetry(&alibi(true)).unwrap().ok());
    }

    #[test]
    fn nothing_is_said_where_the_formula_is_not_symmetric_or_a_mask_hides_one_way() {
        let even = |d: i64| -0.7 * d.abs() as f64;
        assert!(pairs(even, true).symmetry(&alibi(true)).is_none());
        assert!(pairs(even, false).symmetry(&alibi(false)).is_none());
    }
}
