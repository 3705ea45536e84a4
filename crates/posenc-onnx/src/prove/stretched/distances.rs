//! What is read at each distance, compared with the formula over the rows that were read before.

use std::collections::BTreeMap;

use ndarray::{Array2, ArrayD, Axis, s};
use posenc_encodings::families::transformer_xl::{self, Code};
use posenc_encodings::resize::distances::{Sides, Widening};
use posenc_ir::ValueId;
use posenc_ir::eval::{Budget, Value};

use crate::detect::context::Context;
use crate::detect::values_at;
use crate::error::RewriteError;
use crate::plan::stretch::distances::{ByDistance, MOST_TOKENS, Read, Rows};
use crate::prove::bound::{ROUNDINGS, WAVE};

/// Elements that an index of pairs may have.
const PAIRS: Budget = Budget {
    elements: MOST_TOKENS * MOST_TOKENS,
};

/// Runs until one has as many tokens as are wanted.
const TRIES: usize = 6;

/// The number of the row that each distance picks, and its numbers.
type Picked = BTreeMap<i64, (usize, Vec<f64>)>;

/// Compares every place where rows are picked by distance.
///
/// # Errors
/// With the node, where the rows cannot be computed or are others.
pub(super) fn check(
    before: &Context<'_>,
    after: &Context<'_>,
    plan: &ByDistance,
) -> Result<(), RewriteError> {
    for read in &plan.reads {
        let refuse = |why: &str| before.refuse(read.node, why);
        let unknown = || {
            refuse(
                "what is read at each distance cannot be computed, so that it cannot be compared",
            )
        };
        let value = after.graph().node(read.node).input(0);
        let epsilon = value.and_then(|value| after.dtype(value).epsilon());
        let epsilon = epsilon.unwrap_or(f64::from(f32::EPSILON));
        let wrong = match &plan.rows {
            Rows::Widened(by) => {
                let tokens = read.tokens([plan.old_length, plan.new_length]);
                let old = picked(before, read, tokens[0]);
                let new = picked(after, read, tokens[1]);
                let (old, new) = (old.ok_or_else(unknown)?, new.ok_or_else(unknown)?);
                departs(&old, &new, *by, [read.old, read.new], epsilon)
            }
            Rows::Waves { code, .. } => {
                let length = plan.new_length.ok_or_else(unknown)?;
                let trial = before.found.lengths.sequence;
                let runs = [before, after].map(|context| cut(context, read, trial));
                let [Some(old), Some(same)] = runs else {
                    return Err(unknown());
                };
                let new = cut_to(after, read, length).ok_or_else(unknown)?;
                wave_departs([&old, &same, &new], code, length, epsilon)
            }
        };
        if let Some(distance) = wrong {
            let why = format!("distance {distance} would get another row than that of the formula");
            return Err(refuse(&why));
        }
    }
    Ok(())
}

/// A value in a run of so many tokens.
fn at_tokens(context: &Context<'_>, value: ValueId, tokens: usize) -> Option<Value> {
    if tokens == context.found.lengths.sequence {
        return Some(context.found.trace.get(value).clone());
    }
    values_at(context.model, context.found, &[value], tokens, &PAIRS)?.pop()
}

/// The rows of a table that its index picks in a run of so many tokens.
fn picked(context: &Context<'_>, read: &Read, tokens: usize) -> Option<Picked> {
    let node = context.graph().node(read.node);
    let (table, index) = (node.input(0)?, node.input(1)?);
    let queries = |dims: &[usize]| dims.len().checked_sub(2).map(|axis| dims[axis]);
    let each = context.found.lengths.sequence / context.dims(index).and_then(queries)?.max(1);
    let index = at_tokens(context, index, tokens.checked_mul(each.max(1))?)?.to_i64()?;
    let [.., queries, keys] = *index.shape() else {
        return None;
    };
    let plane = first_plane(&index, [queries, keys])?;
    let table = rows(&context.found.trace.get(table).to_f64()?, read.axis)?;
    let past = keys.saturating_sub(queries) as i64;
    let mut all = Picked::new();
    for ((query, key), row) in plane.indexed_iter() {
        let distance = key as i64 - query as i64 - past;
        let row = usize::try_from(*row)
            .ok()
            .filter(|row| *row < table.nrows());
        let Some(row) = row else { continue };
        let known = all.entry(distance);
        let (known, _) = known.or_insert_with(|| (row, table.row(row).to_vec()));
        if *known != row {
            return None;
        }
    }
    Some(all)
}

