//! KERPLE: a bias that falls with the logarithm or with a power of the distance.
//!
//! `b(h, i, j) = −r1_h · ln(1 + r2_h · |i − j|)` (logarithmic) or `−r1_h · |i − j|^r2_h` (power),
//! with r1 and r2 above 0 for each head, and r2 up to 2 for the power. It needs no table, and so
//! sets no limit to the length. A constant for each query, which a softmax does not see, may be
//! added. A power of 1 is ALiBi.
//! Source: Chi, Fan, Ramadge and Rudnicky, arXiv:2205.09921, section 4.1.

use ndarray::ArrayD;
use posenc_ir::Emitter;
use serde_json::json;

use crate::bias::emit::per_head;
use crate::bias::{
    At, BiasPorts, Emitted, Fit, Order, Profile, ReadFrom, Sample, Samples, ScoreBias, exact,
};
use crate::describe::Description;
use crate::encoding::{Encoding, GivenTensors, Learned, PlanError, SiteShape};
use crate::families::alibi;
use crate::family::{Entry, Family};
use crate::miss::Miss;
use crate::param::{Given, Param, Values};
use crate::params::Params;
use crate::round::to_digits;

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "kerple",
    about: "A bias on the scores that falls with the logarithm or a power of the distance",
    adds: "a bias that falls with the logarithm or a power of the distance",
    params: &[VARIANT],
    common: &[],
    tensors: &[
        Learned {
            name: "r1",
            shape: "[heads]",
            about: "",
            slot: 11,
            shared: true,
        },
        Learned {
            name: "r2",
            shape: "[heads]",
            about: "",
            slot: 12,
            shared: true,
        },
    ],
    starts: [
        "log: r1 = 1 and r2 the slopes of ALiBi; power: r1 those slopes and r2 = 0.5",
        "",
    ],
    learned: &["r1", "r2"],
    describe,
    entry: Entry::score_bias::<Kerple>(ReadFrom::FewTokens),
};

/// The highest power for which the kernel of the distance is conditionally positive definite.
const HIGHEST_POWER: f64 = 2.0;

const VARIANT: Param = Param {
    name: "variant",
    values: Values::Word(&["log", "power"]),
    help: "fall with the logarithm or with a power of the distance",
    unit: "",
    default: "log",
};

/// A kernel of the distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// `ln(1 + r2 · d)`.
    Log,
    /// `d^r2`.
    Power,
}

/// Kernels with their learned numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Kerple {
    /// The kernel.
    pub variant: Variant,
    /// The factor of each head, above 0.
    pub r1: Vec<f64>,
    /// The scale of distances, or their power, of each head, above 0.
    pub r2: Vec<f64>,
}

/// Distances that a run has to show: two are fitted, the others confirm the fit.
const FEWEST: usize = 5;

/// The least and greatest r2 that differs from a line and from a step.
const RANGE: [f64; 2] = [1e-5, 1e5];

/// `logarithm, r1 1 1, r2 0.5 0.25`.
fn describe(to: &mut Description<'_>) {
    match to.word("variant") {
        Some("log") => to.say("logarithm"),
        Some(other) => to.say(other),
        None => {}
    }
    if to.get("r1").is_some() {
        to.get("heads");
    } else {
        to.heads();
    }
    to.per_head("r1", "r1");
    to.per_head("r2", "r2");
}

impl Variant {
    fn word(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Power => "power",
        }
    }

    /// The kernel at a distance.
    fn at(self, r2: f64, distance: f64) -> f64 {
        match self {
            Self::Log => (r2 * distance).ln_1p(),
            Self::Power => distance.powf(r2),
        }
    }

    /// The r2 whose kernel grows by this factor from distance 1 to `far`.
    fn r2_of(self, factor: f64, far: f64) -> f64 {
        if self == Self::Power {
            return factor.ln() / far.ln();
        }
        // The factor falls from `far`, for a line, to 1, for a step.
        let [mut low, mut high] = [RANGE[0] / 2.0, RANGE[1] * 2.0];
        for _ in 0..100 {
            let r2 = (low * high).sqrt();
            if self.at(r2, far) / self.at(r2, 1.0) > factor {
                low = r2;
            } else {
                high = r2;
            }
        }
        low
    }
}

