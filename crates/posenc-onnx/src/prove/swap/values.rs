//! What the inserted encoding adds to the weighted values of a site: vectors by distance, weighted
//! like the values.

use ndarray::{Array2, Array3, ArrayD, Ix2};
use posenc_ir::{DType, Tensor, ValueId};
use posenc_runtime::feeds::Random;

use super::site::{SwappedSite, unsupported};
use crate::attention::Site;
use crate::detect::context::Context;
use crate::edit::insert::WeightedValues;
use crate::plan::swap::spec::EncodingSpec;
use crate::prove::VerifyError;
use crate::prove::bound::{ROUNDINGS, Worst};
use crate::prove::compute::{TrialRun, array};
use crate::prove::formula::{Near, row_of};
use crate::report::SiteCheck;
use posenc_encodings::score_term::Vectors;

/// Compares the weighted sum of values and vectors with the formula, for random weights; `None`
/// where no vectors are added.
pub(crate) fn check(both: &SwappedSite<'_>) -> Result<Option<SiteCheck>, VerifyError> {
    let EncodingSpec::ScoreTerm(spec) = &both.group.new else {
        return Ok(None);
    };
    if !matches!(spec.term.vectors(), Vectors::Clipped { .. }) {
        return Ok(None);
    }
    let (_, site) = both.sites()?;
    let table = spec.values(1);
    let table = table.map_err(|why| VerifyError::unsupported(&site.name, why.to_string()))?;
    let Some(table) = table.and_then(|table| table.into_dimensionality::<Ix2>().ok()) else {
        return Ok(None);
    };
    let (model, found) = &both.proof.swapped;
    let context = Context { model, found };
    let refuse = |why: &str| unsupported(site, why);
    let values = WeightedValues::of(&context, site)
        .map_err(|why| VerifyError::unsupported(&site.name, why.to_string()))?;
    let sum =
        sum(both, &values).ok_or_else(|| refuse("no vectors are added to the weighted values"))?;
    let given = given(both, site, &values)?;
    let (trace, seeds) = both.swapped;
    let run = TrialRun {
        site: &site.name,
        model,
        trace,
        seeds,
    };
    let is = both.by.compute(&run, &given, sum)?;
    let epsilon = trace.get(values.value).dtype.and_then(DType::epsilon);
    let gathered = Gathered::of(&values, &given, is);
    let worst =
        gathered.and_then(|g| g.against(&table, epsilon.unwrap_or(f64::from(f32::EPSILON))));
    let worst = worst.ok_or_else(|| refuse("the shape of the weighted values changed"))?;
    Ok(Some(worst.check(&site.name, "values")))
}

/// The sum that replaces the weighted values.
fn sum(both: &SwappedSite<'_>, values: &WeightedValues) -> Option<ValueId> {
    let graph = both.proof.swapped.0.graph();
    let [at] = graph.uses(values.value) else {
        return None;
    };
    let node = graph.node(at.node);
    node.output(0).filter(|_| node.is("Add"))
}

/// Random weights and weighted values; queries and keys, whose dimensions determine the distances.
fn given(
    both: &SwappedSite<'_>,
    site: &Site,
    values: &WeightedValues,
) -> Result<Vec<(ValueId, Tensor)>, VerifyError> {
    let mut random = Random::new(0x0a1e_5007 + both.site as u64);
    let mut given: Vec<(ValueId, Tensor)> = vec![];
    for value in [
        values.weights,
        values.value,
        site.query.value,
        site.key.value,
    ] {
        if given.iter().any(|(v, _)| *v == value) {
            continue;
        }
        let known = both.swapped.0.get(value);
        let tensor = known.dims.as_deref().zip(known.dtype);
        let tensor = tensor.and_then(|(dims, dtype)| random.tensor(dtype, dims, 0.0, 1.0));
        let tensor =
            tensor.ok_or_else(|| unsupported(site, "cannot generate random attention weights"))?;
        given.push((value, tensor));
    }
    Ok(given)
}

/// Weights `[slot, query, key]`, and weighted values `[slot, query, feature]` without and with the
/// inserted vectors.
struct Gathered {
    weights: Array3<f64>,
    was: Array3<f64>,
    is: Array3<f64>,
}

impl Gathered {
    fn of(values: &WeightedValues, given: &[(ValueId, Tensor)], is: ArrayD<f64>) -> Option<Self> {
        let [query, key, feature] = values.vectors;
        let rest = values.content.iter().filter(|c| **c != query && **c != key);
        let rest: Vec<char> = rest.copied().collect();
        let numbers = |value: ValueId| {
            let (_, tensor) = given.iter().find(|(v, _)| *v == value)?;
            array(tensor)
        };
        let result = |data| arranged(data, &values.result, &rest, [query, feature]);
        Some(Self {
            weights: arranged(
                numbers(values.weights)?,
                &values.content,
                &rest,
                [query, key],
            )?,
            was: result(numbers(values.value)?)?,
            is: result(is)?,
        })
    }

