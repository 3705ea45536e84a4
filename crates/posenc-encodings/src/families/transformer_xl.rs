//! Transformer-XL: dot products of queries and projected sinusoids of the distance are added to the
//! scores.
//!
//! `s(i, j) = ((q_i + u) · k_j + (q_i + v) · W R_{i−j}) / √d`, where `R_t` holds
//! `sin(t · b^(−2m/D))` and `cos(t · b^(−2m/D))`: all sines first, or side by side. `u` and `v` are
//! learned by head. Distances may be clamped.
//!
//! Source: Dai, Yang, Yang, Carbonell, Le and Salakhutdinov, "Transformer-XL" (2019), section 3.3
//! and appendix B. XLNet has both directions, Conformer a table of `2T − 1` rows.

mod emit;

use std::f64::consts::TAU;

use ndarray::{Array1, Array2, ArrayD, ArrayView2, Ix2, s};
use serde_json::json;

use crate::describe::{Description, plain};
use crate::encoding::{Encoding, GivenTensors, Learned, PlanError, SiteShape, Start};
use crate::family::{Entry, Family};
use crate::miss::Miss;
use crate::param::Given;
use crate::params::Params;
use crate::score_term::{ScoreTerm, Vectors};

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "transformer-xl",
    about: "Projected sinusoids of the distance, with a content and a position bias",
    adds: "dot products of queries and projected sinusoids are added to the scores",
    params: &[],
    common: &[],
    tensors: &[
        Learned {
            name: "content_bias",
            shape: "[heads, head_dim]",
            about: "",
            slot: 6,
            shared: false,
        },
        Learned {
            name: "position_bias",
            shape: "[heads, head_dim]",
            about: "",
            slot: 7,
            shared: false,
        },
        Learned {
            name: "position_projection",
            shape: "[heads·head_dim, D]",
            about: "",
            slot: 8,
            shared: false,
        },
    ],
    starts: ["zeros", "N(0, 0.02²)"],
    learned: &[],
    describe,
    entry: Entry::score_term::<TransformerXlTerm>(),
};

/// `4 heads, 16 elements each`.
fn describe(to: &mut Description<'_>) {
    to.heads();
    if let Some(width) = to.get("head_dim") {
        to.say(format!("{} elements each", plain(width)));
    }
    if let Some(clamp) = to.get("clamp") {
        to.say(format!("clamped at distance {}", plain(clamp)));
    }
}

/// Relative sinusoids.
#[derive(Clone, Debug, PartialEq)]
pub struct TransformerXl {
    /// Heads of queries.
    pub heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Distances beyond count as this one.
    pub clamp: Option<usize>,
}

impl Encoding for TransformerXl {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("heads".into(), json!(self.heads));
        params.insert("head_dim".into(), json!(self.head_dim));
        params.insert("clamp".into(), json!(self.clamp));
        params
    }
}

/// Relative sinusoids as a rewrite inserts them: all sines first, without a clamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransformerXlTerm {
    /// Heads of queries.
    pub heads: usize,
    /// Features of a head.
    pub head_dim: usize,
    /// Width of the sinusoids.
    pub dim: usize,
}

impl Encoding for TransformerXlTerm {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let found = TransformerXl {
            heads: self.heads,
            head_dim: self.head_dim,
            clamp: None,
        };
        found.params()
    }
}

impl ScoreTerm for TransformerXlTerm {
    fn plan(site: &SiteShape, _given: &Given, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let (heads, head_dim) = (site.heads()?, site.head_dim()?);
        let projection = tensors.dims(FAMILY.tensors[2].name);
        let dim = projection.and_then(|(_, dims)| dims.get(1).copied());
        Ok(Self {
            heads,
            head_dim,
            dim: dim.unwrap_or(heads * head_dim),
        })
    }

    fn tensors(&self) -> Vec<Option<Vec<usize>>> {
        let bias = Some(vec![self.heads, self.head_dim]);
        let projection = Some(vec![self.heads * self.head_dim, self.dim]);
        vec![bias.clone(), bias, projection]
    }

    fn start(&self, _tensor: usize) -> Start {
        Start::normal(0.02)
    }

