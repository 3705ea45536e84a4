//! Learned vectors for each distance that meet queries, keys or values.
//!
//! `s(i, j) = (q_i · k_j + q_i · a_c(j−i) + k_j · b_c(j−i)) / √d`, and the output is
//! `Σ_j α_ij (v_j + w_c(j−i))`, where `c` clips distances: to `−k … k`, or not the same way behind
//! and ahead. Tables `[2k + 1, d]` are most often shared by the heads, and may be stored with the
//! distances counting down.
//!
//! Source: Shaw, Uszkoreit and Vaswani, "Self-Attention with Relative Position Representations"
//! (2018), section 3. BERT's `relative_key` has `a` alone, a row for every distance and no clip;
//! its `relative_key_query` meets keys with the same vectors. Wav2Vec2-BERT clips unevenly.

pub mod emit;

use std::any::Any;
use std::collections::BTreeMap;

use ndarray::{Array1, Array2, ArrayD, Ix2};
use serde_json::json;

use crate::describe::{Description, sides};
use crate::encoding::{Encoding, GivenTensors, Learned, PlanError, SiteShape, Start};
use crate::family::{Entry, Family};
use crate::miss::Miss;
use crate::param::{Given, Param, Values};
use crate::params::Params;
use crate::score_term::{ScoreTerm, Vectors};

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "shaw",
    about: "Learned vectors per clipped distance, added to the keys (and the values)",
    adds: "vectors whose dot products with the queries are added to the scores, and vectors added to the values",
    params: &[MAX_DISTANCE],
    common: &[],
    tensors: &[
        Learned {
            name: "relative_key",
            shape: "[2k+1, head_dim]",
            about: "",
            slot: 4,
            shared: false,
        },
        Learned {
            name: "relative_value",
            shape: "[2k+1, head_dim]",
            about: "one or both",
            slot: 5,
            shared: false,
        },
    ],
    starts: ["zeros", "Glorot"],
    // Feature maps of one model differ in size.
    learned: &["window"],
    describe,
    entry: Entry::score_term::<ShawTerm>(),
};

const MAX_DISTANCE: Param = Param {
    name: "max-distance",
    values: Values::Count,
    help: "distance at which the encoding saturates",
    unit: "tokens",
    default: "16",
};

/// `key and query terms up to distance 63`.
fn describe(to: &mut Description<'_>) {
    let met = to.true_ones(&["key", "query", "value"]);
    if let Some(window) = to.get("window").map(sides) {
        to.get("max_distance");
        to.say(format!(
            "{met} terms by rows and columns of a {window} window"
        ));
        return;
    }
    let distance = to.up_to_distance();
    to.say(format!("{met} terms {distance}").trim_start().to_owned());
}

/// The clip of a rewrite (section 4.1 of the paper).
const CLIP: usize = 16;

/// The clip k of a table `[2k + 1, ..]` that is given by its name in a file and its dimensions, or
/// the parameter `max-distance`, or else `default`.
///
/// # Errors
/// Where the table has an even number of rows, or another clip than the parameter.
pub fn clip(
    given: &Given,
    table: Option<(&str, &[usize])>,
    default: usize,
) -> Result<usize, PlanError> {
    let asked = given.count(MAX_DISTANCE.name);
    let rows = table.and_then(|(name, dims)| Some((name, *dims.first()?)));
    let Some((name, rows)) = rows else {
        return Ok(asked.unwrap_or(default));
    };
    if rows % 2 == 0 {
        return Err(PlanError::Tensor {
            name: name.to_owned(),
            why: format!("has {rows} rows; a clip of ±k has 2k + 1"),
        });
    }
    let clip = rows / 2;
    match asked {
        Some(asked) if asked != clip => {
            let why = format!("is {asked}, and {name} has rows for ±{clip}");
            Err(PlanError::param(MAX_DISTANCE.name, why))
        }
        _ => Ok(clip),
    }
}

/// Relative position representations as a rewrite inserts them: tables that all heads share, with
/// rows that grow with the distance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShawTerm {
    /// Distances beyond count as this one, k.
    pub max_distance: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Whether vectors meet queries.
    pub key: bool,
    /// Whether vectors are added to the values.
    pub value: bool,
}

impl ShawTerm {
    /// The encoding that a model then has.
    fn shaw(&self) -> Shaw {
        Shaw {
            max_distance: Some(self.max_distance),
            ahead: None,
            window: None,
            key: self.key,
            value: self.value,
            query: false,
        }
    }

    fn rows(&self) -> usize {
        2 * self.max_distance + 1
    }

