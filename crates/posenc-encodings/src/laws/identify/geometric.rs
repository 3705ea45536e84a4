//! Geometric frequencies: plain RoPE, one divisor for all, and the bases that
//! parts of a list suggest.

use super::evidence::Samples;
use super::round;

/// Bases θ to try.
#[derive(Debug, Clone)]
pub(crate) struct Candidates(pub(crate) Vec<Theta>);

/// A base with the number of its decimal digits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Theta {
    pub(crate) value: f64,
    pub(crate) digits: u32,
}

impl Candidates {
    /// The bases of the longest geometric stretch at either end: fast pairs
    /// stay as they were, slow ones are divided by one factor.
    pub(crate) fn of(samples: &Samples) -> Self {
        let mut found = Self(Vec::new());
        for (slope, span) in [head(samples), tail(samples)].into_iter().flatten() {
            let half = samples.dim as f64 / 2.0;
            let theta = (slope * half).exp();
            if !theta.is_finite() || theta <= 1.0 {
                continue;
            }
            let uncertain = 4.0 * samples.tolerance * half / span as f64;
            let near = |x: f64| (x / theta - 1.0).abs() <= uncertain;
            let (value, digits) = round::roundest(theta, 3, near);
            found.push(value, digits);
            if digits <= 3 {
                found.push(theta, 17);
            }
        }
        found
    }

    /// All bases of one or two digits, for lists too short to show their own.
    pub(crate) fn widened(&self, samples: &Samples) -> Self {
        // With few bits or many pairs this would find what is not there, or
        // nothing that the ends do not show.
        if samples.pairs() > 8 || samples.bits < 15.0 {
            return Self(Vec::new());
        }
        let mut found = Self(Vec::new());
        for (power, lead) in (2..9).flat_map(|power| (10..100).map(move |lead| (power, lead))) {
            let value = f64::from(lead) * 10_f64.powi(power - 1);
            found.push(value, if lead % 10 == 0 { 1 } else { 2 });
        }
        found
    }

    fn push(&mut self, value: f64, digits: u32) {
        if self.0.iter().all(|theta| theta.value != value) {
            self.0.push(Theta { value, digits });
        }
    }
}

/// Slope `-d ln f / di` of the longest start that is geometric from 1 on.
fn head(samples: &Samples) -> Option<(f64, usize)> {
    let mut best = None;
    let (mut sum, mut norm) = (0.0, 0.0);
    for (span, f) in samples.f.iter().enumerate().skip(1) {
        let x = span as f64;
        sum -= samples.weight(span) * x * f.ln();
        norm += samples.weight(span) * x * x;
        let slope = sum / norm;
        if off(samples, 0..=span, |i| (-slope * i as f64).exp()) {
            break;
        }
        best = Some((slope, span));
    }
    best
}

/// The same for the longest end, with a divisor of its own.
fn tail(samples: &Samples) -> Option<(f64, usize)> {
    let last = samples.pairs().checked_sub(1)?;
    let mut best = None;
    for span in 1..=last {
        let first = last - span;
        let (level, slope) = line(samples, first, last);
        if off(samples, first..=last, |i| (level - slope * i as f64).exp()) {
            break;
        }
        best = Some((slope, span));
    }
    best
}

/// Whether any of these pairs is clearly not what the model says.
fn off(
    samples: &Samples,
    mut pairs: impl Iterator<Item = usize>,
    model: impl Fn(usize) -> f64,
) -> bool {
    pairs.any(|i| {
        let off = (model(i) / samples.f[i] - 1.0).abs();
        off.is_nan() || off > 2.0 * samples.slack(i)
    })
}

/// Weighted least squares of `ln f = level - slope·i` from pair to pair.
fn line(samples: &Samples, first: usize, last: usize) -> (f64, f64) {
    let mut sums = [0.0; 5];
    for i in first..=last {
        let (w, x, y) = (samples.weight(i), i as f64, samples.f[i].ln());
        for (sum, term) in sums.iter_mut().zip([w, w * x, w * y, w * x * x, w * x * y]) {
            *sum += term;
        }
    }
    let [w, x, y, xx, xy] = sums;
    let spread = w * xx - x * x;
    if spread <= 0.0 {
        return (y / w, 0.0);
    }
    let slope = (x * y - w * xy) / spread;
    ((y + slope * x) / w, slope)
}

