//! What is added before all sites: the sum now, where the content is known.

use ndarray::{Array2, Array3, ArrayD, Axis};
use posenc_ir::eval::{Trace, Value, gelu_erf};
use posenc_ir::{DType, ValueId};
use posenc_runtime::feeds::Random;
use rustc_hash::FxHashMap;

use super::{Computes, Proof, Run, array};
use crate::graph::lane::Lane;
use crate::plan::swap::Group;
use crate::plan::swap::spec::EncodingSpec;
use crate::prove::VerifyError;
use crate::prove::bound::{Against, Precision, ROUNDINGS, SINGLE, Worst};
use crate::prove::formula::Near;
use crate::report::SiteCheck;
use posenc_encodings::families::sinusoidal::{Denominator, Sinusoidal};
use posenc_encodings::kind::Layout;

/// Compares the sum of random content and what was put in with the formula; `None` for what is
/// not added to the embeddings.
pub(crate) fn check(
    computes: &dyn Computes,
    proof: &Proof,
    (trace, seeds): &(Trace, FxHashMap<ValueId, Value>),
    past: usize,
    group: &Group,
) -> Result<Option<SiteCheck>, VerifyError> {
    let (model, found) = &proof.done;
    if !matches!(
        group.new,
        EncodingSpec::Learned { .. } | EncodingSpec::Sinusoidal { .. } | EncodingSpec::Conv { .. }
    ) {
        return Ok(None);
    }
    let first = group.sites.first();
    let Some((first, site)) = first.and_then(|i| Some((*i, found.attention.get(*i)?))) else {
        return Ok(None);
    };
    let refuse = |why: &str| VerifyError::unsupported(&site.name, why);
    let (content, sum) = proof
        .added(first)
        .ok_or_else(|| refuse("what was put in before it cannot be found again"))?;
    let known = trace.get(content);
    let (dims, dtype) = (known.dims.clone(), known.dtype);
    let (Some(dims), Some(dtype)) = (dims, dtype) else {
        return Err(refuse("the shape of its embeddings is not known"));
    };
    let query = site.query;
    let all = trace
        .get(query.value)
        .dims
        .as_ref()
        .and_then(|d| d.get(query.lane.sequence).copied());
    let last = dims.len().saturating_sub(1);
    let tokens = (0..last).rfind(|a| Some(dims[*a]) == all);
    let lane = Lane {
        feature: Some(last),
        ..Lane::of_sequence(tokens.ok_or_else(|| refuse("its tokens cannot be followed"))?)
    };
    let fed = Random::new(0x0e3b_edd1).tensor(dtype, &dims, -1.0, 1.0);
    let fed = fed.ok_or_else(|| refuse("its embeddings are too large to be fed"))?;
    let run = Run {
        site: &site.name,
        model,
        trace,
        seeds,
    };
    let sum = computes.compute(&run, &[(content, fed.clone())], sum)?;
    let split = |data: ArrayD<f64>| lane.split(data);
    let (Some(x), Some(y)) = (array(&fed).and_then(split), split(sum)) else {
        return Err(refuse("the tokens of its embeddings cannot be followed"));
    };
    if x.dim() != y.dim() {
        return Err(refuse("its embeddings have changed their shape"));
    }
    let epsilon = dtype.epsilon().unwrap_or(SINGLE).max(SINGLE);
    let [want, bound] =
        expected(&group.new, &x, past, epsilon).ok_or_else(|| refuse("the formula has no rows"))?;
    let mut worst = Worst::default();
    for ((got, want), bound) in y.iter().zip(&want).zip(&bound) {
        // The sum is rounded too.
        worst.add(*got, *want, bound + ROUNDINGS * epsilon * want.abs());
    }
    Ok(Some(super::check(site, "embeddings", &worst)))
}

