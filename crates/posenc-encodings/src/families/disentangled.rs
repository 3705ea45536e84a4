//! DeBERTa: content meets embeddings of the bucketed distance on either side.
//!
//! `s(i, j) = (q_i · k_j + q_i · K_δ + k_j · Q_δ) / √(3d)`, where `δ` is the bucket of `i − j` and
//! `K` and `Q` are projections, by head, of one table of embeddings `[2b, hidden]`. Distances up to
//! half of `b` have buckets of their own; those beyond share them by their logarithm, up to
//! `max_distance`. The first version has no buckets: `δ` is `i − j`, clipped to the table.
//!
//! Source: He, Liu, Gao and Chen, "DeBERTa: Decoding-enhanced BERT with Disentangled Attention"
//! (2021), section 3.1; the buckets are those of the second version.

use std::collections::BTreeMap;

use serde_json::json;

use crate::describe::Description;
use crate::encoding::Encoding;
use crate::family::{Entry, Family};
use crate::miss::Miss;
use crate::params::Params;

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "disentangled",
    about: "Content-to-position and position-to-content scores of DeBERTa; found, not written",
    adds: "",
    params: &[],
    common: &[],
    tensors: &[],
    starts: ["", ""],
    learned: &[],
    describe,
    entry: Entry::FoundOnly,
};

/// `c2p and p2c terms, 8 buckets per direction up to distance 64`.
fn describe(to: &mut Description<'_>) {
    let met = to.true_ones(&["c2p", "p2c"]);
    let distance = to.up_to_distance();
    match to.count("buckets") {
        Some(buckets) => {
            to.say(format!("{met} terms"));
            to.say(format!("{buckets} buckets per direction {distance}"));
        }
        None => to.say(format!("{met} terms {distance}")),
    }
}

/// Disentangled attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Disentangled {
    /// Queries meet positions.
    pub c2p: bool,
    /// Keys meet positions.
    pub p2c: bool,
    /// Buckets in each direction; `None` where distances have no buckets.
    pub buckets: Option<usize>,
    /// Distances from here on share the last row.
    pub max_distance: Option<usize>,
}

impl Encoding for Disentangled {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("c2p".into(), json!(self.c2p));
        params.insert("p2c".into(), json!(self.p2c));
        params.insert("buckets".into(), json!(self.buckets));
        params.insert("max_distance".into(), json!(self.max_distance));
        params
    }
}

/// Buckets by logarithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Buckets in each direction.
    pub count: usize,
    /// The distance that falls into the last one; `None` where several would do.
    pub max_distance: Option<usize>,
}

/// The bucket of a distance `query − key` before it is clipped to the table, and how near the
/// logarithm rounds to the next one.
fn bucket(distance: i64, middle: i64, max_distance: i64) -> (i64, f64) {
    let far = distance.abs();
    if far <= middle {
        return (distance, 1.0);
    }
    let share = (far as f64 / middle as f64).ln();
    let all = ((max_distance - 1) as f64 / middle as f64).ln();
    let at = share / all * (middle - 1) as f64;
    let up = at.ceil() as i64 + middle;
    (up * distance.signum(), (at - at.round()).abs())
}

/// The row of a distance `query − key` in a table of `2 · count` rows.
pub fn reference(distance: i64, count: usize, max_distance: usize) -> i64 {
    let span = i64::try_from(count).unwrap_or(i64::MAX / 4);
    let far = i64::try_from(max_distance).unwrap_or(i64::MAX / 4);
    (bucket(distance, span / 2, far).0 + span).clamp(0, 2 * span - 1)
}

/// Logarithms in single precision are no more exact.
const CLOSE: f64 = 1e-4;

/// Maximum distances that are tried.
const FARTHEST: i64 = 1 << 13;

