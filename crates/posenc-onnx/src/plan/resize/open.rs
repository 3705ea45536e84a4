//! Images of any size: sizes in the graph become functions of the grid of patches, which are told from
//! walks of several sizes.

use std::collections::{BTreeMap, BTreeSet};

use posenc_encodings::inferred::Inferred;
use posenc_encodings::resize::{Antialias, Corners};
use posenc_ir::{Dim, NodeId, Use, ValueId};

use super::constants::{Following, constants};
use super::image::{Image, by, check_original, check_pixels, walked};
use super::sizes::Plan;
use super::table::{Interpolation, Interpolations, NewRows, ResizedTable};
use crate::detect::context::Context;
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::region::reads;
use crate::record::asked;
use crate::request::{ImageSize, Length, Request};

/// The first opset whose `Resize` takes sizes.
const RESIZES: i64 = 11;

/// The first opset whose `Resize` has `antialias`.
const SMOOTHS: i64 = 18;

/// The parameter that asks for images of any size.
const OPTION: &str = "dynamic";

/// Images of any size.
#[derive(Clone, Debug)]
pub(crate) struct Open {
    /// The image.
    pub(crate) input: ValueId,
    /// Its axes of height and width.
    pub(crate) sides: [usize; 2],
    /// The size that is written in the graph.
    pub(crate) old: ImageSize,
    /// How rows of patches become others.
    pub(crate) by: Interpolations,
    /// A value that has the grid as two axes, and which of them are rows and columns.
    pub(crate) grid: (ValueId, [usize; 2]),
    /// The tables that the graph is to resize.
    pub(crate) tables: Vec<ResizedTable>,
    /// Constants that follow, by where they are read.
    pub(crate) constants: BTreeMap<Use, Following>,
    /// Which axes of a value follow the image.
    pub(crate) axes: BTreeMap<ValueId, Vec<bool>>,
    /// What becomes of the model for images of some sizes, at which the result is compared with it.
    pub(crate) trials: Vec<Plan>,
    /// Values that the request did not give.
    pub(crate) inferred: Vec<Inferred>,
}

/// Plans images of any size; `None` where an earlier rewrite has made the model for these. With `size`, the
/// result is compared at that size too.
///
/// # Errors
/// Where the model takes no images of one size, and where a size in the graph follows in no known way.
pub(crate) fn open(
    context: &Context<'_>,
    request: &Request,
    size: Option<ImageSize>,
) -> Result<Option<Open>, RewriteError> {
    let by = by(request)?;
    let image = Image::any(context, OPTION)?;
    if image.is_open {
        check_opened(context, &image, request, by)?;
        return Ok(None);
    }
    let rows = by.rows;
    check_original(context, request)?;
    check_opset(context, rows)?;
    let old = image.size();
    let walk = |height, width| {
        let size = ImageSize { height, width };
        if check_pixels(size).is_err() {
            let why = format!("an image of {old} is too large to be compared with others");
            return Err(Refusal::unsupported(why).into());
        }
        let walk = walked(context, &image, size, by).map_err(not_asked)?;
        check_windows(context, &walk.axes)?;
        if let Some(bias) = walk.biases.first() {
            let why = "a bias by the offset of patches is not supported for images of any size; give \
                       `image-size`";
            return Err(context.refuse(bias.entry.node, why));
        }
        if let Some(own) = walk.rotations.iter().find(|own| own.stored.is_some()) {
            let why = "a stored rotation by rows and columns is not supported for images of any size; give \
                       `image-size`";
            return Err(context.refuse(own.entry.node, why));
        }
        Ok::<Plan, RewriteError>(walk.plan(vec![]))
    };
    let double = walk(old.height.saturating_mul(2), old.width.saturating_mul(2))?;
    let (from, to) = grids(context, &double)?;
    let [down, across] = steps(old, from, to)?;
    let mut plans = vec![double];
    for [tall, wide] in others(from) {
        let height = pixels([old.height, down], [from[0], tall])?;
        let width = pixels([old.width, across], [from[1], wide])?;
        plans.push(walk(height, width)?);
    }
    let own = size.filter(|size| *size != old);
    let own = own.map(|size| {
        check_pixels(size)?;
        walked(context, &image, size, by)
    });
    let own = own.transpose()?;
    let mut seen = vec![from];
    for plan in &plans {
        seen.push(grids(context, plan)?.1);
    }
    let grid = grid(context, &plans, &seen)?;
    let constants = constants(context, &plans, &seen)?;
    check_order(context, grid.0, &constants)?;
    let tables = plans[0].tables.iter().filter(|table| !table.is_computed);
    let tables: Vec<ResizedTable> = tables.cloned().collect();
    if rows.antialias == Antialias::On && tables.is_empty() {
        let why = "`antialias` has no effect: the graph resizes its table itself; remove it";
        return Err(Refusal::new(RefusalKind::NoEffect("antialias"), why).into());
    }
    for table in &tables {
        if matches!(table.rows, NewRows::Code(_)) {
            let why = "sines and cosines of a grid of patches are made for images of one size alone; give \
                       `image-size`";
            return Err(context.refuse(table.entry.node, why));
        }
        check_type(context, table)?;
    }
    let axes = axes(&plans);
    let step = Inferred::new(
        "image-size",
        format!("multiples of {down}x{across}"),
        "how the grid of patches grows with the image",
    );
    // Portrait and landscape, and what was asked for.
    let mut trials: Vec<Plan> = plans.into_iter().skip(1).take(2).collect();
    trials.extend(own.map(|walk| walk.plan(vec![])));
    Ok(Some(Open {
        input: image.input,
        sides: image.sides,
        old,
        by,
        grid,
        tables,
        constants,
        axes,
        trials,
        inferred: vec![step],
    }))
}

