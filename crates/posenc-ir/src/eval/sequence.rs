//! Elements and lengths of sequences, from the node that creates the sequence: sequences are not
//! values here.

use ndarray::arr0;

use super::concat::cut;
use super::gather::place;
use super::shape::{self, axis};
use super::{Budget, EvalError, Value, Why};
use crate::node::Node;

/// One element of a sequence, or its length, from the node that creates the sequence; no value where
/// that operator is unknown.
pub(super) fn read(
    node: &Node,
    inputs: &[Option<&Value>],
    maker: &Node,
    parts: &[Option<&Value>],
    budget: &Budget,
) -> Result<Vec<Value>, EvalError> {
    let Some(sequence) = Sequence::of(maker, parts, budget)? else {
        return Ok(Vec::new());
    };
    let length = sequence.len();
    if node.is("SequenceLength") {
        let length = i64::try_from(length).map_err(|_| Why::Dimension)?;
        return Ok(vec![Value::int(arr0(length).into_dyn())]);
    }
    let index = inputs.get(1).copied().flatten().ok_or(Why::NoInput(1))?;
    let Some(index) = index.scalar_i64() else {
        return Ok(Vec::new());
    };
    let index = place(index, length).ok_or(Why::Parameter("position"))?;
    Ok(vec![sequence.at(index, budget)])
}

/// Whether a node creates a sequence that `read` knows.
pub(super) fn is_maker(node: &Node) -> bool {
    node.is("SequenceConstruct") || node.is("SplitToSequence")
}

enum Sequence<'a> {
    /// A list of values.
    Listed(&'a [Option<&'a Value>]),
    /// Parts of a value with these lengths along an axis, which may be removed.
    Parted {
        x: &'a Value,
        dims: &'a [usize],
        along: usize,
        lengths: Lengths,
        single: bool,
    },
}

enum Lengths {
    Each(Vec<usize>),
    Equal(usize),
}

impl<'a> Sequence<'a> {
    fn of(
        maker: &Node,
        parts: &'a [Option<&'a Value>],
        budget: &Budget,
    ) -> Result<Option<Self>, EvalError> {
        if maker.is("SequenceConstruct") {
            return Ok(Some(Self::Listed(parts)));
        }
        if !maker.is("SplitToSequence") {
            return Ok(None);
        }
        let int = |name: &'static str| maker.int(name).map_err(|_| Why::Attribute(name));
        let along = int("axis")?.unwrap_or(0);
        let keep = int("keepdims")?.unwrap_or(1) != 0;
        let x = parts.first().copied().flatten().ok_or(Why::NoInput(0))?;
        let Some(dims) = x.dims.as_deref() else {
            return Ok(None);
        };
        let along = axis(along, dims.len())?;
        let (lengths, single) = match parts.get(1).copied().flatten() {
            None => (Lengths::Equal(1), !keep),
            Some(split) => match (split.ints(budget), split.dims.as_deref()) {
                (Some(all), Some([])) => {
                    let each = all.first().copied().filter(|n| *n > 0);
                    (
                        Lengths::Equal(shape::dim(each.ok_or(Why::Parameter("split"))?)?),
                        false,
                    )
                }
                (Some(all), Some(_)) => {
                    let all: Result<Vec<usize>, EvalError> =
                        all.into_iter().map(shape::dim).collect();
                    (Lengths::Each(all?), false)
                }
                _ => return Ok(None),
            },
        };
        if let Lengths::Each(all) = &lengths
            && shape::sum(all.iter().copied())? != dims[along]
        {
            return Err(Why::Parameter("split").into());
        }
        Ok(Some(Self::Parted {
            x,
            dims,
            along,
            lengths,
            single,
        }))
    }

    fn len(&self) -> usize {
        match self {
            Self::Listed(all) => all.len(),
            Self::Parted {
                lengths: Lengths::Each(all),
                ..
            } => all.len(),
            Self::Parted {
                lengths: Lengths::Equal(each),
                dims,
                along,
                ..
            } => dims[*along].div_ceil(*each),
        }
    }

    /// The element at an index within the length.
    fn at(&self, index: usize, budget: &Budget) -> Value {
        match self {
            Self::Listed(all) => all[index].cloned().unwrap_or_default(),
            Self::Parted {
                x,
                dims,
                along,
                lengths,
                single,
            } => {
                let (start, end) = match lengths {
                    Lengths::Equal(each) => {
                        let start = index * each;
                        (start, start.saturating_add(*each).min(dims[*along]))
                    }
                    Lengths::Each(all) => {
                        let start: usize = all[..index].iter().sum();
                        (start, start + all[index])
                    }
                };
                let mut result = dims.to_vec();
                result[*along] = end - start;
                if *single {
                    result.remove(*along);
                }
                let part = x.array(budget).map(|a| cut(a, *along, start, end));
                match part.and_then(|a| a.reshaped(&result)) {
                    Some(part) => Value::of(x.dtype, part),
                    None => Value::shaped(x.dtype, Some(result)),
                }
            }
        }
    }
}