    fn vectors(&self) -> Vectors {
        Vectors::Projected {
            heads: self.heads,
            head_dim: self.head_dim,
            dim: self.dim,
        }
    }

    fn biases<'a>(&self, tensors: &'a [ArrayD<f64>]) -> Option<[ArrayView2<'a, f64>; 2]> {
        let bias = |i: usize| {
            let bias: &'a ArrayD<f64> = tensors.get(i)?;
            bias.view().into_dimensionality().ok()
        };
        Some([bias(0)?, bias(1)?])
    }

    fn vector(&self, tensors: &[ArrayD<f64>], head: usize, distance: i64) -> Option<Array1<f64>> {
        let projection = tensors.get(2)?.view().into_dimensionality::<Ix2>().ok()?;
        // The code is that of query − key.
        let code = reference(&Code::of_width(self.dim), &[-distance]);
        let rows = head * self.head_dim..(head + 1) * self.head_dim;
        if code.ncols() != projection.ncols() || rows.end > projection.nrows() {
            return None;
        }
        Some(projection.slice(s![rows, ..]).dot(&code.row(0)))
    }

    fn is_found_as(&self, found: &dyn Encoding, _given: &Given) -> bool {
        found.word() == self.word()
    }
}

/// Sinusoids of a distance.
#[derive(Clone, Debug, PartialEq)]
pub struct Code {
    /// Sines and cosines stand side by side rather than in halves.
    pub interleaved: bool,
    /// Radians by distance.
    pub frequencies: Vec<f64>,
    /// Distances beyond count as this one.
    pub clamp: Option<usize>,
    /// The largest difference from the formula.
    pub error: f64,
}

/// Base of the frequencies in the paper's code of distances.
const BASE: f64 = 10_000.0;

impl Code {
    /// The code that a rewrite inserts, `dim` numbers for each distance: sines, then cosines.
    pub fn of_width(dim: usize) -> Self {
        let frequency = |i: usize| BASE.powf(-2.0 * i as f64 / dim as f64);
        Self {
            interleaved: false,
            frequencies: (0..dim / 2).map(frequency).collect(),
            clamp: None,
            error: 0.0,
        }
    }

    /// The code with the frequencies 10000^(−2i/dim) in f64, if every one of its own is within
    /// 1e-5 times that plus 1e-8, which is how exactly single precision shows them. If one is not, all
    /// stay as they are.
    ///
    /// Source of the formula: Vaswani et al., arXiv:1706.03762, section 3.5, whose sinusoids Dai et al.,
    /// arXiv:1901.02860, section 3.3, use for distances.
    pub fn of_formula(self) -> Self {
        let paper = Self::of_width(2 * self.frequencies.len()).frequencies;
        let mut pairs = self.frequencies.iter().zip(&paper);
        match pairs.all(|(own, want)| (own - want).abs() <= 1e-5 * want + 1e-8) {
            true => Self {
                frequencies: paper,
                ..self
            },
            false => self,
        }
    }
}

/// The code of distances `query − key`, a row for each.
pub fn reference(code: &Code, distances: &[i64]) -> Array2<f64> {
    let half = code.frequencies.len();
    let bound = code.clamp.map_or(f64::INFINITY, |c| c as f64);
    Array2::from_shape_fn((distances.len(), 2 * half), |(row, column)| {
        let (m, cosine) = if code.interleaved {
            (column / 2, column % 2 == 1)
        } else {
            (column % half, column >= half)
        };
        let angle = (distances[row] as f64).clamp(-bound, bound) * code.frequencies[m];
        if cosine { angle.cos() } else { angle.sin() }
    })
}

/// Sinusoids may be off by this much: half precision.
const LOOSE: f64 = 4e-3;

/// Frequencies may be off by this share of them, and by this much.
const NEAR: (f64, f64) = (2e-3, 5e-8);

