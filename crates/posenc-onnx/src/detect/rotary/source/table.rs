//! Which rows and columns of a constant a rotation reads.

use std::collections::BTreeSet;

use ndarray::{Array3, ArrayD, Dimension, IxDyn};

use super::data::{Column, Wave};
use crate::detect::found::Found;
use crate::detect::rotary::site::RotaryOperand;

/// A constant as a table: it is filled with the numbers of its rows, then of its columns, and what
/// the rotation becomes shows which position reads which row, and which pair which columns.
pub(crate) struct TableProbe<'a, F> {
    pub(crate) found: &'a Found,
    pub(crate) half: &'a RotaryOperand,
    pub(crate) dims: &'a [usize],
    /// The matrices of the rotation, `[pos, out, in]`, with these numbers for the constant and
    /// zeros for all others.
    pub(crate) probe: F,
}

impl<F: Fn(ArrayD<f64>) -> Option<Array3<f64>>> TableProbe<'_, F> {
    /// The features of a pair, as they are in the matrices.
    fn pair(&self, pair: usize) -> Option<(usize, usize)> {
        let offset = usize::try_from(self.half.region.output_lane.offset).ok()?;
        let (a, b) = self.half.rotation.rope.pairs[pair];
        Some((a - offset, b - offset))
    }

    fn pairs(&self) -> std::ops::Range<usize> {
        0..self.half.rotation.rope.pairs.len()
    }

    /// The axis of positions, and the row that the first position reads.
    pub(crate) fn rows(&self) -> Option<(usize, i64)> {
        for axis in 0..self.dims.len() {
            if self.dims[axis] < self.found.lengths.sequence {
                continue;
            }
            let rows = ArrayD::from_shape_fn(IxDyn(self.dims), |i| i[axis] as f64 + 1.0);
            let maps = (self.probe)(rows)?;
            let positions = 0..maps.shape()[0];
            let read: Option<Vec<i64>> = positions.map(|p| self.row(&maps, p)).collect();
            if let Some(read) = read
                && read.windows(2).all(|w| w[1] == w[0] + 1)
                && read.len() > 1
            {
                return Some((axis, read[0]));
            }
        }
        None
    }

    /// The one row that all pairs read at a position.
    fn row(&self, maps: &Array3<f64>, p: usize) -> Option<i64> {
        let mut first_rows = BTreeSet::new();
        for pair in self.pairs() {
            let (a, b) = self.pair(pair)?;
            let values = [maps[[p, a, a]].abs(), maps[[p, b, a]].abs()];
            first_rows.extend(
                values
                    .iter()
                    .filter(|v| **v > 0.5)
                    .map(|v| v.round() as i64),
            );
        }
        let one = first_rows.iter().next().copied();
        one.filter(|_| first_rows.len() == 1).map(|row| row - 1)
    }

    /// What each column contains, where rows are on `axis`.
    pub(crate) fn columns(&self, axis: usize) -> Option<Vec<Column>> {
        let count: usize = self.dims.iter().product::<usize>() / self.dims[axis].max(1);
        let column_of = |index: &[usize]| {
            let others = index.iter().enumerate().filter(|(a, _)| *a != axis);
            others.fold(0, |column, (a, i)| column * self.dims[a] + i)
        };
        let numbers = |i: IxDyn| column_of(i.slice()) as f64 + 1.0;
        let maps = (self.probe)(ArrayD::from_shape_fn(IxDyn(self.dims), numbers))?;
        let mut columns: Vec<Option<Column>> = vec![None; count];
        for pair in self.pairs() {
            let (a, b) = self.pair(pair)?;
            // The second feature may read columns of its own.
            let readers = [
                (maps[[0, a, a]], Wave::Cos, 1.0),
                (maps[[0, b, b]], Wave::Cos, 1.0),
                (maps[[0, b, a]], Wave::Sin, 1.0),
                (maps[[0, a, b]], Wave::Sin, -1.0),
            ];
            for (value, wave, sign) in readers {
                if value.abs() < 0.5 {
                    continue;
                }
                let slot = columns.get_mut(value.abs().round() as usize - 1)?;
                *slot = Some(Column {
                    pair,
                    wave,
                    sign: value.signum() * sign,
                });
            }
        }
        columns.into_iter().collect()
    }
}
