//! What is inserted, and where.

use ndarray::{ArrayD, IxDyn};
use posenc_ir::{DType, Tensor};

use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::error::{Refusal, RewriteError};
use crate::plan::numbers::{Init, Numbers};
use crate::plan::swap::size::numbers_in;
use crate::report::Inferred;
use posenc_encodings::bias::ScoreBias;
use posenc_encodings::encoding::Encoding;
use posenc_encodings::input_term::InputTerm;
use posenc_encodings::kind::Kind;
use posenc_encodings::rotation::Rotation;
use posenc_encodings::score_term::ScoreTerm;

/// An encoding to insert.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EncodingSpec {
    InputTerm(InputSpec),
    Rotation(Box<dyn Rotation>),
    ScoreBias(BiasSpec),
    ScoreTerm(TermSpec),
}
impl EncodingSpec {
    /// The learned numbers.
    pub(crate) fn numbers(&mut self) -> Vec<&mut Numbers> {
        match self {
            Self::InputTerm(spec) => spec.tensors.iter_mut().collect(),
            Self::ScoreBias(spec) => spec.tensors.iter_mut().collect(),
            Self::ScoreTerm(spec) => spec.tensors.iter_mut().flatten().collect(),
            Self::Rotation(_) => vec![],
        }
    }

    /// The encoding, whatever the way of entry.
    pub(crate) fn encoding(&self) -> &dyn Encoding {
        match self {
            Self::InputTerm(spec) => &*spec.term,
            Self::Rotation(rotation) => &**rotation,
            Self::ScoreBias(spec) => &*spec.bias,
            Self::ScoreTerm(spec) => &*spec.term,
        }
    }
}

/// A term on the embeddings with its learned tensors.
#[derive(Clone, Debug)]
pub(crate) struct InputSpec {
    /// The term.
    pub(crate) term: Box<dyn InputTerm>,
    /// Its learned tensors, in the order of the family's list.
    pub(crate) tensors: Vec<Numbers>,
}

impl PartialEq for InputSpec {
    fn eq(&self, other: &Self) -> bool {
        *self.term == *other.term && self.tensors == other.tensors
    }
}

impl InputSpec {
    /// The values of the learned tensors for embeddings of width `dim`.
    ///
    /// # Errors
    /// Where a file gives one of other dimensions.
    pub(crate) fn values(&self, dim: usize) -> Result<Vec<ArrayD<f64>>, RewriteError> {
        values(&self.tensors, &self.term.tensors(dim))
    }

    /// The first rows as a table `[count, dim]`.
    ///
    /// # Errors
    /// As [`Self::values`], and where it would be too large.
    pub(crate) fn table(
        &self,
        [count, dim]: [usize; 2],
        dtype: DType,
    ) -> Result<Tensor, RewriteError> {
        let tensors = self.values(dim)?;
        numbers_in(&[count, dim])?;
        let positions: Vec<usize> = (0..count).collect();
        let rows = self.term.reference(&tensors, dim, &positions);
        let rows = rows.ok_or_else(|| {
            let why = format!("{} has no {count} rows", self.term.word());
            Refusal::unsupported(why)
        })?;
        let values: Vec<f64> = rows.iter().copied().collect();
        Ok(Tensor::from_f64(dtype, &[count, dim], &values))
    }
}

/// The values of learned tensors of these dimensions.
fn values(tensors: &[Numbers], dims: &[Vec<usize>]) -> Result<Vec<ArrayD<f64>>, RewriteError> {
    let values = tensors.iter().zip(dims).map(|(numbers, dims)| {
        let values = numbers.values(dims)?;
        Ok(ArrayD::from_shape_vec(IxDyn(dims), values).unwrap_or_default())
    });
    values.collect()
}

/// A bias on the scores with its learned tensors.
#[derive(Clone, Debug)]
pub(crate) struct BiasSpec {
    /// The bias.
    pub(crate) bias: Box<dyn ScoreBias>,
    /// Its learned tensors, in the order of the family's list.
    pub(crate) tensors: Vec<Numbers>,
}

