//! The slots of a cache of fixed size that new keys are written into.

use std::collections::BTreeSet;

use ndarray::Axis;
use posenc_ir::Model;
use posenc_ir::eval::probe;

use super::found::Found;
use super::runs::BUDGET;
use crate::attention::Site;
use crate::graph::ports::Lengths;

/// Whether the key of each token is written into the slot of its position, also behind the last slot that there is:
/// a cache that is written in turns begins anew there. False for a site without such a cache.
pub(crate) fn are_places(model: &Model, found: &Found, site: &Site) -> bool {
    let slots = |buffer: (_, usize)| {
        let dims = found.trace.get(buffer.0).dims.as_deref()?;
        dims.get(buffer.1).copied()
    };
    let Some(slots) = site.buffer.and_then(|buffer| slots(buffer.cache)) else {
        return false;
    };
    let at = |past: usize| {
        let places = past..past + found.lengths.sequence;
        let places = places.filter_map(|place| i64::try_from(place).ok());
        written(model, found, site, past) == Some(places.collect())
    };
    at(found.lengths.past) && at(slots)
}

/// The slots that are written into behind so many earlier tokens; `None` where they are not known.
fn written(model: &Model, found: &Found, site: &Site, past: usize) -> Option<BTreeSet<i64>> {
    let graph = model.graph();
    let (write, axis) = site.buffer?.write;
    let node = graph.node(write);
    let index = node.input(1)?;
    let at = Lengths {
        past,
        ..found.lengths
    };
    let seeds = found.ports.seeds(graph, at);
    let read = probe(model, &found.trace, &seeds, &[index], &BUDGET).ok()?;
    let numbers = read.first()?.to_i64()?;
    let rank = numbers.ndim().checked_sub(1)?;
    // Coordinates of the first axes are last.
    let own = match node.op() {
        "ScatterND" if axis < numbers.shape()[rank] => numbers.index_axis(Axis(rank), axis),
        "ScatterND" => return None,
        _ => numbers.view(),
    };
    Some(own.iter().copied().collect())
}
