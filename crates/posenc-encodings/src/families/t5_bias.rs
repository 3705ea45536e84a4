//! T5's bias: a learned value for each head and bucket of distances, added to the scores.
//!
//! With n buckets for a direction (half of all where later keys have their own, which follow
//! those of earlier ones) and e = n/2, distance d has the bucket d where d < e, and beyond
//! `min(e + trunc(ln(d/e) / ln(max_distance/e) · (n − e)), n − 1)`. Where later keys have none of
//! their own they count as distance 0. The table is `[buckets, heads]`; scores are not scaled.
//! Source: Raffel et al., arXiv:1910.10683, section 2.1. Variants: a table per layer (umT5),
//! 320 buckets under a gate (WavLM).

mod emit;

use std::collections::BTreeMap;

use ndarray::ArrayD;
use posenc_ir::Emitter;
use serde_json::json;

use crate::bias::{At, BiasPorts, Emitted, Fit, ReadFrom, Sample, Samples, ScoreBias};
use crate::describe::Description;
use crate::encoding::{Encoding, GivenTensors, Learned, PlanError, SiteShape, Start, numbers_in};
use crate::family::{Entry, Family};
use crate::miss::Miss;
use crate::param::{Given, Param, Values};
use crate::params::Params;
use crate::samples::labels;

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "t5-bias",
    about: "A learned bias on the scores, one value per bucket of distances",
    adds: "a bias per bucket",
    params: &[NUM_BUCKETS, MAX_DISTANCE, BIDIRECTIONAL],
    common: &[],
    tensors: &[Learned {
        name: "relative_attention_bias",
        shape: "[buckets, heads]",
        about: "",
        slot: 2,
        shared: true,
    }],
    starts: ["zeros", "N(0, 1/D) as T5"],
    learned: &[],
    describe,
    entry: Entry::score_bias::<T5Bias>(ReadFrom::Rows),
};

const NUM_BUCKETS: Param = Param {
    name: "num-buckets",
    values: Values::Count,
    help: "buckets, those of both directions together",
    unit: "",
    default: "32",
};

const MAX_DISTANCE: Param = Param {
    name: "max-distance",
    values: Values::Count,
    help: "distance at which the encoding saturates",
    unit: "tokens",
    default: "128",
};

/// What it means for ALiBi and T5; a parameter of several families has one help.
pub(super) const BIDIRECTIONAL: Param = Param {
    name: "bidirectional",
    values: Values::Bool,
    help: "how keys after the query count: true, with biases of their own (alibi: as keys before \
           it, t5-bias: in other buckets); false, alibi continues its line with the opposite sign, \
           and t5-bias counts them as distance 0",
    unit: "",
    default: "as the mask of the site says",
};

/// Buckets where none are given.
const BUCKETS: usize = 32;

/// The maximum distance where none is given.
const FAR: usize = 128;

/// Buckets of distances.
#[derive(Clone, Debug, PartialEq)]
pub struct T5Bias {
    /// Rows of the table.
    pub num_buckets: usize,
    /// Distances from here on share the last bucket; `None` where the numbers do not show it.
    pub max_distance: Option<usize>,
    /// The least and greatest maximum with the same buckets, where several have them.
    pub max_distance_range: Option<[usize; 2]>,
    /// Whether later keys have buckets of their own.
    pub bidirectional: bool,
    /// Heads of queries.
    pub heads: usize,
    /// What distances are divided by before they get a bucket, the rest cut off; 1 in T5.
    pub factor: usize,
}

/// The greatest maximum distance that is tried.
const FARTHEST: usize = 1 << 16;

/// `32 buckets up to distance 128, both directions, 4 heads`.
fn describe(to: &mut Description<'_>) {
    let distance = to.up_to_distance();
    match to.count("num_buckets") {
        Some(buckets) => to.say(format!("{buckets} buckets {distance}")),
        None => to.say(distance),
    }
    match to.bool("bidirectional") {
        Some(true) => to.say("both directions"),
        Some(false) => to.say("earlier keys only"),
        None => {}
    }
    if let Some(factor) = to.count("factor") {
        to.say(format!("distances divided by {factor}"));
    }
    to.heads();
}

