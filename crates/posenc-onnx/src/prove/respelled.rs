//! That a model in another spelling computes the same: both run, on the same inputs, and every
//! output is compared.

use posenc_ir::{DType, Model, Tensor};
use posenc_runtime::feeds::Random;
use posenc_runtime::{Backend, Optimization};

use super::VerifyError;
use super::caches::unfilled;
use super::compare::compare_values;
use super::feeds::{Padding, feeds};
use super::moved::{in_order, ordered};
use super::run::{Outputs, Source, load, run};
use super::seeded::seeded;
use super::subject::{coarsest, is_quantized};
use super::tolerance::Tolerance;
use crate::detect::context::Context;
use crate::graph::ports::Lengths;
use crate::graph::reorder::Order;
use crate::report::SiteCheck;

/// How messages name the models.
const MODEL: &str = "the model in another spelling";

/// Where random numbers start.
const SEED: u64 = 7;

/// Compares the outputs of a model and of the same in another spelling at two lengths, the second with
/// padding where there are several sequences. `of` takes what both take. The second has the inputs and outputs
/// `moved` in another order.
///
/// # Errors
/// When the runtime does not run them.
pub(crate) fn check(
    [model, plain]: [&Model; 2],
    of: &Context<'_>,
    moved: &[(String, Order)],
    backend: &dyn Backend,
) -> Result<Vec<SiteCheck>, VerifyError> {
    // A fault of an optimizer is none of the model's. Quantized operators in two spellings round alike
    // only where the runtime fuses them.
    let found = of.found;
    let is_quantized = is_quantized(of.model, found);
    let optimization = match is_quantized {
        true => Optimization::On,
        false => Optimization::Off,
    };
    let load = |model: &Model| {
        let session = load(backend, Source::of(model)?.source(), optimization);
        session.map_err(|e| VerifyError::runtime(MODEL, e))
    };
    let with_seeds = [model, plain].map(seeded);
    let mut sessions = [
        load(with_seeds[0].as_ref().unwrap_or(model))?,
        load(with_seeds[1].as_ref().unwrap_or(plain))?,
    ];
    // A number that is halfway between two integers is rounded up or down.
    let coarsest = match is_quantized {
        true => DType::F16,
        false => coarsest(of.model, found),
    };
    let ports = found.ports_with_width();
    let own = found.lengths;
    let longer = Lengths {
        sequence: own.sequence + 5,
        past: own.past + usize::from(own.past > 0),
        ..own
    };
    let mut checks = vec![];
    let runs = [
        (own, Padding::None),
        (found.ports.fit(longer), Padding::Right),
    ];
    let mut run_both = |at, padding| -> Result<[Outputs; 2], VerifyError> {
        let own = feeds(of.graph(), &ports, at, padding)?;
        let [own, other] = feeds_of_both(own, moved)?;
        let [first, second] = &mut sessions;
        let first = run(&mut **first, &own, MODEL)?;
        Ok([in_order(first, moved)?, run(&mut **second, &other, MODEL)?])
    };
    for (at, padding) in runs {
        let alone = ports.alone(at);
        let (at, [first, second]) = match run_both(at, padding) {
            // An operator may take one sequence only.
            Err(VerifyError::Runtime { .. }) if alone != at => (alone, run_both(alone, padding)?),
            ran => (at, ran?),
        };
        let unfilled = unfilled(of.graph(), &ports, at);
        let pairs = first.iter().zip(&second);
        for ((name, want), (_, got)) in pairs.filter(|((name, _), _)| !unfilled.contains(name)) {
            checks.push(compare(name, want, got, coarsest));
        }
    }
    Ok(checks)
}

/// Feeds of both models. What has another order in the second is random.
fn feeds_of_both(
    feeds: Vec<(String, Tensor)>,
    moved: &[(String, Order)],
) -> Result<[Vec<(String, Tensor)>; 2], VerifyError> {
    let mut random = Random::new(SEED);
    let (mut own, mut other) = (vec![], vec![]);
    for (name, tensor) in feeds {
        let order = moved.iter().find(|(moved, _)| *moved == name);
        let Some((_, order)) = order else {
            own.push((name.clone(), tensor.clone()));
            other.push((name, tensor));
            continue;
        };
        let numbers = random.tensor(tensor.dtype(), tensor.dims(), -1.0, 1.0);
        let tensor = numbers.unwrap_or(tensor);
        other.push((name.clone(), ordered(order, &tensor, &name)?));
        own.push((name, tensor));
    }
    Ok([own, other])
}

/// Compares an output of a model whose coarsest type this is. What is no number in both is equal, as
/// rows of padding may be.
fn compare(name: &str, want: &Tensor, got: &Tensor, coarsest: DType) -> SiteCheck {
    let numbers = [got, want].map(|t| t.to_f64s().unwrap_or_default());
    let same = |(a, b): &(f64, f64)| a.is_nan() && b.is_nan();
    let pairs = numbers[0].iter().copied().zip(numbers[1].iter().copied());
    let (got_numbers, want_numbers): (Vec<f64>, Vec<f64>) = pairs.filter(|p| !same(p)).unzip();
    let fits = got.dims() == want.dims() && got.dtype() == want.dtype();
    let is_float = want.dtype().is_float();
    let mut tolerance = Tolerance::of(if is_float { coarsest } else { want.dtype() });
    if is_float && coarsest != DType::F64 {
        // What is rounded on the way is as far off as the largest numbers.
        let largest = want_numbers
            .iter()
            .fold(1.0, |most: f64, x| most.max(x.abs()));
        tolerance.atol *= largest;
    }
    let found = compare_values(&got_numbers, &want_numbers, tolerance);
    let is_empty = got_numbers.is_empty();
    SiteCheck {
        site: name.to_owned(),
        quantity: "output of the model in another spelling".to_owned(),
        max_error: if is_empty { Some(0.0) } else { found.max_abs }.filter(|_| fits),
        bound: found.bound,
        ok: fits && (is_empty || found.ok),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::prove::testing::{Evaluator, fixture};

    #[test]
    fn a_model_is_equal_to_itself_and_not_to_another() {
        let model = fixture("mini/rope");
        for (other, is_equal) in [("mini/rope", true), ("mini/none", false)] {
            let other = fixture(other);
            let found = detect(&other, &Options::default());
            let of = Context {
                model: &other,
                found: &found,
            };
            let checks = check([&model, &other], &of, &[], &Evaluator::default()).unwrap();
            assert_eq!(checks.len(), 2, "two lengths");
            assert!(
                checks.iter().all(|check| check.ok == is_equal),
                "{checks:?}"
            );
        }
    }

    #[test]
    fn only_what_is_undefined_in_both_or_empty_in_both_is_equal_without_numbers() {
        let of = |numbers: &[f64]| Tensor::from_f64(DType::F32, &[numbers.len()], numbers);
        let nan = f64::NAN;
        for (a, b, is_equal) in [
            (&[nan, 1.0][..], &[nan, 1.0][..], true),
            (&[nan, 1.0], &[nan, 2.0], false),
            (&[nan, 1.0], &[0.0, 1.0], false),
            (&[], &[], true),
            (&[], &[1.0], false),
        ] {
            let check = compare("y", &of(a), &of(b), DType::F32);
            assert_eq!(check.ok, is_equal, "{a:?} {b:?}");
        }
        let [a, b] = [&[10.0, 0.0][..], &[10.0, 0.1]].map(of);
        assert!(compare("y", &a, &b, DType::F16).ok);
        assert!(!compare("y", &a, &b, DType::F32).ok);
        assert!(!compare("y", &a, &of(&[10.0, 1.0]), DType::F16).ok);
    }
}