/// Reads sinusoids off the code of each distance `query − key`.
///
/// # Errors
/// A [`Miss`] where the rows are no sinusoids of the distance at frequencies that fall by a
/// constant factor from 1.
pub fn identify(rows: &[(i64, Vec<f64>)]) -> Result<Code, Miss> {
    let find = |d: i64| rows.iter().find(|(at, _)| *at == d).map(|(_, row)| row);
    let width = find(0).map_or(0, Vec::len);
    let (Some(one), false) = (find(1), width == 0 || width % 2 == 1) else {
        return Err(Miss::new("distances 0 and 1 have no code of even width"));
    };
    let half = width / 2;
    let clamp = clamp(rows);
    let mut missed = Miss::new("the vectors are not sines and cosines of the distance");
    for interleaved in [false, true] {
        let place = |m: usize| {
            if interleaved {
                (2 * m, 2 * m + 1)
            } else {
                (m, m + half)
            }
        };
        let angle = |row: &Vec<f64>, m: usize| row[place(m).0].atan2(row[place(m).1]);
        let mut code = Code {
            interleaved,
            frequencies: (0..half).map(|m| angle(one, m)).collect(),
            clamp,
            error: 0.0,
        };
        // Long distances tell a frequency better, once it is known how often it went round.
        let bound = clamp.map_or(i64::MAX, |c| c as i64);
        let mut known = 1;
        let mut farther: Vec<&(i64, Vec<f64>)> =
            rows.iter().filter(|r| r.0 > 1 && r.0 <= bound).collect();
        farther.sort_by_key(|r| r.0);
        for (d, row) in farther {
            if *d > 2 * known && *d != bound {
                continue;
            }
            for m in 0..half {
                let guess = code.frequencies[m] * *d as f64;
                let turns = ((guess - angle(row, m)) / TAU).round();
                code.frequencies[m] = (angle(row, m) + turns * TAU) / *d as f64;
            }
            known = *d;
        }
        let distances: Vec<i64> = rows.iter().map(|r| r.0).collect();
        let want = reference(&code, &distances);
        let off = want.rows().into_iter().zip(rows).flat_map(|(w, (_, got))| {
            w.iter()
                .zip(got)
                .map(|(w, g)| (w - g).abs())
                .collect::<Vec<_>>()
        });
        code.error = off.fold(0.0, f64::max);
        if code.error.is_nan() || code.error > LOOSE {
            continue;
        }
        match geometric(&code.frequencies) {
            Ok(()) => return Ok(code),
            Err(miss) => missed = miss,
        }
    }
    Err(missed)
}

/// Whether frequencies fall from 1 by a constant factor.
fn geometric(frequencies: &[f64]) -> Result<(), Miss> {
    let first = frequencies.first().copied().unwrap_or(0.0);
    if first < 0.0 {
        return Err(Miss::new("the sinusoids run with key − query"));
    }
    let near = |a: f64, b: f64| (a - b).abs() <= NEAR.0 * b.abs() + NEAR.1;
    if !near(first, 1.0) {
        return Err(Miss::new("the first frequency is not 1"));
    }
    // Where the last is too small to be exact, an earlier one tells the factor.
    let telling = frequencies
        .iter()
        .rposition(|f| *f > 1e-3)
        .filter(|m| *m > 0);
    let Some(telling) = telling.or((frequencies.len() > 1).then_some(1)) else {
        return Ok(());
    };
    let factor = frequencies[telling].ln() / telling as f64;
    let all = frequencies.iter().enumerate();
    for (m, f) in all {
        if !near(*f, (factor * m as f64).exp()) {
            let why =
                format!("frequency {m} of the sinusoids is {f:.6}, in no series with the others");
            return Err(Miss::new(why));
        }
    }
    Ok(())
}