/// Reads buckets off the row of each distance `key − query`; rows count up with `query − key`.
///
/// # Errors
/// A [`Miss`] where the rows follow no such buckets.
pub fn identify(rows: &BTreeMap<i64, i64>) -> Result<Buckets, Miss> {
    let Some(center) = rows.get(&0).copied() else {
        return Err(Miss::new("distance 0 has no row"));
    };
    let row = |d: i64| rows.get(&-d).map(|r| r - center);
    let mut straight = 0;
    while row(straight + 1) == Some(straight + 1) || row(-straight - 1) == Some(-straight - 1) {
        straight += 1;
    }
    if super::shaw::identify(rows).is_ok() {
        return Err(Miss::new("rows are clipped at most, and in no buckets"));
    }
    // How many rows are one off, where a logarithm is close to the next bucket.
    let off = |middle: i64, far: i64| -> Option<usize> {
        let span = 2 * middle;
        let mut off = 0;
        for (d, r) in rows {
            let (at, near) = bucket(-d, middle, far);
            match (r - center - at.clamp(-span, span - 1)).abs() {
                0 => {}
                1 if near < CLOSE => off += 1,
                _ => return None,
            }
        }
        Some(off)
    };
    // Some distances after the middle may have buckets of their own as well.
    for middle in (2.max(straight / 2)..=straight).rev() {
        let all = (middle + 2..FARTHEST).filter_map(|far| Some((off(middle, far)?, far)));
        let all: Vec<(usize, i64)> = all.collect();
        let Some(least) = all.iter().map(|(off, _)| *off).min() else {
            continue;
        };
        let mut best = all.iter().filter(|(off, _)| *off == least);
        let only = best.next().filter(|_| best.next().is_none());
        return Ok(Buckets {
            count: usize::try_from(2 * middle).unwrap_or(0),
            max_distance: only.and_then(|(_, far)| usize::try_from(*far).ok()),
        });
    }
    Err(Miss::new("rows follow no buckets by logarithm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(to: i64, of: impl Fn(i64) -> i64) -> BTreeMap<i64, i64> {
        (-to..=to).map(|d| (d, of(d))).collect()
    }

    #[test]
    fn buckets_are_read_as_they_were_made() {
        for (count, far) in [(8, 64), (16, 64), (32, 100), (256, 512)] {
            let rows = rows(700, |d| reference(-d, count, far));
            let got = identify(&rows).unwrap();
            assert_eq!((got.count, got.max_distance), (count, Some(far)));
        }
    }

    #[test]
    fn a_maximum_beyond_what_is_seen_is_not_guessed() {
        let got = identify(&rows(20, |d| reference(-d, 16, 512))).unwrap();
        assert_eq!((got.count, got.max_distance), (16, None));
    }

    #[test]
    fn the_published_buckets_of_small_distances() {
        let got: Vec<i64> = [0, 1, 4, 5, 8, 16, 63, 64, 500, -4, -5, -63, -500]
            .iter()
            .map(|d| reference(*d, 8, 64) - 8)
            .collect();
        assert_eq!(got, [0, 1, 4, 5, 5, 6, 7, 7, 7, -4, -5, -7, -8]);
    }

    #[test]
    fn rows_of_other_rules_are_refused() {
        type Rule = fn(i64) -> i64;
        let cases: [(&str, Rule); 6] = [
            ("no buckets", |d| -d),
            ("clipped", |d| (-d).clamp(-8, 7)),
            ("counting up with the key", |d| reference(d, 16, 64)),
            ("shifted by one", |d| reference(1 - d, 16, 64)),
            ("by absolute distance", |d| reference(d.abs(), 16, 64)),
            ("rounded down", |d| {
                let far = (d.abs() as f64 / 8.0).ln() / (63.0 / 8.0f64).ln() * 7.0;
                if d.abs() <= 8 {
                    -d
                } else {
                    -d.signum() * (far.floor() as i64 + 8)
                }
            }),
        ];
        let reasons = [
            "rows are clipped at most",
            "rows are clipped at most",
            "rows follow no buckets",
            "rows follow no buckets",
            "rows follow no buckets",
            "rows follow no buckets",
        ];
        for ((name, of), reason) in cases.into_iter().zip(reasons) {
            let why = identify(&rows(200, of)).unwrap_err().why;
            assert!(why.starts_with(reason), "{name}: {why}");
        }
    }
}