    /// The differences from the formula; `None` where shapes differ.
    fn against(&self, table: &Array2<f64>, epsilon: f64) -> Option<Worst> {
        let (slots, queries, keys) = self.weights.dim();
        let shape = (slots, queries, table.ncols());
        if self.was.dim() != shape || self.is.dim() != shape || table.nrows() == 0 {
            return None;
        }
        let past = i64::try_from(keys.checked_sub(queries)?).ok()?;
        let row = |distance: i64| row_of(table.nrows(), distance);
        let mut worst = Worst::default();
        for i in 0..queries {
            let rows: Vec<usize> = (0..keys).map(|j| row(j as i64 - i as i64 - past)).collect();
            // `[key, feature]`.
            let vectors = table.select(ndarray::Axis(0), &rows);
            for slot in 0..slots {
                let weights = self.weights.slice(ndarray::s![slot, i, ..]);
                for (c, vector) in vectors.columns().into_iter().enumerate() {
                    let (was, is) = (self.was[[slot, i, c]], self.is[[slot, i, c]]);
                    let near = Near::sum(weights, vector, epsilon);
                    let passed = ROUNDINGS * epsilon * (was.abs() + is.abs());
                    worst.add(is - was, near.value, near.bound + passed);
                }
            }
        }
        Some(worst)
    }
}

/// The data with the axes of `rest`, merged into one, before the two `last` ones.
fn arranged(
    data: ArrayD<f64>,
    letters: &[char],
    rest: &[char],
    last: [char; 2],
) -> Option<Array3<f64>> {
    let axis = |letter: &char| letters.iter().position(|c| c == letter);
    let order: Vec<usize> = rest.iter().chain(&last).map(axis).collect::<Option<_>>()?;
    if order.len() != data.ndim() || letters.len() != data.ndim() {
        return None;
    }
    let data = data.permuted_axes(order).as_standard_layout().into_owned();
    let dims = data.shape();
    let (rest, last) = dims.split_at(dims.len().checked_sub(2)?);
    let shape = (rest.iter().product(), last[0], last[1]);
    data.into_shape_with_order(shape).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    type Round = fn(f64) -> f64;

    const KEYS: usize = 7;
    const QUERIES: usize = 5;

    fn gathered(table: &Array2<f64>, round: Round, shift: i64) -> Gathered {
        let wave = |n: usize| round((1.3 * n as f64).sin().abs());
        let weights =
            Array3::from_shape_fn((2, QUERIES, KEYS), |(s, i, j)| wave(35 * s + 7 * i + j));
        let was = Array3::from_shape_fn((2, QUERIES, 4), |(s, i, c)| wave(20 * s + 4 * i + c));
        let most = (table.nrows() / 2) as i64;
        let is = Array3::from_shape_fn(was.dim(), |(s, i, c)| {
            let term = (0..KEYS).fold(0.0, |sum, j| {
                let distance = j as i64 - i as i64 - 2 + shift;
                let row = (distance.clamp(-most, most) + most) as usize;
                round(sum + round(weights[[s, i, j]] * round(table[[row, c]])))
            });
            round(was[[s, i, c]] + term)
        });
        Gathered { weights, was, is }
    }

    #[test]
    fn rows_shifted_by_one_are_noticed_in_every_type() {
        let types: [(DType, Round); 3] = [
            (DType::F32, |x| f64::from(x as f32)),
            (DType::F16, |x| half::f16::from_f64(x).to_f64()),
            (DType::BF16, |x| half::bf16::from_f64(x).to_f64()),
        ];
        let table = Array2::from_shape_fn((7, 4), |(r, c)| (2.1 * r as f64 + c as f64).cos());
        for (dtype, round) in types {
            let epsilon = dtype.epsilon().unwrap();
            let ok = |shift| gathered(&table, round, shift).against(&table, epsilon);
            assert!(ok(0).unwrap().ok(), "{dtype:?} {:?}", ok(0));
            for shift in [-1, 1] {
                assert!(!ok(shift).unwrap().ok(), "{dtype:?} {shift}");
            }
            let nothing = Gathered {
                is: gathered(&table, round, 0).was,
                ..gathered(&table, round, 0)
            };
            assert!(!nothing.against(&table, epsilon).unwrap().ok(), "{dtype:?}");
        }
        let wider = Array2::zeros((7, 5));
        let here = gathered(&table, |x| x, 0);
        assert_eq!(here.against(&wider, 1e-7), None);
    }
}
