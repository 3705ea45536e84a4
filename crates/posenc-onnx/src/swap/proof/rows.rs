//! What is added before all sites: the sum now, where the content is known.

use ndarray::{Array2, Array3, ArrayD, Axis, IxDyn};
use posenc_ir::eval::{Trace, Value, gelu_erf};
use posenc_ir::{Tensor, ValueId};
use posenc_runtime::feeds::Random;
use rustc_hash::FxHashMap;

use super::{Computes, Proof, Run};
use crate::encodings::sinusoidal::{Denominator, Sinusoidal};
use crate::lane::Lane;
use crate::report::SiteCheck;
use crate::swap::Group;
use crate::swap::asked::New;
use crate::verify::VerifyError;

/// Compares the sum of random content and what was put in with the formula; `None` for what is
/// not added to the embeddings.
pub(super) fn check(
    computes: &dyn Computes,
    proof: &Proof,
    (trace, seeds): &(Trace, FxHashMap<ValueId, Value>),
    past: usize,
    group: &Group,
) -> Result<Option<SiteCheck>, VerifyError> {
    let (model, found) = &proof.done;
    if !matches!(
        group.new,
        New::Learned { .. } | New::Sinusoidal { .. } | New::Conv { .. }
    ) {
        return Ok(None);
    }
    let name = || found.attention[group.sites[0]].name.clone();
    let refuse = |why: &str| VerifyError::unsupported(name(), why);
    let (content, sum) = proof
        .added(group.sites[0])
        .ok_or_else(|| refuse("what was put in before it cannot be found again"))?;
    let known = trace.get(content);
    let (dims, dtype) = (known.dims.clone(), known.dtype);
    let (Some(dims), Some(dtype)) = (dims, dtype) else {
        return Err(refuse("the shape of its embeddings is not known"));
    };
    let query = found.attention[group.sites[0]].query;
    let all = trace
        .get(query.value)
        .dims
        .as_ref()
        .map(|d| d[query.lane.sequence]);
    let last = dims.len().saturating_sub(1);
    let tokens = (0..last).rfind(|a| Some(dims[*a]) == all);
    let lane = Lane {
        feature: Some(last),
        ..Lane::of_sequence(tokens.ok_or_else(|| refuse("its tokens cannot be followed"))?)
    };
    let fed = Random::new(0x0e3b_edd1).tensor(dtype, &dims, -1.0, 1.0);
    let fed = fed.ok_or_else(|| refuse("its embeddings are too large to be fed"))?;
    let run = Run {
        site: &name(),
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
    let want = expected(&group.new, &x, past).ok_or_else(|| refuse("the formula has no rows"))?;
    let epsilon = dtype.epsilon().unwrap_or(f64::from(f32::EPSILON));
    let (mut worst, mut size) = (0.0f64, 1.0f64);
    for (got, want) in y.iter().zip(&want) {
        let error = (got - want).abs();
        worst = if error > worst || error.is_nan() {
            error
        } else {
            worst
        };
        size = size.max(want.abs());
    }
    let last = (past + x.dim().1) as f64;
    let bound = (16.0 + last) * epsilon.max(f64::from(f32::EPSILON)) * size;
    Ok(Some(SiteCheck {
        site: name(),
        quantity: "embeddings".to_owned(),
        max_error: (!worst.is_nan()).then_some(worst),
        bound,
        ok: worst <= bound,
    }))
}

fn array(tensor: &Tensor) -> Option<ArrayD<f64>> {
    ArrayD::from_shape_vec(IxDyn(tensor.dims()), tensor.to_f64s()?).ok()
}

/// The sum by the formula, `[slot, token, feature]`.
fn expected(new: &New, x: &Array3<f64>, past: usize) -> Option<Array3<f64>> {
    let (_, tokens, dim) = x.dim();
    let rows = match new {
        New::Learned { rows, table } => {
            let table = table.values(&[*rows, dim]).ok()?;
            let table = Array2::from_shape_vec((*rows, dim), table).ok()?;
            let at: Vec<usize> = (past..past + tokens).collect();
            at.iter()
                .all(|p| p < rows)
                .then(|| table.select(Axis(0), &at))?
        }
        New::Sinusoidal { layout, base, .. } => Sinusoidal {
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
        }
        .reference(&(past..past + tokens).map(|p| p as f64).collect::<Vec<_>>()),
        New::Conv {
            kernel,
            weight,
            bias,
        } => {
            let weight = weight.values(&[dim, 1, *kernel]).ok()?;
            let weight = Array3::from_shape_vec((dim, 1, *kernel), weight).ok()?;
            let bias = bias.values(&[dim]).ok()?;
            return Some(convolved(x, &weight, &bias));
        }
        _ => return None,
    };
    Some(x + &rows)
}

/// `x + gelu(conv(x))`, zeros standing before and behind the tokens.
fn convolved(x: &Array3<f64>, weight: &Array3<f64>, bias: &[f64]) -> Array3<f64> {
    let (_, tokens, _) = x.dim();
    let kernel = weight.dim().2;
    Array3::from_shape_fn(x.dim(), |(slot, t, c)| {
        let terms = (0..kernel).filter_map(|k| {
            let at = (t + k).checked_sub(kernel / 2).filter(|at| *at < tokens)?;
            Some(weight[[c, 0, k]] * x[[slot, at, c]])
        });
        let z: f64 = bias[c] + terms.sum::<f64>();
        x[[slot, t, c]] + gelu_erf(z)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_sees_zeros_around_the_tokens() {
        let x = Array3::from_shape_fn((1, 3, 1), |(_, t, _)| (t + 1) as f64);
        let weight = Array3::from_elem((1, 1, 3), 1.0);
        let got = convolved(&x, &weight, &[0.0]);
        let want = [3.0, 6.0, 5.0].map(gelu_erf);
        for (t, want) in want.iter().enumerate() {
            assert!((got[[0, t, 0]] - x[[0, t, 0]] - want).abs() < 1e-12);
        }
    }
}