impl Encoding for Kerple {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("variant".into(), json!(self.variant.word()));
        params.insert("heads".into(), json!(self.r1.len()));
        params.insert("r1".into(), json!(self.r1));
        params.insert("r2".into(), json!(self.r2));
        params
    }
}

impl ScoreBias for Kerple {
    fn plan(site: &SiteShape, given: &Given, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let heads = site.heads()?;
        let (variant, [r1, r2]) = match given.word(VARIANT.name) {
            Some("power") => (Variant::Power, [alibi::slopes(heads), vec![0.5; heads]]),
            _ => (Variant::Log, [vec![1.0; heads], alibi::slopes(heads)]),
        };
        let given = |name: &str, default| -> Result<Vec<f64>, PlanError> {
            let values = tensors.values(name, &[heads])?.unwrap_or(default);
            if values.iter().all(|r| *r > 0.0) {
                return Ok(values);
            }
            Err(PlanError::Tensor {
                name: name.to_owned(),
                why: "has a number that is not above 0".into(),
            })
        };
        let (r1, r2) = (given("r1", r1)?, given("r2", r2)?);
        if variant == Variant::Power && r2.iter().any(|r| *r > HIGHEST_POWER) {
            return Err(PlanError::Tensor {
                name: "r2".to_owned(),
                why: format!("has a power above {HIGHEST_POWER}"),
            });
        }
        Ok(Self { variant, r1, r2 })
    }

    /// By two distances for each head, which all others have to confirm.
    fn identify(samples: &Samples<'_>) -> Result<Fit<Self>, Miss> {
        let falls = falls(samples.run.profile()?, samples.run.tolerance())?;
        let fits = [Variant::Log, Variant::Power].map(|variant| Self::of(variant, &falls));
        let best = fits.into_iter().flatten();
        let best = best.min_by(|a, b| a.1.total_cmp(&b.1));
        let (mut bias, error) = best.ok_or_else(|| Miss::new("a head does not fall"))?;
        if error > samples.run.tolerance() {
            return Err(Miss::new(format!(
                "a {} kernel leaves residuals up to {error:.2e}",
                bias.variant.word()
            )));
        }
        if let ([r1], [r2], Some(heads)) = (&bias.r1[..], &bias.r2[..], samples.heads) {
            (bias.r1, bias.r2) = (vec![*r1; heads], vec![*r2; heads]);
        }
        for r in bias.r1.iter_mut().chain(&mut bias.r2) {
            *r = to_digits(*r, 7);
        }
        Ok(Fit::formula(bias, error, 2))
    }

    fn heads(&self) -> usize {
        self.r1.len()
    }

    fn reference(&self, _: &[ArrayD<f64>], head: usize, at: At) -> Sample {
        let (r1, r2) = (self.r1[head], self.r2[head]);
        let distance = at.distance().unsigned_abs() as f64;
        let value = -r1 * self.variant.at(r2, distance);
        let rounded = match self.variant {
            // The sum 1 + r2 · d is rounded before its logarithm.
            Variant::Log => r1 + value.abs(),
            // So is the exponent r2 · ln d.
            Variant::Power => value.abs() * (1.0 + r2 * distance.max(1.0).ln()),
        };
        Sample { value, rounded }
    }

    fn emit(
        &self,
        out: &mut Emitter<'_>,
        ports: &mut dyn BiasPorts,
        _: &[ArrayD<f64>],
    ) -> Option<Emitted> {
        let exact = exact(ports.dtype());
        let signed = ports.distances(out);
        let distances = out.op("Abs", &[signed]);
        let distances = out.cast(distances, exact);
        let factors: Vec<f64> = self.r1.iter().map(|r| -r).collect();
        let r1 = per_head(out, ports, "r1", &factors);
        let r2 = per_head(out, ports, "r2", &self.r2);
        let kernel = match self.variant {
            Variant::Log => {
                let one = out.scalar("one", exact, 1.0);
                let scaled = out.op("Mul", &[distances, r2]);
                let above = out.op("Add", &[scaled, one]);
                out.op("Log", &[above])
            }
            Variant::Power => out.op("Pow", &[distances, r2]),
        };
        let bias = out.op("Mul", &[kernel, r1]);
        Some(Emitted::rounded(out, ports, bias, Order::HeadsFirst))
    }