/// The pixels between two patches, down and across, where the grid `to` is that of twice the image.
fn steps(old: ImageSize, from: [usize; 2], to: [usize; 2]) -> Result<[usize; 2], RewriteError> {
    let step = |pixels: usize, side: usize| {
        let more = to[side].checked_sub(from[side]).filter(|more| *more > 0)?;
        pixels.is_multiple_of(more).then_some(pixels / more)
    };
    let both = step(old.height, 0).zip(step(old.width, 1));
    let (down, across) = both.ok_or_else(out_of_proportion)?;
    Ok([down, across])
}

/// The pixels of another number of patches along a side.
fn pixels([old, step]: [usize; 2], [from, to]: [usize; 2]) -> Result<usize, RewriteError> {
    let all = to.checked_mul(step).and_then(|new| new.checked_add(old));
    let gone = from.checked_mul(step);
    let pixels = all.zip(gone).and_then(|(all, gone)| all.checked_sub(gone));
    pixels.ok_or_else(out_of_proportion)
}

fn out_of_proportion() -> RewriteError {
    let why = "the grid of patches does not grow in proportion with the image";
    Refusal::unsupported(why).into()
}

impl Open {
    /// The declared dimensions of a value afterwards; `None` where they stay.
    pub(crate) fn declared(&self, value: ValueId, declared: &[Dim]) -> Option<Vec<Dim>> {
        let axes = self.axes.get(&value)?;
        let pairs = declared.iter().zip(axes);
        let dims: Vec<Dim> = pairs
            .map(|(dim, follows)| match dim {
                Dim::Known(_) if *follows => Dim::Unknown,
                other => other.clone(),
            })
            .collect();
        (dims != declared).then_some(dims)
    }
}

/// Refuses a model that takes no images of one size.
///
/// # Errors
/// When there is none, or its size is open and no earlier rewrite has made the model for that.
pub(crate) fn check_image(context: &Context<'_>) -> Result<(), RewriteError> {
    let image = Image::any(context, OPTION)?;
    match image.is_open && opened(context).is_none() {
        true => Err(image.open_sides(context, OPTION)),
        false => Ok(()),
    }
}

/// What was asked of the rewrite that made a model for images of any size.
fn opened(context: &Context<'_>) -> Option<Request> {
    let asked = asked::read(context.model)?.ok()?;
    let is_open = asked.request.parameters.length == Length::Dynamic;
    is_open.then_some(asked.request)
}

