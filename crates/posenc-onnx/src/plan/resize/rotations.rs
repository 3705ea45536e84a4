//! Rotations of queries and keys by the rows and columns of patches, where their cosines and sines meet content.

use ndarray::{Array2, ArrayD, s};
use posenc_encodings::families::axial::{Axial, Centred};
use posenc_ir::{DType, NodeId, Use, ValueId};
use rustc_hash::FxHashMap;

use super::rows::{by_row, of_rows, sides};
use super::walk::Walk;
use crate::detect::context::Context;
use crate::detect::finding::Encoding;
use crate::detect::rotary::columns::columns;
use crate::detect::rotary::source::{Column, Wave};
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;

/// Patches of a side between which no pair rotates by a whole turn, at least.
const FEWEST: usize = 3;

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
    columns: Vec<Option<Column>>,
    /// The factor on cosines and sines.
    factor: f64,
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
    fn explains(&self, rows: &Array2<f64>, grid: [usize; 2], bound: f64) -> bool {
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

impl Walk<'_> {
    /// Gives cosines and sines of rows and columns that meet tokens here the axes of these.
    pub(super) fn rotation(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let node = self.context.graph().node(id);
        let slots = node.inputs().len();
        for slot in 0..slots {
            let entry = Use::new(id, slot);
            let (Some(&(site, side)), Some(value)) = (self.rotated.get(&entry), node.input(slot))
            else {
                continue;
            };
            let others = (0..slots).filter(|other| *other != slot);
            let others = others.filter_map(|other| self.axes_in(id, other));
            let dims = self.context.dims(value).unwrap_or_default();
            let tokens = others.max_by_key(Vec::len).unwrap_or_default();
            let Some(missing) = tokens.len().checked_sub(dims.len()) else {
                continue;
            };
            let axis = |(length, axis): (&usize, &Extent)| match axis {
                axis if axis.before() == *length && *length > 1 => axis.clone(),
                _ => Extent::same(*length),
            };
            let axes: Vec<Extent> = dims.iter().zip(&tokens[missing..]).map(axis).collect();
            if !axes.iter().any(Extent::changes) {
                continue;
            }
            let axial = &self.context.found.axial[site];
            let first = axial.finding.sites.first().copied().unwrap_or(0);
            let findings = self.context.found.findings.iter();
            let finding = findings.into_iter().position(|finding| {
                matches!(finding.encoding, Encoding::Axial(_)) && finding.sites.contains(&first)
            });
            let Some(finding) = finding else { continue };
            let mut rotation = ResizedRotation {
                finding,
                value,
                entry,
                axes,
                stored: None,
            };
            if !self.axes.contains_key(&value) {
                let known = self.rotations.iter().find(|own| own.is_like(&rotation));
                rotation.stored = match known {
                    Some(known) => known.stored.clone(),
                    None => Some(self.stored_rotation(&rotation, [site, side])?),
                };
                self.resized.insert(entry, rotation.axes.clone());
            }
            self.rotations.push(rotation);
        }
        Ok(())
    }

    /// What stored cosines and sines are that meet content at a site, as queries or keys.
    ///
    /// # Errors
    /// Where they are no rotation by the centres of patches.
    fn stored_rotation(
        &self,
        rotation: &ResizedRotation,
        [site, side]: [usize; 2],
    ) -> Result<Stored, RewriteError> {
        let (found, id) = (self.context.found, rotation.entry.node);
        let unknown = |what: &str| {
            let why = format!(
                "the cosines and sines by which patches rotate here {what}, so what they are for an image of another \
                 size is not known"
            );
            self.refuse(id, why)
        };
        let is_constant = found.classes.of_value(rotation.value).is_constant();
        let numbers = found.trace.get(rotation.value).to_f64();
        let Some(numbers) = numbers.filter(|_| is_constant) else {
            return Err(unknown("are no stored numbers"));
        };
        let own = &found.axial[site];
        let Encoding::Axial(axial) = &own.finding.encoding else {
            return Err(unknown("are of no grid"));
        };
        let before = sides(&rotation.axes, Extent::before);
        let Some(grid) = before.filter(|grid| *grid == axial.grid) else {
            return Err(unknown("are not of the grid of patches"));
        };
        if let Some([height, width]) = rotation.grid()
            && height.min(width) < FEWEST
        {
            let why = format!(
                "an image of {height} × {width} patches is too small: between fewer than {FEWEST} patches of a side \
                 features rotate by whole turns, which cannot be checked; give a larger `image-size`"
            );
            return Err(Refusal::invalid(why)
                .at(self.context.graph().place(id))
                .into());
        }
        let patches: Vec<bool> = rotation.axes.iter().map(Extent::changes).collect();
        let read = (&own.regions[side], axial);
        let columns = columns(self.context.model, found, read, rotation.value, &patches);
        let Some(columns) = columns else {
            return Err(unknown("are read in a way that is not known"));
        };
        let (rows, lead) = by_row(&numbers, &rotation.axes, Extent::before);
        let rows = rows
            .slice(s![lead..lead + grid[0] * grid[1], ..])
            .to_owned();
        let factor = axial.attention_factor;
        let bound = bound(self.context.dtype(rotation.value), factor);
        let laws = Centred::candidates(axial).into_iter();
        let mut laws = laws.map(|law| Stored {
            law,
            columns: columns.clone(),
            factor,
        });
        let own = laws.find(|law| law.explains(&rows, grid, bound));
        own.ok_or_else(|| {
            unknown(
                "are not those of the centres of patches between −1 and 1 along each side, with frequencies from 2π \
                 down",
            )
        })
    }
}
