//! Opening a model for images of any size: the graph resizes its tables itself, and computes the sizes that
//! follow from the grid of patches.

use posenc_encodings::resize::{Antialias, Corners, Resizing};
use posenc_ir::{Applied, Attr, DType, Dim, Emitter, Model, Tensor, ValueId};

use super::follow::Sizes;
use super::symbols::symbol;
use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::plan::resize::table::{Interpolation, ResizedTable};
use crate::plan::resize::{Number, Open};

/// The first opset in which `Resize` takes sizes alone.
const SIZES_ALONE: i64 = 13;

/// Applies a plan to a model, and says what changed.
///
/// # Errors
/// Where rows of a table are in an order that is not known.
pub(crate) fn open(context: &Context<'_>, plan: &Open) -> Result<(Model, Applied), RewriteError> {
    let graph = context.graph();
    let mut sizes = Sizes::new(graph.emitter(graph.main(), "posenc"), plan.grid);
    let mut done: Vec<(&ResizedTable, ValueId)> = vec![];
    for table in &plan.tables {
        let new = match done.iter().find(|(other, _)| other.is_like(table)) {
            Some((_, new)) => *new,
            None => {
                let new = resized(context, &mut sizes, table, plan.by.rows)?;
                done.push((table, new));
                new
            }
        };
        let entry = table.entry;
        let read = graph.node(entry.node).input(entry.slot());
        let read = read.unwrap_or(table.value);
        sizes.out.redirect_use(read, entry, new)?;
        if read != table.value {
            sizes.out.remove_if_unused(read)?;
        }
    }
    sizes.replace(context, &plan.constants)?;
    let mut out = sizes.out;
    for value in plan.axes.keys().copied() {
        let Some(declared) = graph.value(value).shape() else {
            continue;
        };
        let dims = if value == plan.input {
            Some(input(context, plan, declared))
        } else {
            plan.declared(value, declared)
        };
        if let Some(dims) = dims {
            out.redeclare(value, dims)?;
        }
    }
    Ok(context.model.clone().with_patch(out.finish())?)
}

/// The dimensions of the image, with names for height and width that no other dimension has.
fn input(context: &Context<'_>, plan: &Open, declared: &[Dim]) -> Vec<Dim> {
    let mut dims = declared.to_vec();
    for (axis, name) in plan.sides.into_iter().zip(["height", "width"]) {
        dims[axis] = symbol(context.graph(), name);
    }
    dims
}

/// A table of which the graph resizes the rows of patches; the others are kept apart, and joined again.
fn resized(
    context: &Context<'_>,
    sizes: &mut Sizes<'_>,
    table: &ResizedTable,
    rows: Interpolation,
) -> Result<ValueId, RewriteError> {
    let changed = (0..table.axes.len()).filter(|axis| table.axes[*axis].changes());
    let changed: Vec<usize> = changed.collect();
    let value = stored(context, &mut sizes.out, table)?;
    match changed[..] {
        [axis] => in_one_axis(context, sizes, (table, value), axis, rows),
        [height, width] => {
            let order = last(table.axes.len(), &[height, width]);
            let dims: Vec<Number> = order
                .iter()
                .map(|axis| match *axis {
                    axis if axis == height => Number::side(0),
                    axis if axis == width => Number::side(1),
                    axis => Number::Fixed(table.axes[axis].before() as i64),
                })
                .collect();
            let turned = transposed(&mut sizes.out, value, &order);
            let made = on_grid(context, sizes, table, turned, &dims, rows)?;
            let made = match dims.len() {
                4 => made,
                _ => {
                    let shape = sizes.joined(&dims);
                    sizes.out.op("Reshape", &[made, shape])
                }
            };
            Ok(transposed(&mut sizes.out, made, &inverse(&order)))
        }
        _ => Err(unknown(context, table)),
    }
}

/// The table, as a constant of its own where all of its rows are picked from another.
fn stored(
    context: &Context<'_>,
    out: &mut Emitter<'_>,
    table: &ResizedTable,
) -> Result<ValueId, RewriteError> {
    let (graph, value) = (context.graph(), table.value);
    let maker = graph
        .producer(value)
        .filter(|_| graph.stored(value).is_none());
    let numbers = context.found.trace.get(value).to_f64();
    let (Some((maker, _)), Some(numbers)) = (maker, numbers) else {
        return Ok(value);
    };
    if !graph.node(maker).is("Gather") {
        return Ok(value);
    }
    let flat: Vec<f64> = numbers.iter().copied().collect();
    let tensor = Tensor::from_f64(context.dtype(value), numbers.shape(), &flat);
    out.remove_if_unused(value)?;
    Ok(out.constant("positions", tensor))
}

