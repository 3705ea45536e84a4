//! A rotation out of the matrices that a region applies to the features of a head.

use ndarray::{Array2, Array3};

use super::{Rope, layout};

/// Why a region is not read as a rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unread {
    /// The region cannot be evaluated.
    #[error("the region cannot be evaluated without the content")]
    NotEvaluated,
    /// The features of the head cannot be followed through the region.
    #[error("the features of a head cannot be told apart")]
    NoFeatures,
    /// Not linear in the content, or different from head to head or token to token.
    #[error("the region is not one linear map for every head")]
    NotLinear,
    /// A feature mixes with several others.
    #[error("a feature mixes with more than one other")]
    NotPairs,
    /// A pair scales or shears rather than rotates.
    #[error("a pair of features does not rotate")]
    NotRotation,
    /// The angle does not grow in proportion to the position.
    #[error("the angle does not grow in proportion to the position")]
    NotProportional,
    /// The factor on cos and sin differs from pair to pair or position to position.
    #[error("the length of a pair changes with its position")]
    NotUniform,
}

/// Differences that half-precision tables bring along.
pub const LOOSE: f64 = 4e-3;

/// How far a map may be from a rotation; as near as numbers of eight bits are.
const ROTATING: f64 = 2e-2;

/// Whether a region rotates pairs of features, by whatever angles, and leaves the others and the
/// length of each pair as they are.
pub fn is_rotating(maps: &Array3<f64>) -> bool {
    let Ok(partner) = partners(maps) else {
        return false;
    };
    let length = maps.shape()[0];
    let rotates = |p: usize, a: usize, b: usize| {
        let (cos, sin) = (maps[[p, a, a]], maps[[p, b, a]]);
        let off = (maps[[p, b, b]] - cos)
            .abs()
            .max((maps[[p, a, b]] + sin).abs());
        off <= ROTATING && (cos.hypot(sin) - 1.0).abs() <= ROTATING
    };
    let passes = |p: usize, a: usize| (maps[[p, a, a]] - 1.0).abs() <= ROTATING;
    let holds = |p: usize, a: usize| partner[a].map_or_else(|| passes(p, a), |b| rotates(p, a, b));
    let all = (0..length).all(|p| (0..partner.len()).all(|a| holds(p, a)));
    all && partner.iter().any(Option::is_some)
}

/// Pairs of features with their cos and sin, times m, at every position.
#[derive(Clone, Debug)]
pub struct PairRotations {
    /// Places in the head.
    pub pairs: Vec<(usize, usize)>,
    /// `[pos, pair]`.
    pub cos: Array2<f64>,
    /// `[pos, pair]`.
    pub sin: Array2<f64>,
    /// m.
    pub factor: f64,
    /// The largest difference between the matrices and rotations, over m.
    pub fit_error: f64,
}

impl PairRotations {
    /// The pairs that the matrices `[pos, out, in]` rotate.
    pub fn of(maps: &Array3<f64>, offset: i64, head_dim: usize) -> Result<Self, Unread> {
        let (length, width) = (maps.shape()[0], maps.shape()[1]);
        let offset = usize::try_from(offset).map_err(|_| Unread::NoFeatures)?;
        if offset + width > head_dim {
            return Err(Unread::NoFeatures);
        }
        let partner = partners(maps)?;
        let mut pairs: Vec<(usize, usize)> = vec![];
        let mut still = vec![];
        for (a, partner) in partner.iter().enumerate() {
            match partner {
                Some(b) if a < *b => pairs.push((a, *b)),
                Some(_) => {}
                None => still.push(a),
            }
        }
        if pairs.is_empty() {
            return Err(Unread::NotPairs);
        }
        // What does not rotate must pass as it is.
        let passes = |a: &usize| (0..length).all(|p| (maps[[p, *a, *a]] - 1.0).abs() < LOOSE);
        if !still.iter().all(passes) {
            return Err(Unread::NotRotation);
        }
        let shape = (length, pairs.len());
        let cos = Array2::from_shape_fn(shape, |(p, i)| {
            let (a, b) = pairs[i];
            (maps[[p, a, a]] + maps[[p, b, b]]) / 2.0
        });
        let sin = Array2::from_shape_fn(shape, |(p, i)| {
            let (a, b) = pairs[i];
            (maps[[p, b, a]] - maps[[p, a, b]]) / 2.0
        });
        let factor = uniform_factor(&cos, &sin)?;
        let mut fit_error: f64 = 0.0;
        for p in 0..length {
            for (i, (a, b)) in pairs.iter().copied().enumerate() {
                let shear = (maps[[p, a, a]] - cos[[p, i]])
                    .abs()
                    .max((maps[[p, b, a]] - sin[[p, i]]).abs());
                fit_error = fit_error.max(shear / factor);
            }
        }
        if fit_error > LOOSE {
            return Err(Unread::NotRotation);
        }
        for (a, b) in &mut pairs {
            *a += offset;
            *b += offset;
        }
        Ok(Self {
            pairs,
            cos,
            sin,
            factor,
            fit_error,
        })
    }
}