impl Encoding for T5Bias {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("num_buckets".into(), json!(self.num_buckets));
        params.insert("max_distance".into(), json!(self.max_distance));
        if let Some(range) = self.max_distance_range {
            params.insert("max_distance_range".into(), json!(range));
            params.insert("exact".into(), json!(false));
        }
        params.insert("bidirectional".into(), json!(self.bidirectional));
        params.insert("heads".into(), json!(self.heads));
        if self.factor != 1 {
            params.insert("factor".into(), json!(self.factor));
        }
        params
    }
}

impl ScoreBias for T5Bias {
    fn plan(site: &SiteShape, given: &Given, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let heads = site.heads()?;
        let table = tensors.dims("relative_attention_bias");
        let rows = table.and_then(|(_, dims)| dims.first().copied());
        let requested = given.count(NUM_BUCKETS.name);
        let num_buckets = rows.or(requested).unwrap_or(BUCKETS);
        if let Some(requested) = requested.filter(|n| *n != num_buckets) {
            let why = format!("is {requested}, but the table has {num_buckets} rows");
            return Err(PlanError::param(NUM_BUCKETS.name, why));
        }
        let max_distance = given.count(MAX_DISTANCE.name).unwrap_or(FAR);
        let bidirectional = given.bool(BIDIRECTIONAL.name).unwrap_or(!site.causal);
        let least = if bidirectional { 4 } else { 2 };
        if num_buckets < least {
            let why = format!("is {num_buckets}, and at least {least} are needed");
            return Err(PlanError::param(NUM_BUCKETS.name, why));
        }
        let exact = num_buckets / least;
        if max_distance <= exact {
            return Err(PlanError::Values(format!(
                "{num_buckets} buckets and a maximum distance of {max_distance} leave nothing \
                 between them: a max-distance above {exact} is needed, or fewer buckets"
            )));
        }
        // The bucket of each distance is an int64.
        numbers_in(&[2, max_distance, 2])?;
        Ok(Self {
            num_buckets,
            max_distance: Some(max_distance),
            max_distance_range: None,
            bidirectional,
            heads,
            factor: 1,
        })
    }

    /// By the rows of a table, or by the distances that share a number.
    fn identify(samples: &Samples<'_>) -> Result<Fit<Self>, Miss> {
        let heads = samples.all_heads();
        if let Some(rows) = samples.rows {
            let bias = Self::of_rows(rows.by_distance, rows.count, heads)?;
            return Ok(Fit {
                by_rows: true,
                ..Fit::learned(bias, rows.count)
            });
        }
        let labels = labels(samples.run.profile()?, samples.shift);
        let bias = Self::of_labels(&labels, heads)?;
        let numbers = bias.num_buckets;
        Ok(Fit::learned(bias, numbers))
    }

    fn heads(&self) -> usize {
        self.heads
    }

    fn tensors(&self) -> Vec<Vec<usize>> {
        vec![vec![self.num_buckets, self.heads]]
    }

    fn start(&self, _: usize, site: &SiteShape) -> Start {
        Start::normal(((self.heads * site.head_dim.unwrap_or(1)) as f64).powf(-0.5))
    }

    fn reference(&self, tensors: &[ArrayD<f64>], head: usize, at: At) -> Sample {
        let bucket = self.bucket(at.distance());
        Sample::stored(bucket.map_or(f64::NAN, |bucket| tensors[0][[bucket, head]]))
    }

    fn emit(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        tensors: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        self.nodes(out, ports, tensors)
    }

    /// By distances that are divided by a whole number.
    fn stretch(&self, factor: f64) -> Option<Box<dyn ScoreBias>> {
        let is_whole = factor >= 1.0 && factor.fract() == 0.0 && factor <= f64::from(u16::MAX);
        let times = is_whole.then_some(factor as usize)?;
        Some(Box::new(Self {
            factor: self.factor.checked_mul(times)?,
            ..self.clone()
        }))
    }

    fn stretched(&self) -> Option<f64> {
        Some(self.factor as f64)
    }
}

