//! The plan of other sizes than those that are written in the graph, of an image or of a sequence: what
//! becomes of every size, and of the tables of positions that are added whole.

mod axes;
mod broadcast;
mod counts;
mod entries;
mod length;
mod meets;
mod origin;
mod shapes;
mod slices;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod walk;
mod windows;

use std::collections::BTreeMap;

use posenc_encodings::inferred::Inferred;
use posenc_encodings::resize::{Antialias, Corners, Resizing};
use posenc_ir::{Dim, Tensor, Use, ValueId};

use crate::detect::Found;
use crate::detect::context::Context;
use crate::detect::finding::Encoding;
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::graph::extent::Extent;
use crate::graph::ports::Role;
use crate::plan::stretch::Table;
use crate::record;
use crate::request::{ImageSize, Request, ScaleType};
pub(crate) use length::length;
use table::{Interpolation, ResizedTable};
use walk::Walk;

/// A larger image has more patches than any attention can compare.
const MOST_PIXELS: usize = 1 << 26;

/// Sizes that are written in the graph, and others that they become.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// What the model is made for.
    pub(crate) wanted: Wanted,
    /// The tables that get other rows.
    pub(crate) tables: Vec<ResizedTable>,
    /// Constants that follow, by where they are read.
    pub(crate) constants: BTreeMap<Use, (ValueId, Tensor)>,
    /// The axes of every value of which one changes.
    pub(crate) axes: BTreeMap<ValueId, Vec<Extent>>,
    /// Values that the request did not give.
    pub(crate) inferred: Vec<Inferred>,
}

/// What a model is made for.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    /// Images of this size.
    Image {
        /// Rows and columns of pixels.
        size: ImageSize,
        /// The same before.
        old: [usize; 2],
        /// How rows of patches become others.
        rows: Interpolation,
    },
    /// Sequences of this length.
    Length {
        /// Tokens.
        length: usize,
        /// The tables that get other rows.
        tables: Vec<Table>,
    },
}

impl Wanted {
    /// What sizes follow, as it is called in a refusal.
    fn name(&self) -> &'static str {
        match self {
            Self::Image { .. } => "image",
            Self::Length { .. } => "sequence",
        }
    }
}

impl Plan {
    /// The encoding of a finding afterwards.
    pub(crate) fn after(&self, at: usize, encoding: &Encoding) -> Encoding {
        let table = self.tables.iter().find(|table| table.finding == at);
        table.map_or_else(|| encoding.clone(), |table| table.after(encoding))
    }

    /// The length of sequences afterwards; `None` where it is that of images.
    pub(crate) fn length(&self) -> Option<usize> {
        match self.wanted {
            Wanted::Image { .. } => None,
            Wanted::Length { length, .. } => Some(length),
        }
    }

    /// The findings whose encoding is made for other sizes: of an image all, of a sequence those of the
    /// tables.
    pub(crate) fn findings(&self, found: &Found) -> Vec<usize> {
        let is_meant = |at: &usize| match &self.wanted {
            Wanted::Image { .. } => !self.is_empty(),
            Wanted::Length { tables, .. } => tables.iter().any(|table| table.finding == *at),
        };
        (0..found.findings.len()).filter(is_meant).collect()
    }

    /// Whether nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.axes.is_empty()
    }

    /// The declared dimensions of a value afterwards; `None` where they stay.
    pub(crate) fn declared(&self, value: ValueId, declared: &[Dim]) -> Option<Vec<Dim>> {
        let axes = self.axes.get(&value)?;
        let pairs = declared.iter().zip(axes);
        let dims: Vec<Dim> = pairs
            .map(|(dim, axis)| match dim {
                Dim::Known(_) => Dim::Known(axis.after()),
                open => open.clone(),
            })
            .collect();
        (dims != declared).then_some(dims)
    }
}

/// Plans another size of the images that a model takes.
///
/// # Errors
/// Where the model takes no images of one size, and where a size in the graph does not follow.
pub(crate) fn plan(
    context: &Context<'_>,
    request: &Request,
    size: ImageSize,
) -> Result<Plan, RewriteError> {
    let rows = rows(request)?;
    let pixels = size.height.checked_mul(size.width);
    if pixels.is_none_or(|pixels| pixels > MOST_PIXELS) {
        let why =
            format!("an image may have {MOST_PIXELS} pixels at most, and `image-size` is {size}");
        return Err(Refusal::invalid(why).into());
    }
    let (input, axes, [height, width]) = image(context, size)?;
    let old = [axes[height].before(), axes[width].before()];
    let mut walk = Walk::new(context, Wanted::Image { size, old, rows });
    if axes.iter().any(Extent::changes) {
        // What changes is reported by the encodings of the sites.
        if context.found.findings.iter().all(|f| f.sites.is_empty()) {
            let why = "no encoding of positions was found, and only models with one get another image \
                       size yet";
            return Err(Refusal::unsupported(why).into());
        }
        let again = record::stretch::interpolated(context.model);
        if let Some(scale) = again.filter(|_| !request.allowances.allow_rescale) {
            let why = format!(
                "the table of patches is interpolated already ({scale}); resize the original, or give \
                 `allow-rescale` to interpolate the result once more"
            );
            return Err(Refusal::new(RefusalKind::AlreadyScaled, why).into());
        }
        walk.start(input, axes);
        walk.run()?;
        walk.check_windows()?;
        walk.check_counts()?;
    }
    Ok(walk.plan(vec![]))
}

/// How rows of patches become others.
fn rows(request: &Request) -> Result<Interpolation, RewriteError> {
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
    Ok(Interpolation {
        by,
        corners: p.corners,
        antialias: p.antialias,
    })
}

/// The input that is an image, its axes with another size, and which of them are its height and width.
fn image(
    context: &Context<'_>,
    size: ImageSize,
) -> Result<(ValueId, Vec<Extent>, [usize; 2]), RewriteError> {
    let ports = context.found.ports.iter();
    let images: Vec<_> = ports
        .filter(|port| port.role == Role::Content && port.dims.len() == 4)
        .collect();
    let [port] = images[..] else {
        let why = format!(
            "`image-size` is of a model with one image as input, and this one has {}",
            images.len()
        );
        return Err(Refusal::new(RefusalKind::NoEffect("image-size"), why).into());
    };
    let dims = context.dims(port.value).unwrap_or_default();
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
    if sides.iter().any(is_open) {
        let name = context.graph().name(port.value);
        let why = format!(
            "the height and the width of {name} are open, and the graph computes what follows; \
                     `image-size` is of fixed ones"
        );
        return Err(Refusal::new(RefusalKind::NoEffect("image-size"), why).into());
    }
    let axes = dims.iter().enumerate().map(|(axis, old)| Extent::One {
        old: *old,
        new: match axis {
            _ if axis == sides[0] => size.height,
            _ if axis == sides[1] => size.width,
            _ => *old,
        },
    });
    Ok((port.value, axes.collect(), sides))
}
