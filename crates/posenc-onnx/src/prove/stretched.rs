//! What a stretched model shows, compared with the plan: the same attention and encodings, no end before
//! the new length, divided biases, and at every position the row that the formula says.

mod distances;
mod frames;
pub(super) mod past_end;
mod slopes;
mod table_runs;
mod unread;
mod waves;

use ndarray::{Array1, Array2, ArrayD, ArrayView2, Axis};
use posenc_encodings::encoding::{SAME, near_params};
use posenc_encodings::resize::{Corners, Resizing};
use posenc_ir::DType;
use posenc_ir::eval::Budget;

use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::limits;
use crate::error::{Refusal, RewriteError};
use crate::plan::stretch::distances::ByDistance;
use crate::plan::stretch::{Divided, Plan, Rows, Table};
use crate::prove::bound::{ROUNDINGS, WAVE};
use crate::prove::invariants::check_same_sites;
use crate::report::{Limit, LimitCause};
use frames::Frames;
use table_runs::{MOST, TableRuns, by_copy};
pub(super) use waves::is_code;

/// The most numbers of a value that is compared where tables by distance change; as many as there are pairs of
/// tokens, where these are more.
const PAIRS: usize = 1 << 22;

/// Compares the result with the plan. `is_whole` says that every table of the model was meant; `ended` is
/// the old length, where one before the new one is known. What has too many numbers to be compared is given as
/// warnings.
///
/// # Errors
/// With what differs, and where.
pub(crate) fn check(
    before: &Context<'_>,
    after: &Context<'_>,
    plan: &Plan,
    is_whole: bool,
    ended: Option<usize>,
) -> Result<Vec<String>, RewriteError> {
    check_same_sites(after, before.found, "in the stretched graph")?;
    let (old, new) = (&before.found.findings, &after.found.findings);
    let is_same = |(at, (old, new)): (usize, (&Finding, &Finding))| {
        let by_distance = plan.by_distance(at);
        let has_distances =
            |all: &ByDistance| new.encoding == all.after && new.max_length == all.new_length;
        let is_planned = match (plan.table(at), plan.bias(at)) {
            (None, None) if by_distance.is_some() => by_distance.is_some_and(has_distances),
            (Some(table), _) => has_rows(new, table),
            (_, Some(bias)) => has_numbers(after, new, bias),
            (None, None) => match plan.waves_of(at) {
                Some(planned) => is_code(new, &planned.code),
                None => old.encoding == new.encoding,
            },
        };
        old.sites == new.sites && is_planned
    };
    let mut pairs = old.iter().zip(new).enumerate();
    let differs = pairs.find(|pair| !is_same(*pair));
    let first = differs.map(|(_, (old, _))| old).or(old.first());
    if differs.is_some() || old.len() != new.len() {
        // Of buckets that are one, nothing may be left to find.
        let planned = differs.and_then(|(at, _)| plan.bias(at));
        let bias = planned.or(plan.biases.first().filter(|_| old.len() != new.len()));
        let equal = plan.tables.iter().map(|table| table.equal_at_the_start());
        let equal = equal.max().unwrap_or(0);
        let why = match bias.filter(|bias| bias.of_distances) {
            Some(bias) => format!(
                "distances divided by {} cannot be told apart in a run of this model; give a smaller \
                 `factor`",
                bias.factor
            ),
            None if equal > after.found.lengths.sequence => format!(
                "the first {equal} positions would get one row, that of position 0, and be the same to the \
                 model; give `align-corners`, another `scale` or a smaller length"
            ),
            None => unread::why(before, plan),
        };
        return Err(before.refuse_finding(first, why));
    }
    reaches(after, plan, is_whole)?;
    let (mut lengths, mut left_out) = (vec![], vec![]);
    // What ends elsewhere is run at as many tokens as the last table counts.
    let mut frames = None;
    for table in &plan.tables {
        frames = Frames::of(before, &before.found.findings[table.finding]);
        check_rows(before, after, table, frames.as_ref())?;
        if table.new > table.old && !lengths.contains(&table.old) {
            let ends = [table.old, table.new];
            left_out.extend(past_end::check(after, ends, frames.as_ref(), &MOST)?);
            lengths.push(table.old);
        }
    }
    for planned in &plan.waves {
        waves::check(before, after, planned)?;
    }
    for tables in &plan.distances {
        distances::check(before, after, tables)?;
    }
    // Vectors of all pairs are many.
    let budget = |old: usize| match plan.distances[..] {
        [] => MOST,
        _ => Budget {
            elements: old
                .saturating_add(1)
                .saturating_pow(2)
                .clamp(PAIRS, MOST.elements),
        },
    };
    let ends = plan.distances.iter().filter_map(|tables| tables.old_length);
    for old in ended.into_iter().chain(ends) {
        if !lengths.contains(&old) {
            let new = plan.max_length.unwrap_or(old);
            left_out.extend(past_end::check(
                after,
                [old, new],
                frames.as_ref(),
                &budget(old),
            )?);
            lengths.push(old);
        }
    }
    if let Some((old, new)) = ended.zip(plan.max_length) {
        slopes::check(after, [old, new], &MOST)?;
    }
    Ok(left_out)
}

