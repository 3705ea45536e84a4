//! Maps of features that the graph enlarges to sizes that are written in it: these are sizes of other maps, or of the own
//! one doubled once or more. They follow where all that they may be, a share of the image included, becomes the same.

use std::collections::BTreeSet;

use posenc_encodings::inferred::Inferred;
use posenc_ir::{NodeId, Use};

use super::sizes::Wanted;
use super::walk::Walk;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::lane::wrap;

/// The input of `Resize` that has the sizes.
const SIZES: usize = 3;

/// The axes of height and width of a map.
const SIDES: [usize; 2] = [2, 3];

/// The sides of a map, before the change and after it.
type Sides = [[usize; 2]; 2];

/// The sides of a map by its axes.
fn sides_of(axes: [&Extent; 2]) -> Sides {
    [axes.map(Extent::before), axes.map(Extent::after)]
}

impl Walk<'_> {
    /// Sets the sizes to which a `Resize` makes a map that follows the image.
    ///
    /// # Errors
    /// Where it is not known which sizes these are for the other image.
    pub(super) fn set_map(&mut self, id: NodeId) -> Result<(), RewriteError> {
        let Some((places, old)) = self.map(id) else {
            return Ok(());
        };
        let Some(new) = self.follows(id, old)? else {
            return Ok(());
        };
        let [from, to] = [old, new].map(|[height, width]| format!("{height}x{width}"));
        let place = self.context.graph().place(id);
        let source =
            format!("{place}: its size, {from} for the old image, follows that of other maps");
        self.inferred.push(Inferred::new("map", to, source));
        for (place, side) in places.into_iter().zip(new) {
            let side = side as i64;
            self.set_number(Use::new(id, SIZES), place, side)?;
        }
        self.enlarged.insert(id);
        Ok(())
    }

    /// Where the sizes of a map are read that a `Resize` makes of another one that follows the image, and the map
    /// before the change; `None` where it makes none, or the graph computes its sizes.
    fn map(&self, id: NodeId) -> Option<([usize; 2], [usize; 2])> {
        let node = self.context.graph().node(id);
        let sizes = node.input(SIZES).filter(|_| node.is("Resize"))?;
        let is_image = matches!(self.wanted, Wanted::Image { .. });
        let axes = self.axes_in(id, 0).filter(|axes| axes.len() == 4)?;
        let changed = |axis: &usize| axes[*axis].changes();
        let is_map = (0..4).filter(changed).all(|axis| SIDES.contains(&axis));
        let known = node.output(0).and_then(|out| self.context.dims(out))?;
        let given = match node.ints("axes").ok()? {
            Some(given) => given.iter().map(|axis| wrap(*axis, 4)).collect(),
            None => Some(vec![0, 1, 2, 3]),
        };
        let given: Vec<usize> = given?;
        let place = |side: usize| given.iter().position(|axis| *axis == side);
        let places = [place(SIDES[0])?, place(SIDES[1])?];
        let is_read = is_image && is_map && !self.values.contains_key(&sizes);
        is_read.then(|| (places, SIDES.map(|side| known[side])))
    }

    /// What a map of this size becomes; `None` where no size that follows explains it.
    fn follows(&self, id: NodeId, old: [usize; 2]) -> Result<Option<[usize; 2]>, RewriteError> {
        let maps = self.maps();
        let own = self.axes_in(id, 0).unwrap_or_default();
        let own = match &own[..] {
            [_, _, height, width] => Some(sides_of([height, width])),
            _ => None,
        };
        let doubled = own.and_then(|[from, to]| {
            let times = old[0].checked_div(from[0])?;
            let all = from.map(|side| side.checked_mul(times));
            let is_doubled = times.is_power_of_two() && all == old.map(Some);
            is_doubled.then(|| to.map(|side| side.checked_mul(times)))
        });
        let same = maps.iter().filter(|[from, _]| *from == old);
        let same = same.map(|[_, to]| to.map(Some));
        let mut new: BTreeSet<[Option<usize>; 2]> = same.chain(doubled).collect();
        if let Wanted::Image {
            size, old: image, ..
        } = &self.wanted
            && !new.is_empty()
        {
            let sizes = [size.height, size.width];
            let share = |side: usize| old[side].checked_mul(sizes[side])?.checked_div(image[side]);
            new.insert([share(0), share(1)]);
        }
        let mut new = new.into_iter();
        match (new.next(), new.next()) {
            (Some([Some(height), Some(width)]), None) => Ok(Some([height, width])),
            (None, _) => Ok(None),
            _ => {
                let sides = maps.iter().map(|[from, _]| *from);
                let coarsest = sides.filter(|sides| !sides.contains(&0)).min();
                let steps = match (&self.wanted, coarsest) {
                    (Wanted::Image { old, .. }, Some(sides)) => {
                        let [height, width] = [0, 1].map(|side| old[side].div_ceil(sides[side]));
                        format!("; an image of multiples of {height}x{width} leaves no choice")
                    }
                    _ => String::new(),
                };
                let [height, width] = old;
                let why = format!(
                    "this Resize makes a map of {height} × {width}, which several maps of the old image explain, and these \
                     give different sizes for the new one{steps}"
                );
                let place = self.context.graph().place(id);
                Err(Refusal::unsupported(why).at(place).into())
            }
        }
    }

    /// The maps that follow the image, itself included.
    fn maps(&self) -> BTreeSet<Sides> {
        let mut maps = BTreeSet::new();
        if let Wanted::Image { size, old, .. } = &self.wanted {
            maps.insert([*old, [size.height, size.width]]);
        }
        let graph = self.context.graph();
        let has_sides = |op: &str| op.ends_with("Pool") || matches!(op, "Conv" | "Resize");
        for (value, axes) in &self.axes {
            // Other values may have features where these have columns.
            let makers = graph.producer(*value).map(|(maker, _)| maker);
            let readers = graph.uses(*value).iter().filter(|at| at.slot() == 0);
            let mut nodes = makers.into_iter().chain(readers.map(|at| at.node));
            let [_, _, height, width] = &axes[..] else {
                continue;
            };
            let is_map = nodes.any(|id| has_sides(graph.node(id).op()));
            let pair = [height, width];
            if is_map && pair.iter().any(|side| side.changes()) {
                maps.insert(sides_of(pair));
            }
        }
        maps
    }
}