    fn times(&self, factor: f64) -> Box<dyn ScoreBias> {
        let mut bias = self.clone();
        bias.r1.iter_mut().for_each(|r| *r *= factor);
        Box::new(bias)
    }
}

impl Kerple {
    /// The kernels through the first and the last of the falls of each head, `[distance][head]`,
    /// and the largest difference of the others from them; `None` where there are none.
    fn of(variant: Variant, falls: &[Vec<f64>]) -> Option<(Self, f64)> {
        let (first, last) = (falls.get(1)?, falls.last()?);
        let far = (falls.len() - 1) as f64;
        let (mut r1, mut r2) = (vec![], vec![]);
        for (one, all) in first.iter().zip(last) {
            let r = variant.r2_of(all / one, far);
            let most = if variant == Variant::Power {
                HIGHEST_POWER + 1e-6
            } else {
                RANGE[1]
            };
            if !(*one > 0.0 && (RANGE[0]..=most).contains(&r)) {
                return None;
            }
            r1.push(one / variant.at(r, 1.0));
            r2.push(r);
        }
        let mut error = 0.0f64;
        for (distance, numbers) in falls.iter().enumerate() {
            for (head, fall) in numbers.iter().enumerate() {
                let formula = r1[head] * variant.at(r2[head], distance as f64);
                error = error.max((fall - formula).abs());
            }
        }
        Some((Self { variant, r1, r2 }, error))
    }
}

/// How far the bias has fallen at distances 0, 1, …, alike before and after the query.
fn falls(profile: &Profile, tolerance: f64) -> Result<Vec<Vec<f64>>, Miss> {
    let Some(here) = profile.get(&0) else {
        return Err(Miss::new("no query sees its own key"));
    };
    let mut falls: Vec<Vec<f64>> = vec![];
    for distance in 0.. {
        let sides = [profile.get(&-distance), profile.get(&distance)];
        let Some(side) = sides[0].or(sides[1]) else {
            break;
        };
        if let [Some(before), Some(after)] = sides {
            let differs = |(a, b): (&f64, &f64)| (a - b).abs() > tolerance;
            if before.iter().zip(after).any(differs) {
                return Err(Miss::new("keys before and after the query differ"));
            }
        }
        let fall = here.iter().zip(side).map(|(a, b)| a - b);
        falls.push(fall.collect());
    }
    if falls.len() < FEWEST || falls.iter().flatten().any(|v| !v.is_finite()) {
        return Err(Miss::new("too few distances are seen"));
    }
    Ok(falls)
}

#[cfg(test)]
mod tests {
    use posenc_ir::Tensor;

    use super::*;
    use crate::bias::Run;
    use crate::emitted::Tokens;

    const CAUSAL: Tokens = Tokens {
        queries: 12,
        past: 0,
        causal: true,
    };

    const BOTH: Tokens = Tokens {
        causal: false,
        ..CAUSAL
    };

    fn read(run: &Run) -> Result<Kerple, Miss> {
        Kerple::identify(&Samples::of(run)).map(|fit| fit.bias)
    }

    fn kerple(variant: Variant, r1: [f64; 2], r2: [f64; 2]) -> Kerple {
        Kerple {
            variant,
            r1: r1.to_vec(),
            r2: r2.to_vec(),
        }
    }

    #[test]
    fn kernels_are_read_as_they_were_made() {
        for bias in [
            kerple(Variant::Log, [1.0, 0.25], [0.5, 20.0]),
            kerple(Variant::Log, [3.0, 0.01], [0.01, 400.0]),
            kerple(Variant::Power, [0.5, 0.125], [0.5, 1.5]),
            kerple(Variant::Power, [2.0, 1.0], [0.1, 2.0]),
        ] {
            let past = Tokens { past: 3, ..CAUSAL };
            for tokens in [CAUSAL, BOTH, past] {
                assert_eq!(read(&tokens.of(&bias, &[])), Ok(bias.clone()));
                assert_eq!(read(&tokens.emitted(17, &bias, &[])), Ok(bias.clone()));
                let shifted =
                    tokens.run(|h, at| bias.reference(&[], h, at).value + (at.query as f64).sqrt());
                assert_eq!(
                    read(&shifted),
                    Ok(bias.clone()),
                    "a constant for each query"
                );
            }
        }
    }

