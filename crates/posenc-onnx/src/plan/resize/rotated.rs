//! Rotations of queries and keys by the rows and columns of patches, where their cosines and sines meet tokens that follow
//! the image.

use ndarray::s;
use posenc_encodings::families::axial::Centred;
use posenc_encodings::inferred::{self, Inferred};
use posenc_ir::{NodeId, Use};

use super::rotations::{ResizedRotation, Stored, bound};
use super::rows::{by_row, sides};
use super::walk::Walk;
use crate::detect::finding::Encoding;
use crate::detect::rotary::columns::columns;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;

/// Patches of a side between which no pair rotates by a whole turn, at least.
const FEWEST: usize = 3;

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
                if sides(&rotation.axes, Extent::before)
                    .is_some_and(|[height, width]| height == width)
                {
                    let source =
                        "a square grid does not show whether one number normalizes both sides";
                    let how = "each side normalized by its own patches";
                    inferred::add(&mut self.inferred, Inferred::new("rotation", how, source));
                }
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
