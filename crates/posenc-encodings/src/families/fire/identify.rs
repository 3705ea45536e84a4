//! Reading c and the threshold off numbers.
//!
//! Along one query the bias is a broken line in `ψ(d) = ln(c · d + 1)`, and the heads share the
//! places where it bends. Three distances of one piece of it give c; many such triples give the
//! same one. The line of the last query then predicts those of all others, for a query i at the
//! arguments `ψ(d) · ψ(last) ÷ ψ(max(L, i))`.

use rustc_hash::FxHashMap;

use crate::miss::Miss;
use crate::samples::{Scores, most};

/// What was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Found {
    pub(super) c: f64,
    /// L, where queries on both sides of it are seen.
    pub(super) threshold: Option<f64>,
    /// Straight pieces of f.
    pub(super) pieces: usize,
    /// The largest difference between numbers and the broken line.
    pub(super) residual: f64,
}

/// Distances that a run has to show.
const FEWEST: usize = 24;

/// Pieces that f may have: hidden units and one.
const MOST_PIECES: usize = 33;

/// Points of a piece that is more than the distance from one bend to the next.
const LONG: usize = 4;

/// The least and greatest c: beyond them ψ is a line or a step.
const RANGE: [f64; 2] = [1e-4, 1e4];

/// Types with fewer digits do not show where a line bends.
const COARSEST: f64 = 1e-5;

/// The numbers of a query by distance, less that of distance 0: `[distance][head]`.
type Row = Vec<Vec<f64>>;

pub(super) fn read(scores: &Scores) -> Result<Found, Miss> {
    if scores.tolerance > COARSEST {
        return Err(Miss::new("half precision is too coarse"));
    }
    let rows = rows(scores)?;
    let (last, base) = rows
        .last()
        .ok_or_else(|| Miss::new("no query sees a key"))?;
    if base.len() < FEWEST {
        return Err(Miss::new("too few distances are seen"));
    }
    let near = 4.0 * scores.tolerance * most(base.iter().flatten());
    let c = scale(base, near)
        .ok_or_else(|| Miss::new("no three distances of several show the same logarithm"))?;
    let farthest = rows.iter().map(|(_, row)| row.len()).max().unwrap_or(0);
    let psi: Vec<f64> = (0..farthest).map(|d| psi(c, d as f64)).collect();
    let line = Line::of(base, &psi, near);
    let long: usize = line
        .pieces
        .iter()
        .map(|p| p.len())
        .filter(|n| *n >= LONG)
        .sum();
    if line.pieces.len() > MOST_PIECES || 4 * long < 3 * base.len() {
        return Err(Miss::new("no broken line in the logarithm of the distance"));
    }
    let threshold = threshold(&rows, *last, c, &line, near)?;
    confirm(&rows, c, threshold, &psi, near)?;
    Ok(Found {
        c,
        threshold: Some(threshold).filter(|l| *l > 0.0 && l.is_finite()),
        pieces: line.pieces.len(),
        residual: line.residual,
    })
}

/// The numbers of each query that sees its own key, with its position.
fn rows(scores: &Scores) -> Result<Vec<(usize, Row)>, Miss> {
    let mut rows = vec![];
    let near = scores.tolerance * most(scores.values.iter());
    for i in 0..scores.queries() {
        let mut row: Row = vec![];
        for head in 0..scores.heads() {
            let seen: FxHashMap<i64, f64> = scores.seen(head, i).collect();
            let of = |d: i64| seen.get(&d).copied();
            let Some(own) = of(0) else { break };
            let mut last = 0;
            for d in 0.. {
                let (before, after) = (of(-d), of(d));
                let Some(number) = before.or(after) else {
                    break;
                };
                if before.zip(after).is_some_and(|(a, b)| (a - b).abs() > near) {
                    return Err(Miss::new("keys before and after the query differ"));
                }
                if row.len() <= d as usize {
                    row.push(vec![]);
                }
                row[d as usize].push(number - own);
                last = d;
            }
            row.truncate(last as usize + 1);
        }
        let whole = row.iter().all(|numbers| numbers.len() == scores.heads());
        let at = usize::try_from(i as i64 + scores.origin);
        if let (true, false, Ok(at)) = (whole, row.is_empty(), at) {
            rows.push((at, row));
        }
    }
    Ok(rows)
}

