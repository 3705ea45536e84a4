//! What is left of a value that is added to the scores when its biases are gone.
//!
//! A value that enters is a mask, a bias, or an expression in which both are joined. The last is
//! taken apart through what adds, selects, scales and moves; the parts that are masks are joined
//! again. Biases are told from masks by their numbers ([`Looks`]).

use std::rc::Rc;

use posenc_ir::{Emitter, NodeId, Tensor, ValueId};
use rustc_hash::FxHashMap;

use super::looks::{Look, Looks};
use super::moved::Moves;
use crate::attention::scores::MASKED;
use crate::detect::context::Context;
use crate::edit::remove::broadcast;
use crate::error::{Refusal, RewriteError};
use crate::graph::dataflow::Class;
use crate::graph::lane::is_layout;

/// Operators on the way from what enters to what it is made of.
const DEEPEST: usize = 100;

/// Values that are taken apart for one that enters; a value counts once for each factor with which
/// it reaches the scores.
const MOST: usize = 1000;

/// A value that takes the place of another one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Left {
    pub(crate) value: ValueId,
    /// Its dimensions in the trial run. They are those of the old value, or are broadcast to them.
    pub(crate) dims: Vec<usize>,
    /// One number, whatever is fed, as it reaches the scores: nothing to a softmax.
    level: Option<f64>,
}

/// What is left of a value: nothing, where all of it was bias.
pub(crate) type Rest = Option<Left>;

/// Takes values apart, each once.
pub(crate) struct BiasSplitter<'a> {
    context: Context<'a>,
    looks: Looks<'a>,
    moves: Moves<'a>,
    known: FxHashMap<(ValueId, u64), Rc<Rest>>,
    /// Values taken apart for the one that enters.
    steps: usize,
}

/// A value under way.
#[derive(Clone, Copy)]
struct At {
    value: ValueId,
    /// What it is multiplied by on the way to the scores.
    factor: f64,
    depth: usize,
}

