//! What a model of other sizes shows, compared with the plan: the same attention and encodings, the sizes
//! that were planned, and on every patch or token the row that the formula says.

mod bias;
mod code;
pub(crate) mod open;
pub(crate) mod open_length;
mod rotation;
mod weights;

use ndarray::{Array1, Array2, s};
use posenc_ir::eval::{Budget, probe};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::error::{Refusal, RewriteError};
use crate::graph::extent::Extent;
use crate::plan::resize::Plan;
use crate::plan::resize::rows::by_row;
use crate::plan::resize::table::{NewRows, ResizedTable};
use crate::prove::bound::ROUNDINGS;
use crate::prove::invariants::check_same_sites;
use crate::prove::stretched;
use weights::shares;

/// Numbers of a table on a grid.
const BUDGET: Budget = Budget { elements: 1 << 24 };

/// Compares the result with the plan.
///
/// # Errors
/// With what differs, and where.
pub(crate) fn check(
    before: &Context<'_>,
    after: &Context<'_>,
    plan: &Plan,
) -> Result<(), RewriteError> {
    check_same_sites(after, before.found, "in the resized graph")?;
    let (old, new) = (&before.found.findings, &after.found.findings);
    let is_same = |(at, (old, new)): (usize, (&Finding, &Finding))| {
        let line = plan.tables.iter().find(|table| table.finding == at);
        let is_planned = match line.map(|table| &table.rows) {
            Some(NewRows::Line(line)) => stretched::has_rows(new, line),
            _ if plan.rotations.iter().any(|own| own.finding == at) => {
                rotation::is_planned(&plan.after(at, &old.encoding), &new.encoding)
            }
            Some(NewRows::Code(_)) => match plan.after(at, &old.encoding) {
                Encoding::Sinusoidal(code) => stretched::is_code(new, &code),
                other => new.encoding == other,
            },
            _ => new.encoding == plan.after(at, &old.encoding),
        };
        old.sites == new.sites && is_planned
    };
    let mut pairs = old.iter().zip(new).enumerate();
    let differs = pairs.find(|pair| !is_same(*pair)).map(|(_, (old, _))| old);
    if differs.is_some() || old.len() != new.len() {
        let why = "the encoding of the new sizes cannot be read back";
        return Err(before.refuse_finding(differs.or(old.first()), why));
    }
    check_sizes(before, after, plan)?;
    for table in &plan.tables {
        check_rows(before, after, table)?;
    }
    for own in &plan.biases {
        bias::check(before, after, own, &plan.wanted)?;
    }
    rotation::check(before, after, plan)
}

/// Compares the sizes of all that the main graph computes with those of the plan; constants are compared where they are
/// read.
fn check_sizes(before: &Context<'_>, after: &Context<'_>, plan: &Plan) -> Result<(), RewriteError> {
    let graph = before.graph();
    let kept = graph.scope(graph.main()).nodes().iter();
    let kept = kept.filter(|id| !after.graph().is_removed(**id));
    let made = kept.flat_map(|id| graph.node(*id).outputs().iter().flatten());
    for value in made.filter(|value| graph.stored(**value).is_none()) {
        let planned = plan.axes.get(value);
        let planned: Option<Vec<usize>> = match planned {
            Some(axes) => Some(axes.iter().map(Extent::after).collect()),
            None => before.dims(*value).map(<[usize]>::to_vec),
        };
        if after.dims(*value).map(<[usize]>::to_vec) != planned {
            let name = graph.name(*value);
            let why = format!("{name} would get other sizes than those that follow the input");
            return Err(Refusal::unsupported(why).into());
        }
    }
    Ok(())
}

