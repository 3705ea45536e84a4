//! A learned bias for each head and clipped distance, or for each offset within a window.
//!
//! `b(h, i, j) = table[clip(j − i, −k, k) + k, h]`; without a clip the table ends the sequence.
//! In windows of `rows × columns` tokens `b(h, i, j) = table[(dy, dx), h]` with the offset between
//! the places of i and j; class rows may precede it, with a number of their own in each direction.
//! Source: Huang et al., arXiv:1809.04281, section 3.4 (clipped); Liu et al., arXiv:2103.14030,
//! section 3.2 (Swin). Variants: BEiT (class rows), Swin v2 (numbers from a small network), LeViT
//! (queries on every second row and column).

mod emit;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use ndarray::ArrayD;
use posenc_ir::Emitter;
use serde_json::json;

use crate::bias::{At, BiasPorts, Emitted, Fit, ReadFrom, Rows, Sample, Samples, ScoreBias};
use crate::describe::{Description, sides};
use crate::encoding::{Encoding, GivenTensors, Learned, PlanError, SiteShape, Start};
use crate::families::shaw;
use crate::family::{Entry, Family};
use crate::miss::Miss;
use crate::param::{Given, Param, Values};
use crate::params::Params;
use crate::samples::{Scores, labels, most};

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "relative-bias",
    about: "A learned bias on the scores, one value per clipped distance or window offset",
    adds: "a bias per clipped distance",
    params: &[MAX_DISTANCE],
    common: &[],
    tensors: &[Learned {
        name: "relative_bias",
        shape: "[2k+1, heads]",
        about: "row = clip(key − query) + k",
        slot: 3,
        shared: true,
    }],
    starts: ["zeros", "N(0, 0.02²)"],
    learned: &[],
    describe,
    entry: Entry::score_bias::<RelativeBias>(ReadFrom::Rows),
};

const MAX_DISTANCE: Param = Param {
    name: "max-distance",
    values: Values::Count,
    help: "distance at which the encoding saturates",
    unit: "tokens",
    default: "128",
};

/// The clip where none is given.
const FAR: usize = 128;

/// Biases by distance.
#[derive(Clone, Debug, PartialEq)]
pub struct RelativeBias {
    /// Distances beyond count as this one, or have no number; `None` for windows and where the
    /// numbers do not determine it.
    pub max_distance: Option<usize>,
    /// Rows and columns of the window.
    pub window: Option<[usize; 2]>,
    /// Heads of queries.
    pub heads: usize,
}

/// Class and register rows that may precede a window.
const MOST_PREFIX: usize = 8;

/// `window 4 × 4, 2 and 4 heads`.
fn describe(to: &mut Description<'_>) {
    if let Some(window) = to.get("window") {
        to.get("max_distance");
        to.say(format!("window {}", sides(window)));
    } else {
        let distance = to.up_to_distance();
        to.say(distance);
    }
    to.heads();
}

impl Encoding for RelativeBias {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("max_distance".into(), json!(self.max_distance));
        params.insert("window".into(), json!(self.window));
        params.insert("heads".into(), json!(self.heads));
        params
    }
}

impl ScoreBias for RelativeBias {
    fn plan(site: &SiteShape, given: &Given, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let clip = shaw::clip(given, tensors.dims("relative_bias"), FAR)?;
        Ok(Self {
            max_distance: Some(clip),
            window: None,
            heads: site.heads()?,
        })
    }

    /// By the rows of a table, or by the distances that share a number, or else by the offsets in a
    /// window that do.
    fn identify(samples: &Samples<'_>) -> Result<Fit<Self>, Miss> {
        let heads = samples.all_heads();
        if let Some(Rows { by_distance, count }) = samples.rows {
            let (bias, clipped) = Self::of_rows(by_distance, count, heads)?;
            let needed = bias.max_distance.map_or(0, |k| 2 * k + 1);
            return Ok(Fit {
                max_length: bias.max_distance.filter(|_| !clipped).map(|k| k + 1),
                by_rows: true,
                ..Fit::learned(bias, count.max(needed))
            });
        }
        let Ok(profile) = samples.run.profile() else {
            let bias = Self::of_window(&samples.trial.scores)?;
            let [rows, columns] = bias.window.unwrap_or_default();
            let numbers = (2 * rows).saturating_sub(1) * (2 * columns).saturating_sub(1);
            return Ok(Fit::learned(Self { heads, ..bias }, numbers));
        };
        let labels = labels(profile, samples.shift);
        let numbers = labels.values().max().map_or(0, |label| label + 1);
        let bias = match Self::of_labels(&labels, heads) {
            Err(_) if samples.held => Self {
                max_distance: None,
                window: None,
                heads,
            },
            clip => clip?,
        };
        Ok(Fit::learned(bias, numbers))
    }