impl At {
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
            looks: Looks::new(context),
            moves: Moves::new(context),
            known: FxHashMap::default(),
            steps: 0,
        }
    }

    /// What is left of a value that is added to scores, `factor` times.
    ///
    /// # Errors
    /// Where mask and bias cannot be told apart.
    pub(crate) fn rest(
        &mut self,
        out: &mut Emitter<'_>,
        value: ValueId,
        factor: f64,
    ) -> Result<Rest, RewriteError> {
        let at = At {
            value,
            factor,
            depth: 0,
        };
        self.steps = 0;
        let rest = self.strip(out, at)?;
        let counts = |left: &Left| left.level.is_none() || left.value == value;
        Ok((*rest).clone().filter(counts))
    }

    fn strip(&mut self, out: &mut Emitter<'_>, at: At) -> Result<Rc<Rest>, RewriteError> {
        let key = (at.value, at.factor.to_bits());
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        self.steps += 1;
        if self.steps > MOST {
            let name = self.context.graph().name(at.value);
            let why =
                format!("{name} follows from too many operations to tell mask and bias apart");
            return Err(self.refuse(at, why));
        }
        let look = self.looks.at(at.value, at.factor);
        let rest = match look {
            Look::Mask => Some(self.same(at, None)?),
            Look::Level(level) => Some(self.same(at, Some(level))?),
            _ => match self.parts(out, at)? {
                Some(rest) => rest,
                None => self.whole(out, at, look)?,
            },
        };
        let rest = Rc::new(rest);
        self.known.insert(key, rest.clone());
        Ok(rest)
    }

    fn same(&self, at: At, level: Option<f64>) -> Result<Left, RewriteError> {
        let dims = self.context.dims(at.value);
        let dims = dims.map(<[usize]>::to_vec);
        Ok(Left {
            value: at.value,
            dims: dims.ok_or_else(|| self.unclear(at))?,
            level,
        })
    }

    fn unclear(&self, at: At) -> RewriteError {
        let name = self.context.graph().name(at.value);
        let why = format!("what in {name} is mask and what is bias cannot be told");
        self.refuse(at, why)
    }

    fn refuse(&self, at: At, why: String) -> RewriteError {
        let graph = self.context.graph();
        let made = graph.producer(at.value).map(|p| p.0);
        let read = graph.uses(at.value).first().map(|u| u.node);
        match made.or(read) {
            Some(id) => self.context.refuse(id, why),
            None => Refusal::Unsupported(why).into(),
        }
    }

    /// What is left of a value that one operator joins, scales or moves; `None` for others, and
    /// where its numbers have to tell.
    fn parts(&mut self, out: &mut Emitter<'_>, at: At) -> Result<Option<Rest>, RewriteError> {
        let graph = self.context.graph();
        let Some((id, 0)) = graph.producer(at.value) else {
            return Ok(None);
        };
        let node = graph.node(id);
        let inputs: Option<Vec<ValueId>> = node.inputs().iter().copied().collect();
        let inner = at.depth < DEEPEST && node.domain().is_empty();
        let Some(inputs) = inputs.filter(|_| inner) else {
            return Ok(None);
        };
        match (node.op(), &inputs[..]) {
            ("Add" | "Sum", _) => self.sum(out, at, id, &inputs, 1.0),
            ("Sub", [_, _]) => self.sum(out, at, id, &inputs, -1.0),
            ("Where", [_, _, _]) => self.choice(out, at, id, &inputs),
            ("Mul", [a, b]) => match (self.number(*a), self.number(*b)) {
                (_, Some(factor)) => self.behind(out, at, id, 0, factor),
                (Some(factor), None) => self.behind(out, at, id, 1, factor),
                (None, None) => Ok(None),
            },
            ("Div", [_, b]) => match self.number(*b) {
                Some(divisor) => self.behind(out, at, id, 0, 1.0 / divisor),
                None => Ok(None),
            },
            ("Max" | "Min", [_, b]) if self.number(*b).is_some() => {
                self.behind(out, at, id, 0, 1.0)
            }
            ("Max" | "Min", [a, _]) if self.number(*a).is_some() => {
                self.behind(out, at, id, 1, 1.0)
            }
            ("Neg", [_]) => self.behind(out, at, id, 0, -1.0),
            ("Gather", [table, _]) if self.looks.at(*table, at.factor) == Look::Unknown => {
                // A table whose numbers are absent, of which distances pick rows.
                Ok(graph.stored(*table).map(|_| None))
            }
            ("Cast" | "CastLike" | "Identity" | "Slice" | "Gather", [_, ..]) => {
                self.behind(out, at, id, 0, 1.0)
            }
            (op, [_, ..]) if is_layout(op) => self.behind(out, at, id, 0, 1.0),
            _ => Ok(None),
        }
    }

    /// The only number of a value.
    fn number(&self, value: ValueId) -> Option<f64> {
        let number = self.context.found.trace.get(value).scalar_f64();
        number.filter(|n| n.is_finite() && *n != 0.0)
    }

    /// What is left behind an operator that scales or moves the input in this slot.
    fn behind(
        &mut self,
        out: &mut Emitter<'_>,
        at: At,
        id: NodeId,
        slot: usize,
        factor: f64,
    ) -> Result<Option<Rest>, RewriteError> {
        let Some(value) = self.context.graph().node(id).input(slot) else {
            return Ok(None);
        };
        let rest = self.strip(out, at.before(value, factor))?;
        let Some(left) = &*rest else {
            return Ok(Some(None));
        };
        if left.value == value {
            return Ok(Some(Some(self.same(at, left.level)?)));
        }
        if !self.context.dtype(at.value).is_float() {
            return Ok(None);
        }
        let level = left.level;
        let moved = self.moves.behind(out, id, slot, (left.value, &left.dims))?;
        Ok(moved.map(|(value, dims)| Some(Left { value, dims, level })))
    }

    /// What is left of a sum; the second summand counts `sign` times.
    fn sum(
        &mut self,
        out: &mut Emitter<'_>,
        at: At,
        id: NodeId,
        inputs: &[ValueId],
        sign: f64,
    ) -> Result<Option<Rest>, RewriteError> {
        let mut left: Vec<(usize, Left)> = vec![];
        for (i, value) in inputs.iter().enumerate() {
            let factor = if i == 0 { 1.0 } else { sign };
            let rest = self.strip(out, at.before(*value, factor))?;
            left.extend((*rest).clone().map(|l| (i, l)));
        }
        let same = |(i, l): &(usize, Left)| l.value == inputs[*i];
        if left.len() == inputs.len() && left.iter().all(same) {
            return Ok(Some(Some(self.same(at, None)?)));
        }
        left.retain(|(_, l)| hides(l));
        if !left.is_empty() && !self.context.dtype(at.value).is_float() {
            return Ok(None);
        }
        let dims = left
            .iter()
            .try_fold(vec![], |dims, (_, l)| broadcast(&dims, &l.dims));
        let Some(dims) = dims else { return Ok(None) };
        out.set_scope(self.context.graph().node(id).scope());
        let values: Vec<ValueId> = left.iter().map(|(_, l)| l.value).collect();
        let value = match (&values[..], &left[..]) {
            ([], _) => return Ok(Some(None)),
            ([one], [(1, _)]) if sign < 0.0 => out.op("Neg", &[*one]),
            ([one], _) => *one,
            ([a, b], _) if sign < 0.0 => out.op("Sub", &[*a, *b]),
            ([a, b], _) => out.op("Add", &[*a, *b]),
            _ => out.op("Sum", &values),
        };
        Ok(Some(Some(Left {
            value,
            dims,
            level: left.iter().map(|(_, l)| l.level).sum(),
        })))
    }

    /// What is left of a choice between two values.
    fn choice(
        &mut self,
        out: &mut Emitter<'_>,
        at: At,
        id: NodeId,
        inputs: &[ValueId],
    ) -> Result<Option<Rest>, RewriteError> {
        let mut kept = vec![];
        for value in &inputs[1..] {
            let rest = self.strip(out, at.before(*value, 1.0))?;
            kept.push((*rest).clone().filter(hides));
        }
        let same = kept.iter().zip(&inputs[1..]);
        if kept.iter().all(Option::is_none) {
            return Ok(Some(None));
        }
        if same
            .clone()
            .all(|(k, v)| k.as_ref().is_some_and(|l| l.value == *v))
        {
            return Ok(Some(Some(self.same(at, None)?)));
        }
        let dtype = self.context.dtype(at.value);
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
        for left in &kept {
            values.push(match left {
                Some(left) => left.value,
                None => out.scalar("no_bias", dtype, 0.0),
            });
        }
        let value = out.op("Where", &values);
        Ok(Some(Some(Left {
            value,
            dims,
            level: None,
        })))
    }

    /// What is left of a value by its numbers.
    fn whole(&mut self, out: &mut Emitter<'_>, at: At, look: Look) -> Result<Rest, RewriteError> {
        let (hidden, seen) = match look {
            Look::Bias => return Ok(None),
            Look::Both { hidden, seen } => (hidden, seen),
            _ => return Err(self.unclear(at)),
        };
        let dtype = self.context.dtype(at.value);
        let class = self.context.found.classes.of_value(at.value);
        if !dtype.is_float() {
            return Err(self.unclear(at));
        }
        if class == Class::CONSTANT {
            return self.numbers(out, at, hidden).map(Some);
        }
        // Numbers at other lengths than the trial's may be larger.
        let border = hidden.max(-1e30) / 2.0;
        if seen.abs() > border.abs() / 10.0 || hidden > 0.0 {
            return Err(self.unclear(at));
        }
        let Some((id, _)) = self.context.graph().producer(at.value) else {
            return Err(self.unclear(at));
        };
        out.set_scope(self.context.graph().node(id).scope());
        let border = out.scalar("hidden", dtype, border / at.factor);
        let zero = out.scalar("no_bias", dtype, 0.0);
        let hides = match at.factor > 0.0 {
            true => out.op("Less", &[at.value, border]),
            false => out.op("Greater", &[at.value, border]),
        };
        let value = out.op("Where", &[hides, at.value, zero]);
        let dims = self.same(at, None)?.dims;
        Ok(Some(Left {
            value,
            dims,
            level: None,
        }))
    }

    /// A constant of which only what hides is left.
    fn numbers(
        &mut self,
        out: &mut Emitter<'_>,
        at: At,
        hidden: f64,
    ) -> Result<Left, RewriteError> {
        let context = self.context;
        let data = context.found.trace.get(at.value).to_f64();
        let mut data = data.ok_or_else(|| self.unclear(at))?;
        // What is no number hides as well.
        data.mapv_inplace(|v| match v * at.factor <= hidden || v.is_nan() {
            true => v,
            false => 0.0,
        });
        // Heads that see the same share it.
        for axis in 0..data.ndim().saturating_sub(2) {
            let axis = ndarray::Axis(axis);
            let first = data.index_axis(axis, 0).to_owned();
            if data.axis_iter(axis).all(|one| one == first) {
                data = first.insert_axis(axis);
            }
        }
        let dims = data.shape().to_vec();
        let values: Vec<f64> = data.iter().copied().collect();
        out.set_scope(context.graph().value(at.value).scope());
        let tensor = Tensor::from_f64(context.dtype(at.value), &dims, &values);
        Ok(Left {
            value: out.constant("mask", tensor),
            dims,
            level: None,
        })
    }
}

/// Whether a value hides pairs, or may hide some where others have another one.
fn hides(left: &Left) -> bool {
    left.level.is_none_or(|level| level.abs() >= MASKED)
}
