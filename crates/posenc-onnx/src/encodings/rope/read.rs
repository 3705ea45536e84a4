//! Reading a rotation out of a region by probing it with unit vectors.

use ndarray::{Array3, ArrayD, Axis, Dimension, IxDyn};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{Model, ValueId};
use rustc_hash::FxHashMap;

use super::{Rope, layout};
use crate::frontier::Region;

/// A rotation that was read, and how exactly it is one.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// What it computes; pairs are places in the head.
    pub rope: Rope,
    /// The position of the first token: its angle over the frequency, of the pair that turns
    /// slowest and so has turned the least.
    pub start: f64,
    /// The largest difference between the probed matrices and the rotation, over m.
    pub fit_error: f64,
    /// The probed cos and sin, times m: `[pos, pair]`.
    pub cos: ndarray::Array2<f64>,
    /// See `cos`.
    pub sin: ndarray::Array2<f64>,
}

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
    /// A pair scales or shears rather than turns.
    #[error("a pair of features does not turn")]
    NotRotation,
    /// The angle does not grow in proportion to the position.
    #[error("the angle does not grow in proportion to the position")]
    NotProportional,
    /// The factor on cos and sin differs from pair to pair or position to position.
    #[error("the length of a pair changes with its position")]
    NotUniform,
}

/// Differences that half-precision tables bring along.
const LOOSE: f64 = 4e-3;

/// Reads the rotation of a region. `base` and the seeds of `change` (which win) give everything
/// that is not content.
///
/// # Errors
/// Why the region is no rotation.
pub fn read(
    model: &Model,
    base: &Trace,
    change: &FxHashMap<ValueId, Value>,
    region: &Region,
    head_dim: usize,
) -> Result<Rotation, Unread> {
    let maps = matrices(model, base, change, region)?;
    let (length, width) = (maps.shape()[0], maps.shape()[1]);
    let offset = usize::try_from(region.output_lane.offset).map_err(|_| Unread::NoFeatures)?;
    if offset + width > head_dim {
        return Err(Unread::NoFeatures);
    }
    let partner = partners(&maps)?;
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
    // What does not turn must pass as it is.
    let passes = |a: &usize| (0..length).all(|p| (maps[[p, *a, *a]] - 1.0).abs() < LOOSE);
    if !still.iter().all(passes) {
        return Err(Unread::NotRotation);
    }
    let n = pairs.len();
    let cos = ndarray::Array2::from_shape_fn((length, n), |(p, i)| {
        let (a, b) = pairs[i];
        (maps[[p, a, a]] + maps[[p, b, b]]) / 2.0
    });
    let sin = ndarray::Array2::from_shape_fn((length, n), |(p, i)| {
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
    let slowest = (0..n).min_by(|a, b| inv_freq[*a].total_cmp(&inv_freq[*b]));
    let start = slowest.map_or(0.0, |i| starts[i] / inv_freq[i]);
    let pairs: Vec<(usize, usize)> = pairs
        .iter()
        .map(|(a, b)| (a + offset, b + offset))
        .collect();
    Ok(Rotation {
        rope: Rope {
            layout: layout(&pairs, head_dim),
            rotary_dim: 2 * n,
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

/// The matrix of the region at every position: `[pos, out, in]`.
pub(crate) fn matrices(
    model: &Model,
    base: &Trace,
    change: &FxHashMap<ValueId, Value>,
    region: &Region,
) -> Result<Array3<f64>, Unread> {
    let dims = base.get(region.input).dims.clone();
    let dims = dims.ok_or(Unread::NotEvaluated)?;
    let sequence = region.input_lane.sequence;
    let feature = region.input_lane.feature.ok_or(Unread::NoFeatures)?;
    let (length, width) = (dims[sequence], dims[feature]);
    let others: usize = dims.iter().product::<usize>() / (length * width).max(1);
    if length == 0 || width == 0 || others == 0 {
        return Err(Unread::NotEvaluated);
    }
    // Where an index of the input stands: slot among heads and batches, token, feature.
    let place = |index: &[usize], sequence: usize, feature: usize, dims: &[usize]| {
        let mut slot = 0;
        for (axis, i) in index.iter().enumerate() {
            if axis != sequence && axis != feature {
                slot = slot * dims[axis] + i;
            }
        }
        (slot, index[sequence], index[feature])
    };
    let run = |x: ArrayD<f64>| -> Result<ArrayD<f64>, Unread> {
        let budget = Budget { elements: 1 << 22 };
        let mut seeds = change.clone();
        seeds.insert(region.input, Value::float(x));
        let got = probe(model, base, &seeds, &[region.output], &budget);
        let y = got.ok().and_then(|v| v.into_iter().next()?.to_f64());
        y.ok_or(Unread::NotEvaluated)
    };
    let (out_sequence, out_feature) = (
        region.output_lane.sequence,
        region.output_lane.feature.ok_or(Unread::NoFeatures)?,
    );
    let mut maps = Array3::<f64>::zeros((length, width, width));
    let mut shape = None;
    for first in (0..width).step_by(others) {
        let x = ArrayD::from_shape_fn(IxDyn(&dims), |index| {
            let (slot, _, j) = place(index.slice(), sequence, feature, &dims);
            f64::from(u8::from(first + slot == j))
        });
        let y = run(x)?;
        let out = y.shape().to_vec();
        if out.len() <= out_sequence.max(out_feature)
            || out[out_sequence] != length
            || out[out_feature] != width
            || y.len() != length * width * others
        {
            return Err(Unread::NoFeatures);
        }
        for (index, v) in y.indexed_iter() {
            let index = index.slice().to_vec();
            let (slot, p, i) = place(&index, out_sequence, out_feature, &out);
            if first + slot < width {
                maps[[p, i, first + slot]] = *v;
            }
        }
        shape = Some(out);
    }
    let out = shape.ok_or(Unread::NotEvaluated)?;
    // Different content for every head and token must obey the same matrices.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5
    };
    let x = ArrayD::from_shape_simple_fn(IxDyn(&dims), &mut random);
    let mut by_place = Array3::<f64>::zeros((others, length, width));
    for (index, v) in x.indexed_iter() {
        let index = index.slice().to_vec();
        let (slot, p, j) = place(&index, sequence, feature, &dims);
        by_place[[slot, p, j]] = *v;
    }
    let y = run(x)?;
    for (index, v) in y.indexed_iter() {
        let index = index.slice().to_vec();
        let (slot, p, i) = place(&index, out_sequence, out_feature, &out);
        let want = maps
            .index_axis(Axis(0), p)
            .row(i)
            .dot(&by_place.index_axis(Axis(0), slot).row(p));
        let alike = (v - want).abs() < 1e-9 * (1.0 + want.abs()); // NaN is not
        if !alike {
            return Err(Unread::NotLinear);
        }
    }
    Ok(maps)
}

/// For each feature the one that it mixes with at some position.
fn partners(maps: &Array3<f64>) -> Result<Vec<Option<usize>>, Unread> {
    let width = maps.shape()[1];
    let mut partner = vec![None; width];
    for a in 0..width {
        for b in 0..width {
            let mixes = a != b && (0..maps.shape()[0]).any(|p| maps[[p, a, b]].abs() > 1e-12);
            if mixes && partner[a].replace(b).is_some() {
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
fn uniform_factor(cos: &ndarray::Array2<f64>, sin: &ndarray::Array2<f64>) -> Result<f64, Unread> {
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
fn frequency(cos: &ndarray::Array2<f64>, sin: &ndarray::Array2<f64>, i: usize) -> (f64, f64, f64) {
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