    #[test]
    fn what_is_no_kernel_is_refused() {
        let good = kerple(Variant::Log, [1.0, 0.25], [0.5, 20.0]);
        let value = |h, at| good.reference(&[], h, at).value;
        type Number = fn(f64) -> f64;
        let of_distance: [(&str, Number); 9] = [
            ("a rise", |d| (1.0 + d).ln()),
            ("nothing", |_| 0.0),
            ("a parabola of the wrong sign", |d| d * d),
            ("a cube", |d| -d.powi(3)),
            ("an exponential", |d| (-d).exp()),
            ("a step", |d| if d < 4.0 { 0.0 } else { -1.0 }),
            ("a clipped logarithm", |d| -(1.0 + d.min(6.0)).ln()),
            ("a wave", |d| d.cos()),
            ("a logarithm of the square", |d| -(1.0 + d * d).ln()),
        ];
        for (name, number) in of_distance {
            let run = BOTH.run(|_, at| number(at.distance().abs() as f64));
            let why = read(&run).unwrap_err().why;
            let unlike = why == "a head does not fall" || why.contains("leaves residuals");
            assert!(unlike, "{name}: {why}");
        }
        let cases: [(&str, Run); 5] = [
            (
                "one number off",
                CAUSAL.run(|h, at| value(h, at) + if at.distance() == -3 { 1e-3 } else { 0.0 }),
            ),
            (
                "one head of another kind",
                CAUSAL.run(|h, at| {
                    if h == 1 {
                        at.distance() as f64
                    } else {
                        value(h, at)
                    }
                }),
            ),
            (
                "only before the query",
                BOTH.run(|h, at| if at.distance() > 0 { 0.0 } else { value(h, at) }),
            ),
            (
                "another kernel after the query",
                BOTH.run(|h, at| value(h, at) * if at.distance() > 0 { 2.0 } else { 1.0 }),
            ),
            (
                "a factor for each query",
                CAUSAL.run(|h, at| value(h, at) * (1.0 + at.query as f64)),
            ),
        ];
        let reasons = [
            "a log kernel leaves",
            "a power kernel leaves",
            "keys before and after the query differ",
            "keys before and after the query differ",
            "pairs of equal distance differ",
        ];
        for ((name, run), reason) in cases.into_iter().zip(reasons) {
            let why = read(&run).unwrap_err().why;
            assert!(why.starts_with(reason), "{name}: {why}");
        }
        let few = read(&Tokens::causal(4).of(&good, &[])).unwrap_err().why;
        assert_eq!(few, "too few distances are seen");
    }

    #[test]
    fn parameters_are_those_of_files_or_the_slopes_of_alibi() {
        let site = SiteShape {
            heads: Some(2),
            ..SiteShape::default()
        };
        let plan = |given: &Given, tensors: &GivenTensors| Kerple::plan(&site, given, tensors);
        let (mut given, mut tensors) = (Given::default(), GivenTensors::default());
        let slopes = alibi::slopes(2);
        let log = plan(&given, &tensors).unwrap();
        assert_eq!((log.variant, &log.r2), (Variant::Log, &slopes));
        given.set(&VARIANT, crate::param::Value::Word("power"));
        let power = plan(&given, &tensors).unwrap();
        assert_eq!((power.variant, &power.r1), (Variant::Power, &slopes));
        let mut powers = GivenTensors::default();
        let tensor = Tensor::from_f32(&[2], &[2.0, 2.5]);
        powers.set(&FAMILY.tensors[1], "r2".into(), tensor.into());
        let why = plan(&given, &powers).unwrap_err().to_string();
        assert_eq!(why, "r2 has a power above 2");
        let mut file = |values: &[f32]| {
            let tensor = Tensor::from_f32(&[values.len()], values);
            tensors.set(&FAMILY.tensors[0], "r1".into(), tensor.into());
            plan(&given, &tensors)
        };
        assert_eq!(file(&[0.5, 0.75]).unwrap().r1, [0.5, 0.75]);
        let why = file(&[0.5, 0.0]).unwrap_err().to_string();
        assert_eq!(why, "r1 has a number that is not above 0");
        let why = file(&[0.5]).unwrap_err().to_string();
        assert_eq!(why, "r1 has shape [1], but the model needs [2]");
    }
}