/// A geometric row of frequencies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometric {
    /// Base θ; absent for a single pair.
    pub(crate) theta: Option<f64>,
    /// The divisor of all pairs, where the first frequency is not 1.
    pub(crate) factor: Option<f64>,
    /// Largest relative error.
    pub(crate) error: f64,
    /// Bits of θ and the factor.
    pub(crate) cost: f64,
}

/// Plain RoPE, or with one divisor for all pairs.
pub(crate) fn fit(samples: &Samples) -> Option<Geometric> {
    let last = samples.pairs() - 1;
    if last == 0 {
        let error = samples.error(|_| 1.0);
        return samples.fits(error).then_some(Geometric {
            theta: None,
            factor: None,
            error,
            cost: 0.0,
        });
    }
    plain(samples, last).or_else(|| divided(samples, last))
}

/// Geometric from 1 at pair 0: plain RoPE, and NTK.
fn plain(samples: &Samples, last: usize) -> Option<Geometric> {
    let half = samples.dim as f64 / 2.0;
    let through_one = {
        let terms = |i: usize| (samples.weight(i) * i as f64, i as f64, samples.f[i].ln());
        let (top, under) = (1..=last)
            .map(terms)
            .fold((0.0, 0.0), |(top, under), (w, x, y)| {
                (top - w * y, under + w * x)
            });
        top / under
    };
    let theta = (through_one * half).exp();
    let error = |theta: f64| samples.error(|i| samples.plain(theta, i));
    if !(theta > 1.0 && theta.is_finite() && samples.fits(error(theta))) {
        return None;
    }
    let (theta, digits) = round::roundest(theta, 4, |x| x > 1.0 && samples.fits(error(x)));
    Some(Geometric {
        theta: Some(theta),
        factor: None,
        error: error(theta),
        cost: round::theta_bits(digits, samples.bits),
    })
}

/// Geometric with one divisor for all pairs.
fn divided(samples: &Samples, last: usize) -> Option<Geometric> {
    let half = samples.dim as f64 / 2.0;
    let (level, slope) = line(samples, 0, last);
    let (theta, factor) = ((slope * half).exp(), (-level).exp());
    if !(theta > 1.0 && theta.is_finite() && factor > 1.0 + 4.0 * samples.tolerance) {
        return None;
    }
    let error = |theta: f64, s: f64| samples.error(|i| samples.plain(theta, i) / s);
    if !samples.fits(error(theta, factor)) {
        return None;
    }
    let (theta, digits) = round::roundest(theta, 4, |x| x > 1.0 && samples.fits(error(x, factor)));
    let cost = round::theta_bits(digits, samples.bits);
    let (factor, digits) = round::roundest(factor, 4, |s| samples.fits(error(theta, s)));
    let cost = cost + round::factor_bits(factor, digits, samples.bits) + 3.0;
    samples.worth(cost, 0).then_some(Geometric {
        theta: Some(theta),
        factor: Some(factor),
        error: error(theta, factor),
        cost,
    })
}

/// Bits of "plain RoPE with exceptions", which a law must undercut.
pub(crate) fn cost_of_exceptions(samples: &Samples, candidates: &Candidates) -> f64 {
    let each = samples.bits + (samples.pairs() as f64).log2();
    let cost = |theta: &Theta| {
        let exception = |&i: &usize| off(samples, i..=i, |i| samples.plain(theta.value, i));
        let exceptions = (0..samples.pairs()).filter(exception).count();
        round::theta_bits(theta.digits, samples.bits) + each * exceptions as f64
    };
    candidates.0.iter().map(cost).fold(f64::INFINITY, f64::min)
}
