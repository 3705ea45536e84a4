//! Differences that are allowed between correct results, by type.

use posenc_ir::DType;

/// The roundings of the usual magnitude, each of half a step at most, that layers and the order of their
/// sums add up to. Between an H100 and a processor, two layers in f16 differed by 27.
const ROUNDINGS: f64 = 32.0;

/// How far two outputs may differ: every element by the larger of `atol` and `share` of the usual
/// magnitude, and by `rtol · |want|` more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tolerance {
    /// Allowed whatever the element is.
    pub atol: f64,
    /// Allowed as a share of the element.
    pub rtol: f64,
    /// Allowed as a share of the magnitude that a tenth of the elements exceeds: what is small is a sum
    /// of larger numbers, each of them rounded.
    pub share: f64,
    /// The most that the root of the mean square of all differences may be; `None` for no such bound.
    pub rms: Option<f64>,
}

/// Differences of outputs that are equal but for rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Level {
    /// The largest.
    pub max: f64,
    /// The root of their mean square.
    pub rms: f64,
}

impl Tolerance {
    /// The tolerance for integers of 8 bits or fewer: whether a number that is halfway between two steps is
    /// rounded up or down depends on the order of sums.
    pub(crate) const QUANTIZED: Self = Self {
        atol: 2.5e-1,
        rtol: 2.5e-1,
        share: 0.0,
        rms: None,
    };

    /// The largest difference between two correct runs of a whole model in this type.
    pub(crate) fn of(dtype: DType) -> Self {
        let (atol, rtol) = match dtype {
            DType::F64 => (1e-8, 1e-8),
            DType::F16 => (2e-2, 2e-2),
            DType::BF16 => (1e-1, 1e-1),
            _ if dtype.is_float() => (1e-4, 1e-3),
            _ => (0.0, 0.0),
        };
        let share = dtype.epsilon().map_or(0.0, |step| ROUNDINGS * step / 2.0);
        Self {
            atol,
            rtol,
            share,
            rms: None,
        }
    }

    /// The tolerance where correct results differ by this much. Single elements may differ by twice the largest
    /// difference that was seen, all together by half more than was seen: a wrong number in many places shows in
    /// their mean, however large the bound of one has to be.
    pub(crate) fn with_noise(self, level: Level) -> Self {
        let atol = 2.0 * level.max;
        if atol <= self.atol {
            return self;
        }
        Self {
            atol,
            rms: Some(1.5 * level.rms),
            ..self
        }
    }
}

/// The largest relative error of the frequencies and of the attention factor that detection reads
/// from a rotation whose result has this type.
pub(crate) fn of_frequencies(dtype: Option<DType>) -> f64 {
    match dtype {
        Some(DType::F16) => 4e-3,
        Some(DType::BF16) => 2e-2,
        _ => 1e-5,
    }
}

/// Half of the smallest step of this type: frequencies of pairs that hardly turn are rounded to such steps
/// where they are stored in f16.
pub(crate) fn half_step_of_frequencies(dtype: Option<DType>) -> f64 {
    match dtype {
        Some(DType::F16) => f64::powi(2.0, -25),
        _ => 0.0,
    }
}
