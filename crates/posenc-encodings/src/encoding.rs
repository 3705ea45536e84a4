//! An encoding with its parameters, and what a family plans it from.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use posenc_ir::Tensor;

use crate::layout::Layout;
use crate::params::Params;

/// An encoding with its parameters, whatever the family.
pub trait Encoding: Any + Debug + Send + Sync {
    /// The word of its family.
    fn word(&self) -> &'static str;

    /// The parameters by the names of the report.
    fn params(&self) -> Params;
}

/// Makes boxes of a trait of encodings comparable and cloneable, by the trait `Object` that its types
/// have without more.
macro_rules! objects {
    ($name:ident) => {
        #[doc = concat!("What every [`", stringify!($name), "`] that can be cloned and compared has.")]
        pub trait Object {
            /// A copy.
            fn boxed(&self) -> Box<dyn $name>;

            /// Whether this is the same encoding with the same parameters.
            fn equals(&self, other: &dyn $name) -> bool;
        }

        impl<T: $name + Clone + PartialEq> Object for T {
            fn boxed(&self) -> Box<dyn $name> {
                Box::new(self.clone())
            }

            fn equals(&self, other: &dyn $name) -> bool {
                (other as &dyn std::any::Any).downcast_ref() == Some(self)
            }
        }

        impl Clone for Box<dyn $name> {
            fn clone(&self) -> Self {
                (**self).boxed()
            }
        }

        impl PartialEq for dyn $name {
            fn eq(&self, other: &Self) -> bool {
                self.equals(other)
            }
        }
    };
}

pub(crate) use objects;

/// Values of a request that families of several ways of entry share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Common {
    /// The base θ of frequencies.
    pub theta: Option<f64>,
    /// The order of sines and cosines, or the pairs of a rotation.
    pub layout: Option<Layout>,
    /// The features of a head that are rotated.
    pub rotary_dim: Option<usize>,
    /// Rows of a table.
    pub max_length: Option<usize>,
}

impl Common {
    /// The base θ, 10,000 where none is given.
    pub fn theta(&self) -> f64 {
        self.theta.unwrap_or(10_000.0)
    }
}

/// A learned tensor of a family.
#[derive(Clone, Copy, Debug)]
pub struct Learned {
    /// Its name in a file of learned values.
    pub name: &'static str,
    /// Its dimensions in the words of the documentation, as `[buckets, heads]`.
    pub shape: &'static str,
    /// What it contains, for the documentation; empty where the name says it.
    pub about: &'static str,
    /// Which of the random streams of a seed it starts from; no two tensors share one.
    pub slot: u64,
    /// Whether the layers of a stack share one that no file gives.
    pub shared: bool,
}

/// What a learned tensor starts from where no file gives it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Start {
    /// Every number without a seed.
    pub value: f64,
    /// The standard deviation with a seed, the mean being 0; 0 for the same number as without.
    pub deviation: f64,
}

impl Start {
    /// The same number with and without a seed.
    pub const fn constant(value: f64) -> Self {
        Self {
            value,
            deviation: 0.0,
        }
    }

    /// Zeros, or with a seed normal numbers.
    pub const fn normal(deviation: f64) -> Self {
        Self {
            value: 0.0,
            deviation,
        }
    }
}

/// The attention site that an encoding is planned for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteShape {
    /// Heads of queries, where known.
    pub heads: Option<usize>,
    /// Width of a head, where known.
    pub head_dim: Option<usize>,
    /// Whether a query sees no later keys.
    pub causal: bool,
}

impl SiteShape {
    /// Heads of queries.
    ///
    /// # Errors
    /// Where they are not known.
    pub fn heads(&self) -> Result<usize, PlanError> {
        let unknown = PlanError::Unknown("the number of heads");
        self.heads.ok_or(unknown)
    }

    /// Width of a head.
    ///
    /// # Errors
    /// Where it is not known.
    pub fn head_dim(&self) -> Result<usize, PlanError> {
        let unknown = PlanError::Unknown("the width of a head");
        self.head_dim.ok_or(unknown)
    }
}

/// An encoding of a family for a site, or why it cannot be planned.
pub type Planned<T> = Result<Box<T>, PlanError>;

