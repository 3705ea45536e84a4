//! Tables of positions that get other rows where they are added.

use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_encodings::resize::{Antialias, Corners, Resizing};
use posenc_ir::{Use, ValueId};

use crate::detect::finding::Encoding;
use crate::graph::extent::Extent;
use crate::plan::resize::rows::sides;
use crate::plan::stretch::Table;

/// A table that is added whole, where it is added.
#[derive(Clone, Debug)]
pub(crate) struct ResizedTable {
    /// Its finding, by the place in `Found::findings`.
    pub(crate) finding: usize,
    /// What is added, or the constant of which that is a cut that keeps all.
    pub(crate) value: ValueId,
    /// Where it is added.
    pub(crate) entry: Use,
    /// The axes of what is added.
    pub(crate) axes: Vec<Extent>,
    /// What the rows become.
    pub(crate) rows: NewRows,
    /// Whether the graph itself makes them of the table, for any size.
    pub(crate) is_computed: bool,
    /// Whether it is the same for every image, so that these rows are read.
    pub(crate) is_fixed: bool,
}

/// What the rows of a table become.
#[derive(Clone, Debug)]
pub(crate) enum NewRows {
    /// Those of patches on another grid, in between.
    Grid(Interpolation),
    /// Those of the same code on another grid.
    Code(Box<Sinusoidal>),
    /// Those of a sequence of another length.
    Line(Table),
}

/// How rows of patches become those of another grid: along both sides in the same way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interpolation {
    /// How.
    pub(crate) by: Resizing,
    /// Which points of the old and the new grid coincide.
    pub(crate) corners: Corners,
    /// Whether smoothed.
    pub(crate) antialias: Antialias,
}

/// How rows of positions, and biases by the offset of patches, become those of another grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Interpolations {
    /// Of rows.
    pub(crate) rows: Interpolation,
    /// Of biases.
    pub(crate) biases: Interpolation,
    /// Whether the request gives any of this.
    pub(crate) are_given: bool,
}

impl ResizedTable {
    /// Whether another one gets the same rows of the same constant, wherever it is added.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.value == other.value && self.axes == other.axes
    }

    /// The only axis that changes, where it is one of tokens.
    pub(crate) fn along(&self) -> Option<usize> {
        let mut changed = (0..self.axes.len()).filter(|axis| self.axes[*axis].changes());
        let axis = changed.next().filter(|_| changed.next().is_none())?;
        matches!(self.axes[axis], Extent::One { .. }).then_some(axis)
    }

    /// The grid after the change.
    pub(crate) fn grid(&self) -> Option<[usize; 2]> {
        self.sides(Extent::after)
    }

    /// The sides of the grid; `None` where what changes is no grid of two sides.
    pub(crate) fn sides(&self, of: impl Fn(&Extent) -> usize) -> Option<[usize; 2]> {
        sides(&self.axes, of)
    }

    /// The encoding of the finding with these rows.
    pub(crate) fn after(&self, encoding: &Encoding) -> Encoding {
        if let NewRows::Line(table) = &self.rows {
            return table.after(encoding);
        }
        let is_read = !self.is_computed || self.is_fixed;
        let Some([height, width]) = self.grid().filter(|_| is_read) else {
            return encoding.clone();
        };
        if let NewRows::Code(code) = &self.rows {
            return Encoding::Sinusoidal((**code).clone());
        }
        match encoding.clone() {
            Encoding::Learned(mut learned) => {
                let old = learned.grid.map_or(0, |[h, w]| h * w);
                learned.grid = Some([height, width]);
                learned.max_positions = learned.max_positions + height * width - old;
                learned.table_rows = learned.table_rows + height * width - old;
                Encoding::Learned(learned)
            }
            other => other,
        }
    }
}