fn psi(c: f64, x: f64) -> f64 {
    (c * x).ln_1p()
}

/// The c of most triples of distances.
fn scale(row: &Row, near: f64) -> Option<f64> {
    let mut votes: Vec<f64> = vec![];
    let mut triples = 0;
    for head in 0..row[0].len() {
        for step in [2usize, 3, 5, 8, 13, 21, 34] {
            for start in 0..row.len().saturating_sub(2 * step) {
                let [a, b, e] = [start, start + step, start + 2 * step];
                let [u, v, w] = [a, b, e].map(|d| row[d][head]);
                // What rounding could explain shows no logarithm.
                if (w - u).abs() <= 1e3 * near {
                    continue;
                }
                triples += 1;
                votes.extend(solved([a, b, e].map(|d| d as f64), (v - u) / (w - u)));
            }
        }
    }
    votes.sort_by(f64::total_cmp);
    // The densest range of one part in a thousand.
    let (mut best, mut range) = (0, 0..0);
    let mut end = 0;
    for start in 0..votes.len() {
        while end < votes.len() && votes[end] <= votes[start] * 1.001 {
            end += 1;
        }
        if end - start > best {
            (best, range) = (end - start, start..end);
        }
    }
    (best >= 12 && 8 * best >= triples).then(|| votes[range.start + range.len() / 2])
}

/// The c whose ψ is at this share of the distance from a to e at b.
fn solved([a, b, e]: [f64; 3], share: f64) -> Option<f64> {
    let at = |c: f64| (psi(c, b) - psi(c, a)) / (psi(c, e) - psi(c, a));
    let [mut low, mut high] = RANGE;
    // A larger c grows earlier.
    if !(at(low) < share && share < at(high)) {
        return None;
    }
    for _ in 0..80 {
        let c = (low * high).sqrt();
        if at(c) < share {
            low = c;
        } else {
            high = c;
        }
    }
    Some(low)
}

/// A broken line through the numbers of a query, in ψ.
struct Line<'a> {
    row: &'a Row,
    /// ψ of every distance that a query sees.
    psi: &'a [f64],
    /// Distances from one bend to the next.
    pieces: Vec<std::ops::Range<usize>>,
    residual: f64,
}

impl<'a> Line<'a> {
    /// As long pieces as fit, from distance 0 on.
    fn of(row: &'a Row, psi: &'a [f64], near: f64) -> Self {
        let mut line = Self {
            row,
            psi,
            pieces: vec![],
            residual: 0.0,
        };
        let mut start = 0;
        while start < row.len() {
            let mut end = (start + 2).min(row.len());
            let mut off = 0.0;
            // A piece that is one point longer may fit where one point less did not.
            for next in end + 1..=row.len() {
                let residual = line.off(start..next);
                if residual > near {
                    break;
                }
                (end, off) = (next, residual);
            }
            line.residual = line.residual.max(off);
            line.pieces.push(start..end);
            start = end;
        }
        line
    }

    /// The largest difference from the chord of these distances.
    fn off(&self, range: std::ops::Range<usize>) -> f64 {
        let mut off = 0.0f64;
        for d in range.clone() {
            let chord = self.chord(&range, self.psi[d]);
            for (number, chord) in self.row[d].iter().zip(chord) {
                off = off.max((number - chord).abs());
            }
        }
        off
    }

    /// The chord of these distances at an argument, for each head.
    fn chord(&self, range: &std::ops::Range<usize>, u: f64) -> Vec<f64> {
        let ends = [range.start, range.end - 1];
        let [a, b] = ends.map(|d| self.psi[d]);
        let [x, y] = ends.map(|d| &self.row[d]);
        let share = if a == b { 0.0 } else { (u - a) / (b - a) };
        x.iter().zip(y).map(|(x, y)| x + share * (y - x)).collect()
    }