/// Whether a finding is what was planned.
pub(super) fn has_rows(finding: &Finding, table: &Table) -> bool {
    match (&finding.encoding, &table.rows) {
        (Encoding::Learned(e), Rows::Resized { .. }) => {
            e.max_positions == table.lead + table.new && e.offset + table.lead == table.reserved
        }
        (Encoding::Sinusoidal(e), Rows::Waves { code, .. }) => {
            let same = |a: f64, b: f64| (a - b).abs() <= 1e-3 * b;
            e.max_positions == Some(table.lead + table.new) && same(e.factor, code.factor)
        }
        _ => false,
    }
}

/// Whether a finding is the bias that was planned, as exactly as its type holds it.
fn has_numbers(after: &Context<'_>, finding: &Finding, bias: &Divided) -> bool {
    let Encoding::ScoreBias(_, found) = &finding.encoding else {
        return false;
    };
    let value = finding.entries.first();
    let value = value.and_then(|entry| after.graph().node(entry.node).input(entry.slot()));
    let epsilon = value.and_then(|value| after.dtype(value).epsilon());
    let share = (ROUNDINGS * epsilon.unwrap_or(0.0)).max(SAME);
    near_params(&found.params(), &bias.bias.params(), share)
}

/// Refuses a model that still ends before the new length, but for tables of other stacks, which end where they were
/// planned to; of one whose tables were not all meant, only what belongs to no table.
///
/// # Errors
/// With what ends there.
pub(crate) fn reaches(
    after: &Context<'_>,
    plan: &Plan,
    is_whole: bool,
) -> Result<(), RewriteError> {
    match plan.max_length {
        Some(wanted) => ends_from(after, wanted, &|limit| {
            let is_planned = || plan.tables.iter().any(|table| table.new == limit.length);
            limit.cause != LimitCause::Table || is_whole && !is_planned()
        }),
        None => Ok(()),
    }
}

/// Refuses a model that ends before a length, by the limits that are meant.
pub(crate) fn ends_from(
    after: &Context<'_>,
    wanted: usize,
    is_meant: &dyn Fn(&Limit) -> bool,
) -> Result<(), RewriteError> {
    let limits = limits::all(after.graph(), after.found);
    let short = |limit: &&Limit| limit.length < wanted && is_meant(limit);
    let Some(short) = limits.iter().find(short) else {
        return Ok(());
    };
    let name = short.value.as_deref().unwrap_or("the shape of an input");
    let why = format!(
        "{name} ({}) would still end at {}, below the new length {wanted}, and how it goes on is not known",
        short.cause, short.length
    );
    Err(Refusal::unsupported(why).into())
}

/// Compares what is added at each position with the formula, over the rows that were added before.
fn check_rows(
    before: &Context<'_>,
    after: &Context<'_>,
    table: &Table,
    frames: Option<&Frames>,
) -> Result<(), RewriteError> {
    let finding = &before.found.findings[table.finding];
    let mut first = TableRuns::new(before, table.old, frames);
    let mut second = TableRuns::new(after, table.new, frames);
    for entry in &finding.entries {
        let refuse = |why: &str| before.refuse(entry.node, why);
        let unknown = || {
            refuse(
                "what the table adds cannot be computed, so that its new rows cannot be compared",
            )
        };
        let value = before.graph().node(entry.node).input(entry.slot());
        let value = value.ok_or_else(unknown)?;
        let own = after.graph().node(entry.node).input(entry.slot());
        let own = own.ok_or_else(unknown)?;
        let old = first.rows(value, table.reserved).ok_or_else(unknown)?;
        let new = second.rows(own, table.reserved).ok_or_else(unknown)?;
        let dtype = before.dtype(table.value);
        let stored = coarser(after.dtype(own), dtype);
        let steps = match dtype {
            DType::I8 | DType::U8 => steps(&old),
            _ => vec![0.0; old.ncols()],
        };
        if let Some(position) = departs(&old, &new, &table.rows, (stored, &steps)) {
            let why = format!("position {position} would get another row than that of the formula");
            return Err(refuse(&why));
        }
    }
    Ok(())
}

