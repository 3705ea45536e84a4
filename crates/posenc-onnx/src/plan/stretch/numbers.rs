//! The numbers of a graph that say which row of a table a distance has, and what they become where the
//! table gets other rows.

use posenc_encodings::resize::distances::Sides;
use posenc_ir::{NodeId, Use};

use super::distances::Number;

/// One operation of those that make a row number of a distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A constant is added, or taken off where `sign` is −1.
    Offset { at: Use, sign: i64, number: i64 },
    /// The sign changes.
    Turn { node: NodeId },
    /// Nothing goes beyond a constant: above it where `is_upper`, else below it.
    Bound {
        at: Use,
        number: i64,
        is_upper: bool,
    },
    /// The numbers stay.
    Same { node: NodeId },
}

impl Step {
    /// The node that does it.
    pub(super) fn node(&self) -> NodeId {
        match self {
            Self::Offset { at, .. } | Self::Bound { at, .. } => at.node,
            Self::Turn { node } | Self::Same { node } => *node,
        }
    }
}

/// A number that is followed from the distance to the row.
struct Follower {
    /// 1 where it grows as rows do, −1 where it falls.
    direction: i64,
    /// What it is at distance 0.
    here: i64,
}

impl Follower {
    fn of(steps: &[Step]) -> Self {
        let turns = steps.iter().filter(|s| matches!(s, Step::Turn { .. }));
        Self {
            direction: if turns.count() % 2 == 0 { 1 } else { -1 },
            here: 0,
        }
    }

    fn turn(&mut self) {
        (self.direction, self.here) = (-self.direction, -self.here);
    }

    /// The distance that a bound allows, and whether it is on the side of later rows.
    fn bounded(&self, number: i64, is_upper: bool) -> (i64, bool) {
        let distance = match is_upper {
            true => number - self.here,
            false => self.here - number,
        };
        (distance, is_upper == (self.direction == 1))
    }
}

/// The row of distance 0, and whether a bound keeps distances within the rows of either side: those before
/// it, and those after it. `None` where the row is none of the table.
pub(super) fn read(steps: &[Step], rows: usize) -> Option<(Sides, [bool; 2])> {
    let mut at = Follower::of(steps);
    let mut bounds = [None, None];
    for step in steps {
        match *step {
            Step::Offset { sign, number, .. } => at.here += sign * number,
            Step::Turn { .. } => at.turn(),
            Step::Bound {
                number, is_upper, ..
            } => {
                let (distance, is_after) = at.bounded(number, is_upper);
                let bound: &mut Option<i64> = &mut bounds[usize::from(is_after)];
                *bound = Some(bound.map_or(distance, |known| known.min(distance)));
            }
            Step::Same { .. } => {}
        }
    }
    let before = usize::try_from(at.here).ok()?;
    let after = rows.checked_sub(before + 1)?;
    let within = |bound: Option<i64>, side: usize| {
        bound.is_some_and(|bound| usize::try_from(bound).is_ok_and(|bound| bound <= side))
    };
    let sides = Sides { before, after };
    Some((sides, [within(bounds[0], before), within(bounds[1], after)]))
}

/// What the numbers of these steps become where a table of `old` sides gets `new` ones.
///
/// # Errors
/// Where the number is not known by which rows are shifted, and where distances are clamped to others than
/// the outermost rows.
pub(super) fn changed(steps: &[Step], old: Sides, new: Sides) -> Result<Vec<Number>, &'static str> {
    let shift = new.before as i64 - old.before as i64;
    let size = |step: &Step| match step {
        Step::Offset { number, .. } => number.abs(),
        _ => -1,
    };
    let largest = (0..steps.len()).max_by_key(|place| size(&steps[*place]));
    let largest = largest.filter(|place| size(&steps[*place]) > 0);
    if shift != 0 && largest.is_none() {
        return Err("the number that makes rows of distances was not found");
    }
    let [mut was, mut is] = [(); 2].map(|()| Follower::of(steps));
    let mut numbers = vec![];
    let mut add = |at: Use, number: i64, new: i64| {
        if number != new {
            numbers.push(Number { at, new });
        }
    };
    for (place, step) in steps.iter().enumerate() {
        match *step {
            Step::Same { .. } => {}
            Step::Turn { .. } => {
                was.turn();
                is.turn();
            }
            Step::Offset { at, sign, number } => {
                let more = match Some(place) == largest {
                    true => is.direction * shift,
                    false => 0,
                };
                was.here += sign * number;
                is.here += sign * number + more;
                add(at, number, number + sign * more);
            }
            Step::Bound {
                at,
                number,
                is_upper,
            } => {
                let (distance, is_after) = was.bounded(number, is_upper);
                let [old, new] = match is_after {
                    true => [old.after, new.after],
                    false => [old.before, new.before],
                }
                .map(|side| i64::try_from(side).unwrap_or(i64::MAX));
                // A bound farther than the table has no effect, as long as it stays so.
                let distance = match distance {
                    d if d == old => new,
                    d if d > old && d >= new => d,
                    _ => {
                        return Err("distances are clamped here to others than the outermost rows");
                    }
                };
                let bound = match is_upper {
                    true => is.here + distance,
                    false => is.here - distance,
                };
                add(at, number, bound);
            }
        }
    }
    Ok(numbers)
}
