//! Separates masks from biases in a value that is added to the scores.
//!
//! The value is a mask, a bias, or an expression that combines both. What follows the tokens and no
//! position, as a number for pairs of equal tokens, is kept as a mask is. Such an expression is followed
//! through operators that add, select, scale and move; the parts that are masks are combined again.
//! [`Classifier`] distinguishes masks from biases by their numbers.

use std::rc::Rc;

use posenc_ir::{Emitter, NodeId, Tensor, ValueId};
use rustc_hash::FxHashMap;

use super::classifier::{Classifier, ScoreRole};
use super::operator_copy::OperatorCopier;
use crate::attention::plane::{MASKED, Plane};
use crate::detect::context::Context;
use crate::edit::remove::broadcast::broadcast;
use crate::error::{Refusal, RewriteError};
use crate::graph::dataflow::Class;
use crate::graph::operators::{is_copy, is_layout};

/// The most operators between the value that is added and its parts.
const MAX_DEPTH: usize = 100;

/// The most values to split for one that is added. A value counts once for each factor by which it
/// is multiplied before it reaches the scores.
const MAX_VALUES: usize = 1000;

/// The mask in a value, and what else of it is no position.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MaskPart {
    pub(crate) value: ValueId,
    /// Its dimensions in the trial run, which are those of the whole value or broadcast to them.
    pub(crate) dims: Vec<usize>,
    /// The number that it adds to every score, if that is the same for all inputs: it has no effect
    /// on a softmax.
    constant: Option<f64>,
}

/// The mask in a value; `None` if all of it is bias.
pub(crate) type Split = Option<MaskPart>;

/// Splits values into mask and bias, each once.
pub(crate) struct BiasSplitter<'a> {
    context: Context<'a>,
    classifier: Classifier<'a>,
    copier: OperatorCopier<'a>,
    known: FxHashMap<(ValueId, u64), Rc<Split>>,
    /// Values split so far for the one that is added.
    steps: usize,
}

/// A part of the value that is added.
#[derive(Clone, Copy)]
struct Summand {
    value: ValueId,
    /// The factor by which it is multiplied before it reaches the scores.
    factor: f64,
    depth: usize,
}

impl Summand {
    fn before(self, value: ValueId, factor: f64) -> Self {
        Self {
            value,
            factor: self.factor * factor,
            depth: self.depth + 1,
        }
    }
}

impl<'a> BiasSplitter<'a> {
    pub(crate) fn new(context: &Context<'a>) -> Self {
        Self {
            context: *context,
            classifier: Classifier::new(context),
            copier: OperatorCopier::new(context),
            known: FxHashMap::default(),
            steps: 0,
        }
    }

    /// The mask in a value that is multiplied by `factor` and added to scores.
    ///
    /// # Errors
    /// If mask and bias cannot be separated.
    pub(crate) fn mask_part(
        &mut self,
        out: &mut Emitter<'_>,
        value: ValueId,
        factor: f64,
    ) -> Result<Split, RewriteError> {
        let summand = Summand {
            value,
            factor,
            depth: 0,
        };
        self.steps = 0;
        let split = self.split(out, summand)?;
        let counts = |mask: &MaskPart| mask.constant.is_none() || mask.value == value;
        Ok((*split).clone().filter(counts))
    }

    fn split(
        &mut self,
        out: &mut Emitter<'_>,
        summand: Summand,
    ) -> Result<Rc<Split>, RewriteError> {
        let key = (summand.value, summand.factor.to_bits());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        self.steps += 1;
        if self.steps > MAX_VALUES {
            let name = self.context.graph().name(summand.value);
            let why =
                format!("cannot separate mask and bias in {name}: too many operators compute it");
            return Err(self.refuse(summand, why));
        }
        let role = self.classifier.role(summand.value, summand.factor);
        let split = match role {
            ScoreRole::Mask => Some(self.unchanged(summand, None)?),
            ScoreRole::Constant(constant) => Some(self.unchanged(summand, Some(constant))?),
            _ if self.classifier.follows_tokens(summand.value) => {
                Some(self.unchanged(summand, None)?)
            }
            _ => match self.split_operator(out, summand)? {
                Some(split) => split,
                None => self.split_numbers(out, summand, role)?,
            },
        };
        let split = Rc::new(split);
        self.known.insert(key, split.clone());
        Ok(split)
    }