impl T5Bias {
    /// The bucket of a key at this distance from the query, key − query; `None` without a maximum.
    pub fn bucket(&self, distance: i64) -> Option<usize> {
        let max = self.max_distance?;
        // Towards zero, as integers are divided.
        let distance = distance / i64::try_from(self.factor).ok()?;
        Some(bucket(self.num_buckets, max, self.bidirectional, distance))
    }

    /// Reads the parameters off the rows of a table that distances pick.
    pub fn of_rows(
        rows: &BTreeMap<i64, i64>,
        num_buckets: usize,
        heads: usize,
    ) -> Result<Self, Miss> {
        let plain = Self::of_undivided(rows, num_buckets, heads);
        let here = rows.get(&0);
        let shared = (1..)
            .map_while(|d: i64| rows.get(&-d))
            .take_while(|row| Some(*row) == here);
        let factor = shared.count() + 1;
        if plain.is_ok() || factor == 1 {
            return plain;
        }
        let step = i64::try_from(factor).unwrap_or(i64::MAX);
        let apart = rows.iter().filter(|(d, _)| **d % step == 0);
        let apart: BTreeMap<i64, i64> = apart.map(|(d, row)| (d / step, *row)).collect();
        let is_cut_off = rows
            .iter()
            .all(|(d, row)| apart.get(&(d / step)) == Some(row));
        match Self::of_undivided(&apart, num_buckets, heads) {
            Ok(found) if is_cut_off => Ok(Self { factor, ..found }),
            _ => plain,
        }
    }

    fn of_undivided(
        rows: &BTreeMap<i64, i64>,
        num_buckets: usize,
        heads: usize,
    ) -> Result<Self, Miss> {
        let fits = |bidirectional: bool| {
            let same = |max: usize| {
                rows.iter().all(|(d, row)| {
                    let own = bucket(num_buckets, max, bidirectional, *d);
                    let before = starts_bucket(num_buckets, max, bidirectional, *d);
                    usize::try_from(*row).is_ok_and(|r| r == own || before && r + 1 == own)
                })
            };
            Maxima::of(&earlier(rows), num_buckets, bidirectional, &same)
                .map(|maxima| maxima.with(num_buckets, bidirectional, heads))
        };
        fits(false)
            .or_else(|| fits(true))
            .ok_or_else(|| Miss::new(format!("the rows are not those of {num_buckets} buckets")))
    }

    /// Reads the parameters off the distances that share a number: `labels` are equal where the
    /// numbers of all heads are.
    pub fn of_labels(labels: &BTreeMap<i64, usize>, heads: usize) -> Result<Self, Miss> {
        let here = labels.get(&0);
        let bidirectional = labels.range(1..).any(|(_, label)| Some(label) != here);
        let side = earlier(labels);
        // The first distance that shares the bucket of the one before ends the exact ones.
        let Some(shares) = side.windows(2).position(|w| w[0] == w[1]) else {
            return Err(Miss::new("no two distances share a bucket"));
        };
        let mut runs = side.clone();
        runs.dedup();
        let mut fits = vec![];
        for n in runs.len()..=2 * shares + 1 {
            let buckets = if bidirectional { 2 * n } else { n };
            let same = |max: usize| partition(labels, |d| bucket(buckets, max, bidirectional, d));
            if let Some(maxima) = Maxima::of(&side, buckets, bidirectional, &same) {
                let fit = maxima.with(buckets, bidirectional, heads);
                // All buckets are seen: more of them would show.
                if n == runs.len() && fit.max_distance.is_some_and(|m| m < side.len()) {
                    return Ok(fit);
                }
                fits.push(fit);
            }
        }
        let round = fits.iter().position(|f| f.num_buckets.is_power_of_two());
        match (round, fits.is_empty()) {
            (_, true) => Err(Miss::new(
                "the runs of equal numbers are not those of buckets",
            )),
            (at, false) => Ok(fits.swap_remove(at.unwrap_or(0))),
        }
    }
}

/// What is seen at distances 0, 1, … before the query.
fn earlier<T: Copy>(at: &BTreeMap<i64, T>) -> Vec<T> {
    (0..).map_while(|d: i64| at.get(&-d).copied()).collect()
}

