//! The numbers to explain, how exact they are, and what an explanation is worth.

/// Bits that an explanation must save before it is believed.
const MARGIN: f64 = 12.0;

/// Half the spacing of the smallest f16 numbers: below `2^-14` their error is
/// absolute, not relative.
const HALF_FLOOR: f64 = 1.0 / (1 << 25) as f64;

/// Relative tolerance from which numbers may have been rounded to f16.
const HALF_TOLERANCE: f64 = 4e-4;

/// Frequencies, all finite and above zero, with their uncertainty.
#[derive(Debug, Clone)]
pub(crate) struct Samples {
    /// Radians per position, `[pairs]`.
    pub(crate) f: Vec<f64>,
    /// Factor on cos and sin.
    pub(crate) m: f64,
    /// Width d in the exponent `2i/d`.
    pub(crate) dim: usize,
    /// Relative uncertainty.
    pub(crate) tolerance: f64,
    /// Absolute uncertainty on top.
    floor: f64,
    /// Reliable bits of each frequency.
    pub(crate) bits: f64,
}

impl Samples {
    /// Nothing where a number is not finite, not above zero, or there is none.
    pub(crate) fn new(f: &[f64], m: f64, dim: usize, tolerance: f64) -> Option<Self> {
        let usable = |x: &f64| x.is_finite() && *x > 0.0;
        if f.is_empty() || !f.iter().chain([&m]).all(usable) || !tolerance.is_finite() {
            return None;
        }
        let tolerance = tolerance.clamp(1e-12, 0.1);
        let floor = if tolerance >= HALF_TOLERANCE {
            HALF_FLOOR
        } else {
            0.0
        };
        // More digits than f32 has would prove nothing more.
        let bits = -(2.0 * tolerance.max(1e-7)).log2();
        Some(Self {
            f: f.to_vec(),
            m,
            dim,
            tolerance,
            floor,
            bits,
        })
    }

    pub(crate) fn pairs(&self) -> usize {
        self.f.len()
    }

    /// Largest relative error of a model of the frequencies, beyond the
    /// absolute uncertainty; infinite where the model has no number.
    pub(crate) fn error(&self, model: impl Fn(usize) -> f64) -> f64 {
        let error = |i: usize| ((self.f[i] - model(i)).abs() - self.floor).max(0.0) / self.f[i];
        (0..self.pairs()).map(error).fold(
            0.0,
            |worst, e| if e > worst || e.is_nan() { e } else { worst },
        )
    }

    pub(crate) fn fits(&self, error: f64) -> bool {
        error <= self.tolerance
    }

    /// Plain frequency `θ^(-2i/d)`.
    pub(crate) fn plain(&self, theta: f64, i: usize) -> f64 {
        theta.powf(-2.0 * i as f64 / self.dim as f64)
    }

    /// Relative uncertainty of pair i.
    pub(crate) fn slack(&self, i: usize) -> f64 {
        self.tolerance + self.floor / self.f[i]
    }

    /// Weight of pair i in a least-squares fit of logarithms.
    pub(crate) fn weight(&self, i: usize) -> f64 {
        (self.tolerance / self.slack(i)).powi(2)
    }

    /// Whether cos and sin are left as they are.
    pub(crate) fn is_unit_factor(&self) -> bool {
        self.is_factor(1.0)
    }

    /// Whether cos and sin carry this factor.
    pub(crate) fn is_factor(&self, m: f64) -> bool {
        (self.m / m - 1.0).abs() <= 4.0 * self.tolerance.max(1e-6)
    }

    /// Whether an explanation of that many bits beats listing the numbers.
    /// `given`: numbers that every explanation has in common.
    pub(crate) fn worth(&self, cost: f64, given: usize) -> bool {
        (self.pairs() - given) as f64 * self.bits - cost >= MARGIN
    }

    /// Below this a frequency may have been rounded to zero.
    pub(crate) fn vanishing(&self) -> f64 {
        self.floor
    }
}