    fn unchanged(&self, summand: Summand, constant: Option<f64>) -> Result<MaskPart, RewriteError> {
        let dims = self.context.dims(summand.value);
        let dims = dims.map(<[usize]>::to_vec);
        Ok(MaskPart {
            value: summand.value,
            dims: dims.ok_or_else(|| self.ambiguous(summand))?,
            constant,
        })
    }

    fn ambiguous(&self, summand: Summand) -> RewriteError {
        let name = self.context.graph().name(summand.value);
        let why = format!("cannot separate mask and bias in {name}");
        self.refuse(summand, why)
    }

    fn refuse(&self, summand: Summand, why: String) -> RewriteError {
        let graph = self.context.graph();
        let producer = graph.producer(summand.value).map(|p| p.0);
        let reader = graph.uses(summand.value).first().map(|u| u.node);
        match producer.or(reader) {
            Some(id) => self.context.refuse(id, why),
            None => Refusal::unsupported(why).into(),
        }
    }

    /// The mask in the result of an operator that adds, selects, scales or moves; `None` for other
    /// operators, and if only the numbers of the value can decide.
    fn split_operator(
        &mut self,
        out: &mut Emitter<'_>,
        summand: Summand,
    ) -> Result<Option<Split>, RewriteError> {
        let graph = self.context.graph();
        let Some((id, 0)) = graph.producer(summand.value) else {
            return Ok(None);
        };
        let node = graph.node(id);
        let inputs: Option<Vec<ValueId>> = node.inputs().iter().copied().collect();
        let inner = summand.depth < MAX_DEPTH && node.domain().is_empty();
        let Some(inputs) = inputs.filter(|_| inner) else {
            return Ok(None);
        };
        match (node.op(), &inputs[..]) {
            ("Add" | "Sum", _) => self.sum(out, summand, id, &inputs, 1.0),
            ("Sub", [_, _]) => self.sum(out, summand, id, &inputs, -1.0),
            ("Where", [_, _, _]) => self.select(out, summand, id, &inputs),
            ("Mul", [a, b]) => match (self.number(*a), self.number(*b)) {
                (_, Some(factor)) => self.through(out, summand, id, 0, factor),
                (Some(factor), None) => self.through(out, summand, id, 1, factor),
                (None, None) => Ok(None),
            },
            ("Div", [_, b]) => match self.number(*b) {
                Some(divisor) => self.through(out, summand, id, 0, 1.0 / divisor),
                None => Ok(None),
            },
            ("Max" | "Min", [_, b]) if self.number(*b).is_some() => {
                self.through(out, summand, id, 0, 1.0)
            }
            ("Max" | "Min", [a, _]) if self.number(*a).is_some() => {
                self.through(out, summand, id, 1, 1.0)
            }
            ("Neg", [_]) => self.through(out, summand, id, 0, -1.0),
            ("Gather", [table, _])
                if self.classifier.role(*table, summand.factor) == ScoreRole::Unknown =>
            {
                // A table whose numbers are absent, with rows selected by distance.
                Ok(graph.stored(*table).map(|_| None))
            }
            ("Slice" | "Gather", [_, ..]) => self.through(out, summand, id, 0, 1.0),
            (op, [_, ..]) if is_layout(op) || is_copy(op) => self.through(out, summand, id, 0, 1.0),
            _ => Ok(None),
        }
    }

    /// The number of a value with one element, if it is finite and not zero.
    fn number(&self, value: ValueId) -> Option<f64> {
        let number = self.context.found.trace.get(value).scalar_f64();
        number.filter(|n| n.is_finite() && *n != 0.0)
    }

    /// The mask in the result of an operator that scales or moves the input in this slot.
    fn through(
        &mut self,
        out: &mut Emitter<'_>,
        summand: Summand,
        id: NodeId,
        slot: usize,
        factor: f64,
    ) -> Result<Option<Split>, RewriteError> {
        let Some(value) = self.context.graph().node(id).input(slot) else {
            return Ok(None);
        };
        let split = self.split(out, summand.before(value, factor))?;
        let Some(mask) = &*split else {
            return Ok(Some(None));
        };
        if mask.value == value {
            return Ok(Some(Some(self.unchanged(summand, mask.constant)?)));
        }
        if !self.context.dtype(summand.value).is_float() {
            return Ok(None);
        }
        let constant = mask.constant;
        let moved = self
            .copier
            .copy_onto(out, id, slot, (mask.value, &mask.dims))?;
        Ok(moved.map(|(value, dims)| {
            Some(MaskPart {
                value,
                dims,
                constant,
            })
        }))
    }