/// The first of equal planes.
fn first_plane(index: &ArrayD<i64>, [queries, keys]: [usize; 2]) -> Option<Array2<i64>> {
    let flat: Vec<i64> = index.iter().copied().collect();
    let size = (queries * keys).max(1);
    let first = flat.get(..size)?;
    let alike = flat.chunks(size).all(|plane| plane == first);
    let plane = Array2::from_shape_vec((queries, keys), first.to_vec()).ok()?;
    alike.then_some(plane)
}

/// The rows `[row, number]` of a table along an axis.
fn rows(table: &ArrayD<f64>, axis: usize) -> Option<Array2<f64>> {
    let rows = table.axis_iter(Axis(axis));
    let all: Vec<f64> = rows
        .flat_map(|row| row.iter().copied().collect::<Vec<_>>())
        .collect();
    let count = table.len_of(Axis(axis));
    Array2::from_shape_vec((count, all.len() / count.max(1)), all).ok()
}

/// The first distance whose row is not that of the formula.
fn departs(
    old: &Picked,
    new: &Picked,
    by: Widening,
    [from, to]: [Sides; 2],
    epsilon: f64,
) -> Option<i64> {
    let place = |distance: i64| old.get(&distance).map(|(row, _)| *row);
    // Rows may count distances of keys up or down.
    let counts_up = match (place(-1), place(0), place(1)) {
        (Some(before), Some(here), _) if before != here => before < here,
        (_, Some(here), Some(after)) => after > here,
        _ => return Some(0),
    };
    let side = |of: Sides, distance: i64| match (distance < 0) == counts_up {
        true => of.before as i64,
        false => of.after as i64,
    };
    let row = |distance: i64| old.get(&distance).map(|(_, numbers)| numbers);
    let largest = old.values().flat_map(|(_, numbers)| numbers);
    let largest = largest.fold(0.0_f64, |most, v| most.max(v.abs()));
    let formula = |distance: i64| -> Option<(Vec<f64>, f64)> {
        let (was, is) = (side(from, distance), side(to, distance));
        let (sign, far) = (distance.signum(), distance.abs());
        match by {
            Widening::Clamped => Some((row(sign * far.min(was))?.clone(), 0.0)),
            Widening::Interpolated => {
                let at = match is {
                    0 => 0.0,
                    is => (far.min(is) * was) as f64 / is as f64,
                };
                let (near, share) = (at.floor(), at - at.floor());
                let [a, b] = [near as i64, at.ceil() as i64].map(|far| row(sign * far));
                let pairs = a?.iter().zip(b?);
                let mixed = pairs.map(|(a, b)| (1.0 - share) * a + share * b);
                Some((mixed.collect(), ROUNDINGS * epsilon * largest))
            }
        }
    };
    let is_near = |distance: &i64| {
        let Some(((_, got), (want, bound))) = new.get(distance).zip(formula(*distance)) else {
            return false;
        };
        got.len() == want.len() && got.iter().zip(&want).all(|(a, b)| (a - b).abs() <= bound)
    };
    let mut all: Vec<i64> = new.keys().copied().collect();
    // Of a longer table of unequal sides, a sequence reads one side only in part.
    let most = new.keys().map(|distance| distance.abs()).max().unwrap_or(0);
    let [behind, ahead] = [-1, 1].map(|sign| side(to, sign).min(most));
    all.extend(-behind..=ahead);
    all.sort_unstable_by_key(|distance| distance.abs());
    all.into_iter().find(|distance| !is_near(distance))
}

/// The rows that are cut out of a table in a run of so many tokens, or of samples that tokens are made of.
fn cut(context: &Context<'_>, read: &Read, samples: usize) -> Option<Array2<f64>> {
    let output = context.graph().node(read.node).output(0)?;
    rows(&at_tokens(context, output, samples)?.to_f64()?, read.axis)
}

/// The rows that are cut out of a table for so many tokens: twice as many less one.
fn cut_to(context: &Context<'_>, read: &Read, tokens: usize) -> Option<Array2<f64>> {
    let mut samples = context.found.lengths.sequence;
    let mut found = cut(context, read, samples)?;
    let each = samples.div_ceil(found.nrows().div_ceil(2).max(1));
    for _ in 0..TRIES {
        let missing = tokens as i64 - found.nrows().div_ceil(2) as i64;
        if missing == 0 {
            return Some(found);
        }
        samples = usize::try_from(samples as i64 + missing * each as i64).ok()?;
        found = cut(context, read, samples)?;
    }
    None
}

