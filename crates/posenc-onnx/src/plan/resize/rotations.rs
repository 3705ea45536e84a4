//! Rotations of queries and keys by the rows and columns of patches: where they meet content, and what they become.

use ndarray::{Array2, ArrayD};
use posenc_encodings::families::axial::{Axial, Centred};
use posenc_ir::{DType, Use, ValueId};
use rustc_hash::FxHashMap;

use super::rows::{by_row, of_rows, sides};
use crate::detect::context::Context;
use crate::detect::finding::Encoding;
use crate::detect::rotary::source::{Column, Wave};
use crate::graph::extent::Extent;

/// Roundings of an angle that a model computes in single precision.
const OF_ANGLES: f64 = 8.0;

/// Numbers of a rotation by rows and columns that become those of another grid, where they meet content.
#[derive(Clone, Debug)]
pub(crate) struct ResizedRotation {
    /// Its finding, by the place in `Found::findings`.
    pub(crate) finding: usize,
    /// The numbers.
    pub(crate) value: ValueId,
    /// Where they meet content.
    pub(crate) entry: Use,
    /// The axes of the numbers.
    pub(crate) axes: Vec<Extent>,
    /// What they are where they are stored; `None` where the graph computes them for every grid.
    pub(crate) stored: Option<Stored>,
}

/// Stored cosines and sines.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// The law of the rotation.
    pub(crate) law: Centred,
    /// What each column contains; `None` for one number for all patches.
    pub(super) columns: Vec<Option<Column>>,
    /// The factor on cosines and sines.
    pub(super) factor: f64,
}

impl ResizedRotation {
    /// The encoding of the finding on the new grid; steps from patch to patch may contain whole turns.
    pub(super) fn after(&self, encoding: &Encoding) -> Encoding {
        match (encoding, self.grid()) {
            (Encoding::Axial(axial), Some(grid)) => Encoding::Axial(match &self.stored {
                Some(own) => own.law.on(axial, grid),
                None => Axial {
                    grid,
                    // Steps are those that the graph computes.
                    steps: vec![],
                    ..axial.clone()
                },
            }),
            _ => encoding.clone(),
        }
    }

    /// The grid after the change.
    pub(crate) fn grid(&self) -> Option<[usize; 2]> {
        sides(&self.axes, Extent::after)
    }

    /// Whether another one is of the same numbers on the same axes, wherever it meets content.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.value == other.value && self.axes == other.axes
    }

    /// The stored numbers of the new grid, from those of the old one.
    pub(crate) fn numbers(&self, old: &ArrayD<f64>) -> Option<ArrayD<f64>> {
        let (own, grid) = (self.stored.as_ref()?, self.grid()?);
        let (rows, lead) = by_row(old, &self.axes, Extent::before);
        let patches = sides(&self.axes, Extent::before)?.iter().product::<usize>();
        let made = grid.iter().product::<usize>();
        let first = rows.row(lead);
        let numbers = Array2::from_shape_fn((rows.nrows() - patches + made, rows.ncols()), |at| {
            let (row, column) = at;
            match row.checked_sub(lead) {
                None => rows[at],
                Some(patch) if patch >= made => rows[[row - made + patches, column]],
                Some(patch) => own.number(column, patch, grid).unwrap_or(first[column]),
            }
        });
        Some(of_rows(numbers, &self.axes))
    }
}

impl Stored {
    /// The number of a column at a patch; `None` where it is one for all.
    fn number(&self, column: usize, patch: usize, grid: [usize; 2]) -> Option<f64> {
        let own = (*self.columns.get(column)?)?;
        let patch = [patch / grid[1], patch % grid[1]];
        let angle = self.law.angle(own.pair, patch, grid);
        let wave = match own.wave {
            Wave::Cos => angle.cos(),
            Wave::Sin => angle.sin(),
        };
        Some(own.sign * self.factor * wave)
    }

    /// Whether the stored numbers of the patches of a grid, a row for each, are these.
    pub(super) fn explains(&self, rows: &Array2<f64>, grid: [usize; 2], bound: f64) -> bool {
        rows.indexed_iter().all(|((patch, column), number)| {
            let want = self.number(column, patch, grid);
            (number - want.unwrap_or(rows[[0, column]])).abs() <= bound
        })
    }
}

/// By how much stored cosines and sines of a type may differ from their formula, whose largest angle is a whole turn.
pub(crate) fn bound(dtype: DType, factor: f64) -> f64 {
    let single = f64::from(f32::EPSILON);
    let own = dtype.epsilon().unwrap_or(single).max(single);
    factor * (own + OF_ANGLES * std::f64::consts::TAU * single)
}

/// Where rotations by rows and columns meet content: with the place in `Found::axial`, and whether it is a key.
pub(super) fn entries(context: &Context<'_>) -> FxHashMap<Use, (usize, usize)> {
    let all = context.found.axial.iter().enumerate();
    let both = all.flat_map(|(at, site)| {
        let sides = site.regions.iter().enumerate();
        sides.flat_map(move |(side, region)| {
            let entries = region.entries.iter();
            entries.map(move |entry| (*entry, (at, side)))
        })
    });
    both.collect()
}