    /// The mask in a sum. Summands after the first are multiplied by `sign`.
    fn sum(
        &mut self,
        out: &mut Emitter<'_>,
        summand: Summand,
        id: NodeId,
        inputs: &[ValueId],
        sign: f64,
    ) -> Result<Option<Split>, RewriteError> {
        let mut masks: Vec<(usize, MaskPart)> = vec![];
        for (i, value) in inputs.iter().enumerate() {
            let factor = if i == 0 { 1.0 } else { sign };
            let split = self.split(out, summand.before(*value, factor))?;
            masks.extend((*split).clone().map(|l| (i, l)));
        }
        let same = |(i, l): &(usize, MaskPart)| l.value == inputs[*i];
        if masks.len() == inputs.len() && masks.iter().all(same) {
            return Ok(Some(Some(self.unchanged(summand, None)?)));
        }
        masks.retain(|(_, l)| hides(l));
        if !masks.is_empty() && !self.context.dtype(summand.value).is_float() {
            return Ok(None);
        }
        let dims = masks
            .iter()
            .try_fold(vec![], |dims, (_, l)| broadcast(&dims, &l.dims));
        let Some(dims) = dims else { return Ok(None) };
        out.set_scope(self.context.graph().node(id).scope());
        let values: Vec<ValueId> = masks.iter().map(|(_, l)| l.value).collect();
        let value = match (&values[..], &masks[..]) {
            ([], _) => return Ok(Some(None)),
            ([one], [(1, _)]) if sign < 0.0 => out.op("Neg", &[*one]),
            ([one], _) => *one,
            ([a, b], _) if sign < 0.0 => out.op("Sub", &[*a, *b]),
            ([a, b], _) => out.op("Add", &[*a, *b]),
            _ => out.op("Sum", &values),
        };
        Ok(Some(Some(MaskPart {
            value,
            dims,
            constant: masks.iter().map(|(_, l)| l.constant).sum(),
        })))
    }

    /// The mask in a `Where`.
    fn select(
        &mut self,
        out: &mut Emitter<'_>,
        summand: Summand,
        id: NodeId,
        inputs: &[ValueId],
    ) -> Result<Option<Split>, RewriteError> {
        let mut kept = vec![];
        // What tokens select is theirs, also where it is one number.
        let selected = self.classifier.follows_tokens(inputs[0]);
        let counts = |part: &MaskPart| hides(part) || selected && part.constant != Some(0.0);
        for value in &inputs[1..] {
            let split = self.split(out, summand.before(*value, 1.0))?;
            kept.push((*split).clone().filter(counts));
        }
        let same = kept.iter().zip(&inputs[1..]);
        if kept.iter().all(Option::is_none) {
            return Ok(Some(None));
        }
        if same
            .clone()
            .all(|(k, v)| k.as_ref().is_some_and(|l| l.value == *v))
        {
            return Ok(Some(Some(self.unchanged(summand, None)?)));
        }
        let dtype = self.context.dtype(summand.value);
        let condition = self.context.dims(inputs[0]);
        let dims = kept.iter().flatten().map(|l| &l.dims);
        let dims = dims.fold(condition.map(<[usize]>::to_vec), |all, one| {
            broadcast(&all?, one)
        });
        let Some(dims) = dims.filter(|_| dtype.is_float()) else {
            return Ok(None);
        };
        out.set_scope(self.context.graph().node(id).scope());
        let mut values = vec![inputs[0]];
        for mask in &kept {
            values.push(match mask {
                Some(mask) => mask.value,
                None => out.scalar("no_bias", dtype, 0.0),
            });
        }
        let value = out.op("Where", &values);
        Ok(Some(Some(MaskPart {
            value,
            dims,
            constant: None,
        })))
    }

