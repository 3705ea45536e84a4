//! Images of another size than that which is written in the graph.

use posenc_encodings::resize::{Antialias, Corners, Resizing};
use posenc_ir::{Dim, ValueId};

use super::sizes::{Plan, Wanted};
use super::table::{Interpolation, Interpolations, NewRows};
use super::walk::Walk;
use crate::detect::context::Context;
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::ports::{Port, Role};
use crate::record;
use crate::request::{ImageSize, Request, ScaleType};

/// A larger image has more patches than any attention can compare.
const MOST_PIXELS: usize = 1 << 26;

/// Plans another size of the images that a model takes.
///
/// # Errors
/// Where the model takes no images of one size, and where a size in the graph does not follow.
pub(crate) fn plan(
    context: &Context<'_>,
    request: &Request,
    size: ImageSize,
) -> Result<Plan, RewriteError> {
    let by = by(request)?;
    check_pixels(size)?;
    let image = Image::of(context, "image-size")?;
    if image.size() == size {
        check_law(context, request, by)?;
        return Ok(Walk::new(context, wanted(&image, size, by)).plan(vec![]));
    }
    check_original(context, request)?;
    let walk = walked(context, &image, size, by)?;
    if walk.tables.iter().any(|table| table.grid() == Some([1, 1])) {
        let why = format!(
            "an image of {size} is one patch, which has no place in a grid; give a larger `image-size`"
        );
        return Err(Refusal::invalid(why).into());
    }
    check_effect(&walk, by.rows)?;
    Ok(walk.plan(vec![]))
}

/// Refuses to smooth where no table of patches is interpolated, as where there are biases alone.
fn check_effect(walk: &Walk<'_>, rows: Interpolation) -> Result<(), RewriteError> {
    let mut tables = walk.tables.iter();
    let is_interpolated = tables.any(|table| matches!(table.rows, NewRows::Grid(_)));
    if rows.antialias == Antialias::Off || is_interpolated {
        return Ok(());
    }
    let why = "`antialias` has no effect: it is of tables of patches, and none is interpolated; remove it";
    Err(Refusal::new(RefusalKind::NoEffect("antialias"), why).into())
}

/// Refuses images with more pixels than any attention can compare.
pub(super) fn check_pixels(size: ImageSize) -> Result<(), RewriteError> {
    let pixels = size.height.checked_mul(size.width);
    if pixels.is_some_and(|pixels| pixels <= MOST_PIXELS) {
        return Ok(());
    }
    let why = format!("an image may have {MOST_PIXELS} pixels at most, and `image-size` is {size}");
    Err(Refusal::invalid(why).into())
}

/// Refuses models without attention, and tables that are interpolated already.
pub(super) fn check_original(context: &Context<'_>, request: &Request) -> Result<(), RewriteError> {
    if context.found.attention.is_empty() {
        let why = "no attention was found, and only models with attention get another image size";
        return Err(Refusal::unsupported(why).into());
    }
    let again = record::stretch::interpolated(context.model);
    if let Some(scale) = again.filter(|_| !request.allowances.allow_rescale) {
        return Err(interpolated(scale));
    }
    Ok(())
}

/// Refuses an image of the size that is asked for, of which an earlier rewrite interpolated the table in
/// another way, unless that is allowed.
fn check_law(
    context: &Context<'_>,
    request: &Request,
    by: Interpolations,
) -> Result<(), RewriteError> {
    let before = record::stretch::read(context.model);
    let resizing = |scale: Option<ScaleType>| scale.and_then(ScaleType::resizing);
    let Some((scale, before)) = before.and_then(|own| Some((resizing(own.last())?, own))) else {
        return Ok(());
    };
    let rows = Interpolation {
        by: scale,
        corners: before.corners,
        antialias: before.antialias,
    };
    let is_same = rows == by.rows && resizing(before.biases).is_none_or(|own| own == by.biases.by);
    if is_same || request.allowances.allow_rescale {
        return Ok(());
    }
    Err(interpolated(scale))
}

/// The refusal to interpolate once more.
fn interpolated(scale: Resizing) -> RewriteError {
    let why = format!(
        "the table of patches is interpolated already ({scale}); resize the original, or give \
         `allow-rescale` to interpolate the result once more"
    );
    Refusal::new(RefusalKind::AlreadyScaled, why).into()
}

/// What follows from images of another size.
pub(super) fn walked<'a>(
    context: &'a Context<'a>,
    image: &Image,
    size: ImageSize,
    by: Interpolations,
) -> Result<Walk<'a>, RewriteError> {
    let followed = |mut walk: Walk<'a>| {
        walk.start(image.input, image.axes(size));
        let sides = |size: ImageSize| [size.height, size.width];
        walk.follow_stored_sizes(sides(image.size()), sides(size));
        walk.run()?;
        walk.check_windows()?;
        walk.check_counts()?;
        Ok(walk)
    };
    let walk = Walk::new(context, wanted(image, size, by));
    if walk.made.is_empty() {
        return followed(walk);
    }
    // A bias that is not computed for other images may follow by the rules of sizes.
    followed(walk).or_else(|_: RewriteError| {
        let mut walk = Walk::new(context, wanted(image, size, by));
        walk.made.clear();
        followed(walk)
    })
}

