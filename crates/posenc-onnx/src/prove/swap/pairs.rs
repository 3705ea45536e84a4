//! Scores before and after, pair by pair, against the formula: visible scores changed by what was
//! inserted, and masked keys are still masked.

use ndarray::{Array3, Array4};

use crate::attention::plane::HIDDEN;
use crate::prove::bound::{ROUNDINGS, Worst};
use crate::prove::formula::{Formula, Near, Pair, Scales};
use posenc_encodings::bias::At;

/// The scores of a site in both graphs, and what they were computed from.
pub(crate) struct Pairs {
    /// `[group, head, query, key]`.
    pub(crate) was: Array4<f64>,
    pub(crate) is: Array4<f64>,
    /// `[slot, token, feature]`; without features where the formula does not need them.
    pub(crate) queries: Array3<f64>,
    pub(crate) keys: Array3<f64>,
    pub(crate) scales: Scales,
    /// The precision of the scores.
    pub(crate) epsilon: f64,
}

impl Pairs {
    /// The largest distance between a query and a key.
    pub(crate) fn farthest(&self) -> i64 {
        self.queries.dim().1.max(self.keys.dim().1) as i64
    }

    /// The differences from the formula over visible pairs, and how far masked pairs are below the
    /// best one; `None` if shapes differ.
    pub(crate) fn against(&self, formula: &Formula) -> Option<[Worst; 2]> {
        let (groups, heads, rows, columns) = self.was.dim();
        let (slots, kept) = (self.queries.dim().0, self.keys.dim().0);
        let after = self.is.dim();
        let same = after == (groups, heads, rows, columns);
        // Sinks add columns that are no keys.
        let columns = columns.min(self.keys.dim().1);
        let fits = slots == groups * heads
            && kept > 0
            && slots.is_multiple_of(kept)
            && rows == self.queries.dim().1;
        if !same || !fits || columns == 0 {
            return None;
        }
        let most = self.was.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let past = i64::try_from(columns.checked_sub(rows)?).ok()?;
        let mut all = [Worst::default(); 2];
        for slot in 0..slots {
            for row in 0..rows {
                let row = Row {
                    pairs: self,
                    slot,
                    row,
                    columns,
                    past,
                    most,
                };
                row.against(formula, &mut all);
            }
        }
        Some(all)
    }
}

/// One query.
struct Row<'a> {
    pairs: &'a Pairs,
    slot: usize,
    row: usize,
    columns: usize,
    past: i64,
    /// The best score of all queries.
    most: f64,
}

impl Row<'_> {
    fn against(&self, formula: &Formula, [seen, hidden]: &mut [Worst; 2]) {
        let Pairs {
            scales, epsilon, ..
        } = *self.pairs;
        let score = |scores: &Array4<f64>, j: usize| {
            let heads = scores.dim().1;
            scores[[self.slot / heads, self.slot % heads, self.row, j]]
        };
        let best = |scores: &Array4<f64>| {
            let all = (0..self.columns).map(|j| score(scores, j));
            all.fold(f64::NEG_INFINITY, f64::max)
        };
        let (was, is) = (&self.pairs.was, &self.pairs.is);
        let (best, best_now) = (best(was), best(is));
        // A row that masks every key alike is no query.
        if !best.is_finite() || self.most - best >= HIDDEN {
            return;
        }
        let mut anchor = self.sink(seen);
        let is_free = anchor.is_some() || formula.is_up_to_a_constant();
        // The nearest key is first: it determines the constant of the row.
        for j in (0..self.columns).rev() {
            let (old, new) = (score(was, j), score(is, j));
            if best - old >= HIDDEN || !old.is_finite() {
                hidden.add(depth(best_now, new), HIDDEN, HIDDEN / 2.0);
                continue;
            }
            let pair = self.pair(j);
            let near = formula.at(pair, scales, epsilon);
            let mut bound = near.bound + ROUNDINGS * epsilon * (old.abs() + new.abs());
            if formula.meets_content() {
                bound += Formula::product(pair, scales, epsilon);
            }
            let got = new - old;
            if !is_free {
                seen.add(got, near.value, bound);
                continue;
            }
            let first = anchor.get_or_insert(Near {
                value: got - near.value,
                bound,
            });
            seen.add(got - first.value, near.value, bound + first.bound);
        }
    }

    /// How much the last sink changed, with all numbers of the row; `None` where there is none. Others
    /// have to change alike.
    fn sink(&self, seen: &mut Worst) -> Option<Near> {
        let Pairs {
            was, is, epsilon, ..
        } = self.pairs;
        let heads = was.dim().1;
        let mut last: Option<Near> = None;
        for j in self.columns..was.dim().3 {
            let at = [self.slot / heads, self.slot % heads, self.row, j];
            let (old, new) = (was[at], is[at]);
            let bound = ROUNDINGS * epsilon * (old.abs() + new.abs());
            let value = new - old;
            if let Some(before) = &last {
                seen.add(value, before.value, bound + before.bound);
            }
            last = Some(Near { value, bound });
        }
        last
    }

    fn pair(&self, j: usize) -> Pair<'_> {
        let Pairs { queries, keys, .. } = self.pairs;
        let (slots, kept) = (queries.dim().0, keys.dim().0);
        Pair {
            head: self.slot % self.pairs.was.dim().1,
            at: At {
                query: self.row as i64 + self.past,
                key: j as i64,
                keys: self.columns,
            },
            query: queries.slice(ndarray::s![self.slot, self.row, ..]),
            key: keys.slice(ndarray::s![self.slot * kept / slots, j, ..]),
        }
    }
}

