//! Distinguishes masks from biases, by their numbers in the trial run and in a second run with
//! padding.

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, Value, probe};
use posenc_ir::{DType, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::plane::{HIDDEN, MASKED};
use crate::detect::context::Context;
use crate::graph::dataflow::Class;
use crate::graph::ports::Role;
use crate::graph::ports::exchanged::{Exchanged, Seeds, exchanged, fewer};

/// The tokens at each end that are padding in the second run.
const PADDED: usize = 2;

const BUDGET: Budget = Budget { elements: 1 << 23 };

/// The effect of a value on the scores that it is added to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ScoreRole {
    /// The same number for all inputs.
    Constant(f64),
    /// Hides pairs and does nothing else.
    Mask,
    /// Numbers, none of which hides a pair.
    Bias,
    /// Numbers, of which low ones hide pairs.
    Mixed {
        /// The largest number that hides a pair.
        hidden: f64,
        /// The smallest number that does not.
        seen: f64,
    },
    /// The numbers are not known.
    Unknown,
}

/// Classifies values.
pub(crate) struct Classifier<'a> {
    context: Context<'a>,
    /// Padding for the second run, made on first use.
    padding: Option<FxHashMap<ValueId, Value>>,
    /// Runs with other tokens, made on first use.
    exchanged: Option<Vec<Exchanged>>,
}

impl<'a> Classifier<'a> {
    pub(crate) fn new(context: &Context<'a>) -> Self {
        Self {
            context: *context,
            padding: None,
            exchanged: None,
        }
    }

    /// The role of a value that is multiplied by `factor` and added to scores.
    pub(crate) fn role(&mut self, value: ValueId, factor: f64) -> ScoreRole {
        let class = self.context.found.classes.of_value(value);
        let fixed = !class.has(Class::PADDING) && !class.has(Class::POSITION);
        match self.numbers(value) {
            Some(numbers) => classify(numbers.iter().map(|v| v * factor), fixed),
            None => ScoreRole::Unknown,
        }
    }

    /// The numbers of a value in both runs.
    fn numbers(&mut self, value: ValueId) -> Option<Vec<f64>> {
        let context = self.context;
        let known = context.found.trace.get(value);
        if !BUDGET.allows(known.dims.as_deref()?) {
            return None;
        }
        let data = match known.to_f64() {
            Some(data) => data,
            None => self.computed(value)?,
        };
        let mut numbers: Vec<f64> = data.iter().copied().collect();
        if context.found.classes.of_value(value).has(Class::PADDING) {
            let padding = self.padding.get_or_insert_with(|| padding_seeds(&context));
            let trace = &context.found.trace;
            let again = probe(context.model, trace, padding, &[value], &BUDGET).ok()?;
            numbers.extend(again.first()?.to_f64()?);
        }
        Some(numbers)
    }

    /// Whether a value follows which tokens there are, and not where: it changes with the tokens,
    /// and moves with them.
    pub(crate) fn follows_tokens(&mut self, value: ValueId) -> bool {
        let context = self.context;
        let (found, class) = (context.found, context.found.classes.of_value(value));
        let small = context.dims(value).is_some_and(|dims| BUDGET.allows(dims));
        if !class.has(Class::PADDING) || class.has(Class::CONTENT) || !small {
            return false;
        }
        let known = found.trace.get(value).to_f64();
        let Some(base) = known.or_else(|| self.computed(value)) else {
            return false;
        };
        let runs = self
            .exchanged
            .get_or_insert_with(|| exchanged(context.graph(), &found.ports, &found.trace));
        let numbers = |seeds: &Seeds| {
            let again = probe(context.model, &found.trace, seeds, &[value], &BUDGET).ok()?;
            again.first()?.to_f64()
        };
        let mut changes = false;
        for run in &*runs {
            let Some(ends) = numbers(&run.ends) else {
                return false;
            };
            // What changes with a mask of pairs moves along two axes.
            let moves = match &run.moved {
                Some(moved) => numbers(moved)
                    .is_some_and(|moved| moved == rolled(&ends, run, found.lengths.past)),
                None => ends == base,
            };
            if !moves || base != rolled(&base, run, found.lengths.past) {
                return false;
            }
            changes |= ends != base;
        }
        changes
    }

    /// The numbers of a value that the trial run did not keep.
    fn computed(&self, value: ValueId) -> Option<ArrayD<f64>> {
        let (model, trace) = (self.context.model, &self.context.found.trace);
        let none = FxHashMap::default();
        let again = probe(model, trace, &none, &[value], &BUDGET).ok()?;
        again.first()?.to_f64()
    }
}