    /// The numbers at an argument inside of a long piece; `None` elsewhere.
    fn at(&self, u: f64) -> Option<Vec<f64>> {
        let inside = |range: &&std::ops::Range<usize>| {
            let [a, b] = [range.start, range.end - 1].map(|d| self.psi[d]);
            range.len() >= LONG && (a..=b).contains(&u)
        };
        let piece = self.pieces.iter().find(inside)?;
        Some(self.chord(piece, u))
    }

    /// The largest difference between the numbers of a query and this line, whose arguments are
    /// multiplied by `factor`, and how many numbers were compared.
    fn against(&self, row: &Row, factor: f64) -> (f64, usize) {
        let (mut off, mut count) = (0.0f64, 0);
        for (d, numbers) in row.iter().enumerate().skip(1) {
            if let Some(line) = self.at(self.psi[d] * factor) {
                count += 1;
                for (number, line) in numbers.iter().zip(line) {
                    off = off.max((number - line).abs());
                }
            }
        }
        (off, count)
    }
}

/// L; 0 or infinite where all queries are on one side of it.
fn threshold(
    rows: &[(usize, Row)],
    last: usize,
    c: f64,
    line: &Line<'_>,
    near: f64,
) -> Result<f64, Miss> {
    let near = 16.0 * near;
    let all = psi(c, last as f64);
    let fits = |row: &Row, factor: f64| line.against(row, factor).0 <= near;
    // All queries are at or before L: they have one line.
    if rows.iter().all(|(_, row)| fits(row, 1.0)) {
        return Ok(f64::INFINITY);
    }
    let own = |at: usize| all / psi(c, at as f64);
    let scaled = |(at, row): &(usize, Row)| *at > 0 && fits(row, own(*at));
    // From here on each query has its own factor.
    let from = rows
        .iter()
        .rposition(|row| !scaled(row))
        .map_or(0, |i| i + 1);
    if from == 0 {
        return Ok(0.0);
    }
    let compared: usize = rows[from..]
        .iter()
        .map(|(at, row)| line.against(row, own(*at)).1)
        .sum();
    if rows.len() - from < 2 || compared < FEWEST {
        return Err(Miss::new(
            "lines of different queries are no multiples of each other",
        ));
    }
    let (before, _) = &rows[from - 1];
    let worst = |threshold: f64| {
        let factor = all / psi(c, threshold);
        let rows = rows[..from].iter();
        rows.map(|(_, row)| line.against(row, factor).0)
            .fold(0.0, f64::max)
    };
    let (mut low, mut high) = (*before as f64, rows[from].0 as f64);
    low = low.max(1e-6);
    for _ in 0..100 {
        let [a, b] = [1.0 / 3.0, 2.0 / 3.0].map(|share| low + share * (high - low));
        if worst(a) <= worst(b) {
            high = b;
        } else {
            low = a;
        }
    }
    let found = (low + high) / 2.0;
    if worst(found) > near {
        return Err(Miss::new("the first queries have no line in common"));
    }
    Ok(if *before > 0 { found } else { 0.0 })
}

/// Compares all queries with the line of the last but one, for numbers at which the line of the
/// last seems to bend.
fn confirm(
    rows: &[(usize, Row)],
    c: f64,
    threshold: f64,
    psi_of: &[f64],
    near: f64,
) -> Result<(), Miss> {
    let Some((before, row)) = rows.iter().rev().nth(1) else {
        return Ok(());
    };
    let line = Line::of(row, psi_of, near);
    let all = |at: usize| {
        if threshold.is_finite() {
            psi(c, threshold.max(at as f64))
        } else {
            1.0
        }
    };
    let rows = rows.iter().filter(|(at, _)| *at > 0);
    let off = rows.map(|(at, row)| line.against(row, all(*before) / all(*at)).0);
    if off.fold(0.0, f64::max) <= 16.0 * near {
        return Ok(());
    }
    Err(Miss::new(
        "lines of different queries bend at different places",
    ))
}
