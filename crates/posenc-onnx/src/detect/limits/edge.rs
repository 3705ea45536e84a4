//! Where reads of a constant end, by runs of longer sequences in which each token has a row.

use std::collections::BTreeSet;

use posenc_ir::eval::Trace;
use posenc_ir::{Node, ValueId};

use super::longer::Longer;

/// What runs say of the longest sequence that stays within a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Edge {
    /// Sequences of up to so many tokens do.
    At(usize),
    /// Longer ones do too.
    Never,
    /// Runs do not tell.
    Unknown,
}

/// How far a place may move in one direction.
#[derive(Clone, Copy)]
struct Way {
    /// Rows that are left in the first of two runs.
    left: i64,
    /// Rows by which the second run, of twice as many tokens, is further.
    moved: i64,
    /// Whether nothing else is as far.
    is_outermost: bool,
}

/// Where the rows of a table end that an index picks.
pub(super) fn of_rows(longer: &mut Longer<'_>, node: &Node, index: ValueId, rows: usize) -> Edge {
    let mut ways = || {
        let (tokens, [same, double]) = longer.pair(index)?;
        let dims = |trace: &Trace| trace.get(index).dims.clone();
        let (now, then) = (dims(same)?, dims(double)?);
        let mut axes = now.iter().zip(&then);
        if node.op() == "GatherND" || !axes.any(|(a, b)| *a >= tokens && *b >= 2 * tokens && b > a)
        {
            return None;
        }
        let read = |trace: &Trace| -> Option<BTreeSet<i64>> {
            Some(trace.get(index).to_i64()?.iter().copied().collect())
        };
        ways_of(&read(same)?, &read(double)?, i64::try_from(rows).ok()?)
    };
    let Some(ways) = ways() else {
        return Edge::Unknown;
    };
    let bends = longer.bends(index);
    let is_within = |trace: &Trace| {
        let read = trace.get(index).to_i64()?;
        let within = |row: &i64| usize::try_from(*row).is_ok_and(|row| row < rows);
        Some(read.iter().all(within))
    };
    search(longer, &ways, bends.then_some(rows), is_within)
}

/// How the rows that two runs read move towards the ends of a table; `None` where they do not.
fn ways_of(first: &BTreeSet<i64>, second: &BTreeSet<i64>, rows: i64) -> Option<Vec<Way>> {
    let (least, most) = (*first.first()?, *first.last()?);
    if least < 0 || most >= rows {
        return None;
    }
    let added = || second.difference(first).copied();
    let (low, high) = (added().min()?, added().max()?);
    // A row that all sequences read may be further than those of tokens.
    let mut ways = vec![];
    if let Some(before) = first.range(..high).next_back() {
        ways.push(Way {
            left: rows - 1 - before,
            moved: high - before,
            is_outermost: high > most,
        });
    }
    if low < least {
        ways.push(Way {
            left: least,
            moved: least.checked_sub(low)?,
            is_outermost: !ways.is_empty(),
        });
    }
    Some(ways)
}

/// Where a `Slice` from `start` to `end`, in steps of `each` rows, leaves a constant of so many rows.
pub(super) fn of_places(
    longer: &mut Longer<'_>,
    [start, end]: [ValueId; 2],
    each: i64,
    rows: usize,
) -> Edge {
    let Ok(rows) = i64::try_from(rows) else {
        return Edge::Unknown;
    };
    // The first row, and the one behind the last.
    let places = |trace: &Trace| {
        let place = |value: ValueId| trace.get(value).scalar_i64();
        let (from, to) = (place(start)?, place(end)?);
        let steps = to.checked_sub(from)?.checked_sub(1)?.checked_div(each)?;
        let read = steps.checked_mul(each)?.checked_add(1)?;
        Some([from, from.checked_add(read)?])
    };
    let mut is_open = false;
    let mut ways = || {
        let (tokens, [same, double]) = longer.pair(end)?;
        let [[from, to], [later_from, later_to]] = [places(same)?, places(double)?];
        is_open = to > rows;
        // Frames of sound are no tokens.
        let size = |from: i64, to: i64| {
            let end = if is_open { rows } else { to };
            end.checked_sub(from)?.checked_sub(1)?.checked_div(each)
        };
        let more = size(later_from, later_to)?.checked_sub(size(from, to)?)?;
        if usize::try_from(more) != Ok(tokens) || from < 0 || to < 0 {
            return None;
        }
        let up = (!is_open && later_to > to).then(|| Way {
            left: rows - to,
            moved: later_to - to,
            is_outermost: true,
        });
        let mut ways: Vec<Way> = up.into_iter().collect();
        if later_from < from {
            ways.push(Way {
                left: from,
                moved: from.checked_sub(later_from)?,
                is_outermost: true,
            });
        }
        Some(ways)
    };
    let Some(ways) = ways() else {
        return Edge::Unknown;
    };
    let is_within = |trace: &Trace| {
        let [from, to] = places(trace)?;
        Some(from >= 0 && (is_open || to <= rows))
    };
    search(longer, &ways, None, is_within)
}

