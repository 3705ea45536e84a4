//! What the lengths of axes are computed from, and whether they are the same in every run.

use std::cell::{OnceCell, RefCell};

use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{Dim, Node, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::stream::{self, Tokens};
use crate::detect::Runs;
use crate::detect::context::Context;
use crate::graph::dataflow::Class;
use crate::graph::lane::{Lane, back, wrap};

/// An axis of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ValueAxis {
    pub(crate) value: ValueId,
    pub(crate) axis: usize,
}

/// Facts about the axes of a graph, found once for all sites.
pub(crate) struct Axes<'a> {
    pub(crate) context: &'a Context<'a>,
    /// A run with a batch of one.
    single: OnceCell<Option<Trace>>,
    /// A run with a batch of one and more tokens.
    longer: OnceCell<Option<Trace>>,
    origins: RefCell<Origins>,
}

/// The origin of each axis; `None` if it cannot be traced.
type Origins = FxHashMap<ValueAxis, Option<ValueAxis>>;

/// The most values to search for an origin.
const MAX_VALUES: usize = 4096;

/// The limit for a run with another batch, of which only dimensions are read.
const SINGLE: Budget = Budget { elements: 1 << 12 };

/// The limit for a longer run, in which dimensions may depend on positions and masks.
const LONGER: Budget = Budget { elements: 1 << 22 };

impl<'a> Axes<'a> {
    pub(crate) fn new(context: &'a Context<'a>) -> Self {
        Self {
            context,
            single: OnceCell::new(),
            longer: OnceCell::new(),
            origins: RefCell::default(),
        }
    }

    /// The axis of an input that determines the length of an axis; the axis itself if there is
    /// none.
    pub(crate) fn origin(&self, at: ValueAxis) -> ValueAxis {
        origin(self.context, &mut self.origins.borrow_mut(), at)
    }

    /// Reads a longer run; `None` if there is none.
    pub(crate) fn longer<T>(&self, read: impl FnOnce(&Trace) -> T) -> Option<T> {
        let sequence = 2 * self.context.found.lengths.sequence + 1;
        let run = || self.run(sequence, &LONGER);
        self.longer.get_or_init(run).as_ref().map(read)
    }

    /// Whether an axis has this length in every run: only the first axes of inputs are variable,
    /// and the length is the same with another batch and, if possible, more tokens.
    pub(crate) fn is_fixed(&self, at: ValueAxis, length: usize) -> bool {
        let ports = || self.context.found.ports.iter();
        let open = |dim: &Dim| !matches!(dim, Dim::Known(_));
        if ports().any(|p| p.dims.iter().skip(1).any(open)) {
            return false;
        }
        let whole = |dims: &[Dim]| !matches!(dims.first(), Some(Dim::Symbol(_) | Dim::Unknown));
        if ports().all(|p| whole(&p.dims)) {
            return true;
        }
        let same = |trace: &Trace| {
            let dims = trace.get(at.value).dims.as_ref();
            dims.and_then(|d| d.get(at.axis)) == Some(&length)
        };
        let sequence = self.context.found.lengths.sequence;
        let run = || self.run(sequence, &SINGLE);
        let single = self.single.get_or_init(run);
        single.as_ref().is_some_and(same) && self.longer(same).unwrap_or(true)
    }

    fn run(&self, sequence: usize, budget: &Budget) -> Option<Trace> {
        Runs::new(self.context.model, self.context.found).once(sequence, budget)
    }
}

/// The axis of an input that determines the length of an axis. Records it for all axes on the path.
fn origin(context: &Context<'_>, origins: &mut Origins, at: ValueAxis) -> ValueAxis {
    let graph = context.graph();
    let length = |at: ValueAxis| context.dims(at.value)?.get(at.axis).copied();
    let Some(wanted) = length(at) else {
        return at;
    };
    let mut stack = vec![(at, None)];
    // Each axis, with the one from which it was reached.
    let mut seen: FxHashMap<ValueAxis, Option<ValueAxis>> = FxHashMap::default();
    while let Some((at, from)) = stack.pop() {
        if seen.contains_key(&at) || seen.len() > MAX_VALUES {
            continue;
        }
        seen.insert(at, from);
        let found = match origins.get(&at) {
            Some(None) => continue,
            Some(known) => *known,
            None if graph.producer(at.value).is_none() => {
                let fed = context.found.ports.iter().any(|p| p.value == at.value);
                fed.then_some(at)
            }
            None => None,
        };
        if found.is_some() {
            let path = std::iter::successors(Some(at), |at| seen.get(at).copied().flatten());
            origins.extend(path.map(|at| (at, found)));
            return found.unwrap_or(at);
        }
        let Some((id, output)) = graph.producer(at.value) else {
            continue;
        };
        let node = graph.node(id);
        // The first operands are tried first.
        for slot in (0..node.inputs().len()).rev() {
            let Some(value) = node.input(slot).filter(|v| context.is_content(*v)) else {
                continue;
            };
            let axis = match node.op() {
                "Gather" if node.domain().is_empty() && slot == 1 => gathered(context, id, at.axis),
                _ => along(context, id, output, slot, at.axis),
            };
            let axis = axis.filter(|axis| !may_cut(context, node, *axis));
            let next = axis.map(|axis| ValueAxis { value, axis });
            let next = next.filter(|next| length(*next) == Some(wanted));
            stack.extend(next.map(|next| (next, Some(at))));
        }
    }
    // The search was complete, so none of them leads to an input.
    if seen.len() <= MAX_VALUES {
        origins.extend(seen.into_keys().map(|at| (at, None)));
    }
    at
}

