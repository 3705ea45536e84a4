//! Terms on the embeddings: a row for each position, or a function of the embeddings themselves,
//! added once before all layers of a stack.
//!
//! A family of such terms implements [`InputTerm`].

use ndarray::{Array2, ArrayD};
use posenc_ir::{DType, Emitter, ValueId};

use crate::encoding::{Common, Encoding, GivenTensors, PlanError, Planned, Start, objects};
use crate::opset::Opset;

/// A term on the embeddings.
pub trait InputTerm: Encoding + Object {
    /// The term of a stack, from what is given.
    ///
    /// # Errors
    /// Where given values do not fit each other; [`PlanError::Missing`] where one is needed.
    fn plan(common: &Common, tensors: &GivenTensors) -> Result<Self, PlanError>
    where
        Self: Sized;

    /// Where the term is from.
    fn source(&self) -> Source;

    /// The width of the embeddings, where given tensors determine it.
    fn width(&self) -> Option<usize> {
        None
    }

    /// The dimensions of the learned tensors for embeddings of width `dim`, in the order of the
    /// family's list.
    fn tensors(&self, _dim: usize) -> Vec<Vec<usize>> {
        vec![]
    }

    /// What a learned tensor starts from where no file gives it.
    fn start(&self, _tensor: usize) -> Start {
        Start::constant(0.0)
    }

    /// The rows of positions, `[position, dim]`, in f64; `None` where one has no row, or the term
    /// is no function of the position. `tensors` are those of [`Self::tensors`].
    fn reference(
        &self,
        tensors: &[ArrayD<f64>],
        dim: usize,
        positions: &[usize],
    ) -> Option<Array2<f64>>;

    /// Radians per position of a column of rows that are sines and cosines; `None` for numbers that
    /// are stored.
    fn frequency(&self, _dim: usize, _column: usize) -> Option<f64> {
        None
    }

    /// Emits the rows `[.., token, dim]` of positions; `None` where they are not computed.
    fn emit(
        &self,
        _out: &mut Emitter<'_>,
        _opset: Opset,
        _dim: usize,
        _positions: Positions,
    ) -> Option<ValueId> {
        None
    }

    /// Whether `found`, as read from a graph that this was inserted into, is this.
    fn is_read_as(&self, found: &dyn Encoding) -> bool;

    /// Whether `found` in a model, which suffices for `max_length` positions, is what this
    /// describes, as far as values are given. Learned numbers are not compared.
    fn is_found_as(&self, found: &dyn Encoding, max_length: Option<usize>, common: &Common)
    -> bool;

    /// The same term for a context that is longer by this factor; `None` where the family does not
    /// support it.
    fn stretch(&self, _factor: f64) -> Option<Box<dyn InputTerm>> {
        None
    }
}

objects!(InputTerm);

/// Where a term on the embeddings is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A stored table of this many rows.
    Table(usize),
    /// Computed from positions.
    Computed,
    /// A convolution of the embeddings along the tokens, of this width: the learned tensors are
    /// weights `[dim, 1, width]` and a bias `[dim]`.
    Convolution(usize),
}

/// Positions in a graph.
#[derive(Clone, Copy, Debug)]
pub struct Positions {
    /// Their value, `[.., token]`.
    pub value: ValueId,
    /// The number of axes before the tokens.
    pub lead: usize,
    /// Their type, f32 or f64.
    pub dtype: DType,
}

/// The functions of a family of terms that need no instance.
#[derive(Clone, Copy, Debug)]
pub struct InputFamily {
    /// [`InputTerm::plan`].
    pub plan: fn(&Common, &GivenTensors) -> Planned<dyn InputTerm>,
    /// Whether it is a function of position ids.
    pub of_positions: bool,
}

impl InputFamily {
    /// The functions of this type.
    pub const fn of<T: InputTerm>(of_positions: bool) -> Self {
        Self {
            plan: plan::<T>,
            of_positions,
        }
    }
}

fn plan<T: InputTerm>(common: &Common, tensors: &GivenTensors) -> Planned<dyn InputTerm> {
    Ok(Box::new(T::plan(common, tensors)?))
}