/// Why a family cannot be planned with what is given. It names parameters, not flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// A property of the attention site is needed and not known.
    #[error("{0} of its attention is not known")]
    Unknown(&'static str),
    /// The value of a parameter does not fit.
    #[error("{param} {why}")]
    Param {
        /// The name of the parameter.
        param: &'static str,
        /// What is wrong, as a phrase that follows the name.
        why: String,
    },
    /// A given tensor does not fit.
    #[error("{name} {why}")]
    Tensor {
        /// Its name in the file.
        name: String,
        /// What is wrong, as a phrase that follows the name.
        why: String,
    },
    /// Values do not fit each other.
    #[error("{0}")]
    Values(String),
    /// A value is needed, and only the model can determine it where it is not given.
    #[error("{0} is needed")]
    Missing(&'static str),
    /// Values do not fit the attention site.
    #[error("{0}")]
    Site(String),
    /// A table would have more numbers than [`MOST_NUMBERS`].
    #[error("a table of {0:?} has more than {MOST_NUMBERS} numbers")]
    TooLarge(Vec<usize>),
}

impl PlanError {
    /// A tensor of other dimensions than the model needs.
    pub fn dims(name: &str, has: &[usize], needs: &[usize]) -> Self {
        Self::Tensor {
            name: name.to_owned(),
            why: format!("has shape {has:?}, but the model needs {needs:?}"),
        }
    }

    /// A parameter whose value does not fit.
    pub fn param(param: &'static str, why: impl Into<String>) -> Self {
        let why = why.into();
        Self::Param { param, why }
    }
}

/// Numbers of one table: 1 GiB of float32, half of what a file without external data can hold.
pub const MOST_NUMBERS: usize = 1 << 28;

/// How many numbers a table of these dimensions has.
///
/// # Errors
/// Where they are more than [`MOST_NUMBERS`].
pub fn numbers_in(dims: &[usize]) -> Result<usize, PlanError> {
    let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
    let fits = count.filter(|n| *n <= MOST_NUMBERS);
    fits.ok_or_else(|| PlanError::TooLarge(dims.to_vec()))
}

/// The tensors of a file that a site is given, by the names that the family declares.
#[derive(Clone, Debug, Default)]
pub struct GivenTensors(BTreeMap<&'static str, (String, Arc<Tensor>)>);

impl GivenTensors {
    /// Gives a tensor, with its name in the file.
    pub fn set(&mut self, learned: &Learned, name: String, tensor: Arc<Tensor>) {
        self.0.insert(learned.name, (name, tensor));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name in the file and the dimensions.
    pub fn dims(&self, name: &str) -> Option<(&str, &[usize])> {
        let (name, tensor) = self.0.get(name)?;
        Some((name, tensor.dims()))
    }

    /// The values of a tensor, row by row; `None` where it is not given.
    ///
    /// # Errors
    /// Where it has other dimensions than these.
    pub fn values(&self, name: &str, dims: &[usize]) -> Result<Option<Vec<f64>>, PlanError> {
        let Some((name, tensor)) = self.0.get(name) else {
            return Ok(None);
        };
        if tensor.dims() != dims {
            return Err(PlanError::dims(name, tensor.dims(), dims));
        }
        let values = (0..tensor.len()).filter_map(|i| tensor.get_f64(i));
        Ok(Some(values.collect()))
    }
}

/// How far reported numbers of one encoding may differ, as a share.
pub const SAME: f64 = 1e-5;

/// Whether reported parameters have the same values; numbers may differ by a share of [`SAME`].
pub fn same_params(a: &Params, b: &Params) -> bool {
    near_params(a, b, SAME)
}

/// Whether reported parameters have the same values; numbers may differ by this share.
pub fn near_params(a: &Params, b: &Params, share: f64) -> bool {
    a.len() == b.len()
        && a.iter()
            .all(|(name, x)| b.get(name).is_some_and(|y| near(x, y, share)))
}

/// Whether two values are the same; numbers may differ by a share of [`SAME`].
pub fn same(a: &serde_json::Value, b: &serde_json::Value) -> bool {
    near(a, b, SAME)
}

fn near(a: &serde_json::Value, b: &serde_json::Value, share: f64) -> bool {
    use serde_json::Value::{Array, Number};
    match (a, b) {
        (Number(x), Number(y)) => match (x.as_f64(), y.as_f64()) {
            (Some(x), Some(y)) => (x - y).abs() <= share * y.abs(),
            _ => x == y,
        },
        (Array(x), Array(y)) => {
            x.len() == y.len() && x.iter().zip(y).all(|(x, y)| near(x, y, share))
        }
        _ => a == b,
    }
}