/// The only axis of an input that becomes an axis of an output.
fn along(
    context: &Context<'_>,
    id: NodeId,
    output: usize,
    slot: usize,
    axis: usize,
) -> Option<usize> {
    let (graph, trace) = (context.graph(), &context.found.trace);
    let lane = back(graph, trace, id, output, slot, Lane::of_sequence(axis));
    let all = || {
        let axes = stream::back(graph, trace, id, output, slot, Tokens::one(axis))?;
        let mut axes = axes.iter();
        axes.next().filter(|_| axes.next().is_none())
    };
    lane.map(|lane| lane.sequence).or_else(all)
}

/// Whether this is a `Slice` that may leave out elements of a longer axis, though it leaves out none here: those before a
/// start that is not always 0, or those behind an end that is not the last.
fn may_cut(context: &Context<'_>, node: &Node, axis: usize) -> bool {
    if !node.is("Slice") {
        return false;
    }
    let list = |slot: usize, name: &str| -> Option<Vec<i64>> {
        let Some(value) = node.input(slot) else {
            return node.ints(name).ok()?.map(<[i64]>::to_vec);
        };
        let is_constant = context.found.classes.of_value(value) == Class::CONSTANT;
        let numbers = context.found.trace.get(value).to_i64()?;
        is_constant.then(|| numbers.iter().copied().collect())
    };
    let rank = node.input(0).and_then(|value| context.dims(value));
    let rank = rank.map_or(0, <[usize]>::len);
    let axes = list(3, "axes").unwrap_or_else(|| (0..rank as i64).collect());
    let Some(i) = axes.iter().position(|a| wrap(*a, rank) == Some(axis)) else {
        return false;
    };
    let bound = |slot, name| list(slot, name)?.get(i).copied();
    let is_last = bound(2, "ends").is_some_and(|end| end >= i64::from(i32::MAX));
    bound(1, "starts") != Some(0) || !is_last
}

/// The axis of the index of a `Gather` that becomes an axis of its result.
fn gathered(context: &Context<'_>, id: NodeId, axis: usize) -> Option<usize> {
    let node = context.graph().node(id);
    let data = context.dims(node.input(0)?)?.len();
    let index = context.dims(node.input(1)?)?.len();
    let along = wrap(node.int("axis").ok()?.unwrap_or(0), data)?;
    axis.checked_sub(along).filter(|a| *a < index)
}

/// The axis of the sequences of a batch in queries or keys, if they have one of their own.
pub(crate) fn batch_axis(context: &Context<'_>, value: ValueId, lane: &Lane) -> Option<usize> {
    let others = (0..context.dims(value)?.len())
        .filter(|axis| *axis != lane.sequence && Some(*axis) != lane.feature);
    let mut found = others.filter(|axis| {
        let at = ValueAxis { value, axis: *axis };
        at.is_batch_of_heads(context)
    });
    found.next().filter(|_| found.next().is_none())
}

impl ValueAxis {
    /// Whether an axis is the batch axis of an input.
    pub(crate) fn is_batch(self, context: &Context<'_>) -> bool {
        let origin = origin(context, &mut Origins::default(), self);
        let port = context.found.ports.iter().any(|p| p.value == origin.value);
        port && origin.axis == 0 && self.is_as_long(context)
    }

    /// Whether an axis of queries or keys is the batch axis: it exists before the projection, or
    /// is the batch of an input.
    fn is_batch_of_heads(self, context: &Context<'_>) -> bool {
        let (graph, trace) = (context.graph(), &context.found.trace);
        if !self.is_as_long(context) {
            return false;
        }
        let mut stack = vec![(self.value, Tokens::one(self.axis))];
        let mut seen = FxHashSet::default();
        while let Some((value, axes)) = stack.pop() {
            if !seen.insert(value) || seen.len() > MAX_VALUES {
                continue;
            }
            let Some((id, output)) = graph.producer(value) else {
                if context.found.ports.iter().any(|p| p.value == value) && axes.has(0) {
                    return true;
                }
                continue;
            };
            let node = graph.node(id);
            for slot in (0..node.inputs().len()).rev() {
                let input = node.input(slot).filter(|v| context.is_content(*v));
                let before = stream::back(graph, trace, id, output, slot, axes);
                let Some(step) = input.zip(before) else {
                    continue;
                };
                if crate::graph::operators::is_projection(node) {
                    return true;
                }
                stack.push(step);
            }
        }
        false
    }