/// The longest sequence that is within: by the ways where each token moves by one row, else looked for in runs.
/// `bends` are the rows of the table, where an operator may keep places from moving with the tokens: twice as many
/// tokens are tried then.
fn search(
    longer: &mut Longer<'_>,
    ways: &[Way],
    bends: Option<usize>,
    is_within: impl Fn(&Trace) -> Option<bool>,
) -> Edge {
    let tokens = longer.runs.found.lengths.sequence;
    let Ok(each) = i64::try_from(tokens) else {
        return Edge::Unknown;
    };
    let length = |way: &Way| {
        let more = way.left.checked_mul(each)?.div_euclid(way.moved);
        usize::try_from(each.checked_add(more)?).ok()
    };
    let lengths: Option<Vec<usize>> = ways.iter().map(length).collect();
    let Some(guess) = lengths.and_then(|all| all.into_iter().min()) else {
        return Edge::Unknown;
    };
    let is_even = ways.iter().all(|way| way.moved == each && way.is_outermost);
    if is_even && bends.is_none() {
        return Edge::At(guess);
    }
    // A run of more than one token.
    let mut within = |tokens: usize| longer.beyond(tokens.checked_sub(1)?).and_then(&is_within);
    let (mut inside, mut outside) = match within(guess + 1) {
        // Rows may be passed over before the end.
        Some(false) => match within(guess) {
            Some(true) => return Edge::At(guess),
            Some(false) => (tokens, guess),
            None => return Edge::Unknown,
        },
        Some(true) => {
            // What the runs say of a step is rounded by one row in so many tokens.
            let slowest = ways.iter().map(|way| way.moved).min();
            let slowest = slowest.and_then(|moved| usize::try_from(moved).ok());
            let more = guess.saturating_add(tokens) / slowest.unwrap_or(1).max(1);
            let near = guess.saturating_add(more).saturating_add(2);
            let far = near.max(bends.unwrap_or_default()).saturating_mul(2);
            match within(near) {
                Some(false) => (guess + 1, near),
                Some(true) if within(far) == Some(false) => (near, far),
                None if !is_even => return Edge::Unknown,
                _ => return Edge::Never,
            }
        }
        None if is_even => return Edge::At(guess),
        None => return Edge::Unknown,
    };
    while outside > inside + 1 {
        let middle = inside + (outside - inside) / 2;
        match within(middle) {
            Some(true) => inside = middle,
            Some(false) => outside = middle,
            None => return Edge::Unknown,
        }
    }
    Edge::At(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_far_outside_of_a_table_move_no_way() {
        let rows = |all: &[i64]| all.iter().copied().collect::<BTreeSet<i64>>();
        let ways = |second: &[i64]| ways_of(&rows(&[3, 4]), &rows(second), 8);
        assert!(ways(&[3, 4, i64::MIN]).is_none());
        let up = ways(&[3, 4, i64::MAX]).unwrap();
        assert_eq!(up.len(), 1);
        assert_eq!((up[0].left, up[0].moved), (3, i64::MAX - 4));
        let both = ways(&[2, 3, 4, 5]).unwrap();
        assert!(both.len() == 2 && both.iter().all(|way| (way.left, way.moved) == (3, 1)));
    }
}
