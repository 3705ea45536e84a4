//! Reading a rotation out of a region by probing it with unit vectors.

use posenc_ir::eval::{Trace, Value};
use posenc_ir::{Model, ValueId};
use rustc_hash::FxHashMap;

use posenc_encodings::families::axial::Axial;
use posenc_encodings::families::rope::{LOOSE, PairRotations, Unread, identify, is_rotating};

use super::matrices::{matrices, matrices_of_pairs};
use super::site::Rotation;
use crate::graph::region::Region;

/// Reads the rotation of a region. `base` and the seeds of `change` (which win) give everything
/// that is not content.
///
/// # Errors
/// Why the region is no rotation.
pub(crate) fn read(
    model: &Model,
    base: &Trace,
    change: &FxHashMap<ValueId, Value>,
    region: &Region,
    head_dim: usize,
) -> Result<Rotation, Unread> {
    let (maps, mode) = matrices(model, base, change, region)?;
    Ok(Rotation::new(
        identify(&maps, region.output_lane.offset, head_dim)?,
        mode,
    ))
}

/// The rotation of a region that was read as one before, whose other inputs alone have changed.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_again(
    model: &Model,
    base: &Trace,
    change: &FxHashMap<ValueId, Value>,
    region: &Region,
    before: &Rotation,
) -> Result<Rotation, Unread> {
    let offset = usize::try_from(region.output_lane.offset).map_err(|_| Unread::NoFeatures)?;
    let pairs = before
        .rope
        .pairs
        .iter()
        .map(|(a, b)| (a - offset, b - offset));
    let pairs: Vec<(usize, usize)> = pairs.collect();
    let maps = matrices_of_pairs(model, base, change, region, &pairs)?;
    let fit = identify(&maps, region.output_lane.offset, before.rope.head_dim)?;
    Ok(Rotation::new(fit, before.mode))
}

/// Whether a region rotates pairs of features, by whatever angles, and leaves the others as they
/// are.
pub(crate) fn rotates_pairs(model: &Model, base: &Trace, region: &Region) -> bool {
    let maps = matrices(model, base, &FxHashMap::default(), region);
    maps.is_ok_and(|(maps, _)| is_rotating(&maps))
}

/// Whether the regions of queries and keys rotate pairs by the same angles at each position, whatever
/// these are: without them, nothing but a function of the position is missing from the scores.
pub(crate) fn rotate_alike(model: &Model, base: &Trace, regions: [&Region; 2]) -> bool {
    let none = FxHashMap::default();
    let [q, k] = regions.map(|region| matrices(model, base, &none, region));
    let (Ok((q, _)), Ok((k, _))) = (q, k) else {
        return false;
    };
    let same = |(a, b): (&f64, &f64)| (a - b).abs() <= LOOSE;
    regions[0].output_lane.offset == regions[1].output_lane.offset
        && q.dim() == k.dim()
        && q.iter().zip(&k).all(same)
        && is_rotating(&q)
        && is_rotating(&k)
}

/// Reads the rotation of a region as one by rows and columns, with the largest difference between
/// the graph's numbers and the rotation.
///
/// # Errors
/// Why the region is no such rotation.
pub(crate) fn read_axial(
    model: &Model,
    base: &Trace,
    region: &Region,
    head_dim: usize,
) -> Result<(Axial, f64), Unread> {
    let angles = read_angles(model, base, region, head_dim)?;
    Axial::identify(&angles, head_dim).ok_or(Unread::NotProportional)
}

/// Reads by which angle a region rotates each pair of features at each position.
///
/// # Errors
/// Why the region is no rotation.
pub(crate) fn read_angles(
    model: &Model,
    base: &Trace,
    region: &Region,
    head_dim: usize,
) -> Result<PairRotations, Unread> {
    let (maps, _) = matrices(model, base, &FxHashMap::default(), region)?;
    PairRotations::of(&maps, region.output_lane.offset, head_dim)
}
