//! What the codes of distances are projected to: for all distances of a run at once, since each
//! costs as much as the projection is large.

use ndarray::{Array1, Array2};

use super::near::{Near, walk};
use crate::prove::bound::{ROUNDINGS, SINGLE};
use posenc_encodings::families::transformer_xl::{Code, reference};

/// The vectors of distances for every head.
#[derive(Clone, Debug)]
pub(crate) struct Vectors {
    /// `[heads · head_dim, dim]`.
    projection: Array2<f64>,
    code: Code,
    /// Distances either way that there are vectors of.
    reach: Option<i64>,
    /// `[distance, heads · head_dim]`.
    values: Array2<f64>,
    /// The sizes of the sums that gave them.
    sizes: Array2<f64>,
    /// What an angle's error makes of each, for a distance of 1.
    turns: Array1<f64>,
}

impl Vectors {
    pub(crate) fn new(projection: Array2<f64>, code: Code) -> Self {
        let frequencies = code.frequencies.iter().chain(&code.frequencies);
        let frequencies = frequencies.cycle().take(projection.ncols());
        let frequencies: Array1<f64> = frequencies.copied().collect();
        let none = Array2::zeros((0, projection.nrows()));
        Self {
            turns: if frequencies.len() == projection.ncols() {
                projection.mapv(f64::abs).dot(&frequencies)
            } else {
                Array1::zeros(projection.nrows())
            },
            reach: None,
            values: none.clone(),
            sizes: none,
            projection,
            code,
        }
    }

    /// Makes vectors of the distances up to this one either way, where there are none yet.
    pub(crate) fn reach(&mut self, farthest: i64) {
        if self.reach >= Some(farthest) {
            return;
        }
        // The code is that of query − key.
        let distances: Vec<i64> = (-farthest..=farthest).rev().collect();
        let code = reference(&self.code, &distances);
        if code.ncols() != self.projection.ncols() {
            return;
        }
        let squares = |of: &Array2<f64>| of.mapv(|x| x * x);
        self.values = code.dot(&self.projection.t());
        let walked = squares(&code).dot(&squares(&self.projection).t());
        self.sizes = &self.values.mapv(f64::abs) + &walked.mapv(f64::sqrt);
        self.reach = Some(farthest);
    }

    /// A query of a head that meets the vector of a distance, key − query; NaN where there is
    /// none.
    pub(crate) fn met(
        &self,
        head: usize,
        distance: i64,
        query: &Array1<f64>,
        epsilon: f64,
    ) -> Near {
        let none = Near {
            value: f64::NAN,
            bound: f64::NAN,
        };
        let at = self
            .reach
            .and_then(|reach| usize::try_from(distance + reach).ok());
        let Some(at) = at.filter(|at| *at < self.values.nrows()) else {
            return none;
        };
        let columns = head * query.len()..(head + 1) * query.len();
        if columns.end > self.turns.len() {
            return none;
        }
        let columns = ndarray::s![columns];
        let (values, sizes) = (self.values.row(at), self.sizes.row(at));
        let mut near = Near::sum(query.view(), values.slice(columns), epsilon);
        let of = |numbers: ndarray::ArrayView1<'_, f64>| -> Vec<f64> {
            query
                .iter()
                .zip(numbers)
                .map(|(q, x)| (q * x).abs())
                .collect()
        };
        // What each vector was rounded by goes its own way; the error of an angle is in all.
        let rounded: f64 = of(sizes.slice(columns)).iter().map(|x| x * x).sum();
        let turned: f64 = of(self.turns.slice(columns)).iter().sum();
        let angle = ROUNDINGS * epsilon.min(SINGLE) * distance.unsigned_abs() as f64;
        near.bound += 2.0 * rounded.sqrt() * walk(self.projection.ncols(), epsilon);
        near.bound += turned * angle;
        near
    }
}