    /// The clip of its tables.
    fn clip(&self) -> Clip {
        Clip {
            center: i64::try_from(self.max_distance).unwrap_or(i64::MAX),
            step: 1,
            behind: Some(self.max_distance),
            ahead: Some(self.max_distance),
        }
    }
}

impl Encoding for ShawTerm {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        self.shaw().params()
    }
}

impl ScoreTerm for ShawTerm {
    fn plan(site: &SiteShape, given: &Given, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let [key, value] = [0, 1].map(|i| tensors.dims(FAMILY.tensors[i].name));
        let max_distance = clip(given, key.or(value), CLIP)?;
        let none = key.or(value).is_none();
        Ok(Self {
            max_distance,
            head_dim: site.head_dim()?,
            key: none || key.is_some(),
            value: none || value.is_some(),
        })
    }

    fn tensors(&self) -> Vec<Option<Vec<usize>>> {
        let table = |used: bool| used.then(|| vec![self.rows(), self.head_dim]);
        vec![table(self.key), table(self.value)]
    }

    fn start(&self, _tensor: usize) -> Start {
        // Glorot's deviation for a table of such rows.
        let wide = self.rows() + self.head_dim;
        Start::normal((2.0 / wide as f64).sqrt())
    }

    fn vectors(&self) -> Vectors {
        Vectors::Clipped {
            max_distance: self.max_distance,
        }
    }

    fn vector(&self, tensors: &[ArrayD<f64>], _head: usize, distance: i64) -> Option<Array1<f64>> {
        let table = tensors.first().filter(|_| self.key)?;
        let row = usize::try_from(self.clip().row(distance)).ok()?;
        let table = table.view().into_dimensionality::<Ix2>().ok()?;
        (row < table.nrows()).then(|| table.row(row).to_owned())
    }

    fn is_found_as(&self, found: &dyn Encoding, given: &Given) -> bool {
        let found = (found as &dyn Any).downcast_ref::<Shaw>();
        let asked = given.count(MAX_DISTANCE.name);
        found.is_some_and(|found| asked.is_none_or(|n| Some(n) == found.max_distance))
    }
}

/// Relative position representations.
#[derive(Clone, Debug, PartialEq)]
pub struct Shaw {
    /// Distances beyond count as this one, or have no vector.
    pub max_distance: Option<usize>,
    /// The same for keys after the query, where it is another distance.
    pub ahead: Option<usize>,
    /// Rows and columns of the window of pixels by whose offsets along either axis the vectors go, in
    /// place of the distance.
    pub window: Option<[usize; 2]>,
    /// Whether vectors meet queries, as added to the keys.
    pub key: bool,
    /// Whether vectors are added to the values.
    pub value: bool,
    /// Whether vectors meet keys, as added to the queries.
    pub query: bool,
}

impl Encoding for Shaw {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    // `max_distance` is a pair where it is uneven.
    fn params(&self) -> Params {
        let mut params = Params::new();
        let distance = match self.ahead {
            Some(ahead) => json!([self.max_distance, ahead]),
            None => json!(self.max_distance),
        };
        params.insert("max_distance".into(), distance);
        if let Some(window) = self.window {
            params.insert("window".into(), json!(window));
        }
        params.insert("key".into(), json!(self.key));
        params.insert("value".into(), json!(self.value));
        params.insert("query".into(), json!(self.query));
        params
    }
}

/// How rows of a table follow distances `key − query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clip {
    /// The row of distance 0.
    pub center: i64,
    /// 1 where rows grow with the distance, −1 where they count down.
    pub step: i64,
    /// Distances this far behind and farther share a row; `None` where none were seen to.
    pub behind: Option<usize>,
    /// The same ahead.
    pub ahead: Option<usize>,
}

impl Clip {
    /// The row of a distance.
    pub fn row(&self, distance: i64) -> i64 {
        let bound = |n: Option<usize>| n.and_then(|n| i64::try_from(n).ok()).unwrap_or(i64::MAX);
        self.center + self.step * distance.clamp(-bound(self.behind), bound(self.ahead))
    }
}

/// Terms of vectors `[row, feature]` that meet queries `[token, feature]`, unscaled.
pub fn reference(
    queries: &Array2<f64>,
    keys: usize,
    table: &Array2<f64>,
    clip: Clip,
) -> Array2<f64> {
    Array2::from_shape_fn((queries.nrows(), keys), |(i, j)| {
        let row = clip.row(j as i64 - i as i64);
        usize::try_from(row).map_or(0.0, |row| queries.row(i).dot(&table.row(row)))
    })
}

