//! Runs of the evaluator that give dimensions and values to cut-out parts of a graph.

use std::borrow::Cow;

use posenc_ir::eval::{Budget, Trace, Value, trace};
use posenc_ir::{DType, Model, Tensor, ValueId};
use rustc_hash::FxHashMap;

use crate::detect::Found;
use crate::graph::dataflow::Class;
use crate::graph::ports::Lengths;

/// With more elements of content than this, the batch is reduced to one sequence.
const MANY: usize = 1 << 14;

/// The run whose dimensions the cut-out rotations have.
pub(crate) struct Trial<'a> {
    pub(crate) lengths: Lengths,
    pub(crate) trace: Cow<'a, Trace>,
    pub(crate) seeds: FxHashMap<ValueId, Value>,
}

impl<'a> Trial<'a> {
    /// The run of detection; with many or wide heads, another one with a single sequence.
    pub(crate) fn of(model: &Model, found: &'a Found) -> Self {
        let halves = found.rotary.iter().flat_map(|r| [&r.query, &r.key]);
        let content = halves.filter_map(|h| found.trace.get(h.region.input).elements());
        let wanted = Lengths {
            batch: 1,
            ..found.lengths
        };
        let single = found.ports.fit(wanted);
        if content.max().is_some_and(|n| n > MANY) && single == wanted {
            let (trace, seeds) = trial_run(model, found, single, &BUDGET);
            return Self {
                lengths: single,
                trace: Cow::Owned(trace),
                seeds,
            };
        }
        Self {
            lengths: found.lengths,
            trace: Cow::Borrowed(&found.trace),
            seeds: found.ports.seeds(model.graph(), found.lengths),
        }
    }
}

impl Trial<'static> {
    /// A run of one sequence; `None` if that of detection is one, or the declared shapes want more.
    pub(crate) fn single(model: &Model, found: &Found) -> Option<Self> {
        let wanted = Lengths {
            batch: 1,
            ..found.lengths
        };
        let is_other = found.lengths != wanted && found.ports.fit(wanted) == wanted;
        is_other.then(|| {
            let (trace, seeds) = trial_run(model, found, wanted, &BUDGET);
            Self {
                lengths: wanted,
                trace: Cow::Owned(trace),
                seeds,
            }
        })
    }
}

/// The most elements that a value of a run may have.
pub(crate) const BUDGET: Budget = Budget { elements: 1 << 20 };

/// A run of these lengths, and the values that were fed.
pub(crate) fn trial_run(
    model: &Model,
    found: &Found,
    at: Lengths,
    budget: &Budget,
) -> (Trace, FxHashMap<ValueId, Value>) {
    let seeds = found.ports.seeds(model.graph(), at);
    let opaque = |v| found.classes.of_value(v).has(Class::CONTENT);
    let trace = trace(model, &seeds, &opaque, budget);
    (trace, seeds)
}

/// The most elements of zeros to feed.
const ZEROS: usize = 1 << 27;

/// A tensor of zeros; `None` if it is too large to be fed.
pub(crate) fn zeros(dtype: DType, dims: &[usize]) -> Option<Tensor> {
    let count = dims.iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
    if count > ZEROS {
        return None;
    }
    let bytes = dtype.payload(count)?;
    Tensor::new(dtype, dims.to_vec(), vec![0; bytes].into())
}

/// The tensor to feed for a value of a trial run: its elements, or zeros for content.
pub(crate) fn feed(value: &Value) -> Option<Tensor> {
    let (dtype, dims) = (value.dtype?, value.dims.as_deref()?);
    match value.to_f64() {
        None => zeros(dtype, dims),
        Some(data) => {
            let values: Vec<f64> = data.iter().copied().collect();
            dtype
                .is_writable()
                .then(|| Tensor::from_f64(dtype, dims, &values))
        }
    }
}
