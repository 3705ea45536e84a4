//! Mask or bias, by the numbers of the trial run and of one in which some tokens do not count.

use ndarray::ArrayD;
use posenc_ir::eval::{Budget, Value, probe};
use posenc_ir::{DType, ValueId};
use rustc_hash::FxHashMap;

use crate::attention::scores::{HIDDEN, MASKED};
use crate::detect::context::Context;
use crate::graph::dataflow::Class;
use crate::graph::ports::Role;

/// Tokens at either end that do not count in the second run.
const HOLES: usize = 2;

const BUDGET: Budget = Budget { elements: 1 << 23 };

/// What a value is to the scores that it is added to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ScoreRole {
    /// One number, whatever is fed.
    Constant(f64),
    /// Nothing but hidden and seen pairs.
    Mask,
    /// Numbers of which none hides a pair.
    Bias,
    /// Numbers, and pairs hidden by those from here on down.
    Mixed {
        /// The largest number that hides.
        hidden: f64,
        /// The smallest that does not.
        seen: f64,
    },
    /// The numbers are not known.
    Unknown,
}

/// Classifier at values.
pub(crate) struct Classifier<'a> {
    context: Context<'a>,
    /// Padding with holes in it, made when it is first asked for.
    holes: Option<FxHashMap<ValueId, Value>>,
}

impl<'a> Classifier<'a> {
    pub(crate) fn new(context: &Context<'a>) -> Self {
        Self {
            context: *context,
            holes: None,
        }
    }

    /// What a value is where it is multiplied by `factor` on the way to the scores.
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
            let holes = self.holes.get_or_insert_with(|| padding_with_holes(&context));
            let trace = &context.found.trace;
            let again = probe(context.model, trace, holes, &[value], &BUDGET).ok()?;
            numbers.extend(again.first()?.to_f64()?);
        }
        Some(numbers)
    }

    /// The numbers of a value that the trial run did not keep.
    fn computed(&self, value: ValueId) -> Option<ArrayD<f64>> {
        let (model, trace) = (self.context.model, &self.context.found.trace);
        let none = FxHashMap::default();
        let again = probe(model, trace, &none, &[value], &BUDGET).ok()?;
        again.first()?.to_f64()
    }
}

/// What numbers are; one alone is a level where it is `fixed`, whatever is fed, else it may be a
/// mask that hides nothing here.
fn classify(numbers: impl Iterator<Item = f64> + Clone, fixed: bool) -> ScoreRole {
    let numbers = numbers.map(|v| if v.is_nan() { f64::NEG_INFINITY } else { v });
    let (low, best) = numbers
        .clone()
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, best), v| {
            (low.min(v), best.max(v))
        });
    if best == low {
        return if fixed { ScoreRole::Constant(best) } else { ScoreRole::Mask };
    }
    let border = match best - low >= HIDDEN {
        true => border(numbers.clone()),
        false => None,
    };
    let seen = numbers.filter(|v| border.is_none_or(|(_, seen)| *v >= seen));
    match (border, variety(seen, best)) {
        (_, Variety::MaskPair) => ScoreRole::Mask,
        (Some(_), Variety::One) => ScoreRole::Mask,
        (None, _) => ScoreRole::Bias,
        (Some((hidden, seen)), Variety::More) => ScoreRole::Mixed { hidden, seen },
    }
}

/// The largest number that hides pairs and the smallest that does not: those around the first gap,
/// from the top, that no bias leaves.
fn border(numbers: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let mut sorted: Vec<f64> = numbers.collect();
    sorted.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut pairs = sorted.windows(2);
    pairs.find_map(|pair| match *pair {
        [seen, hidden] if seen - hidden >= HIDDEN => Some((hidden, seen)),
        _ => None,
    })
}

/// How many numbers there are.
enum Variety {
    One,
    /// Two, as far apart as those of a mask.
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

/// Padding of which some tokens at either end do not count: where it is fed, and where ids are
/// compared.
pub(crate) fn padding_with_holes(context: &Context<'_>) -> FxHashMap<ValueId, Value> {
    let found = context.found;
    let classes = &found.classes;
    let padding = |v: ValueId| {
        let class = classes.of_value(v);
        class.has(Class::PADDING) && !class.has(Class::CONTENT)
    };
    let ports = found.ports.iter().filter(|p| p.role == Role::Padding);
    let mut values: Vec<ValueId> = ports.map(|p| p.value).collect();
    for (_, node) in context.graph().nodes() {
        let mut inputs = node.inputs().iter().flatten();
        if inputs.any(|v| classes.of_value(*v).has(Class::CONTENT)) {
            values.extend(node.outputs().iter().flatten().filter(|v| padding(**v)));
        }
    }
    let changed = |v: ValueId| Some((v, with_holes(found.trace.get(v))?));
    values.into_iter().filter_map(changed).collect()
}

/// The same with tokens at one end of each row turned from counting to not counting.
fn with_holes(value: &Value) -> Option<Value> {
    let dtype = value.dtype?;
    let mut data = value.to_f64()?;
    let last = *data.shape().last()?;
    let hide = |v: f64| match v {
        // Added to the scores as it is.
        0.0 if dtype.is_float() => -1e9,
        0.0 => 1.0,
        _ => 0.0,
    };
    for (at, v) in data.iter_mut().enumerate() {
        let (row, token) = (at / last, at % last);
        let hidden = match row % 2 {
            0 => token < HOLES.min(last - 1),
            _ => token + HOLES >= last && token > 0,
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