/// A rotation in proportion to the position.
#[derive(Clone, Debug)]
pub struct Fit {
    /// What it computes; pairs are places in the head.
    pub rope: Rope,
    /// The position of the first token: its angle over the frequency, of the pair that rotates
    /// slowest.
    pub start: f64,
    /// The largest difference between the matrices and the rotation, over m.
    pub fit_error: f64,
    /// cos and sin, times m: `[pos, pair]`.
    pub cos: Array2<f64>,
    /// See `cos`.
    pub sin: Array2<f64>,
}

/// The rotation that matrices `[pos, out, in]` of some features of a head, the first of them at
/// `offset`, are.
///
/// # Errors
/// Why they are no rotation.
pub fn identify(maps: &Array3<f64>, offset: i64, head_dim: usize) -> Result<Fit, Unread> {
    let PairRotations {
        mut pairs,
        cos,
        sin,
        factor,
        mut fit_error,
    } = PairRotations::of(maps, offset, head_dim)?;
    let n = pairs.len();
    let mut inv_freq = Vec::with_capacity(n);
    let mut starts = Vec::with_capacity(n);
    for i in 0..n {
        let (f, start, residual) = frequency(&cos, &sin, i);
        fit_error = fit_error.max(residual);
        inv_freq.push(f);
        starts.push(start);
    }
    if fit_error > LOOSE || inv_freq.iter().any(|f| !f.is_finite()) {
        return Err(Unread::NotProportional);
    }
    // A pair may be written either way round: the first feature is the one that leads.
    for i in 0..n {
        if inv_freq[i] < 0.0 {
            inv_freq[i] = -inv_freq[i];
            starts[i] = -starts[i];
            pairs[i] = (pairs[i].1, pairs[i].0);
        }
    }
    let start = start(&inv_freq, &starts);
    Ok(Fit {
        rope: Rope {
            layout: layout(&pairs, head_dim),
            rotary_dim: width(&pairs, head_dim),
            inv_freq,
            attention_factor: factor,
            pairs,
            head_dim,
        },
        start,
        fit_error,
        cos,
        sin,
    })
}

/// The width that pairs span: the whole head where they are halves of it, also where the last ones do not rotate.
fn width(pairs: &[(usize, usize)], head_dim: usize) -> usize {
    let is_half = |(i, pair): (usize, &(usize, usize))| *pair == (i, i + head_dim / 2);
    match pairs.iter().enumerate().all(is_half) {
        true => head_dim,
        false => 2 * pairs.len(),
    }
}

/// The most turns that the slowest pair may have made at the first position.
const TURNS: i32 = 8;

/// How far the angles of a position may be from those that were read, in radians.
const NEAR: f64 = 0.05;

/// The first position, of these frequencies and angles: that of the slowest pair, which may have turned before. The
/// others tell how often.
fn start(inv_freq: &[f64], angles: &[f64]) -> f64 {
    let pairs = || inv_freq.iter().zip(angles);
    let Some((f, angle)) = pairs().min_by(|a, b| a.0.total_cmp(b.0)) else {
        return 0.0;
    };
    let turn = std::f64::consts::TAU;
    let at = |turns: i32| (angle + turn * f64::from(turns)) / f;
    let fits = |start: &f64| {
        pairs().all(|(f, angle)| {
            let off = start.round() * f - angle;
            (off - turn * (off / turn).round()).abs() <= NEAR
        })
    };
    let turned = (1..=TURNS).flat_map(|n| [n, -n]);
    let mut all = std::iter::once(0).chain(turned).map(at);
    all.find(fits).unwrap_or_else(|| at(0))
}