    /// Whether an axis is as long as the batch.
    fn is_as_long(self, context: &Context<'_>) -> bool {
        let length = context.dims(self.value).and_then(|d| d.get(self.axis));
        length == Some(&context.found.lengths.batch)
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::DType;

    use super::*;
    use crate::detect::{Options, detect};
    use crate::edit::insert::length::Length;
    use crate::graph::sketch::{HIDDEN, Sketch};

    /// Reads the first output of a graph with ids of these dimensions.
    fn of<T>(
        dims: &[&str],
        make: impl Fn(&mut Sketch, &str) -> String,
        read: impl Fn(&Axes<'_>, ValueId) -> T,
    ) -> T {
        let mut s = Sketch::default();
        let ids = s.input("input_ids", DType::I64, dims);
        let table = s.weights(&[30, HIDDEN]);
        let x = s.gather(&table, &ids, 0);
        let y = make(&mut s, &x);
        let model = s.model(17, &[&y]);
        let found = detect(&model, &Options::default());
        let context = Context {
            model: &model,
            found: &found,
        };
        let graph = model.graph();
        read(&Axes::new(&context), graph.scope(graph.main()).outputs()[0])
    }

    /// The length of an axis along which a value is concatenated with itself.
    fn twice(dims: &[&str], axis: usize) -> Length {
        let make = |s: &mut Sketch, x: &str| s.concat(&[x, x], axis as i64);
        of(dims, make, |axes, value| {
            Length::of(axes, ValueAxis { value, axis })
        })
    }

    #[test]
    fn a_length_is_known_where_every_run_has_it() {
        assert_eq!(twice(&["batch", "12"], 1), Length::Known(24));
        assert_eq!(twice(&["2", "12"], 1), Length::Known(24));
        assert_eq!(twice(&["2", "12"], 0), Length::Known(4));
        assert_eq!(twice(&["12"], 0), Length::Known(24));
    }

    #[test]
    fn a_length_that_follows_the_batch_or_the_tokens_is_not_known() {
        for (dims, axis) in [
            (&["batch", "12"][..], 0),
            (&["batch", "sequence"], 1),
            (&["2", "sequence"], 1),
            // It does not change with the batch: its first axis is that of the tokens.
            (&["sequence"], 0),
        ] {
            assert!(matches!(twice(dims, axis), Length::Of(_)), "{dims:?}");
        }
    }

    #[test]
    fn an_origin_is_found_from_any_value_on_the_path() {
        let make = |s: &mut Sketch, x: &str| {
            let y = s.op("Neg", &[x]);
            let y = s.unsqueeze(&y, &[0]);
            s.transpose(&y, &[0, 2, 1, 3])
        };
        of(&["batch", "sequence"], make, |axes, value| {
            let ports = &axes.context.found.ports;
            let ids = ports.iter().next().unwrap().value;
            let want = ValueAxis {
                value: ids,
                axis: 1,
            };
            let mut known = vec![];
            for _ in 0..2 {
                assert_eq!(axes.origin(ValueAxis { value, axis: 1 }), want);
                known.push(axes.origins.borrow().len());
            }
            assert!(known[0] > 3 && known[0] == known[1], "{known:?}");
            let before = axes.context.graph().producer(value).unwrap().0;
            let value = axes.context.graph().node(before).input(0).unwrap();
            assert_eq!(axes.origin(ValueAxis { value, axis: 2 }), want);
            assert_eq!(axes.origins.borrow().len(), known[0]);
        });
        // An axis without origin is its own origin, also the second time.
        let make = |s: &mut Sketch, x: &str| s.concat(&[x, x], 1);
        of(&["batch", "sequence"], make, |axes, value| {
            let at = ValueAxis { value, axis: 1 };
            assert_eq!([axes.origin(at), axes.origin(at)], [at; 2]);
        });
    }

    #[test]
    fn a_slice_that_may_cut_a_longer_input_is_an_origin_of_its_own() {
        let whole = [0, i64::MAX, 1];
        for (range, axis, passes) in [
            (whole, 1, true),
            ([-100, i64::MAX, 1], 1, false),
            ([0, 100, 1], 1, false),
            // Of another axis.
            ([-100, i64::MAX, 1], 0, true),
        ] {
            let make = |s: &mut Sketch, x: &str| s.slice(x, axis, range);
            of(&["batch", "sequence"], make, |axes, value| {
                let origin = axes.origin(ValueAxis { value, axis: 1 });
                assert_eq!(origin.value != value, passes, "{range:?} of axis {axis}");
            });
        }
        // At most so many as a computed number.
        let make = |s: &mut Sketch, x: &str| {
            let dims = s.op("Shape", &[x]);
            let length = s.slice(&dims, 0, [1, 2, 1]);
            let most = s.ints(&[100]);
            let end = s.op("Min", &[&length, &most]);
            let [start, axis] = [0, 1].map(|n| s.ints(&[n]));
            s.op("Slice", &[x, &start, &end, &axis])
        };
        of(&["batch", "sequence"], make, |axes, value| {
            let at = ValueAxis { value, axis: 1 };
            assert_eq!(axes.origin(at), at);
        });
    }
}
