//! Attention with linear biases: head h adds `m_h · (key − query)` to the scores of causal attention.
//!
//! `b(h, i, j) = −m_h · (i − j)` for keys j ≤ i; a constant for each query may be added, which a
//! softmax does not see, so `m_h · j` is the same encoding (Bloom). Where later keys are seen, the
//! bias is `−m_h · abs(i − j)` (JinaBERT) or continues as it is. For n = 2^k heads
//! `m_h = 2^(−8(h+1)/n)`; learned and other slopes occur.
//! Source: Press et al., arXiv:2108.12409, section 3.

mod emit;
#[cfg(test)]
mod tests;

use ndarray::ArrayD;
use posenc_ir::Emitter;
use serde_json::{Value as Json, json};

use crate::bias::{At, BiasPorts, Emitted, Fit, ReadFrom, Sample, Samples, ScoreBias};
use crate::describe::Description;
use crate::encoding::{Encoding, GivenTensors, Learned, PlanError, SiteShape, same_params};
use crate::families::t5_bias::BIDIRECTIONAL;
use crate::family::{Entry, Family};
use crate::miss::Miss;
use crate::param::{Given, Param, Values};
use crate::params::Params;
use crate::round::to_digits;
use crate::samples::{Scores, most};

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "alibi",
    about: "A bias on the scores, linear in the distance",
    adds: "a linear bias on the scores",
    params: &[SLOPES, BIDIRECTIONAL],
    common: &[],
    tensors: &[Learned {
        name: "slopes",
        shape: "[heads]",
        about: "",
        slot: 9,
        shared: true,
    }],
    starts: ["the slopes of the paper", ""],
    learned: &[],
    describe,
    entry: Entry::score_bias::<Alibi>(ReadFrom::FewTokens),
};

const SLOPES: Param = Param {
    name: "slopes",
    values: Values::Numbers,
    help: "slopes, one per head",
    unit: "1/token",
    default: "",
};

/// Linear biases as the softmax sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct Alibi {
    /// Heads of queries.
    pub heads: usize,
    /// m of each head; positive where nearer keys weigh more.
    pub slopes: Vec<f64>,
    /// Whether the bias is `−m · abs(key − query)`, otherwise `m · (key − query)` on both sides;
    /// `None` where only earlier keys are seen, for which the two are the same.
    pub symmetric: Option<bool>,
}

/// Slopes before and after the query may differ by this share beyond what the type rounds.
const ALIKE: f64 = 1e-5;

/// The slopes of the paper: `2^(−8(h+1)/n)` where n heads are a power of two; else those of the
/// next smaller power, then every other one of the next greater power.
pub fn slopes(heads: usize) -> Vec<f64> {
    let of = |n: usize| (1..=n).map(move |h| (-8.0 * h as f64 / n as f64).exp2());
    let near = match heads {
        0 => return vec![],
        n => 1usize << n.ilog2(),
    };
    of(near)
        .chain(of(2 * near).step_by(2))
        .take(heads)
        .collect()
}

/// `8 slopes 0.5 to 0.0039062, symmetric`.
fn describe(to: &mut Description<'_>) {
    if to.get("slopes").is_some() {
        to.get("heads");
        to.per_head("slopes", "slopes");
    } else {
        to.heads();
    }
    // Nothing shows it of causal attention, and nothing depends on it.
    match to.bool("symmetric") {
        Some(true) => to.say("symmetric"),
        Some(false) => to.say("signed distance"),
        None => {}
    }
}

impl Encoding for Alibi {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("heads".into(), json!(self.heads));
        params.insert("slopes".into(), json!(self.slopes));
        params.insert("symmetric".into(), json!(self.symmetric));
        params
    }
}

impl ScoreBias for Alibi {
    fn plan(site: &SiteShape, given: &Given, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let heads = site.heads()?;
        let slopes = match (
            tensors.values("slopes", &[heads])?,
            given.numbers(SLOPES.name),
        ) {
            (Some(slopes), _) => slopes,
            (None, Some(slopes)) if slopes.len() == heads => slopes.to_vec(),
            (None, Some(slopes)) => {
                let why = format!(
                    "has {} numbers, but attention has {heads} heads",
                    slopes.len()
                );
                return Err(PlanError::param(SLOPES.name, why));
            }
            (None, None) => slopes(heads),
        };
        let symmetric = match given.bool(BIDIRECTIONAL.name) {
            // A site whose mask hides later keys shows nothing of how the line goes on.
            None | Some(false) if site.causal => None,
            asked => Some(asked.unwrap_or(true)),
        };
        Ok(Self {
            heads,
            slopes,
            symmetric,
        })
    }

    /// Slopes by least squares, one head for all that it is broadcast to.
    fn identify(samples: &Samples<'_>) -> Result<Fit<Self>, Miss> {
        let (mut alibi, error) = Self::of_scores(&samples.run.scores)?;
        if let (1, Some(heads)) = (alibi.heads, samples.heads) {
            alibi.slopes = vec![alibi.slopes[0]; heads];
            alibi.heads = heads;
        }
        Ok(Fit::formula(alibi, error, 1))
    }