    fn heads(&self) -> usize {
        self.heads
    }

    fn window(&self) -> Option<[usize; 2]> {
        self.window
    }

    fn offset(&self, [queries, keys]: [usize; 2], [query, key]: [usize; 2]) -> Option<[i64; 2]> {
        let [rows, columns] = self.window?;
        let grid = Grid {
            prefix: keys.checked_sub(rows * columns)?,
            columns,
            step: if queries == keys { 1 } else { 2 },
        };
        match grid.offset(query, key) {
            [0, dy, dx] => Some([dy, dx]),
            _ => None,
        }
    }

    fn in_window(&self, window: [usize; 2]) -> Option<Box<dyn ScoreBias>> {
        self.window?;
        Some(Box::new(Self {
            window: Some(window),
            ..self.clone()
        }))
    }

    fn tensors(&self) -> Vec<Vec<usize>> {
        vec![vec![2 * self.max_distance.unwrap_or(0) + 1, self.heads]]
    }

    fn start(&self, _: usize, _: &SiteShape) -> Start {
        Start::normal(0.02)
    }

    fn reference(&self, tensors: &[ArrayD<f64>], head: usize, at: At) -> Sample {
        let row = self.row(at.distance());
        Sample::stored(row.map_or(f64::NAN, |row| tensors[0][[row, head]]))
    }

    fn widen(&self, before: usize, ahead: usize) -> Option<Box<dyn ScoreBias>> {
        // One clip serves both sides, and the farther one counts: a table has fewer rows on one side
        // only where no key is seen there.
        let max_distance = self.max_distance.map(|_| before.max(ahead));
        max_distance?;
        Some(Box::new(Self {
            max_distance,
            ..self.clone()
        }))
    }

    fn emit(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        tensors: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        self.nodes(out, ports, tensors)
    }
}

impl RelativeBias {
    /// The row of the table for a key at this distance, key − query; `None` for windows.
    pub fn row(&self, distance: i64) -> Option<usize> {
        let k = i64::try_from(self.max_distance?).ok()?;
        usize::try_from(distance.clamp(-k, k) + k).ok()
    }

    /// What the pairs have in common that have the same number in a window of as many tokens, after class tokens;
    /// `None` without a window, and where there are fewer queries than keys.
    pub fn offset(
        &self,
        query: usize,
        key: usize,
        [queries, keys]: [usize; 2],
    ) -> Option<[i64; 3]> {
        let [rows, columns] = self.window?;
        let prefix = keys.checked_sub(rows * columns)?;
        let grid = Grid {
            prefix,
            columns,
            step: 1,
        };
        (queries == keys).then(|| grid.offset(query, key))
    }

    /// Reads the clip off the rows of a table that distances pick: they follow the distance one by
    /// one up to the clip on both sides. Also returns whether there is a clip.
    ///
    /// # Errors
    /// A [`Miss`] where the sides clip differently, or one was not seen far enough to show its clip.
    pub fn of_rows(
        rows: &BTreeMap<i64, i64>,
        table: usize,
        heads: usize,
    ) -> Result<(Self, bool), Miss> {
        let clip = shaw::identify(rows)?;
        // The middle of the table is distance 0, its ends are for the farthest.
        let ends = usize::try_from(clip.center).ok();
        let ends = ends.filter(|k| table.checked_sub(1) == k.checked_mul(2));
        let one_sided = |k: usize, sign: i64, [side, other]: [&str; 2]| {
            let seen = rows.keys().map(|d| sign * d).max().unwrap_or(0);
            // Where no key is seen, its distance does not matter; else the table has to end there.
            let known = seen <= 0 || ends == Some(k);
            known.then_some((Some(k), true)).ok_or_else(|| {
                Miss::new(format!(
                    "distances clip at {k} {side} the query and not up to {seen} {other} it"
                ))
            })
        };
        let (max_distance, clipped) = match (clip.behind, clip.ahead) {
            (Some(behind), Some(ahead)) if behind == ahead => (Some(behind), true),
            (Some(behind), Some(ahead)) => {
                return Err(Miss::new(format!(
                    "distances clip at {behind} before and {ahead} after the query"
                )));
            }
            (Some(k), None) => one_sided(k, 1, ["before", "after"])?,
            (None, Some(k)) => one_sided(k, -1, ["after", "before"])?,
            (None, None) => (ends, false),
        };
        let found = Self {
            max_distance,
            window: None,
            heads,
        };
        Ok((found, clipped))
    }