/// The type that holds numbers less exactly, as one that is cast where it is added.
fn coarser(a: DType, b: DType) -> DType {
    if b.epsilon() > a.epsilon() { b } else { a }
}

/// The distance between two numbers that each feature of a quantized table can have: the least one in it, of all
/// features together where theirs are multiples of that.
fn steps(rows: &Array2<f64>) -> Vec<f64> {
    let least = |mut numbers: Vec<f64>| {
        numbers.sort_by(f64::total_cmp);
        let largest = numbers.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
        let distances = numbers.windows(2).map(|pair| pair[1] - pair[0]);
        let is_apart = |distance: &f64| *distance > ROUNDINGS * f64::from(f32::EPSILON) * largest;
        distances
            .filter(is_apart)
            .min_by(f64::total_cmp)
            .unwrap_or(0.0)
    };
    let shared = least(rows.iter().copied().collect());
    let columns = rows.columns().into_iter();
    let own: Vec<f64> = columns.map(|column| least(column.to_vec())).collect();
    let is_multiple = |step: &f64| {
        let times = step / shared;
        times < 100.0 && (times - times.round()).abs() <= 1e-2
    };
    match own.iter().all(is_multiple) {
        true => vec![shared; own.len()],
        false => own,
    }
}

/// The first position whose row is not that of the formula, in what is added whole; `None` where the rows
/// differ between sequences.
pub(super) fn added_departs(
    old: ArrayD<f64>,
    new: ArrayD<f64>,
    rows: &Rows,
    stored: DType,
) -> Option<Option<usize>> {
    let of = |data: ArrayD<f64>| {
        let [.., count, dim] = *data.shape() else {
            return None;
        };
        let copies = by_copy(data, count, dim)?;
        let first = copies.first()?.clone();
        copies.iter().all(|copy| *copy == first).then_some(first)
    };
    let (old, new) = (of(old)?, of(new)?);
    let exact = vec![0.0; old.ncols()];
    Some(departs(&old, &new, rows, (stored, &exact)))
}

/// The first position whose row is not that of the formula, as exactly as its type holds it. `steps` are the distances
/// between two numbers of each feature that is quantized.
fn departs(
    old: &Array2<f64>,
    new: &Array2<f64>,
    rows: &Rows,
    (stored, steps): (DType, &[f64]),
) -> Option<usize> {
    if old.ncols() != new.ncols() {
        return Some(0);
    }
    let epsilon = stored.epsilon().unwrap_or(f64::from(f32::EPSILON));
    let largest = old.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
    let is_near = |position: usize| {
        let (want, bound) = match rows {
            Rows::Resized { by, corners, .. } => {
                let want = formula(old.view(), *by, *corners, position, new.nrows());
                // A sum of a few rows, each rounded.
                (want, ROUNDINGS * epsilon * largest)
            }
            Rows::Waves { kept, .. } if position < *kept => (old.row(position).to_owned(), 0.0),
            Rows::Waves { code, .. } => {
                let want = code.reference(&[position as f64]).row(0).to_owned();
                (want, WAVE.max(ROUNDINGS * epsilon) * code.amplitude.abs())
            }
        };
        let row = new.row(position);
        let mut numbers = row.iter().zip(&want).zip(steps);
        // Half a step, and what is rounded in the comparison.
        numbers.all(|((got, want), step)| (got - want).abs() <= 0.501 * step + bound)
    };
    (0..new.nrows()).find(|position| !is_near(*position))
}

/// The row of a position by the formula, from all old rows.
fn formula(
    old: ArrayView2<'_, f64>,
    by: Resizing,
    corners: Corners,
    position: usize,
    new: usize,
) -> Array1<f64> {
    let rows = old.nrows();
    let last = rows as i64 - 1;
    let row = |at: i64| {
        old.index_axis(Axis(0), at.clamp(0, last) as usize)
            .to_owned()
    };
    let (p, from, to) = (position as f64, rows as f64, new as f64);
    let at = match corners {
        Corners::HalfPixel => (2.0 * p + 1.0) * from / (2.0 * to) - 0.5,
        Corners::Aligned if new > 1 => p / (to - 1.0) * (from - 1.0),
        Corners::Aligned => 0.0,
    };
    let around = |reach: i64, weight: &dyn Fn(f64) -> f64| {
        let base = at.floor() as i64;
        let near = (base + 1 - reach)..=(base + reach);
        near.fold(Array1::zeros(old.ncols()), |sum, i| {
            sum + weight((at - i as f64).abs()) * row(i)
        })
    };
    match by {
        _ if rows == new => row(position as i64),
        Resizing::Linear => around(1, &|distance| 1.0 - distance),
        Resizing::Cubic => around(2, &keys),
        Resizing::Tile => row((position % rows) as i64),
        Resizing::Truncate => row(position as i64),
        Resizing::Hierarchical => {
            let base = |at: usize| (row(at as i64) - 0.4 * &row(0)) / 0.6;
            0.4 * base(position / rows) + 0.6 * base(position % rows)
        }
    }
}

