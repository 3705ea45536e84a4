//! The rows of a report: an output of a run, and how far it is from what is wanted.

use std::collections::BTreeMap;

use posenc_ir::Tensor;

use super::compare::compare;
use super::noise::Noise;
use super::points::Meaning;
use super::run::Outputs;
use super::tolerance::Tolerance;
use super::ulp::ulp;
use crate::report::Run;

/// What outputs are judged by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judge<'a> {
    pub(super) tolerance: Tolerance,
    /// What quantization alone changes of outputs.
    pub(super) noise: Option<&'a Noise>,
    /// The number of tokens that logits tell apart.
    pub(super) vocabulary: Option<usize>,
}

impl Judge<'_> {
    /// A row for every output; without anything to compare with, whether it consists of numbers.
    pub(super) fn rows(
        self,
        got: &Outputs,
        want: Option<&Outputs>,
        meaning: Meaning,
    ) -> Vec<(String, Run)> {
        let row = |(i, (name, tensor)): (usize, &(String, Tensor))| {
            let Some(want) = want else {
                return (name.clone(), uncompared(tensor));
            };
            let row = match partner(i, got, want) {
                Some(want) if meaning == Meaning::NewFunction => Run {
                    bound: None,
                    ok: uncompared(tensor).ok && tensor.dims() == want.dims(),
                    ..self.row(name, tensor, want)
                },
                Some(want) => self.row(name, tensor, want),
                None => Run {
                    ok: false,
                    ..uncompared(tensor)
                },
            };
            (name.clone(), row)
        };
        got.iter().enumerate().map(row).collect()
    }

    /// The row of an output, without the run it belongs to.
    pub(super) fn row(self, name: &str, got: &Tensor, want: &Tensor) -> Run {
        let level = self.noise.and_then(|noise| noise.of(name));
        let tolerance = match level {
            Some(level) => self.tolerance.with_noise(level),
            None => self.tolerance,
        };
        let found = compare(got, want, tolerance);
        let measured = Run {
            max_abs: found.max_abs,
            rel: found.rel,
            cosine: found.cosine,
            bound: Some(found.bound),
            ok: found.ok,
            ..blank()
        };
        let (Some(numbers), Some(wanted)) = (got.to_f64s(), want.to_f64s()) else {
            return measured;
        };
        let other = |(got, want): (&f64, &f64)| got.is_infinite() && got != want;
        let pairs = numbers.iter().zip(&wanted);
        let is_same_shape = got.dims() == want.dims();
        let logits = self.vocabulary.filter(|width| {
            is_same_shape && got.dims().len() > 1 && got.dims().last() == Some(width)
        });
        Run {
            ulp: ulp(&numbers, &wanted, got.dtype()).filter(|_| is_same_shape),
            top1: logits.and_then(|width| top1(&numbers, &wanted, width)),
            nan: numbers.iter().filter(|x| x.is_nan()).count(),
            infinite: pairs.filter(|pair| other(*pair)).count(),
            ..measured
        }
    }
}

/// What an output is compared with: that of its name, else that at its place.
pub(super) fn partner<'a>(at: usize, got: &Outputs, want: &'a Outputs) -> Option<&'a Tensor> {
    let (name, _) = got.get(at)?;
    let same = want.iter().find(|(other, _)| other == name);
    let placed = want.get(at).filter(|_| want.len() == got.len());
    same.or(placed).map(|(_, tensor)| tensor)
}

/// The share of rows of this width whose largest number is at the same place in both.
fn top1(got: &[f64], want: &[f64], width: usize) -> Option<f64> {
    let largest = |row: &[f64]| {
        let places = row.iter().enumerate();
        let largest = places.max_by(|(_, a), (_, b)| a.total_cmp(b));
        largest.map(|(place, _)| place)
    };
    let rows = got.len().checked_div(width).filter(|rows| *rows > 0)?;
    let pairs = got.chunks(width).zip(want.chunks(width));
    let same = pairs.filter(|(got, want)| largest(got) == largest(want));
    Some(same.count() as f64 / rows as f64)
}

/// The row of an output that there is nothing to compare with.
pub(super) fn uncompared(tensor: &Tensor) -> Run {
    let values = tensor.to_f64s();
    let count = |is: fn(f64) -> bool| {
        let values = values.iter().flatten();
        values.filter(|x| is(**x)).count()
    };
    let nan = count(f64::is_nan);
    Run {
        ok: nan == 0 && values.as_ref().is_some_and(|v| !v.is_empty()),
        nan,
        infinite: count(f64::is_infinite),
        ..blank()
    }
}

fn blank() -> Run {
    Run {
        runtime: String::new(),
        provider: String::new(),
        optimization: String::new(),
        length: 0,
        batch: 0,
        padding: String::new(),
        output: String::new(),
        max_abs: None,
        rel: None,
        cosine: None,
        ulp: None,
        top1: None,
        nan: 0,
        infinite: 0,
        bound: None,
        ok: false,
        first_divergence: None,
        neighbourhood: vec![],
        placement: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUDGE: Judge<'_> = Judge {
        tolerance: Tolerance {
            atol: 1e-6,
            rtol: 1e-4,
            share: 0.0,
            rms: None,
        },
        noise: None,
        vocabulary: Some(3),
    };

    fn outputs(dims: &[usize], numbers: &[f64]) -> Outputs {
        let tensor = Tensor::from_f64(posenc_ir::DType::F32, dims, numbers);
        vec![("logits".to_owned(), tensor)]
    }

    fn row(got: &Outputs, want: Option<&Outputs>, meaning: Meaning) -> Run {
        JUDGE.rows(got, want, meaning).remove(0).1
    }

    #[test]
    fn logits_agree_where_the_same_token_is_the_likeliest() {
        let want = outputs(&[1, 2, 3], &[0.0, 1.0, 2.0, 5.0, 4.0, 3.0]);
        let got = outputs(&[1, 2, 3], &[0.0, 1.0, 3.0, 4.0, 5.0, 3.0]);
        let found = row(&got, Some(&want), Meaning::Same);
        assert_eq!((found.top1, found.ok), (Some(0.5), false));
        let found = row(&want, Some(&want), Meaning::Same);
        assert_eq!((found.top1, found.ok), (Some(1.0), true));
        // Hidden states are no logits.
        let hidden = outputs(&[1, 3, 2], &[0.0; 6]);
        assert_eq!(row(&hidden, Some(&hidden), Meaning::Same).top1, None);
    }

    #[test]
    fn what_is_no_number_is_counted() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        let want = outputs(&[4], &[1.0, 1.0, -inf, 1.0]);
        let got = outputs(&[4], &[nan, inf, -inf, 1.0]);
        let found = row(&got, Some(&want), Meaning::Same);
        assert_eq!((found.nan, found.infinite, found.ok), (1, 1, false));
        let alone = row(&got, None, Meaning::Same);
        assert_eq!((alone.nan, alone.infinite, alone.ok), (1, 2, false));
        assert!(row(&want, None, Meaning::Same).ok);
    }

    #[test]
    fn another_function_has_differences_and_no_bound() {
        let want = outputs(&[1, 3], &[0.0, 1.0, 2.0]);
        let got = outputs(&[1, 3], &[2.0, 1.0, 0.0]);
        let found = row(&got, Some(&want), Meaning::NewFunction);
        assert_eq!(
            (found.max_abs, found.bound, found.ok),
            (Some(2.0), None, true)
        );
        let other = outputs(&[3], &[2.0, 1.0, 0.0]);
        let found = row(&other, Some(&want), Meaning::NewFunction);
        assert!(!found.ok && found.ulp.is_none() && found.top1.is_none());
    }
}