    /// The mask in a value, by its numbers.
    fn split_numbers(
        &mut self,
        out: &mut Emitter<'_>,
        summand: Summand,
        role: ScoreRole,
    ) -> Result<Split, RewriteError> {
        let (hidden, seen) = match role {
            ScoreRole::Bias => return Ok(self.mask_of_windows(out, summand)),
            ScoreRole::Mixed { hidden, seen } => (hidden, seen),
            _ => return Err(self.ambiguous(summand)),
        };
        let dtype = self.context.dtype(summand.value);
        let class = self.context.found.classes.of_value(summand.value);
        if !dtype.is_float() {
            return Err(self.ambiguous(summand));
        }
        if class == Class::CONSTANT {
            return self.split_constant(out, summand, hidden).map(Some);
        }
        // At other lengths than that of the trial run, numbers may be larger.
        let border = hidden.max(-1e30) / 2.0;
        if seen.abs() > border.abs() / 10.0 || hidden > 0.0 {
            return Err(self.ambiguous(summand));
        }
        let Some((id, _)) = self.context.graph().producer(summand.value) else {
            return Err(self.ambiguous(summand));
        };
        out.set_scope(self.context.graph().node(id).scope());
        let border = out.scalar("hidden", dtype, border / summand.factor);
        let zero = out.scalar("no_bias", dtype, 0.0);
        let less = if summand.factor > 0.0 {
            "Less"
        } else {
            "Greater"
        };
        let hides = out.op(less, &[summand.value, border]);
        let value = out.op("Where", &[hides, summand.value, zero]);
        let dims = self.unchanged(summand, None)?.dims;
        Ok(Some(MaskPart {
            value,
            dims,
            constant: None,
        }))
    }

    /// A constant with what hides pairs in some windows alone; `None` where the windows have the same numbers.
    fn mask_of_windows(&self, out: &mut Emitter<'_>, summand: Summand) -> Split {
        let context = self.context;
        let known = context.found.trace.get(summand.value);
        let dims = known.dims.as_deref()?;
        let is_constant = context.found.classes.of_value(summand.value).is_constant();
        let windows = by_window(dims).filter(|_| is_constant)?;
        let numbers = known.to_f64()?.mapv(|v| v * summand.factor);
        let numbers = numbers.to_shape(windows).ok()?.into_owned();
        let (_, masks) = Plane::new(numbers).lifted()?;
        if masks.iter().all(|mask| *mask == 0.0) {
            return None;
        }
        let mut dims = dims.to_vec();
        let heads = dims.len() - 3;
        dims[heads] = 1;
        let values: Vec<f64> = masks.iter().map(|mask| -mask / summand.factor).collect();
        Some(self.stored_mask(out, summand, (dims, &values)))
    }

    /// A mask of these dimensions and numbers, in place of a constant.
    fn stored_mask(
        &self,
        out: &mut Emitter<'_>,
        summand: Summand,
        (dims, values): (Vec<usize>, &[f64]),
    ) -> MaskPart {
        let context = self.context;
        out.set_scope(context.graph().value(summand.value).scope());
        let tensor = Tensor::from_f64(context.dtype(summand.value), &dims, values);
        MaskPart {
            value: out.constant("mask", tensor),
            dims,
            constant: None,
        }
    }

    /// A constant with the numbers that hide pairs, and zeros elsewhere.
    fn split_constant(
        &mut self,
        out: &mut Emitter<'_>,
        summand: Summand,
        hidden: f64,
    ) -> Result<MaskPart, RewriteError> {
        let context = self.context;
        let data = context.found.trace.get(summand.value).to_f64();
        let mut data = data.ok_or_else(|| self.ambiguous(summand))?;
        // NaN hides a pair, too.
        data.mapv_inplace(|v| {
            let hides = v * summand.factor <= hidden || v.is_nan();
            if hides { v } else { 0.0 }
        });
        // Heads with the same mask share it.
        for axis in 0..data.ndim().saturating_sub(2) {
            let axis = ndarray::Axis(axis);
            let first = data.index_axis(axis, 0).to_owned();
            if data.axis_iter(axis).all(|one| one == first) {
                data = first.insert_axis(axis);
            }
        }
        let dims = data.shape().to_vec();
        let values: Vec<f64> = data.iter().copied().collect();
        Ok(self.stored_mask(out, summand, (dims, &values)))
    }
}

/// The sizes of windows, heads, queries and keys of numbers that differ between windows; `None` for fewer axes.
fn by_window(dims: &[usize]) -> Option<[usize; 4]> {
    let (windows, [heads, queries, keys]) = dims.split_last_chunk()?;
    let count = windows.iter().product();
    (count > 1).then_some([count, *heads, *queries, *keys])
}

/// Whether a mask hides pairs, or may hide some of them.
fn hides(mask: &MaskPart) -> bool {
    mask.constant
        .is_none_or(|constant| constant.abs() >= MASKED)
}