/// Refuses a model for images of any size that no earlier rewrite has made so as it is asked for.
fn check_opened(
    context: &Context<'_>,
    image: &Image,
    request: &Request,
    wanted: Interpolations,
) -> Result<(), RewriteError> {
    let Some(before) = opened(context) else {
        return Err(image.open_sides(context, OPTION));
    };
    let own = by(&before)?;
    if own.rows != wanted.rows {
        let Interpolation {
            by,
            corners,
            antialias,
        } = own.rows;
        let corners = (corners == Corners::Aligned).then_some(", with `align-corners`");
        let smooth = (antialias == Antialias::On).then_some(", with `antialias`");
        let how: String = corners.into_iter().chain(smooth).collect();
        let why = format!(
            "the graph resizes its table already, by {by} interpolation{how}; open the original to get another"
        );
        return Err(Refusal::new(RefusalKind::AlreadyScaled, why).into());
    }
    let size = request.parameters.image_size;
    match size.filter(|_| size != before.parameters.image_size) {
        None => Ok(()),
        Some(size) => {
            let why = format!(
                "the model takes images of any size already, and at {size} only the original can be compared \
                 with; open the original with this `image-size`"
            );
            Err(Refusal::new(RefusalKind::AlreadyScaled, why).into())
        }
    }
}

fn check_opset(context: &Context<'_>, rows: Interpolation) -> Result<(), RewriteError> {
    let opset = context.model.opset();
    let (least, what) = match rows.antialias {
        Antialias::On => (SMOOTHS, "with `antialias` "),
        Antialias::Off => (RESIZES, ""),
    };
    if opset >= least {
        return Ok(());
    }
    let why = format!(
        "a graph resizes a table {what}from opset {least} on, and the model has opset {opset}; convert it first"
    );
    Err(Refusal::unsupported(why).into())
}

/// A size that was tried and not asked for is no error of the request.
fn not_asked(error: RewriteError) -> RewriteError {
    match error {
        RewriteError::Refused(refusal) if *refusal.kind() == RefusalKind::InvalidParameter => {
            let why = format!("images of other sizes do not follow: {}", refusal.reason());
            let other = Refusal::unsupported(why);
            match refusal.node() {
                Some(node) => other.at(node).into(),
                None => other.into(),
            }
        }
        other => other,
    }
}

/// Refuses attention within windows: how many there are, and how these are shifted, follows from more than
/// the grid.
fn check_windows(
    context: &Context<'_>,
    axes: &BTreeMap<ValueId, Vec<Extent>>,
) -> Result<(), RewriteError> {
    for site in &context.found.attention {
        let own = axes.get(&site.query.value).into_iter().flatten();
        let mut others = own.enumerate();
        if others.any(|(axis, own)| axis != site.query.lane.sequence && own.changes()) {
            let why = "attention within windows is not supported for images of any size; give `image-size`";
            let place = context.graph().place(site.node);
            return Err(Refusal::unsupported(why).at(place).into());
        }
    }
    Ok(())
}

/// The grid of patches before and after, which is that of all tables.
fn grids(context: &Context<'_>, plan: &Plan) -> Result<([usize; 2], [usize; 2]), RewriteError> {
    let unknown = "the sides of the grid of patches are not known";
    let mut grids = vec![];
    for table in &plan.tables {
        let sides = table
            .sides(Extent::before)
            .zip(table.sides(Extent::after))
            .ok_or_else(|| context.refuse(table.entry.node, unknown))?;
        if grids.first().is_some_and(|first| *first != sides) {
            let why = "tables of several grids are not supported for images of any size";
            return Err(context.refuse(table.entry.node, why));
        }
        grids.push(sides);
    }
    grids.first().copied().ok_or_else(|| {
        let why = "no table of positions of a grid of patches is added, and only models with one get images \
                   of any size yet";
        Refusal::unsupported(why).into()
    })
}

/// Other grids, of which no side and no number of patches is that of this one: first a tall one and a wide
/// one.
fn others([rows, columns]: [usize; 2]) -> Vec<[usize; 2]> {
    let side = (rows * columns).isqrt().max(3);
    let wanted = [
        [side + 2, side - 1],
        [side - 1, side + 3],
        [side + 7, side + 1],
        [side + 1, side + 12],
    ];
    let other = |[mut tall, mut wide]: [usize; 2]| {
        while tall == rows || wide == columns || tall * wide == rows * columns {
            tall += usize::from(tall == rows || wide != columns);
            wide += usize::from(wide == columns);
        }
        [tall, wide]
    };
    wanted.into_iter().map(other).collect()
}