/// Reads a clip off the row of each distance.
///
/// # Errors
/// A [`Miss`] where neighboring distances share rows before they are clipped, or rows are skipped.
pub fn identify(rows: &BTreeMap<i64, i64>) -> Result<Clip, Miss> {
    let at = |d: i64| rows.get(&d).copied();
    let Some(center) = at(0) else {
        return Err(Miss::new("distance 0 has no row"));
    };
    let step = match (at(1), at(-1)) {
        (_, Some(before)) if before != center => center - before,
        (Some(after), _) => after - center,
        _ => 0,
    };
    if step.abs() != 1 {
        return Err(Miss::new("neighboring distances have no neighboring rows"));
    }
    let side = |sign: i64| -> Result<Option<usize>, Miss> {
        let mut straight = 0;
        while at(sign * (straight + 1)) == Some(center + step * sign * (straight + 1)) {
            straight += 1;
        }
        let last = center + step * sign * straight;
        let beyond: Vec<i64> = rows
            .iter()
            .filter(|(d, _)| **d * sign > straight)
            .map(|(_, row)| *row)
            .collect();
        if beyond.is_empty() {
            Ok(None)
        } else if beyond.iter().all(|row| *row == last) {
            Ok(usize::try_from(straight).ok())
        } else {
            Err(Miss::new(
                "rows neither follow the distance nor are clipped",
            ))
        }
    };
    Ok(Clip {
        center,
        step,
        behind: side(-1)?,
        ahead: side(1)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(of: impl Fn(i64) -> i64) -> BTreeMap<i64, i64> {
        (-20..=20).map(|d| (d, of(d))).collect()
    }

    #[test]
    fn clips_are_read_as_they_were_made() {
        let bounds = [Some(3), Some(8), None];
        for step in [1, -1] {
            for behind in bounds {
                for ahead in bounds {
                    let clip = Clip {
                        center: 30,
                        step,
                        behind,
                        ahead,
                    };
                    assert_eq!(identify(&rows(|d| clip.row(d))), Ok(clip));
                }
            }
        }
    }

    #[test]
    fn a_term_of_a_rewrite_adds_what_the_reference_says() {
        let term = ShawTerm {
            max_distance: 2,
            head_dim: 3,
            key: true,
            value: false,
        };
        let table = Array2::from_shape_fn((5, 3), |(r, c)| (3 * r + c) as f64);
        let queries = Array2::from_shape_fn((6, 3), |(i, c)| (i as f64 - c as f64).sin());
        let want = reference(&queries, 6, &table, term.clip());
        let tensors = [table.into_dyn(), ArrayD::zeros(vec![])];
        for ((i, j), want) in want.indexed_iter() {
            let at = crate::bias::At {
                query: i as i64,
                key: j as i64,
                keys: 6,
            };
            let query = queries.row(i);
            let got = ScoreTerm::reference(&term, &tensors, 1, at, [query, query]);
            assert!((got - want).abs() < 1e-12, "{i} {j}");
        }
    }

    #[test]
    fn a_clip_of_all_distances_on_one_side_is_one() {
        let causal = identify(&rows(|d| d.min(0))).unwrap();
        assert_eq!((causal.behind, causal.ahead), (None, Some(0)));
    }

    #[test]
    fn rows_that_follow_no_distance_are_refused() {
        type Rule = fn(i64) -> i64;
        let cases: [(&str, Rule); 6] = [
            ("one for all", |_| 4),
            ("by absolute distance", |d| d.abs()),
            ("two distances to a row", |d| d.div_euclid(2)),
            ("every other row", |d| 2 * d),
            ("logarithmic", |d| {
                d.signum() * (d.abs() as f64 + 1.0).log2() as i64
            }),
            ("a hole", |d| if d == 5 { 40 } else { d }),
        ];
        for (name, of) in cases {
            assert!(identify(&rows(of)).is_err(), "{name}");
        }
    }

    #[test]
    fn the_reference_meets_each_query_with_the_row_of_its_distance() {
        let clip = Clip {
            center: 1,
            step: 1,
            behind: Some(1),
            ahead: Some(1),
        };
        let table = ndarray::arr2(&[[1.0, 0.0], [10.0, 0.0], [100.0, 0.0]]);
        let queries = ndarray::arr2(&[[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]);
        let want = ndarray::arr2(&[[10.0, 100.0, 100.0], [2.0, 20.0, 200.0], [3.0, 3.0, 30.0]]);
        assert_eq!(reference(&queries, 3, &table, clip), want);
    }
}