/// How far below the best a score is, at most the depth that masks it; NaN stays NaN.
fn depth(best: f64, score: f64) -> f64 {
    match best - score {
        _ if score == f64::NEG_INFINITY => HIDDEN,
        depth if depth >= HIDDEN => HIDDEN,
        depth => depth,
    }
}

#[cfg(test)]
impl Pairs {
    /// Scores alone, of a formula that needs no queries and keys.
    pub(super) fn of_scores(was: Array4<f64>, is: Array4<f64>, epsilon: f64) -> Self {
        let (groups, heads, queries, keys) = was.dim();
        let nothing = |tokens| Array3::zeros((groups * heads, tokens, 0));
        Self {
            queries: nothing(queries),
            keys: nothing(keys),
            was,
            is,
            scales: Scales {
                query: 1.0,
                key: 1.0,
                product: 1.0,
            },
            epsilon,
        }
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use super::*;
    use posenc_encodings::families::alibi::Alibi;

    const SLOPES: [f64; 2] = [0.5, 0.0625];
    const ROWS: usize = 40;

    fn alibi(slopes: [f64; 2]) -> Formula {
        Formula::ScoreBias(
            Box::new(Alibi {
                heads: 2,
                slopes: slopes.to_vec(),
                symmetric: None,
            }),
            vec![],
        )
    }

    /// Scores of a causal site with a bias, rounded to a type.
    fn pairs(dtype: DType, bias: impl Fn(usize, i64) -> f64) -> Pairs {
        let round = |x: f64| {
            let tensor = posenc_ir::Tensor::from_f64(dtype, &[], &[x]);
            tensor.get_f64(0).unwrap()
        };
        let shape = (1, 2, ROWS, ROWS);
        let later = |i: usize, j: usize| j > i;
        let was = Array4::from_shape_fn(shape, |(_, h, i, j)| {
            if later(i, j) {
                f64::NEG_INFINITY
            } else {
                round((7.0 * i as f64 + 3.0 * j as f64 + h as f64).sin())
            }
        });
        let is = Array4::from_shape_fn(shape, |(g, h, i, j)| {
            round(was[[g, h, i, j]] + round(bias(h, j as i64 - i as i64)))
        });
        Pairs::of_scores(was, is, dtype.epsilon().unwrap())
    }

    const TYPES: [DType; 3] = [DType::F32, DType::F16, DType::BF16];

    #[test]
    fn a_bias_close_to_the_right_one_is_noticed_in_every_type() {
        for dtype in TYPES {
            let pairs = pairs(dtype, |h, d| SLOPES[h] * d as f64);
            let of = |slopes| pairs.against(&alibi(slopes)).unwrap();
            let [seen, hidden] = of(SLOPES);
            assert!(seen.ok() && hidden.ok(), "{dtype:?} {seen:?} {hidden:?}");
            assert_eq!(seen.count, 2 * ROWS * (ROWS + 1) / 2);
            assert_eq!(hidden.count, 2 * ROWS * (ROWS - 1) / 2);
            let off = 1.0 + 40.0 * dtype.epsilon().unwrap();
            for wrong in [
                [SLOPES[0] * off, SLOPES[1]],
                [SLOPES[0], SLOPES[1] * off],
                [SLOPES[1], SLOPES[0]],
                [0.0, 0.0],
            ] {
                let [seen, _] = of(wrong);
                assert!(!seen.ok(), "{dtype:?} {wrong:?} {seen:?}");
            }
        }
    }

    #[test]
    fn one_wrong_pair_is_noticed_whatever_the_size_of_others() {
        for dtype in TYPES {
            // Large numbers at large distances do not hide a wrong one at a small distance.
            let bias = |h, d: i64| SLOPES[h] * d as f64 + if d == -1 { 0.125 } else { 0.0 };
            let [seen, _] = pairs(dtype, bias).against(&alibi(SLOPES)).unwrap();
            assert!(!seen.ok(), "{dtype:?} {seen:?}");
        }
    }

    #[test]
    fn masked_keys_stay_masked_and_visible_keys_visible() {
        let bias = |h: usize, d: i64| SLOPES[h] * d as f64;
        let passes = |change: &dyn Fn(&mut Array4<f64>)| {
            let mut pairs = pairs(DType::F32, bias);
            change(&mut pairs.is);
            let [seen, hidden] = pairs.against(&alibi(SLOPES)).unwrap();
            (seen.ok(), hidden.ok())
        };
        assert_eq!(passes(&|_| {}), (true, true));
        assert_eq!(passes(&|is| is[[0, 1, 3, 9]] = 0.0), (true, false));
        assert_eq!(passes(&|is| is[[0, 0, 3, 4]] = -200.0), (true, false));
        assert_eq!(passes(&|is| is[[0, 0, 3, 4]] = f64::NAN), (true, false));
        assert_eq!(passes(&|is| is[[0, 0, 3, 4]] = -1e4), (true, true));
        let hides = |is: &mut Array4<f64>| is[[0, 0, 9, 3]] = f64::NEG_INFINITY;
        assert_eq!(passes(&hides), (false, true));
        let shifts = |is: &mut Array4<f64>| is.mapv_inplace(|s| s - 7.0);
        assert_eq!(passes(&shifts), (true, true), "a constant is no change");
    }

    #[test]
    fn what_is_added_to_keys_is_measured_from_a_sink() {
        let bias = |h: usize, d: i64| SLOPES[h] * d as f64;
        let passes = |change: &dyn Fn(&mut Array4<f64>)| {
            let mut pairs = pairs(DType::F32, bias);
            let sinks = Array4::from_elem((1, 2, ROWS, 1), 0.75);
            let with =
                |scores: &Array4<f64>| ndarray::concatenate![ndarray::Axis(3), *scores, sinks];
            (pairs.was, pairs.is) = (with(&pairs.was), with(&pairs.is));
            change(&mut pairs.is);
            let [seen, hidden] = pairs.against(&alibi(SLOPES)).unwrap();
            seen.ok() && hidden.ok()
        };
        assert!(passes(&|_| {}));
        assert!(passes(&|is| is.mapv_inplace(|s| s - 7.0)), "all together");
        let keys = |is: &mut Array4<f64>| {
            let mut keys = is.slice_mut(ndarray::s![.., .., .., ..ROWS]);
            keys.mapv_inplace(|s| s - 7.0);
        };
        assert!(!passes(&keys), "all but the sink");
        assert!(!passes(&|is| is[[0, 1, 5, ROWS]] += 0.5), "the sink alone");
        let first = pairs(DType::F32, bias);
        let mut longer = pairs(DType::F32, bias);
        let sinks = Array4::zeros((1, 2, ROWS, 1));
        longer.is = ndarray::concatenate![ndarray::Axis(3), first.is, sinks];
        assert!(
            longer.against(&alibi(SLOPES)).is_none(),
            "a sink of its own"
        );
    }
}