/// The first value that has the grid as two axes, and these axes.
fn grid(
    context: &Context<'_>,
    plans: &[Plan],
    seen: &[[usize; 2]],
) -> Result<(ValueId, [usize; 2]), RewriteError> {
    let graph = context.graph();
    let found = |value: &ValueId| -> Option<[usize; 2]> {
        let first = plans.first()?.axes.get(value)?;
        let changed: Vec<usize> = (0..first.len())
            .filter(|axis| first[*axis].changes())
            .collect();
        let [a, b] = changed[..] else { return None };
        let is_grid = |sides: &[usize; 2]| {
            let mut pairs = plans.iter().zip(&seen[1..]);
            pairs.all(|(plan, grid)| {
                let axes = plan.axes.get(value);
                let lengths =
                    axes.and_then(|axes| Some([axes.get(sides[0])?, axes.get(sides[1])?]));
                lengths.is_some_and(|lengths| lengths.map(Extent::after) == *grid)
            })
        };
        [[a, b], [b, a]].into_iter().find(is_grid)
    };
    for id in graph.order(graph.main())? {
        for value in graph.node(id).outputs().iter().flatten() {
            if let Some(axes) = found(value) {
                return Ok((*value, axes));
            }
        }
    }
    let why = "no value of the graph has the rows and the columns of patches as axes of its own";
    Err(Refusal::unsupported(why).into())
}

/// Refuses sizes that are read before the grid is known.
fn check_order(
    context: &Context<'_>,
    grid: ValueId,
    constants: &BTreeMap<Use, Following>,
) -> Result<(), RewriteError> {
    let graph = context.graph();
    let mut before: BTreeSet<NodeId> = BTreeSet::new();
    let mut stack = vec![grid];
    while let Some(value) = stack.pop() {
        if let Some((id, _)) = graph.producer(value)
            && before.insert(id)
        {
            stack.extend(reads(graph, id));
        }
    }
    let is_early = |(at, own): &(&Use, &Following)| {
        before.contains(&at.node) && own.each.iter().any(|number| number.follows())
    };
    match constants.iter().find(is_early) {
        None => Ok(()),
        Some((at, _)) => {
            let why = "a size that is read here follows from a grid of patches that is made of it";
            Err(context.refuse(at.node, why))
        }
    }
}

/// Refuses a table of a type that no runtime resizes.
fn check_type(context: &Context<'_>, table: &ResizedTable) -> Result<(), RewriteError> {
    use posenc_ir::DType::{BF16, F16, F32};
    let dtype = context.dtype(table.value);
    if matches!(dtype, F32 | F16 | BF16) {
        return Ok(());
    }
    let why = format!("the position table is of {dtype}, which no runtime resizes");
    Err(context.refuse(table.entry.node, why))
}

/// Which axes follow the image at one of the sizes.
fn axes(plans: &[Plan]) -> BTreeMap<ValueId, Vec<bool>> {
    let mut found: BTreeMap<ValueId, Vec<bool>> = BTreeMap::new();
    for (value, axes) in plans.iter().flat_map(|plan| &plan.axes) {
        let own = found
            .entry(*value)
            .or_insert_with(|| vec![false; axes.len()]);
        for (follows, axis) in own.iter_mut().zip(axes) {
            *follows |= axis.changes();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_grids_are_tall_and_wide() {
        for old in [[1, 1], [2, 2], [4, 4], [6, 3], [3, 7], [14, 14], [2, 50]] {
            let all = others(old);
            assert!(all[0][0] > all[0][1] && all[1][0] < all[1][1], "{all:?}");
            let each: BTreeSet<[usize; 2]> = all.iter().copied().collect();
            assert_eq!(each.len(), 4, "{all:?}");
            for [rows, columns] in all {
                let differs = rows != old[0] && columns != old[1];
                assert!(differs && rows * columns != old[0] * old[1], "{old:?}");
                assert!(rows > 1 && columns > 1, "{old:?}");
            }
        }
    }
}