/// The numbers of a value with its tokens moved, along every axis that is as long as they are.
fn rolled(data: &ArrayD<f64>, run: &Exchanged, past: usize) -> ArrayD<f64> {
    ArrayD::from_shape_fn(data.raw_dim(), |mut at| {
        for axis in 0..data.ndim() {
            let before = match data.len_of(ndarray::Axis(axis)) {
                n if n == run.tokens => 0,
                n if n == run.tokens + past => past,
                _ => continue,
            };
            if at[axis] >= before {
                at[axis] = before + run.origin(at[axis] - before);
            }
        }
        data[at]
    })
}

/// The role of these numbers. A single number is constant if it is `fixed`, that is the same for
/// all inputs; otherwise it may be a mask that hides nothing in these runs.
fn classify(numbers: impl Iterator<Item = f64> + Clone, fixed: bool) -> ScoreRole {
    let numbers = numbers.map(|v| if v.is_nan() { f64::NEG_INFINITY } else { v });
    let (low, best) = numbers
        .clone()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, best), v| {
            (low.min(v), best.max(v))
        });
    if best == low {
        return if fixed {
            ScoreRole::Constant(best)
        } else {
            ScoreRole::Mask
        };
    }
    let border = (best - low >= HIDDEN)
        .then(|| border(numbers.clone()))
        .flatten();
    let seen = numbers.filter(|v| border.is_none_or(|(_, seen)| *v >= seen));
    match (border, variety(seen, best)) {
        (_, Variety::MaskPair) | (Some(_), Variety::One) => ScoreRole::Mask,
        (None, _) => ScoreRole::Bias,
        (Some((hidden, seen)), Variety::More) => ScoreRole::Mixed { hidden, seen },
    }
}

/// The largest number that hides pairs and the smallest that does not: those around the first gap
/// from the top that is too large for a bias.
fn border(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut pairs = sorted.windows(2);
    pairs.find_map(|pair| match *pair {
        [seen, hidden] if seen - hidden >= HIDDEN => Some((hidden, seen)),
        _ => None,
    })
}

/// How many distinct numbers there are.
enum Variety {
    One,
    /// Two, as far apart as the numbers of a mask.
    MaskPair,
    More,
}

fn variety(numbers: impl Iterator<Item = f64> + Clone, best: f64) -> Variety {
    let most = numbers.clone().map(f64::abs).filter(|v| v.is_finite());
    let near = 1e-9 * most.fold(0.0, f64::max);
    let mut other = None;
    for v in numbers.filter(|v| best - v > near) {
        match other {
            None => other = Some(v),
            Some(first) if f64::abs(first - v) <= near => {}
            Some(_) => return Variety::More,
        }
    }
    match other {
        None => Variety::One,
        Some(v) if best - v >= MASKED => Variety::MaskPair,
        Some(_) => Variety::More,
    }
}

/// Padding masks in which some tokens at the ends are padding: masks that are inputs, and those
/// that compare ids.
pub(crate) fn padding_seeds(context: &Context<'_>) -> FxHashMap<ValueId, Value> {
    let found = context.found;
    let classes = &found.classes;
    let is_padding = |v: ValueId| {
        let class = classes.of_value(v);
        class.has(Class::PADDING) && !class.has(Class::CONTENT)
    };
    let ports = found.ports.iter().filter(|p| p.role == Role::Padding);
    let mut values: Vec<ValueId> = ports.map(|p| p.value).collect();
    for (_, node) in context.graph().nodes() {
        let mut inputs = node.inputs().iter().flatten();
        if inputs.any(|v| classes.of_value(*v).has(Class::CONTENT)) {
            values.extend(node.outputs().iter().flatten().filter(|v| is_padding(**v)));
        }
    }
    let changed = |v: ValueId| Some((v, with_padding(found.trace.get(v))?));
    let mut seeds: FxHashMap<ValueId, Value> = values.into_iter().filter_map(changed).collect();
    let counts = found.ports.iter().filter(|p| p.role == Role::Counts);
    seeds.extend(counts.filter_map(|port| {
        let all = found.trace.get(port.value).to_f64()?;
        Some((port.value, fewer(port, &all, PADDED)))
    }));
    seeds
}

/// A padding mask with tokens at one end of each row marked as padding.
fn with_padding(value: &Value) -> Option<Value> {
    let dtype = value.dtype?;
    let mut data = value.to_f64()?;
    let last = *data.shape().last()?;
    let hide = |v: f64| match v {
        // This mask is added to the scores without a factor.
        0.0 if dtype.is_float() => -1e9,
        0.0 => 1.0,
        _ => 0.0,
    };
    for (at, v) in data.iter_mut().enumerate() {
        let (row, token) = (at / last, at % last);
        let hidden = if row % 2 == 0 {
            token < PADDED.min(last - 1)
        } else {
            token + PADDED >= last && token > 0
        };
        if hidden {
            *v = hide(*v);
        }
    }
    let value = match dtype {
        DType::Bool => Value::bool(data.mapv(|v| v != 0.0)),
        _ if dtype.is_float() => Value::float(data),
        _ => Value::int(data.mapv(|v| v as i64)),
    };
    Some(value.with_dtype(dtype))
}