/// Compares what is added on each patch with the formula, over what was added before.
fn check_rows(
    before: &Context<'_>,
    after: &Context<'_>,
    table: &ResizedTable,
) -> Result<(), RewriteError> {
    let node = table.entry.node;
    let unknown = || before.refuse(node, "what the position table adds cannot be computed");
    let own = after.graph().node(node).input(table.entry.slot());
    let own = own.ok_or_else(unknown)?;
    let numbers = |context: &Context<'_>, value| context.found.trace.get(value).to_f64();
    let old = numbers(before, table.value).ok_or_else(unknown)?;
    let new = numbers(after, own).ok_or_else(unknown)?;
    let epsilon = after
        .dtype(own)
        .epsilon()
        .unwrap_or(f64::from(f32::EPSILON));
    let rows = match &table.rows {
        NewRows::Grid(rows) => rows,
        NewRows::Code(code) => {
            let departs = code::departs((&old, &new), &table.axes, code, epsilon);
            return match departs.ok_or_else(unknown)? {
                None => Ok(()),
                Some(row) => {
                    let why =
                        format!("row {row} would get other numbers than those of the formula");
                    Err(before.refuse(node, why))
                }
            };
        }
        NewRows::Line(line) => {
            let dtype = after.dtype(own);
            let departs = stretched::added_departs(old, new, &line.rows, dtype);
            return match departs.ok_or_else(unknown)? {
                None => Ok(()),
                Some(position) => {
                    let why = format!(
                        "position {position} would get another row than that of the formula"
                    );
                    Err(before.refuse(node, why))
                }
            };
        }
    };
    let largest = old.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
    let sides = table
        .sides(|axis| axis.before())
        .zip(table.sides(|axis| axis.after()));
    let (old_grid, to) = sides.ok_or_else(unknown)?;
    // The graph may make the old rows of a table on another grid, as it makes the new ones.
    let stored = table
        .is_computed
        .then(|| stored_grid(before, table))
        .flatten();
    let from = stored.as_ref().map_or(old_grid, |(_, grid)| *grid);
    let [down, across] = [0, 1].map(|side| shares(from[side], to[side], rows));
    let (old, lead) = by_row(&old, &table.axes, Extent::before);
    let (new, _) = by_row(&new, &table.axes, Extent::after);
    let old_patches = old_grid[0] * old_grid[1];
    let (patches, others) = (to[0] * to[1], old.nrows() - old_patches);
    let grid = match stored {
        Some((rows, _)) => rows,
        None => old.slice(s![lead..lead + old_patches, ..]).to_owned(),
    };
    for row in 0..patches + others {
        let want = match row.checked_sub(lead) {
            None => old.row(row).to_owned(),
            Some(n) if n >= patches => old.row(row - patches + old_patches).to_owned(),
            Some(patch) => {
                let (y, x) = (patch / to[1], patch % to[1]);
                let mut sum = Array1::<f64>::zeros(old.ncols());
                for (i, tall) in &down[y] {
                    for (j, wide) in &across[x] {
                        sum.scaled_add(tall * wide, &grid.row(i * from[1] + j));
                    }
                }
                sum
            }
        };
        let bound = ROUNDINGS * epsilon * largest;
        let near = new
            .row(row)
            .iter()
            .zip(&want)
            .all(|(a, b)| (a - b).abs() <= bound);
        if !near && table.is_computed {
            let why = "the graph itself resizes this table, and in another way than is asked for; give \
                       `scale`, `align-corners` or `antialias` as the graph does it";
            return Err(before.refuse(node, why));
        }
        if !near {
            let why = format!("row {row} would get other numbers than those of the formula");
            return Err(before.refuse(node, why));
        }
    }
    Ok(())
}

/// The rows, `[row, number]`, of the table on a grid that a `Resize` makes the added rows of, and this grid;
/// `None` where there is no such.
fn stored_grid(context: &Context<'_>, table: &ResizedTable) -> Option<(Array2<f64>, [usize; 2])> {
    let graph = context.graph();
    let mut stack = vec![table.value];
    let mut seen = FxHashSet::default();
    let mut found = vec![];
    while let Some(value) = stack.pop() {
        let Some((id, _)) = graph.producer(value).filter(|_| seen.insert(value)) else {
            continue;
        };
        let node = graph.node(id);
        match node.op() {
            "Resize" | "Upsample" => found.push(node.input(0)?),
            "Concat" => stack.extend(node.inputs().iter().flatten()),
            _ => stack.extend(node.input(0)),
        }
    }
    let [own] = found[..] else { return None };
    let none = FxHashMap::default();
    let again = probe(context.model, &context.found.trace, &none, &[own], &BUDGET).ok()?;
    let numbers = again.first()?.to_f64()?;
    let [1, width, height, across] = *numbers.shape() else {
        return None;
    };
    let numbers = numbers.as_standard_layout().into_owned();
    let rows = numbers.into_shape_with_order((width, height * across));
    let rows = rows.ok()?;
    Some((rows.reversed_axes(), [height, across]))
}