/// The first distance whose sines and cosines are others: in the trial run those that were there before to
/// the bit, and at the new length those of the code.
fn wave_departs(
    [old, same, new]: [&Array2<f64>; 3],
    code: &Code,
    length: usize,
    epsilon: f64,
) -> Option<i64> {
    if old != same || new.nrows() != 2 * length - 1 {
        return Some(0);
    }
    let last = length as i64 - 1;
    let middle = old.nrows() / 2;
    let up: Vec<i64> = (-last..=last).collect();
    let down: Vec<i64> = up.iter().rev().copied().collect();
    let of = |distances: &[i64]| transformer_xl::reference(code, distances);
    let bound = WAVE.max(ROUNDINGS * epsilon) + epsilon * last as f64;
    let off = |want: &Array2<f64>| {
        let rows = want.rows().into_iter().zip(new.rows());
        let wrong = |(want, got): &(ndarray::ArrayView1<'_, f64>, ndarray::ArrayView1<'_, f64>)| {
            let mut pairs = want.iter().zip(got);
            want.len() != got.len() || !pairs.all(|(a, b)| (a - b).abs() <= bound)
        };
        let mut rows = rows.enumerate();
        rows.find(|(_, pair)| wrong(pair))
            .map(|(row, _)| row as i64 - last)
    };
    // What was read in the trial run lies in the middle.
    let first = (new.nrows() / 2).checked_sub(middle);
    let kept = first.map(|first| new.slice(s![first..first + old.nrows(), ..]));
    if kept.is_none_or(|kept| kept != *old) {
        return Some(0);
    }
    match (off(&of(&up)), off(&of(&down))) {
        (None, _) | (_, None) => None,
        (up, _) => up,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of rows that differ, with distances up to `reach` on either side and clamped beyond.
    fn of(reach: i64, row: impl Fn(f64) -> f64) -> Picked {
        let all = -reach - 1..=reach + 1;
        all.map(|distance| {
            let near = distance.clamp(-reach, reach);
            let place = usize::try_from(near + reach).unwrap();
            (distance, (place, vec![row(near as f64)]))
        })
        .collect()
    }

    fn sides(reach: usize) -> Sides {
        Sides {
            before: reach,
            after: reach,
        }
    }

    #[test]
    fn rows_of_another_distance_are_found() {
        let line = |distance: f64| 3.0 + distance;
        let old = of(4, line);
        let departs = |by, new: &Picked| departs(&old, new, by, [sides(4), sides(8)], 1e-7);
        let clamped = of(8, |distance| line(distance.clamp(-4.0, 4.0)));
        let shrunk = of(8, |distance| line(distance / 2.0));
        assert_eq!(departs(Widening::Clamped, &clamped), None);
        assert_eq!(departs(Widening::Interpolated, &shrunk), None);
        assert!(departs(Widening::Clamped, &shrunk).is_some());
        assert!(departs(Widening::Interpolated, &clamped).is_some());
        let mut shifted = clamped.clone();
        shifted.insert(5, (13, vec![line(3.0)]));
        assert_eq!(departs(Widening::Clamped, &shifted), Some(5));
        let mut missing = shrunk.clone();
        missing.remove(&-8);
        assert_eq!(departs(Widening::Interpolated, &missing), Some(-8));
        let mut other = shrunk.clone();
        other.insert(7, (15, vec![line(3.5) + 1e-3]));
        assert_eq!(departs(Widening::Interpolated, &other), Some(7));
        let turned = of(8, |distance| line(-distance / 2.0));
        assert!(departs(Widening::Interpolated, &turned).is_some());
    }

    #[test]
    fn sinusoids_of_another_distance_are_found() {
        let code = Code::of_width(8);
        let rows = |length: i64, shift: i64| {
            let distances: Vec<i64> = (1 - length..length).map(|d| shift - d).collect();
            transformer_xl::reference(&code, &distances)
        };
        let (old, new) = (rows(6, 0), rows(10, 0));
        let departs = |same: &Array2<f64>, new: &Array2<f64>| {
            wave_departs([&old, same, new], &code, 10, 1e-7)
        };
        assert_eq!(departs(&old, &new), None);
        assert!(departs(&rows(6, 1), &new).is_some(), "another center");
        assert!(
            departs(&old, &rows(10, 1)).is_some(),
            "another center later"
        );
        assert!(departs(&old, &rows(9, 0)).is_some(), "too few");
        let mut wrong = new.clone();
        wrong[[0, 3]] += 1e-3;
        assert!(departs(&old, &wrong).is_some(), "a row at the end");
    }
}