/// The distance from which on the code stays the same.
fn clamp(rows: &[(i64, Vec<f64>)]) -> Option<usize> {
    let mut ahead: Vec<&(i64, Vec<f64>)> = rows.iter().filter(|r| r.0 >= 0).collect();
    ahead.sort_by_key(|r| r.0);
    let (_, last) = ahead.last()?;
    let same = ahead
        .iter()
        .rev()
        .take_while(|(_, row)| row == last)
        .count();
    let (d, _) = ahead[ahead.len() - same];
    (same > 1).then(|| usize::try_from(*d).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(interleaved: bool, clamp: Option<usize>) -> Code {
        let frequencies = (0..16).map(|m| 1e4f64.powf(-f64::from(m) / 16.0)).collect();
        Code {
            interleaved,
            frequencies,
            clamp,
            error: 0.0,
        }
    }

    fn rows(code: &Code, low: i64, change: impl Fn(i64, &mut Vec<f64>)) -> Vec<(i64, Vec<f64>)> {
        let distances: Vec<i64> = (low..14).collect();
        let made = reference(code, &distances);
        let row = |(d, r): (&i64, ndarray::ArrayView1<f64>)| {
            let mut r: Vec<f64> = r.iter().map(|v| f64::from(*v as f32)).collect();
            change(*d, &mut r);
            (*d, r)
        };
        distances.iter().zip(made.rows()).map(row).collect()
    }

    #[test]
    fn codes_are_read_as_they_were_made() {
        for interleaved in [false, true] {
            for clamp in [None, Some(6)] {
                for low in [0, -13] {
                    let want = code(interleaved, clamp);
                    let got = identify(&rows(&want, low, |_, _| {})).unwrap();
                    assert_eq!((got.interleaved, got.clamp), (interleaved, clamp));
                    assert!(got.error < 1e-6, "{}", got.error);
                }
            }
        }
    }

    #[test]
    fn a_term_of_a_rewrite_meets_biased_queries_with_projected_codes() {
        let term = TransformerXlTerm {
            heads: 2,
            head_dim: 2,
            dim: 4,
        };
        let wave = |(a, b): (usize, usize)| (1.3 * a as f64 + 0.7 * b as f64).sin();
        let [u, v] = [0, 5].map(|n| Array2::from_shape_fn((2, 2), |(h, c)| wave((h + n, c))));
        let w = Array2::from_shape_fn((4, 4), wave);
        let tensors = [u.into_dyn(), v.into_dyn(), w.into_dyn()];
        let [q, k] = [[0.3, -1.0], [2.0, 0.5]].map(Array1::from_iter);
        let at = crate::bias::At {
            query: 7,
            key: 4,
            keys: 8,
        };
        let got = ScoreTerm::reference(&term, &tensors, 1, at, [q.view(), k.view()]);
        let code = |c: usize| {
            let angle: f64 = 3.0 * [1.0, 0.01][c % 2];
            if c < 2 { angle.sin() } else { angle.cos() }
        };
        let mut want = 0.0;
        for f in 0..2 {
            let r: f64 = (0..4).map(|c| wave((2 + f, c)) * code(c)).sum();
            want += wave((1, f)) * k[f] + (q[f] + wave((6, f))) * r;
        }
        assert!((got - want).abs() < 1e-12, "{got} {want}");
    }

    #[test]
    fn changed_codes_are_refused() {
        type Change = fn(i64, &mut Vec<f64>);
        let cases: [(&str, Change); 8] = [
            ("sines and cosines swapped", |_, r| r.rotate_left(16)),
            ("one sign flipped", |_, r| r[3] = -r[3]),
            ("all sines flipped", |_, r| {
                r[..16].iter_mut().for_each(|v| *v = -*v)
            }),
            ("one frequency up by 1 %", |d, r| {
                let angle = d as f64 * 1.01 * 1e4f64.powf(-5.0 / 16.0);
                (r[5], r[21]) = (angle.sin(), angle.cos());
            }),
            ("the last frequency up by 1 %", |d, r| {
                let angle = d as f64 * 1.01 * 1e4f64.powf(-15.0 / 16.0);
                (r[15], r[31]) = (angle.sin(), angle.cos());
            }),
            ("two frequencies in each other's place", |_, r| {
                r.swap(2, 3);
                r.swap(18, 19);
            }),
            ("scaled", |_, r| r.iter_mut().for_each(|v| *v *= 1.1)),
            ("learned", |d, r| {
                let at =
                    |k: usize| (1.7 * k as f64 + 3.1 * d as f64 * (k + d as usize) as f64).sin();
                (0..32).for_each(|k| r[k] = at(k));
            }),
        ];
        for (name, change) in cases {
            assert!(
                identify(&rows(&code(false, None), 0, change)).is_err(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_code_of_the_next_distance_is_refused() {
        let mut shifted = rows(&code(false, None), -13, |_, _| {});
        shifted.iter_mut().for_each(|r| r.0 -= 1);
        assert!(identify(&shifted).is_err());
    }
}