    /// Reads the clip off the distances that share a number.
    pub fn of_labels(labels: &BTreeMap<i64, usize>, heads: usize) -> Result<Self, Miss> {
        let reach = |sign: i64| {
            let side = || (1..).map_while(|d| Some((d, *labels.get(&(sign * d))?)));
            let end = side().last()?;
            let (first, _) = side().find(|(_, label)| *label == end.1)?;
            let constant = side().all(|(d, label)| d < first || label == end.1);
            let mut inside: Vec<usize> = side().map(|s| s.1).filter(|l| *l != end.1).collect();
            let n = inside.len();
            inside.sort_unstable();
            inside.dedup();
            // A clip shows where at least three distances share a number.
            (constant && inside.len() == n && end.0 >= first + 2).then_some(first)
        };
        let sides = [(-1, reach(-1)), (1, reach(1))];
        let mut seen = sides
            .into_iter()
            .filter(|(sign, _)| labels.contains_key(sign));
        let first = seen.next().and_then(|(_, k)| k);
        let alike = seen.all(|(_, k)| k == first);
        match first
            .filter(|_| alike)
            .and_then(|k| usize::try_from(k).ok())
        {
            Some(k) => Ok(Self {
                max_distance: Some(k),
                window: None,
                heads,
            }),
            None => Err(Miss::new("distances are not clipped alike on both sides")),
        }
    }

    /// Reads a window off the scores.
    pub fn of_window(scores: &Scores) -> Result<Self, Miss> {
        let (heads, queries, keys) = scores.values.dim();
        for prefix in 0..=MOST_PREFIX.min(keys.saturating_sub(4)) {
            let cells = keys - prefix;
            for rows in (2..=cells / 2).filter(|n| cells.is_multiple_of(*n)) {
                let columns = cells / rows;
                for step in [1, 2] {
                    let of_queries = rows.div_ceil(step) * columns.div_ceil(step);
                    let grid = Grid {
                        prefix,
                        columns,
                        step,
                    };
                    if of_queries + prefix == queries && grid.fits(scores) {
                        return Ok(Self {
                            max_distance: None,
                            window: Some([rows, columns]),
                            heads,
                        });
                    }
                }
            }
        }
        Err(Miss::new("pairs of equal offset differ in every window"))
    }
}

/// Tokens in rows of `columns` after a prefix; queries are on every `step`-th of both.
#[derive(Clone, Copy)]
struct Grid {
    prefix: usize,
    columns: usize,
    step: usize,
}

impl Grid {
    /// What a pair has in common with others of its offset.
    fn offset(self, i: usize, j: usize) -> [i64; 3] {
        let Self {
            prefix,
            columns,
            step,
        } = self;
        let place = |t: usize, columns: usize, step: usize| {
            let cell = t - prefix;
            [cell / columns * step, cell % columns * step].map(|n| n as i64)
        };
        match (i < prefix, j < prefix) {
            (true, true) => [1, i as i64, j as i64],
            (true, false) => [2, i as i64, 0],
            (false, true) => [3, 0, j as i64],
            (false, false) => {
                let [y, x] = place(i, columns.div_ceil(step), step);
                let [v, u] = place(j, columns, 1);
                [0, v - y, u - x]
            }
        }
    }

    fn fits(self, scores: &Scores) -> bool {
        let near = scores.tolerance * most(scores.values.iter());
        let (heads, queries, keys) = scores.values.dim();
        let mut numbers: BTreeMap<[i64; 3], (usize, usize)> = BTreeMap::new();
        (0..queries).all(|i| {
            (0..keys).all(|j| {
                let (a, b) = *numbers.entry(self.offset(i, j)).or_insert((i, j));
                (0..heads).all(|h| {
                    let (x, y) = (scores.values[[h, i, j]], scores.values[[h, a, b]]);
                    x == y || (x - y).abs() <= near
                })
            })
        })
    }
}
