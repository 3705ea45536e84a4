//! Learned numbers: from a file, or those that a table starts from.

use std::sync::Arc;

use posenc_ir::{DType, Tensor};
use posenc_runtime::feeds::Random;

use crate::error::{Refusal, RewriteError};

/// The numbers of a table.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Numbers {
    /// Those of a file, under this name.
    Given {
        /// The name in the file.
        name: String,
        /// The values, in f32.
        tensor: Arc<Tensor>,
    },
    /// Those that training starts from.
    Start(Init),
}

/// What a table starts from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Init {
    /// Zeros, which change nothing.
    Zero,
    /// One number throughout.
    Constant(f64),
    /// Normal numbers of mean 0.
    Normal {
        /// Their standard deviation.
        std: f64,
        /// The seed; each table has one of its own.
        seed: u64,
    },
}

impl Numbers {
    /// The numbers of a tensor in a file, with its name.
    pub(crate) fn given((name, tensor): (String, Arc<Tensor>)) -> Self {
        Self::Given { name, tensor }
    }

    /// Whether every value is 0.
    pub(crate) fn is_zero(&self) -> bool {
        match self {
            Self::Given { tensor, .. } => (0..tensor.len()).all(|i| tensor.get_f64(i) == Some(0.0)),
            Self::Start(init) => *init == Init::Zero,
        }
    }

    /// The values of a table of these dimensions, row by row.
    ///
    /// # Errors
    /// Where the file's have others, and where they are too many.
    pub(crate) fn values(&self, dims: &[usize]) -> Result<Vec<f64>, RewriteError> {
        match self {
            Self::Given { name, tensor } => {
                if tensor.dims() != dims {
                    let why = format!(
                        "{name} of `params` has shape {:?}, but the model needs {dims:?}",
                        tensor.dims()
                    );
                    return Err(Refusal::invalid(why).into());
                }
                Ok((0..tensor.len())
                    .filter_map(|i| tensor.get_f64(i))
                    .collect())
            }
            Self::Start(init) => Ok(init.values(crate::plan::swap::size::numbers_in(dims)?)),
        }
    }

    /// The numbers as a tensor of this type.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub(crate) fn tensor(&self, dtype: DType, dims: &[usize]) -> Result<Tensor, RewriteError> {
        Ok(Tensor::from_f64(dtype, dims, &self.values(dims)?))
    }
}

impl Init {
    /// One number throughout.
    pub(crate) fn constant(value: f64) -> Self {
        if value == 0.0 {
            Self::Zero
        } else {
            Self::Constant(value)
        }
    }

    fn values(self, count: usize) -> Vec<f64> {
        match self {
            Self::Zero => vec![0.0; count],
            Self::Constant(value) => vec![value; count],
            Self::Normal { std, seed } => {
                let mut random = Random::new(seed);
                (0..count).map(|_| std * normal(&mut random)).collect()
            }
        }
    }
}

/// A normal number, by Box and Muller.
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * random.uniform(f64::MIN_POSITIVE, 1.0).ln()).sqrt();
    let angle = random.uniform(0.0, std::f64::consts::TAU);
    radius * angle.cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_and_another_seed_others() {
        let of = |seed| Init::Normal { std: 0.5, seed }.values(2000);
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
        let all = of(7);
        let mean = all.iter().sum::<f64>() / 2000.0;
        let var = all.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2000.0;
        assert!(
            mean.abs() < 0.03 && (var.sqrt() - 0.5).abs() < 0.03,
            "{mean} {var}"
        );
    }

    #[test]
    fn a_file_of_another_shape_is_refused() {
        let given = Numbers::Given {
            name: "position_embedding".into(),
            tensor: Arc::new(Tensor::from_f32(&[2, 3], &[0.0; 6])),
        };
        assert!(given.values(&[2, 3]).is_ok());
        let error = given.values(&[3, 2]).unwrap_err().to_string();
        assert_eq!(
            error,
            "position_embedding of `params` has shape [2, 3], but the model needs [3, 2]"
        );
    }
}