/// The sum by the formula, `[slot, token, feature]`, and how far what is added may be off.
fn expected(
    new: &EncodingSpec,
    x: &Array3<f64>,
    past: usize,
    epsilon: f64,
) -> Option<[Array3<f64>; 2]> {
    let (_, tokens, dim) = x.dim();
    let (rows, bound) = match new {
        EncodingSpec::Learned { rows, table } => {
            let table = table.values(&[*rows, dim]).ok()?;
            let table = Array2::from_shape_vec((*rows, dim), table).ok()?;
            let at: Vec<usize> = (past..past + tokens).collect();
            let inside = at.iter().all(|p| p < rows);
            let rows = inside.then(|| table.select(Axis(0), &at))?;
            let bound = rows.mapv(|v| Near::stored(v, epsilon).bound);
            (rows, bound)
        }
        EncodingSpec::Sinusoidal { layout, base, .. } => {
            let code = Sinusoidal {
                dim,
                layout: *layout,
                cosines_first: false,
                denominator: Denominator::Pairs,
                base: *base,
                factor: 1.0,
                amplitude: 1.0,
                max_positions: None,
                offset: 0,
                image: None,
            };
            let at: Vec<f64> = (past..past + tokens).map(|p| p as f64).collect();
            (code.reference(&at), waves(&code, &at, epsilon))
        }
        EncodingSpec::Conv {
            kernel,
            weight,
            bias,
        } => {
            let weight = weight.values(&[dim, 1, *kernel]).ok()?;
            let weight = Array3::from_shape_vec((dim, 1, *kernel), weight).ok()?;
            let bias = bias.values(&[dim]).ok()?;
            return Some(convolved(x, &weight, &bias, epsilon));
        }
        _ => return None,
    };
    let bound = bound.broadcast(x.dim())?.to_owned();
    Some([x + &rows, bound])
}

/// How far the sines and cosines of positions may be off.
fn waves(code: &Sinusoidal, at: &[f64], epsilon: f64) -> Array2<f64> {
    let precision = Precision {
        angle: SINGLE,
        stored: Some(DType::F32),
        content: epsilon,
    };
    let pairs = (code.dim / 2).max(1);
    Array2::from_shape_fn((at.len(), code.dim), |(p, column)| {
        let pair = match code.layout {
            Layout::Half => column % pairs,
            Layout::Interleaved => column / 2,
        };
        let frequency = code
            .base
            .powf(-(pair as f64) / code.denominator.of(code.dim));
        precision.wave(at[p], frequency, 1.0, Against::Formula)
    })
}

/// `x + gelu(conv(x))`, zeros standing before and behind the tokens; how far the second term may
/// be off.
fn convolved(
    x: &Array3<f64>,
    weight: &Array3<f64>,
    bias: &[f64],
    epsilon: f64,
) -> [Array3<f64>; 2] {
    let (_, tokens, _) = x.dim();
    let kernel = weight.dim().2;
    let near = Array3::from_shape_fn(x.dim(), |(slot, t, c)| {
        let seen = (0..kernel).filter_map(|k| {
            let at = (t + k).checked_sub(kernel / 2).filter(|at| *at < tokens)?;
            Some((weight[[c, 0, k]], x[[slot, at, c]]))
        });
        let (weights, seen): (Vec<f64>, Vec<f64>) = seen.chain([(bias[c], 1.0)]).unzip();
        let z = Near::sum(weights[..].into(), seen[..].into(), epsilon);
        Near {
            value: gelu_erf(z.value),
            // Nowhere is it steeper than 1.13; what it rounds inside is of the size of z.
            bound: 1.13 * z.bound + 2.0 * ROUNDINGS * epsilon * z.value.abs(),
        }
    });
    [x + &near.mapv(|n| n.value), near.mapv(|n| n.bound)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_sees_zeros_around_the_tokens() {
        let x = Array3::from_shape_fn((1, 3, 1), |(_, t, _)| (t + 1) as f64);
        let weight = Array3::from_elem((1, 1, 3), 1.0);
        let [got, _] = convolved(&x, &weight, &[0.0], SINGLE);
        let want = [3.0, 6.0, 5.0].map(gelu_erf);
        for (t, want) in want.iter().enumerate() {
            assert!((got[[0, t, 0]] - x[[0, t, 0]] - want).abs() < 1e-12);
        }
    }
}
