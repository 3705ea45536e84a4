//! What is added to the embeddings: the sum for known content.

use ndarray::{Array2, Array3, ArrayD, Ix3};
use posenc_ir::eval::gelu_erf;
use posenc_ir::{DType, Tensor, ValueId};
use posenc_runtime::feeds::Random;

use super::proof::Proof;
use super::site::Traced;
use crate::attention::Site;
use crate::graph::lane::Lane;
use crate::plan::swap::Group;
use crate::plan::swap::spec::{EncodingSpec, InputSpec};
use crate::prove::VerifyError;
use crate::prove::bound::{Against, Precision, ROUNDINGS, SINGLE, Worst};
use crate::prove::compute::{Compute, TrialRun, array};
use crate::prove::formula::Near;
use crate::report::SiteCheck;
use posenc_encodings::input_term::Source;

/// Compares the sum of random content and the inserted encoding with the formula; `None` for
/// encodings that are not added to the embeddings.
pub(crate) fn check(
    by: &dyn Compute,
    proof: &Proof,
    (trace, seeds): &Traced,
    past: usize,
    group: &Group,
) -> Result<Option<SiteCheck>, VerifyError> {
    let (model, found) = &proof.swapped;
    let EncodingSpec::InputTerm(spec) = &group.new else {
        return Ok(None);
    };
    let first = group.sites.first();
    let Some((first, site)) = first.and_then(|i| Some((*i, found.attention.get(*i)?))) else {
        return Ok(None);
    };
    let run = TrialRun {
        site: &site.name,
        model,
        trace,
        seeds,
    };
    let refuse = |why: &str| VerifyError::unsupported(run.site, why);
    let (content, sum) = proof
        .added(first)
        .ok_or_else(|| refuse("cannot find where the encoding is added"))?;
    let embeddings = Embeddings::of(&run, site, content)?;
    let given = [(content, embeddings.fed.clone())];
    let sum = by.compute(&run, &given, sum)?;
    let split = |data: ArrayD<f64>| embeddings.lane.split(data);
    let (Some(x), Some(y)) = (array(&embeddings.fed).and_then(split), split(sum)) else {
        return Err(refuse("cannot follow the tokens of the embeddings"));
    };
    if x.dim() != y.dim() {
        return Err(refuse("the shape of the embeddings changed"));
    }
    let epsilon = embeddings.fed.dtype().epsilon();
    let epsilon = epsilon.unwrap_or(SINGLE).max(SINGLE);
    let [want, bound] = expected(spec, &x, past, epsilon).ok_or_else(|| {
        refuse("cannot check the added rows: the new encoding has none for these positions")
    })?;
    let mut worst = Worst::default();
    for ((got, want), bound) in y.iter().zip(&want).zip(&bound) {
        // The sum is rounded too.
        worst.add(*got, *want, bound + ROUNDINGS * epsilon * want.abs());
    }
    Ok(Some(worst.check(run.site, "embeddings")))
}

/// Random embeddings.
struct Embeddings {
    fed: Tensor,
    /// Their tokens and features.
    lane: Lane,
}

impl Embeddings {
    /// Random numbers for `content`, whose tokens are those of the site's queries.
    fn of(run: &TrialRun<'_>, site: &Site, content: ValueId) -> Result<Self, VerifyError> {
        let refuse = |why: &str| VerifyError::unsupported(run.site, why);
        let known = run.trace.get(content);
        let (Some(dims), Some(dtype)) = (known.dims.as_deref(), known.dtype) else {
            return Err(refuse("the shape of the embeddings is unknown"));
        };
        let query = run.trace.get(site.query.value).dims.as_ref();
        let count = query.and_then(|d| d.get(site.query.lane.sequence));
        let last = dims.len().saturating_sub(1);
        let tokens = (0..last).rfind(|a| Some(&dims[*a]) == count);
        let tokens = tokens.ok_or_else(|| refuse("cannot follow the tokens of the embeddings"))?;
        let lane = Lane {
            feature: Some(last),
            ..Lane::of_sequence(tokens)
        };
        let fed = Random::new(0x0e3b_edd1).tensor(dtype, dims, -1.0, 1.0);
        let fed = fed.ok_or_else(|| refuse("the embeddings are too large to run"))?;
        Ok(Self { fed, lane })
    }
}

/// The sum by the formula, `[slot, token, feature]`, and the bound on what is added.
fn expected(
    spec: &InputSpec,
    x: &Array3<f64>,
    past: usize,
    epsilon: f64,
) -> Option<[Array3<f64>; 2]> {
    let (_, tokens, dim) = x.dim();
    let tensors = spec.values(dim).ok()?;
    if let Source::Convolution(_) = spec.term.source() {
        let [weight, bias] = &tensors[..] else {
            return None;
        };
        let weight = weight.clone().into_dimensionality::<Ix3>().ok()?;
        return Some(convolved(x, &weight, bias.as_slice()?, epsilon));
    }
    let at: Vec<usize> = (past..past + tokens).collect();
    let rows = spec.term.reference(&tensors, dim, &at)?;
    let precision = Precision {
        angle: SINGLE,
        stored: Some(DType::F32),
        content: epsilon,
    };
    let bound = Array2::from_shape_fn(rows.dim(), |(p, column)| {
        match spec.term.frequency(dim, column) {
            Some(f) => precision.wave(at[p] as f64, f, 1.0, Against::Formula),
            None => Near::stored(rows[[p, column]], epsilon).bound,
        }
    });
    let bound = bound.broadcast(x.dim())?.to_owned();
    Some([x + &rows, bound])
}

/// `x + gelu(conv(x))` with zeros before and after the tokens, and the bound on the second term.
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
            // Its derivative is at most 1.13; its own roundings are of the size of z.
            bound: 1.13 * z.bound + 2.0 * ROUNDINGS * epsilon * z.value.abs(),
        }
    });
    [x + &near.mapv(|n| n.value), near.mapv(|n| n.bound)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_convolution_pads_the_tokens_with_zeros() {
        let x = Array3::from_shape_fn((1, 3, 1), |(_, t, _)| (t + 1) as f64);
        let of = |weight: [f64; 3]| {
            let weight = Array3::from_shape_fn((1, 1, 3), |(.., k)| weight[k]);
            let [sum, _] = convolved(&x, &weight, &[0.0], SINGLE);
            (&sum - &x).into_raw_vec_and_offset().0
        };
        let want = [10.0, 17.0, 8.0].map(gelu_erf);
        let near = |got: Vec<f64>| got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(of([1.0, 2.0, 4.0])));
        assert!(!near(of([4.0, 2.0, 1.0])), "control: the kernel reversed");
        assert!(!near(of([0.0, 1.0, 2.0])), "control: the kernel shifted");
    }
}