/// The kernel of Keys with a = −0.75.
fn keys(x: f64) -> f64 {
    let a = -0.75;
    match x {
        x if x <= 1.0 => (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0,
        x if x < 2.0 => a * (x.powi(3) - 5.0 * x.powi(2) + 8.0 * x - 4.0),
        _ => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posenc_encodings::resize::resized;

    /// What is written follows the formula, in every way; what another way writes does not.
    #[test]
    fn written_rows_are_those_of_the_formula() {
        let old = Array2::from_shape_fn((5, 3), |(r, c)| ((3 * r + c) as f64).sin());
        let half = Corners::HalfPixel;
        for (by, corners, new, other) in [
            (Resizing::Linear, half, 9, (Resizing::Cubic, half)),
            (
                Resizing::Linear,
                Corners::Aligned,
                9,
                (Resizing::Linear, half),
            ),
            (Resizing::Linear, half, 3, (Resizing::Truncate, half)),
            (Resizing::Cubic, half, 9, (Resizing::Linear, half)),
            (
                Resizing::Cubic,
                Corners::Aligned,
                9,
                (Resizing::Cubic, half),
            ),
            (Resizing::Tile, half, 9, (Resizing::Hierarchical, half)),
            (Resizing::Hierarchical, half, 25, (Resizing::Tile, half)),
            (Resizing::Truncate, half, 3, (Resizing::Linear, half)),
        ] {
            let planned = Rows::Resized {
                by,
                corners,
                weights: vec![],
            };
            let written =
                |by: Resizing, corners| resized(old.view(), &by.weights(5, new, corners).unwrap());
            let departs =
                |rows: &Array2<f64>| departs(&old, rows, &planned, (DType::F32, &[0.0; 3]));
            assert_eq!(departs(&written(by, corners)), None, "{by} {corners} {new}");
            assert!(
                departs(&written(other.0, other.1)).is_some(),
                "control of {by}"
            );
            let mut shifted = written(by, corners);
            let first = shifted.row(0).to_owned();
            shifted.row_mut(new - 1).assign(&first);
            assert_eq!(departs(&shifted), Some(new - 1), "control: a row of {by}");
        }
    }

    #[test]
    fn features_may_have_steps_of_their_own() {
        let code = |r: usize, c: usize| ((7 * r + 3 * c) % 23) as f64;
        let scale = |c: usize| [0.25, 0.1037][c % 2];
        let rows = Array2::from_shape_fn((9, 4), |(r, c)| scale(c) * code(r, c));
        let own = steps(&rows);
        for (c, step) in own.iter().enumerate() {
            let times = step / scale(c);
            assert!(
                times > 0.5 && (times - times.round()).abs() < 1e-9,
                "{own:?}"
            );
        }
    }

    /// Quantized rows are as near as integers can be: rounded ones are, cut off ones are not.
    #[test]
    fn quantized_rows_are_rounded() {
        let scale = 0.25;
        let code = |r: usize, c: usize| ((7 * r + 3 * c) % 23) as f64;
        let old = Array2::from_shape_fn((5, 8), |(r, c)| scale * (code(r, c) - 9.0));
        let half = Corners::HalfPixel;
        let weights = Resizing::Linear.weights(5, 10, half).unwrap();
        let exact = resized(old.view(), &weights);
        let planned = Rows::Resized {
            by: Resizing::Linear,
            corners: half,
            weights,
        };
        let steps = steps(&old);
        let departs = |rows: &Array2<f64>| departs(&old, rows, &planned, (DType::F32, &steps));
        assert_eq!(steps, [scale; 8]);
        assert_eq!(departs(&exact.mapv(|v| (v / scale).round() * scale)), None);
        assert!(departs(&exact.mapv(|v| (v / scale).floor() * scale)).is_some());
    }
}