/// The maximum distances that give the buckets seen; none where any does.
struct Maxima(Vec<usize>);

impl Maxima {
    /// `side` is what is seen at distances 0, 1, …; `same` compares everything.
    fn of<T: PartialEq>(
        side: &[T],
        num_buckets: usize,
        bidirectional: bool,
        same: &dyn Fn(usize) -> bool,
    ) -> Option<Self> {
        let n = if bidirectional {
            num_buckets / 2
        } else {
            num_buckets
        };
        let e = n / 2;
        if e == 0 || side.len() <= e {
            return None;
        }
        // The distance at which the second of the shared buckets starts bounds the maximum.
        let Some(next) = (e + 1..side.len()).find(|d| side[*d] != side[e]) else {
            return same(FARTHEST).then_some(Self(vec![]));
        };
        let bound = |d: usize| e as f64 * (d as f64 / e as f64).powi((n - e) as i32);
        let least = (bound(next - 1) as usize).max(e + 1);
        let most = (bound(next) as usize).saturating_add(1).min(FARTHEST);
        let fits: Vec<usize> = (least..=most).filter(|max| same(*max)).collect();
        (!fits.is_empty()).then_some(Self(fits))
    }

    fn with(self, num_buckets: usize, bidirectional: bool, heads: usize) -> T5Bias {
        let range = match self.0[..] {
            [least, .., most] => Some([least, most]),
            _ => None,
        };
        T5Bias {
            num_buckets,
            max_distance: roundest(&self.0),
            max_distance_range: range,
            bidirectional,
            heads,
            factor: 1,
        }
    }
}

/// The bucket of a distance, key − query.
fn bucket(num_buckets: usize, max_distance: usize, bidirectional: bool, distance: i64) -> usize {
    let (n, first, far) = if bidirectional {
        let n = num_buckets / 2;
        let first = if distance > 0 { n } else { 0 };
        (n, first, distance.unsigned_abs() as usize)
    } else {
        (num_buckets, 0, usize::try_from(-distance).unwrap_or(0))
    };
    let e = n / 2;
    if far < e || e == 0 {
        return first + far.min(n.saturating_sub(1));
    }
    let ratio = (far as f64 / e as f64).ln() / (max_distance as f64 / e as f64).ln();
    // Graphs compute in f32, where what is whole but for the last digits of f64 is whole.
    let beyond = f64::from((ratio * (n - e) as f64) as f32) as usize;
    first + (e + beyond).min(n - 1)
}

/// Whether a bucket starts at a distance but for the last digits: what computes in f64 may count it to
/// the one before.
fn starts_bucket(
    num_buckets: usize,
    max_distance: usize,
    bidirectional: bool,
    distance: i64,
) -> bool {
    let n = if bidirectional {
        num_buckets / 2
    } else {
        num_buckets
    };
    let e = n / 2;
    let far = if bidirectional {
        distance.abs()
    } else {
        -distance
    };
    if e == 0 || far <= e as i64 {
        return false;
    }
    let ratio = (far as f64 / e as f64).ln() / (max_distance as f64 / e as f64).ln();
    let beyond = ratio * (n - e) as f64;
    (beyond - beyond.round()).abs() < 1e-9 * beyond && beyond.round() < (n - e) as f64
}

/// Whether distances share a label exactly where they share a bucket.
fn partition(labels: &BTreeMap<i64, usize>, bucket: impl Fn(i64) -> usize) -> bool {
    let mut label_of = BTreeMap::new();
    let mut bucket_of = BTreeMap::new();
    labels.iter().all(|(d, label)| {
        let bucket = bucket(*d);
        *label_of.entry(bucket).or_insert(*label) == *label
            && *bucket_of.entry(*label).or_insert(bucket) == bucket
    })
}

/// The number that a person would choose.
fn roundest(fits: &[usize]) -> Option<usize> {
    let round = |step: usize| fits.iter().copied().find(|n| n.is_multiple_of(step));
    let two = fits.iter().copied().find(|n| n.is_power_of_two());
    two.or_else(|| [1000, 100, 50, 10, 5].into_iter().find_map(round))
        .or_else(|| fits.first().copied())
}

#[cfg(test)]
mod tests;
