//! The trips of a loop one by one, where its numbers are known.

use ndarray::{Axis, arr0};

use super::array::{Array, each};
use super::concat::join;
use super::{Budget, Value};

/// Trips that are followed; a loop with more of them is run once.
const MOST: usize = 2048;

/// Runs a body with these values for its inputs, and gives its outputs; `None` where they do not fit.
pub(super) type Body<'a> = &'a mut dyn FnMut(Vec<Value>) -> Option<Vec<Value>>;

/// What a `Loop` gives after its last trip, from the most trips that it makes, whether it makes any and
/// what it carries at first; `None` where its trips cannot be counted, and where a trip tells no more
/// than the one before it.
pub(super) fn of_loop(
    (most, starts): (usize, bool),
    first: &[Value],
    budget: &Budget,
    body: Body<'_>,
) -> Option<Vec<Value>> {
    let mut goes_on = starts;
    let mut trips = Trips::new(first);
    while goes_on && trips.count < most {
        let trip = Value::int(arr0(trips.count as i64).into_dyn());
        let condition = Value::bool(arr0(true).into_dyn());
        let mut results = trips.next(vec![trip, condition], vec![], body)?;
        goes_on = results.remove(0).scalar_bool()?;
        trips.add(results)?;
    }
    trips.finish(budget)
}

/// The same for a `Scan`, of which `slices` are read one by one along these axes.
pub(super) fn of_scan(
    first: &[Value],
    slices: &[(Value, usize)],
    budget: &Budget,
    body: Body<'_>,
) -> Option<Vec<Value>> {
    let (read, axis) = slices.first()?;
    let length = *read.dims.as_ref()?.get(*axis)?;
    let mut trips = Trips::new(first);
    for at in 0..length {
        let own = slices.iter().map(|(v, axis)| slice(v, *axis, at, budget));
        let own: Vec<Value> = own.collect::<Option<_>>()?;
        let results = trips.next(vec![], own, body)?;
        trips.add(results)?;
    }
    trips.finish(budget)
}

/// What the trips up to now have given.
struct Trips {
    count: usize,
    carried: Vec<Value>,
    /// For each result that is not carried, its values.
    stacks: Vec<Vec<Value>>,
}

impl Trips {
    fn new(first: &[Value]) -> Self {
        Self {
            count: 0,
            carried: first.to_vec(),
            stacks: vec![],
        }
    }

    /// The outputs of the body for `before`, the carried values, and `behind`.
    fn next(&self, before: Vec<Value>, behind: Vec<Value>, body: Body<'_>) -> Option<Vec<Value>> {
        if self.count >= MOST {
            return None;
        }
        let results = body([before, self.carried.clone(), behind].concat())?;
        (!results.is_empty()).then_some(results)
    }

    /// Adds what one trip gives: carried values, then the others.
    fn add(&mut self, mut results: Vec<Value>) -> Option<()> {
        let others = results.split_off(self.carried.len().min(results.len()));
        let is_known = |v: &Value| v.data.is_some();
        let grows = |(a, b): (&Value, &Value)| a.dims != b.dims;
        let tells = results.iter().chain(&others).any(is_known)
            || self.carried.iter().zip(&results).any(grows);
        if !tells || results.len() != self.carried.len() {
            return None;
        }
        self.stacks.resize(others.len(), vec![]);
        for (stack, value) in self.stacks.iter_mut().zip(others) {
            stack.push(value);
        }
        self.carried = results;
        self.count += 1;
        Some(())
    }

    fn finish(self, budget: &Budget) -> Option<Vec<Value>> {
        let stacks = self.stacks.iter().map(|all| stacked(all, budget));
        let stacks: Vec<Value> = stacks.collect();
        // Nothing is known of what no trip gives.
        (self.count > 0).then(|| [self.carried, stacks].concat())
    }
}

/// Values along a new first axis.
fn stacked(values: &[Value], budget: &Budget) -> Value {
    let Some(first) = values.first() else {
        return Value::unknown();
    };
    let Some(dims) = first.dims.clone().filter(|_| {
        let mut others = values.iter();
        others.all(|v| v.dims == first.dims && v.dtype == first.dtype)
    }) else {
        return Value::shaped(first.dtype, None);
    };
    let one = [&[1], &dims[..]].concat();
    let all = [&[values.len()], &dims[..]].concat();
    let rows = || {
        let rows = values.iter().map(|v| v.array(budget)?.reshaped(&one));
        join(rows.collect::<Option<_>>()?, &all, 0)
    };
    match budget.allows(&all).then(rows).flatten() {
        Some(array) => Value::of(first.dtype, array),
        None => Value::shaped(first.dtype, Some(all)),
    }
}

/// The part of a value at an index of an axis.
fn slice(value: &Value, axis: usize, at: usize, budget: &Budget) -> Option<Value> {
    let mut dims = value.dims.clone()?;
    if axis >= dims.len() || at >= dims[axis] {
        return None;
    }
    dims.remove(axis);
    let pick = |array: Array| each!(array, |a| a.index_axis(Axis(axis), at).to_shared());
    Some(match value.array(budget) {
        Some(array) => Value::of(value.dtype, pick(array)),
        None => Value::shaped(value.dtype, Some(dims)),
    })
}
