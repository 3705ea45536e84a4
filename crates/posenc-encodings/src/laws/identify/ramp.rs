//! What YaRN and Llama 3 share: each pair's frequency is
//! `θ^(-2i/d) · (1 - c_i·u)` with a known shape `c` in 0 to 1 and one unknown
//! depth `u = 1 - 1/s`.

use super::evidence::Samples;
use super::geometric::Theta;
use super::round;

/// The frequencies as multiples of the plain ones of one θ.
#[derive(Debug)]
pub(crate) struct Ratios<'a> {
    pub(crate) samples: &'a Samples,
    pub(crate) theta: Theta,
    /// `θ^(-2i/d)`, `[pairs]`.
    pub(crate) plain: Vec<f64>,
    /// `f_i / θ^(-2i/d)`, `[pairs]`.
    pub(crate) ratio: Vec<f64>,
}

/// A factor that explains the frequencies with some shape.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Depth {
    pub(crate) factor: f64,
    pub(crate) digits: u32,
    pub(crate) error: f64,
}

impl<'a> Ratios<'a> {
    /// Nothing where the ratios do not start at 1 and fall from there.
    pub(crate) fn new(samples: &'a Samples, theta: Theta) -> Option<Self> {
        let plain: Vec<f64> = (0..samples.pairs())
            .map(|i| samples.plain(theta.value, i))
            .collect();
        let ratio: Vec<f64> = samples.f.iter().zip(&plain).map(|(f, p)| f / p).collect();
        let mut above = 1.0;
        for (i, &r) in ratio.iter().enumerate() {
            let slack = 2.0 * samples.slack(i);
            if !(r > 0.0 && r <= above * (1.0 + slack)) || (i == 0 && r < 1.0 - slack) {
                return None;
            }
            above = r;
        }
        Some(Self {
            samples,
            theta,
            plain,
            ratio,
        })
    }

    /// Pairs at the start that are plain within the tolerance.
    pub(crate) fn unchanged(&self) -> usize {
        let same = |&i: &usize| (self.ratio[i] - 1.0).abs() <= 2.0 * self.samples.slack(i);
        (0..self.ratio.len()).take_while(same).count()
    }

    /// The depth u of least squared relative error.
    pub(crate) fn depth(&self, shape: &[f64]) -> f64 {
        let (mut top, mut under) = (0.0, 0.0);
        for (i, (&c, &ratio)) in shape.iter().zip(&self.ratio).enumerate() {
            let weight = self.samples.weight(i) / (ratio * ratio);
            top += weight * c * (1.0 - ratio);
            under += weight * c * c;
        }
        if under > 0.0 { top / under } else { 0.0 }
    }

    /// Largest relative error with that shape and factor. On the ramp, where
    /// f32 formulas subtract nearly equal numbers, their rounding is forgiven.
    pub(crate) fn error(&self, shape: &[f64], factor: f64) -> f64 {
        const ROUNDING: f64 = 5e-7;
        let u = 1.0 - 1.0 / factor;
        self.samples.error(|i| {
            let on_ramp = shape[i] > 0.0 && shape[i] < 1.0;
            let slack = if on_ramp { ROUNDING } else { 0.0 };
            let ratio = 1.0 - shape[i] * u;
            let beyond = self.ratio[i] - self.ratio[i].clamp(ratio - slack, ratio + slack);
            self.plain[i] * (self.ratio[i] - beyond)
        })
    }

    /// Sum of squares at the best depth; what a search over shapes lowers.
    pub(crate) fn badness(&self, shape: &[f64]) -> f64 {
        let u = self.depth(shape);
        let term = |(i, (&c, &ratio)): (usize, (&f64, &f64))| {
            self.samples.weight(i) * ((1.0 - c * u) / ratio - 1.0).powi(2)
        };
        shape.iter().zip(&self.ratio).enumerate().map(term).sum()
    }

    /// The factor for that shape, as round as the tolerance allows.
    pub(crate) fn solve(&self, shape: &[f64]) -> Option<Depth> {
        let u = self.depth(shape);
        if !(u > 4.0 * self.samples.tolerance && u < 1.0) {
            return None;
        }
        let factor = 1.0 / (1.0 - u);
        if !self.samples.fits(self.error(shape, factor)) {
            return None;
        }
        let passes = |s: f64| s > 1.0 && self.samples.fits(self.error(shape, s));
        let (factor, digits) = round::roundest(factor, 4, passes);
        Some(Depth {
            factor,
            digits,
            error: self.error(shape, factor),
        })
    }

    /// Bits for θ and the factor.
    pub(crate) fn bits(&self, depth: &Depth) -> f64 {
        let most = self.samples.bits;
        round::theta_bits(self.theta.digits, most)
            + round::factor_bits(depth.factor, depth.digits, most)
    }

    /// The length whose shape fits best, by a scan and a golden-section search.
    pub(crate) fn best_length(&self, shape: impl Fn(f64) -> Vec<f64>) -> f64 {
        const STEPS: i32 = 16;
        let at = |step: i32| f64::from(step) / f64::from(STEPS);
        let badness = |log: f64| self.badness(&shape(log.exp2()));
        let scanned = (3 * STEPS..24 * STEPS).map(|step| (badness(at(step)), step));
        let (_, step) = scanned.fold((f64::INFINITY, 0), |best, next| {
            if next.0 < best.0 { next } else { best }
        });
        let golden = (5_f64.sqrt() - 1.0) / 2.0;
        let (mut low, mut high) = (at(step - 1), at(step + 1));
        let inner =
            |low: f64, high: f64| (high - golden * (high - low), low + golden * (high - low));
        let (mut a, mut b) = inner(low, high);
        let (mut at_a, mut at_b) = (badness(a), badness(b));
        for _ in 0..48 {
            if at_a <= at_b {
                (high, b, at_b) = (b, a, at_a);
                a = inner(low, high).0;
                at_a = badness(a);
            } else {
                (low, a, at_a) = (a, b, at_b);
                b = inner(low, high).1;
                at_b = badness(b);
            }
        }
        ((low + high) / 2.0).exp2()
    }
}