    fn heads(&self) -> usize {
        self.heads
    }

    fn reference(&self, _: &[ArrayD<f64>], head: usize, at: At) -> Sample {
        Sample::stored(self.at_distance(head, at.distance()))
    }

    fn emit(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        _: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        Some(self.nodes(out, ports))
    }

    fn times(&self, factor: f64) -> Box<dyn ScoreBias> {
        let mut bias = self.clone();
        bias.slopes.iter_mut().for_each(|slope| *slope *= factor);
        Box::new(bias)
    }

    /// Slopes divided by the factor, so that the farthest key of the longer context weighs what that of
    /// the shorter one did.
    fn stretch(&self, factor: f64) -> Option<Box<dyn ScoreBias>> {
        Some(self.times(1.0 / factor))
    }

    fn is_sloped(&self) -> bool {
        true
    }

    fn is_straight(&self) -> bool {
        self.symmetric != Some(true)
    }

    fn is_up_to_a_constant(&self) -> bool {
        self.is_straight()
    }

    fn is_as_planned(&self, planned: &dyn ScoreBias, _: &[Param], _: &Given) -> bool {
        let planned = planned.params();
        let seen = Self {
            // Where later keys are hidden, every continuation is the same bias.
            symmetric: self
                .symmetric
                .or(planned.get("symmetric").and_then(Json::as_bool)),
            ..self.clone()
        };
        same_params(&seen.params(), &planned)
    }
}

impl Alibi {
    /// The bias of a head for a key at this distance from the query, key − query.
    fn at_distance(&self, head: usize, distance: i64) -> f64 {
        let distance = distance as f64;
        match self.symmetric {
            Some(true) => -self.slopes[head] * distance.abs(),
            _ => self.slopes[head] * distance,
        }
    }

    /// Reads slopes off the scores; also the largest difference from the formula.
    fn of_scores(scores: &Scores) -> Result<(Self, f64), Miss> {
        let sides: Vec<Sides> = (0..scores.heads()).map(|h| Sides::of(scores, h)).collect();
        let slopes: Vec<f64> = sides.iter().filter_map(|s| s.earlier).collect();
        if slopes.len() < sides.len() {
            return Err(Miss::new("too few keys are seen to determine a slope"));
        }
        let later: Option<Vec<f64>> = sides.iter().map(|s| s.later).collect();
        let steepest = most(slopes.iter().chain(later.iter().flatten()));
        let near = steepest * scores.tolerance.max(ALIKE);
        let alike = |sign: f64, later: &[f64]| {
            let pairs = slopes.iter().zip(later);
            pairs.into_iter().all(|(a, b)| (a - sign * b).abs() <= near)
        };
        let symmetric = match later {
            None if sides.iter().any(|s| s.later.is_some()) => {
                return Err(Miss::new("some heads see later keys and others do not"));
            }
            None => None,
            Some(later) if alike(-1.0, &later) => Some(true),
            Some(later) if alike(1.0, &later) => Some(false),
            Some(later) => {
                return Err(Miss::new(format!(
                    "slopes {} before the query and {} after it",
                    listed(&slopes),
                    listed(&later)
                )));
            }
        };
        let alibi = Self {
            heads: slopes.len(),
            slopes,
            symmetric,
        };
        let error = scores.residual(|head, query, key| alibi.at_distance(head, key - query));
        if error > scores.tolerance * most(scores.values.iter()).max(steepest) {
            return Err(Miss::new(format!(
                "a line leaves residuals up to {error:.2e}"
            )));
        }
        Ok((alibi.rounded(), error))
    }

    /// Slopes to seven digits.
    fn rounded(mut self) -> Self {
        for slope in &mut self.slopes {
            *slope = to_digits(*slope, 7);
        }
        self
    }
}

/// The slopes of one head before and after the query, by least squares within the rows.
struct Sides {
    earlier: Option<f64>,
    later: Option<f64>,
}

impl Sides {
    fn of(scores: &Scores, head: usize) -> Self {
        let slope = |later: bool| {
            let (mut products, mut squares) = (0.0, 0.0);
            for i in 0..scores.queries() {
                let side = |(d, _): &(i64, f64)| if later { *d >= 0 } else { *d <= 0 };
                let seen: Vec<(i64, f64)> = scores.seen(head, i).filter(side).collect();
                let n = seen.len() as f64;
                let at = seen.iter().map(|(d, _)| *d as f64).sum::<f64>() / n;
                let of = seen.iter().map(|(_, v)| v).sum::<f64>() / n;
                for (d, v) in seen {
                    let x = d as f64 - at;
                    products += x * (v - of);
                    squares += x * x;
                }
            }
            // One step determines a difference, not a line.
            (squares > 1.0).then(|| products / squares)
        };
        Self {
            earlier: slope(false),
            later: slope(true),
        }
    }
}

fn listed(slopes: &[f64]) -> String {
    let first: Vec<String> = slopes.iter().take(4).map(|m| format!("{m:.4}")).collect();
    let more = if slopes.len() > 4 { ", …" } else { "" };
    format!("[{}{more}]", first.join(", "))
}