/// For each feature the one that it mixes with at some position.
fn partners(maps: &Array3<f64>) -> Result<Vec<Option<usize>>, Unread> {
    let width = maps.shape()[1];
    let mut partner = vec![None; width];
    for map in maps.outer_iter() {
        for ((a, b), v) in map.indexed_iter() {
            let mixes = a != b && v.abs() > 1e-12;
            if mixes && partner[a].replace(b).is_some_and(|known| known != b) {
                return Err(Unread::NotPairs);
            }
        }
    }
    for (a, b) in partner.iter().enumerate() {
        if let Some(b) = b
            && partner[*b] != Some(a)
        {
            return Err(Unread::NotPairs);
        }
    }
    Ok(partner)
}

/// The factor m, which must be the same for every pair and position.
fn uniform_factor(cos: &Array2<f64>, sin: &Array2<f64>) -> Result<f64, Unread> {
    let norms: Vec<f64> = cos.iter().zip(sin).map(|(c, s)| c.hypot(*s)).collect();
    let mean = norms.iter().sum::<f64>() / norms.len().max(1) as f64;
    let even = norms.iter().all(|n| (n - mean).abs() < LOOSE * mean);
    if even && mean > 0.0 && mean.is_finite() {
        Ok(mean)
    } else {
        Err(Unread::NotUniform)
    }
}

/// Frequency, angle at the first position, and the worst residual of pair `i`.
///
/// The first step gives the frequency; each later position refines it, since rounding of a
/// stored angle counts less the farther the pair has turned.
fn frequency(cos: &Array2<f64>, sin: &Array2<f64>, i: usize) -> (f64, f64, f64) {
    let angle = |p: usize| sin[[p, i]].atan2(cos[[p, i]]);
    let length = cos.shape()[0];
    let turn = std::f64::consts::TAU;
    let near = |a: f64, to: f64| a + turn * ((to - a) / turn).round();
    if length < 2 {
        return (f64::NAN, 0.0, f64::INFINITY);
    }
    let first = angle(0);
    let mut f = near(angle(1) - first, 0.0);
    for p in 2..length {
        let far = near(angle(p) - first, f * p as f64);
        f = far / p as f64;
    }
    let residual = (1..length)
        .map(|p| {
            let d = near(angle(p) - first, f * p as f64) - f * p as f64;
            d.abs()
        })
        .fold(0.0, f64::max);
    (f, first, residual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_position_is_found_where_the_slowest_pair_has_turned() {
        let turn = std::f64::consts::TAU;
        let found = |theta: f64, pairs: i32, position: f64| {
            let f: Vec<f64> = (0..pairs)
                .map(|i| theta.powf(-f64::from(i) / f64::from(pairs)))
                .collect();
            let angle = |f: &f64| position * f - turn * (position * f / turn).round();
            let angles: Vec<f64> = f.iter().map(angle).collect();
            start(&f, &angles)
        };
        for position in [0.0, 2.0, 5.0, 13.0, 19.0] {
            for theta in [1.0, 1.1, 1.5, 2.0, 10.0, 1e4, 1e6] {
                let start = found(theta, 8, position);
                assert!(
                    (start - position).abs() < 1e-6,
                    "{theta} {position}: {start}"
                );
            }
        }
        // Angles of no position are what they are.
        assert_eq!(start(&[1.0, 1.0], &[-1.2, 0.4]), -1.2);
        assert_eq!(start(&[], &[]), 0.0);
    }

    #[test]
    fn halves_of_the_head_span_it_also_where_the_last_pairs_do_not_rotate() {
        let pairs = |n: usize, distance: usize| -> Vec<(usize, usize)> {
            (0..n).map(|i| (i, i + distance)).collect()
        };
        assert_eq!(width(&pairs(8, 32), 64), 64);
        assert_eq!(width(&pairs(32, 32), 64), 64);
        assert_eq!(width(&pairs(8, 8), 64), 16);
        assert_eq!(width(&[(0, 1), (2, 3)], 64), 4);
        assert_eq!(width(&[(1, 33), (2, 34)], 64), 4);
    }
}