/// A table whose patches are behind each other along an axis.
fn in_one_axis(
    context: &Context<'_>,
    sizes: &mut Sizes<'_>,
    (table, value): (&ResizedTable, ValueId),
    axis: usize,
    rows: Interpolation,
) -> Result<ValueId, RewriteError> {
    let length = |parts: &[Extent]| parts.iter().map(Extent::before).sum::<usize>() as i64;
    let parts = table.axes[axis].parts();
    let place = parts.iter().position(Extent::changes);
    let (before, others) = parts.split_at(place.ok_or_else(|| unknown(context, table))?);
    let (patches, behind) = others.split_at(1);
    let (start, end) = (length(before), length(before) + length(patches));
    let whole = end + length(behind);
    let mut cut = |from: i64, to: i64| {
        let [from, to, axis] = [from, to, axis as i64].map(|n| sizes.out.ints("rows", &[n]));
        sizes.out.op("Slice", &[value, from, to, axis])
    };
    let is_whole = (start, end) == (0, whole);
    let own = if is_whole { value } else { cut(start, end) };
    let lead = (start > 0).then(|| cut(0, start));
    let tail = (end < whole).then(|| cut(end, whole));
    let order = last(table.axes.len(), &[axis]);
    let others = order.iter().filter(|other| **other != axis);
    let others: Vec<Number> = others
        .map(|other| Number::Fixed(table.axes[*other].before() as i64))
        .collect();
    let turned = transposed(&mut sizes.out, own, &order);
    let dims = [&others[..], &[Number::side(0), Number::side(1)]].concat();
    let made = on_grid(context, sizes, table, turned, &dims, rows)?;
    let flat = [&others[..], &[Number::Fixed(-1)]].concat();
    let shape = sizes.joined(&flat);
    let made = sizes.out.op("Reshape", &[made, shape]);
    let made = transposed(&mut sizes.out, made, &inverse(&order));
    let parts: Vec<ValueId> = lead.into_iter().chain([made]).chain(tail).collect();
    Ok(match parts[..] {
        [one] => one,
        _ => sizes
            .out
            .op_with("Concat", &parts, &[("axis", Attr::Int(axis as i64))]),
    })
}

/// Rows of patches on another grid, `[…, rows, columns]`; `dims` are those of the result. A table of another
/// rank than 4 comes out with one axis of all others before them.
fn on_grid(
    context: &Context<'_>,
    sizes: &mut Sizes<'_>,
    table: &ResizedTable,
    value: ValueId,
    dims: &[Number],
    rows: Interpolation,
) -> Result<ValueId, RewriteError> {
    let (from, others) = (table.sides(Extent::before), &dims[..dims.len() - 2]);
    let [height, width] = from.ok_or_else(|| unknown(context, table))?;
    let fixed = |number: &Number| match number {
        Number::Fixed(n) => *n,
        Number::Grid { .. } => 1,
    };
    let features: Vec<i64> = match dims.len() {
        4 => others.iter().map(fixed).collect(),
        _ => vec![1, others.iter().map(fixed).product()],
    };
    let value = match table.axes.len() {
        4 if dims.len() == 4 => value,
        _ => {
            let now = [&features[..], &[height as i64, width as i64]].concat();
            let shape = sizes.out.ints("size", &now);
            sizes.out.op("Reshape", &[value, shape])
        }
    };
    let features = features.into_iter().map(Number::Fixed);
    let wanted: Vec<Number> = features.chain([Number::side(0), Number::side(1)]).collect();
    let wanted = sizes.joined(&wanted);
    let dtype = context.dtype(table.value);
    // Resizing in half precision would round in between.
    let is_single = dtype == DType::F32;
    let value = if is_single {
        value
    } else {
        sizes.out.cast(value, DType::F32)
    };
    let made = resize(context, &mut sizes.out, [value, wanted], rows);
    Ok(if is_single {
        made
    } else {
        sizes.out.cast(made, dtype)
    })
}

/// The node that resizes.
fn resize(
    context: &Context<'_>,
    out: &mut Emitter<'_>,
    [value, wanted]: [ValueId; 2],
    rows: Interpolation,
) -> ValueId {
    let text = |text: &str| Attr::Str(text.to_owned());
    let corners = match rows.corners {
        Corners::HalfPixel => "half_pixel",
        Corners::Aligned => "align_corners",
    };
    let mut attrs = vec![("coordinate_transformation_mode", text(corners))];
    let smooths = rows.antialias == Antialias::On;
    if rows.by == Resizing::Linear {
        attrs.push(("mode", text("linear")));
    } else {
        let sharp = if smooths { -0.5 } else { -0.75 };
        attrs.extend([
            ("mode", text("cubic")),
            ("cubic_coeff_a", Attr::Float(sharp)),
        ]);
    }
    if smooths {
        attrs.extend([
            ("antialias", Attr::Int(1)),
            ("exclude_outside", Attr::Int(1)),
        ]);
    }
    let none = (context.model.opset() < SIZES_ALONE)
        .then(|| out.constant("none", Tensor::from_f64(DType::F32, &[0], &[])));
    let inputs = [Some(value), none, none, Some(wanted)];
    out.node("", "Resize", &inputs, &attrs, 1)[0]
}

/// All axes with some of them last.
fn last(rank: usize, moved: &[usize]) -> Vec<usize> {
    let others = (0..rank).filter(|axis| !moved.contains(axis));
    others.chain(moved.iter().copied()).collect()
}

fn inverse(order: &[usize]) -> Vec<usize> {
    let place = |axis: usize| order.iter().position(|own| *own == axis).unwrap_or(axis);
    (0..order.len()).map(place).collect()
}

fn transposed(out: &mut Emitter<'_>, value: ValueId, order: &[usize]) -> ValueId {
    if order.iter().enumerate().all(|(at, axis)| at == *axis) {
        return value;
    }
    let perm = order.iter().map(|axis| *axis as i64).collect();
    out.op_with("Transpose", &[value], &[("perm", Attr::Ints(perm))])
}

fn unknown(context: &Context<'_>, table: &ResizedTable) -> RewriteError {
    let name = context.graph().name(table.value);
    let why = format!("the position table {name} has its rows in an order that is not known");
    Refusal::unsupported(why)
        .at(context.graph().place(table.entry.node))
        .into()
}