impl PartialEq for BiasSpec {
    fn eq(&self, other: &Self) -> bool {
        *self.bias == *other.bias && self.tensors == other.tensors
    }
}

impl BiasSpec {
    /// The values of the learned tensors.
    ///
    /// # Errors
    /// Where a file gives one of other dimensions.
    pub(crate) fn values(&self) -> Result<Vec<ArrayD<f64>>, RewriteError> {
        values(&self.tensors, &self.bias.tensors())
    }
}

/// A term of vectors on the scores with its learned tensors.
#[derive(Clone, Debug)]
pub(crate) struct TermSpec {
    /// The term.
    pub(crate) term: Box<dyn ScoreTerm>,
    /// Its learned tensors, in the order of the family's list; `None` for one that is not used.
    pub(crate) tensors: Vec<Option<Numbers>>,
}

impl PartialEq for TermSpec {
    fn eq(&self, other: &Self) -> bool {
        *self.term == *other.term && self.tensors == other.tensors
    }
}

impl TermSpec {
    /// A learned tensor, where it is used.
    pub(crate) fn tensor(&self, tensor: usize) -> Option<&Numbers> {
        self.tensors.get(tensor)?.as_ref()
    }

    /// The values of a learned tensor; `None` where it is not used.
    ///
    /// # Errors
    /// Where a file gives one of other dimensions.
    pub(crate) fn values(&self, tensor: usize) -> Result<Option<ArrayD<f64>>, RewriteError> {
        let dims = self.term.tensors().into_iter().nth(tensor).flatten();
        let Some((numbers, dims)) = self.tensor(tensor).zip(dims) else {
            return Ok(None);
        };
        let values = numbers.values(&dims)?;
        Ok(ArrayD::from_shape_vec(IxDyn(&dims), values).ok())
    }
}

/// What a swap changes, and where.
#[derive(Clone, Debug)]
pub(crate) struct SwapPlan {
    /// The kind.
    pub(crate) kind: Kind,
    /// The sites, by their index in [`Found::attention`](crate::detect::Found::attention), in rising
    /// order.
    pub(crate) sites: Vec<usize>,
    /// What they get; none where nothing is inserted.
    pub(crate) groups: Vec<Group>,
    /// Whether positions come from an input that is added.
    pub(crate) add_position_ids: bool,
    /// Rows of tables, caches and buffers.
    pub(crate) max_length: Option<usize>,
    /// Values that the request did not give.
    pub(crate) inferred: Vec<Inferred>,
}

/// Sites that get the same.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) sites: Vec<usize>,
    pub(crate) new: EncodingSpec,
}

impl SwapPlan {
    /// Whether the plan changes a site.
    pub(crate) fn has(&self, site: usize) -> bool {
        self.sites.binary_search(&site).is_ok()
    }

    /// Whether a finding is to be removed: it acts on sites of the plan and, where it acts on all
    /// of a stack at once, on no others of self-attention.
    pub(crate) fn removes(&self, context: &Context<'_>, finding: &Finding) -> bool {
        let own = finding.sites.iter().copied();
        let mut own = own.filter(|site| !context.site(*site).cross).peekable();
        if finding.encoding.is_absolute() {
            own.peek().is_some() && own.all(|site| self.has(site))
        } else {
            own.any(|site| self.has(site))
        }
    }

    /// The plan with other groups.
    pub(crate) fn with(&self, groups: Vec<Group>) -> Self {
        Self {
            groups,
            ..self.clone()
        }
    }

    /// The groups with random numbers in place of zeros, which would not show where they are.
    pub(crate) fn with_random_values(&self) -> Vec<Group> {
        let mut groups = self.groups.clone();
        for (i, group) in groups.iter_mut().enumerate() {
            for (j, numbers) in group.new.numbers().into_iter().enumerate() {
                if numbers.is_zero() {
                    let seed = (16 * i + j) as u64;
                    *numbers = Numbers::Start(Init::Normal { std: 0.5, seed });
                }
            }
        }
        groups
    }
}
