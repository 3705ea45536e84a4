//! YaRN's ramp over the pairs, and its factor on cos and sin.

use std::f64::consts::PI;

use crate::laws::rope::Rope;

/// Whether the ends of the ramp are whole pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RampBounds {
    /// Rounded outward: `floor(low)`, `ceil(high)`; what configs mean by default.
    #[default]
    Truncated,
    /// As the formula gives them (`truncate: false`).
    Exact,
}

impl RampBounds {
    pub(super) fn of_truncate(truncate: bool) -> Self {
        if truncate {
            Self::Truncated
        } else {
            Self::Exact
        }
    }
}

/// The pairs `(low, high)` where the ramp starts and ends: those that rotate `betas` times, the
/// fast and the slow one, within the original length.
pub(super) fn ends(
    rope: &Rope,
    original_length: usize,
    [fast, slow]: [f64; 2],
    bounds: RampBounds,
) -> (f64, f64) {
    let d = rope.rotary_dim as f64;
    let length = original_length as f64;
    let pair =
        |rotations: f64| d * (length / (rotations * 2.0 * PI)).ln() / (2.0 * rope.theta.ln());
    let (low, high) = match bounds {
        RampBounds::Truncated => (pair(fast).floor(), pair(slow).ceil()),
        RampBounds::Exact => (pair(fast), pair(slow)),
    };
    (low.max(0.0), high.min(d - 1.0))
}

/// `g(s, k) = 0.1·k·ln s + 1`, and 1 for `s ≤ 1`.
pub(super) fn magnitude(factor: f64, weight: f64) -> f64 {
    if factor <= 1.0 {
        1.0
    } else {
        0.1 * weight * factor.ln() + 1.0
    }
}

/// `clamp((i - low)/(high - low), 0, 1)`, a step where the ends meet.
pub(super) fn ramp_at(i: usize, low: f64, high: f64) -> f64 {
    let high = if low == high { high + 0.001 } else { high };
    ((i as f64 - low) / (high - low)).clamp(0.0, 1.0)
}
