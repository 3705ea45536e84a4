//! The error model: how far a graph's cos, sin and rotated features may be from the formula.
//!
//! An angle `p · f` computed in a type of precision ε has an error of p · f · ε; every later step
//! adds a rounding of the size of its result. A frequency `θ^-x` whose exponent was rounded has a
//! relative error of |ln f| · ε. Every element has its own bound, so that the bound of a slow pair
//! is far tighter than that of a fast one.

use posenc_ir::DType;

use crate::report::SiteCheck;

/// Precision of f32, in which frequencies and tables are computed unless the graph says otherwise.
pub(crate) const SINGLE: f64 = f32::EPSILON as f64;

/// Roundings of the size of a result that a few operations add up to: cos or sin itself, the
/// factor m, the sums after it.
pub(crate) const ROUNDINGS: f64 = 4.0;

/// How far sines and cosines of a table, computed or stored, may be from their formula in f64.
pub(crate) const WAVE: f64 = 1e-5;

/// The types in which a graph computes a rotation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Precision {
    /// ε of the coarsest type that an angle passes through; that of f32 for tables, which contain no
    /// angles.
    pub(crate) angle: f64,
    /// The type in which the frequencies are stored; `None` for tables.
    pub(crate) stored: Option<DType>,
    /// ε of the coarsest type between cos and sin and the rotated features.
    pub(crate) content: f64,
}

/// The frequencies that an angle is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Against {
    /// Those of the formula in f64.
    Formula,
    /// Those that the graph stores, continued in f64.
    Stored,
}

impl Precision {
    /// The bound on the angle of frequency `f` at position `p`.
    fn angle(&self, p: f64, f: f64, against: Against) -> f64 {
        let path = 2.0 * self.angle;
        let formula = match against {
            Against::Formula => (4.0 + f.abs().max(f64::MIN_POSITIVE).ln().abs()) * SINGLE,
            Against::Stored => 0.0,
        };
        // Frequencies stored in a type coarser than f32 are rounded, small ones to a multiple of
        // the smallest number of the type.
        let (share, least) = match self.stored {
            Some(DType::F16) => (half::f16::EPSILON.to_f64() / 2.0, 2f64.powi(-25)),
            Some(DType::BF16) => (half::bf16::EPSILON.to_f64() / 2.0, 0.0),
            _ => (0.0, 0.0),
        };
        let least = if f == 0.0 { 0.0 } else { least };
        p.abs() * (f.abs() * (path + formula + share) + least)
    }

    /// The bound on `m · cos(p · f)` and `m · sin(p · f)`.
    pub(crate) fn wave(&self, p: f64, f: f64, m: f64, against: Against) -> f64 {
        m * (self.angle(p, f, against) + ROUNDINGS * self.content)
    }

    /// The bound on a rotated feature whose pair is `a` and `b`, from that on cos and sin.
    pub(crate) fn rotated(&self, wave: f64, m: f64, a: f64, b: f64) -> f64 {
        (a.abs() + b.abs()) * (wave + ROUNDINGS * m * self.content)
    }

    /// The bound on a feature that is not rotated.
    pub(crate) fn passed(&self, x: f64) -> f64 {
        2.0 * self.content * x.abs()
    }
}

/// The element whose error is the largest share of its bound.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Worst {
    /// Elements that were compared.
    pub(crate) count: usize,
    /// Its error; `None` for NaN.
    pub(crate) error: Option<f64>,
    /// Its bound.
    pub(crate) bound: f64,
    share: f64,
}

impl Default for Worst {
    fn default() -> Self {
        Self {
            count: 0,
            error: None,
            bound: 0.0,
            share: f64::NEG_INFINITY,
        }
    }
}

impl Worst {
    /// Compares an element.
    pub(crate) fn add(&mut self, got: f64, want: f64, bound: f64) {
        self.count += 1;
        let error = (got - want).abs();
        let share = if got == want {
            0.0
        } else if error.is_nan() || !bound.is_finite() {
            // An infinite bound proves nothing.
            f64::INFINITY
        } else {
            error / bound
        };
        // Of several infinite shares, the first is kept.
        if share > self.share {
            self.share = share;
            self.bound = bound;
            self.error = (!error.is_nan()).then_some(error);
        }
    }

    /// The worse of two; counts the elements of both.
    pub(crate) fn worse(&self, other: &Self) -> Self {
        let worse = if other.share > self.share {
            other
        } else {
            self
        };
        Self {
            count: self.count + other.count,
            ..*worse
        }
    }

    /// Whether there was an element, and every one is within its bound.
    pub(crate) fn ok(&self) -> bool {
        self.count > 0 && self.share <= 1.0
    }

    /// The entry of the report for a quantity of a site.
    pub(crate) fn check(&self, site: &str, quantity: impl Into<String>) -> SiteCheck {
        SiteCheck {
            site: site.to_owned(),
            quantity: quantity.into(),
            max_error: self.error,
            bound: self.bound,
            ok: self.ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: Precision = Precision {
        angle: SINGLE,
        stored: Some(DType::F32),
        content: SINGLE,
    };

    #[test]
    fn the_bound_grows_with_position_and_frequency_and_never_hides_one_percent() {
        for (p, f) in [(1.0, 1.0), (4095.0, 1e-4), (131_071.0, 1e-6)] {
            let bound = F32.wave(p, f, 1.0, Against::Formula);
            let error = ((p * f * 1.01).sin() - (p * f).sin()).abs();
            assert!(bound < error, "{p} {f}: {bound} against {error}");
            assert!(bound > F32.wave(p, f, 1.0, Against::Stored));
            assert!(bound < F32.wave(2.0 * p, f, 1.0, Against::Formula));
        }
        assert!(F32.wave(0.0, 1.0, 1.0, Against::Formula) > 0.0);
    }

    #[test]
    fn single_precision_by_hand_stays_within_the_bound() {
        for i in 0..64 {
            let f = 1e6f64.powf(-f64::from(i) / 64.0);
            let single = 1e6f32.powf(-(i as f32) / 64.0);
            for p in [1u32, 63, 4095, 131_071] {
                let got = f64::from((p as f32 * single).cos());
                let want = (f64::from(p) * f).cos();
                let bound = F32.wave(f64::from(p), f, 1.0, Against::Formula);
                assert!((got - want).abs() <= bound, "{i} {p}");
            }
        }
    }

    #[test]
    fn the_worst_element_has_the_largest_share_of_its_bound() {
        let mut worst = Worst::default();
        assert!(!worst.ok(), "nothing compared");
        worst.add(1.0, 1.0, 0.0);
        assert!(worst.ok());
        worst.add(1.0, 1.5, 1.0);
        worst.add(1.0, 1.1, 0.12);
        assert!(worst.ok());
        assert_eq!(worst.bound, 0.12);
        worst.add(1.0, 3.0, 1.0);
        assert_eq!((worst.ok(), worst.error), (false, Some(2.0)));
        worst.add(f64::NAN, 1.0, 1.0);
        assert_eq!((worst.ok(), worst.error), (false, None));
        let mut worst = Worst::default();
        worst.add(f64::NEG_INFINITY, 1.0, f64::INFINITY);
        assert!(!worst.ok(), "an infinite bound");
    }
}