/// Images of another size.
fn wanted(image: &Image, size: ImageSize, by: Interpolations) -> Wanted {
    let old = image.size();
    Wanted::Image {
        size,
        old: [old.height, old.width],
        by,
    }
}

/// How rows of patches, and biases by their offset, become others.
pub(super) fn by(request: &Request) -> Result<Interpolations, RewriteError> {
    let p = &request.parameters;
    let by = match request.scale.map(ScaleType::resizing) {
        None => Resizing::Cubic,
        Some(Some(by @ (Resizing::Cubic | Resizing::Linear))) => by,
        Some(_) => {
            let why = "the table of a grid of patches is interpolated with `scale` cubic or linear";
            return Err(Refusal::invalid(why).into());
        }
    };
    if p.antialias == Antialias::On && p.corners == Corners::Aligned {
        let why = "`antialias` and `align-corners` exclude each other";
        return Err(Refusal::invalid(why).into());
    }
    let rows = Interpolation {
        by,
        corners: p.corners,
        antialias: p.antialias,
    };
    // BEiT's own code interpolates its rows by cubic, and its biases by linear functions.
    let biases = Interpolation {
        by: request.scale.map_or(Resizing::Linear, |_| by),
        antialias: Antialias::Off,
        ..rows
    };
    let are_given =
        request.scale.is_some() || p.antialias == Antialias::On || p.corners == Corners::Aligned;
    Ok(Interpolations {
        rows,
        biases,
        are_given,
    })
}

/// The input that is an image.
pub(super) struct Image {
    pub(super) input: ValueId,
    dims: Vec<usize>,
    /// The axes of height and width.
    pub(super) sides: [usize; 2],
    /// Whether one of these has no fixed length.
    pub(super) is_open: bool,
}

impl Image {
    /// The only input that is an image, of one size; `option` is the parameter that needs it.
    pub(super) fn of(context: &Context<'_>, option: &'static str) -> Result<Self, RewriteError> {
        let image = Self::any(context, option)?;
        if image.is_open {
            return Err(image.open_sides(context, option));
        }
        Ok(image)
    }

    /// The refusal of a parameter that is of images of one size.
    pub(super) fn open_sides(&self, context: &Context<'_>, option: &'static str) -> RewriteError {
        let name = context.graph().name(self.input);
        let why = format!(
            "the height and the width of {name} are open, and the graph computes what follows; \
             `{option}` is of fixed ones"
        );
        Refusal::new(RefusalKind::NoEffect(option), why).into()
    }

    /// The only input that is an image, of any size; `option` is the parameter that needs it.
    pub(super) fn any(context: &Context<'_>, option: &'static str) -> Result<Self, RewriteError> {
        let ports = context.found.ports.iter();
        let images: Vec<_> = ports
            .filter(|port| port.role == Role::Content && port.dims.len() == 4)
            .collect();
        let [port] = images[..] else {
            let mut others = context.found.ports.iter();
            let frames = |port: &Port| port.role == Role::Content && port.dims.len() == 5;
            if images.is_empty() && others.any(frames) {
                let why = format!(
                    "`{option}` is of one image, and this model takes frames of several, which is not \
                     supported yet"
                );
                return Err(Refusal::new(RefusalKind::UnsupportedOption(option), why).into());
            }
            let count = match images.len() {
                0 => "none".to_owned(),
                count => count.to_string(),
            };
            let why = format!(
                "`{option}` has no effect: it is of a model with one image as input, and this one has {count}"
            );
            return Err(Refusal::new(RefusalKind::NoEffect(option), why).into());
        };
        let dims = context.dims(port.value).unwrap_or_default().to_vec();
        // Channels are few, and come before the pixels or after them.
        let channels = |axis: usize| matches!(dims.get(axis), Some(1 | 3 | 4));
        let sides = match (channels(1), channels(3)) {
            (true, _) => [2, 3],
            (false, true) => [1, 2],
            (false, false) => {
                let why = "which axes of the image are its height and its width is not known";
                return Err(Refusal::unsupported(why).into());
            }
        };
        let is_open = |axis: &usize| !matches!(port.dims[*axis], Dim::Known(_));
        Ok(Self {
            input: port.value,
            dims,
            sides,
            is_open: sides.iter().any(is_open),
        })
    }

    /// Its size.
    pub(super) fn size(&self) -> ImageSize {
        let [height, width] = self.sides.map(|axis| self.dims[axis]);
        ImageSize { height, width }
    }

    /// The axes where the image has this size.
    fn axes(&self, size: ImageSize) -> Vec<Extent> {
        let [height, width] = self.sides;
        let axis = |(axis, old): (usize, &usize)| Extent::One {
            old: *old,
            new: match axis {
                _ if axis == height => size.height,
                _ if axis == width => size.width,
                _ => *old,
            },
        };
        self.dims.iter().enumerate().map(axis).collect()
    }
}
