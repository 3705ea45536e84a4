//! How long an axis is: known, or read off a value while the graph runs.

use posenc_ir::eval::Budget;
use posenc_ir::{Attr, Dim, Emitter, NodeId, ScopeId, Tensor, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::detect::Runs;
use crate::lane::{Lane, back};
use crate::stream::{self, Tokens};
use crate::swap::Ground;

/// An axis of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Axis {
    pub(super) value: ValueId,
    pub(super) axis: usize,
}

/// The length of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Length {
    /// Whatever is fed.
    Known(usize),
    /// That of an axis.
    Of(Axis),
}

/// Lengths that were asked for, as values; each is made once.
#[derive(Debug, Default)]
pub(super) struct Lengths {
    scalars: FxHashMap<Axis, ValueId>,
    lists: FxHashMap<Axis, ValueId>,
}

/// Values to look through on the way to an input.
const MOST: usize = 4096;

/// Elements of a value in a run of another batch, of which only dimensions are read.
const BUDGET: Budget = Budget { elements: 1 << 12 };

impl Length {
    /// The length of an axis, taken where it comes from: at best from an input of the graph.
    pub(super) fn of(ground: &Ground<'_>, at: Axis) -> Self {
        let origin = origin(ground, at);
        let graph = ground.graph();
        let declared = |at: Axis| match graph.value(at.value).shape()?.get(at.axis)? {
            Dim::Known(n) => Some(*n),
            _ => None,
        };
        let is_port = |at: Axis| ground.found.ports.iter().any(|p| p.value == at.value);
        if let Some(n) = declared(origin).filter(|_| is_port(origin)) {
            return Self::Known(n);
        }
        let length = ground.dims(at.value).and_then(|d| d.get(at.axis));
        match length {
            Some(n) if !is_port(origin) && is_fixed(ground, at, *n) => Self::Known(*n),
            _ => Self::Of(origin),
        }
    }

    /// Where what reads it has to stand.
    pub(super) fn scope(self, ground: &Ground<'_>) -> ScopeId {
        match self {
            Self::Known(_) => ground.graph().main(),
            Self::Of(at) => ground.graph().value(at.value).scope(),
        }
    }
}

/// Whether an axis is this long in every run: inputs leave open nothing but the batch, and with
/// another batch it is as long.
fn is_fixed(ground: &Ground<'_>, at: Axis, length: usize) -> bool {
    let fixed = |dims: &[Dim]| dims.iter().skip(1).all(|d| matches!(d, Dim::Known(_)));
    let found = ground.found;
    if !found.ports.iter().all(|p| fixed(&p.dims)) {
        return false;
    }
    let whole = |dims: &[Dim]| !matches!(dims.first(), Some(Dim::Symbol(_) | Dim::Unknown));
    if found.ports.iter().all(|p| whole(&p.dims)) {
        return true;
    }
    let runs = Runs::new(ground.model, found);
    let other = runs.once(found.lengths.sequence, &BUDGET);
    let other = other.and_then(|t| t.get(at.value).dims.as_ref()?.get(at.axis).copied());
    other == Some(length)
}

/// The axis that an axis is as long as, farther up: an input's, if one can be followed to.
fn origin(ground: &Ground<'_>, at: Axis) -> Axis {
    let graph = ground.graph();
    let length = |at: Axis| ground.dims(at.value)?.get(at.axis).copied();
    let Some(wanted) = length(at) else {
        return at;
    };
    let mut stack = vec![at];
    let mut seen = FxHashSet::default();
    while let Some(at) = stack.pop() {
        if !seen.insert(at) || seen.len() > MOST {
            continue;
        }
        let Some((id, output)) = graph.producer(at.value) else {
            if ground.found.ports.iter().any(|p| p.value == at.value) {
                return at;
            }
            continue;
        };
        let node = graph.node(id);
        // The first operands are tried first.
        for slot in (0..node.inputs().len()).rev() {
            let Some(value) = node.input(slot).filter(|v| ground.is_content(*v)) else {
                continue;
            };
            let axis = match node.op() {
                "Gather" if node.domain().is_empty() && slot == 1 => picked(ground, id, at.axis),
                _ => along(ground, id, output, slot, at.axis),
            };
            let next = axis.map(|axis| Axis { value, axis });
            stack.extend(next.filter(|next| length(*next) == Some(wanted)));
        }
    }
    at
}

/// The axis of an input at which an axis of an output stands, alone.
fn along(
    ground: &Ground<'_>,
    id: NodeId,
    output: usize,
    slot: usize,
    axis: usize,
) -> Option<usize> {
    let (graph, trace) = (ground.graph(), &ground.found.trace);
    let lane = back(graph, trace, id, output, slot, Lane::of_sequence(axis));
    let all = || {
        let axes = stream::back(graph, trace, id, output, slot, Tokens::one(axis))?;
        let mut axes = axes.iter();
        axes.next().filter(|_| axes.next().is_none())
    };
    lane.map(|lane| lane.sequence).or_else(all)
}

/// The axis of an index at which an axis of what it picks stands.
fn picked(ground: &Ground<'_>, id: NodeId, axis: usize) -> Option<usize> {
    let node = ground.graph().node(id);
    let data = ground.dims(node.input(0)?)?.len();
    let index = ground.dims(node.input(1)?)?.len();
    let along = crate::lane::wrap(node.int("axis").ok()?.unwrap_or(0), data)?;
    axis.checked_sub(along).filter(|a| *a < index)
}

impl Lengths {
    /// A length as a scalar; the scope of `out` is that of the length from here on.
    pub(super) fn scalar(
        &mut self,
        out: &mut Emitter<'_>,
        ground: &Ground<'_>,
        length: Length,
    ) -> ValueId {
        let at = match length {
            Length::Known(n) => {
                out.set_scope(ground.graph().main());
                return out.constant("length", Tensor::from_i64(&[], &[n as i64]));
            }
            Length::Of(at) => at,
        };
        if let Some(known) = self.scalars.get(&at) {
            return *known;
        }
        out.set_scope(length.scope(ground));
        let scalar = match Shown::of(ground, at).scalar {
            Some(scalar) => scalar,
            None if ground.model.opset() < 15 && !self.lists.contains_key(&at) => {
                let index = out.constant("axis", Tensor::from_i64(&[], &[at.axis as i64]));
                gathered(out, at, index)
            }
            None => {
                let list = self.list(out, ground, length);
                ground.opset().squeeze(out, list, &[0])
            }
        };
        self.scalars.insert(at, scalar);
        scalar
    }

    /// A length as a list of one.
    pub(super) fn list(
        &mut self,
        out: &mut Emitter<'_>,
        ground: &Ground<'_>,
        length: Length,
    ) -> ValueId {
        let at = match length {
            Length::Known(n) => {
                out.set_scope(ground.graph().main());
                return out.ints("length", &[n as i64]);
            }
            Length::Of(at) => at,
        };
        if let Some(known) = self.lists.get(&at) {
            return *known;
        }
        out.set_scope(length.scope(ground));
        let list = match Shown::of(ground, at).list {
            Some(list) => list,
            None if ground.model.opset() < 15 => {
                let index = out.ints("axis", &[at.axis as i64]);
                gathered(out, at, index)
            }
            None => {
                let axis = at.axis as i64;
                let range = [("start", Attr::Int(axis)), ("end", Attr::Int(axis + 1))];
                out.op_with("Shape", &[at.value], &range)
            }
        };
        self.lists.insert(at, list);
        list
    }
}

/// The length of an axis, of the rank of the index that picks it.
fn gathered(out: &mut Emitter<'_>, at: Axis, index: ValueId) -> ValueId {
    let shape = out.op("Shape", &[at.value]);
    out.op_with("Gather", &[shape, index], &[("axis", Attr::Int(0))])
}

/// What shows the length of an axis in the graph already.
#[derive(Debug, Default)]
struct Shown {
    scalar: Option<ValueId>,
    list: Option<ValueId>,
}

impl Shown {
    /// Looks among the readers of a value, and of inputs that are declared as long.
    fn of(ground: &Ground<'_>, at: Axis) -> Self {
        let mut shown = Self::default();
        shown.look(ground, at);
        for other in alike(ground, at) {
            shown.look(ground, other);
        }
        shown
    }

    /// Looks among the readers of a value that stand beside it.
    fn look(&mut self, ground: &Ground<'_>, at: Axis) {
        let graph = ground.graph();
        let scope = graph.value(at.value).scope();
        let readers = |value: ValueId| -> Vec<NodeId> {
            let here = |u: &&Use| graph.node(u.node).scope() == scope;
            let uses = graph.uses(value).iter().filter(here);
            uses.map(|u| u.node).collect()
        };
        let rank = ground.dims(at.value).map_or(0, <[usize]>::len);
        for id in readers(at.value) {
            let node = graph.node(id);
            let Some(shape) = node.output(0).filter(|_| node.is("Shape")) else {
                continue;
            };
            let edge = |name: &str, default: usize| {
                let set = node.int(name).ok().flatten();
                let all = rank as i64;
                let from_end = |n: i64| if n < 0 { n + all } else { n };
                set.map_or(default, |n| from_end(n).clamp(0, all) as usize)
            };
            let range = (edge("start", 0), edge("end", rank));
            if range == (at.axis, at.axis + 1) {
                self.list.get_or_insert(shape);
                for id in readers(shape) {
                    let node = graph.node(id);
                    let squeezed = node.output(0).filter(|_| node.is("Squeeze"));
                    self.scalar = self.scalar.or(squeezed);
                }
            } else if range == (0, rank) {
                for id in readers(shape) {
                    self.pick(ground, id, shape, at.axis);
                }
            }
        }
    }

    /// Whether a node picks the length from all dimensions.
    fn pick(&mut self, ground: &Ground<'_>, id: NodeId, shape: ValueId, axis: usize) {
        let graph = ground.graph();
        let node = graph.node(id);
        if !node.is("Gather") || node.input(0) != Some(shape) {
            return;
        }
        let index = node.input(1).and_then(|v| graph.constant(v));
        match index.filter(|i| i.get_i64(0) == Some(axis as i64)) {
            Some(index) if index.dims().is_empty() => self.scalar = self.scalar.or(node.output(0)),
            Some(index) if index.dims() == [1] => self.list = self.list.or(node.output(0)),
            _ => {}
        }
    }
}

/// Axes of other inputs that are declared as long as one of an input, and are so in the trial
/// run.
fn alike(ground: &Ground<'_>, at: Axis) -> Vec<Axis> {
    let ports = || ground.found.ports.iter();
    let length = |at: Axis| ground.dims(at.value)?.get(at.axis).copied();
    let own = ports().find(|p| p.value == at.value);
    let Some(dim @ Dim::Symbol(_)) = own.and_then(|p| p.dims.get(at.axis)) else {
        return vec![];
    };
    let axes = ports().flat_map(|p| {
        let same = p.dims.iter().enumerate().filter(|(_, d)| *d == dim);
        same.map(|(axis, _)| Axis {
            value: p.value,
            axis,
        })
    });
    axes.filter(|other| *other != at && length(*other) == length(at))
        .collect()
}

impl Axis {
    /// Whether an axis is that of the batch of an input.
    pub(super) fn is_batch(self, ground: &Ground<'_>) -> bool {
        let origin = origin(ground, self);
        let port = ground.found.ports.iter().any(|p| p.value == origin.value);
        port && origin.axis == 0 && self.is_as_long(ground)
    }

    /// Whether an axis of queries or keys is that of the batch: it stands before the features that
    /// are projected, or comes from the batch of an input.
    pub(super) fn is_batch_of_heads(self, ground: &Ground<'_>) -> bool {
        let (graph, trace) = (ground.graph(), &ground.found.trace);
        if !self.is_as_long(ground) {
            return false;
        }
        let mut stack = vec![(self.value, Tokens::one(self.axis))];
        let mut seen = FxHashSet::default();
        while let Some((value, axes)) = stack.pop() {
            if !seen.insert(value) || seen.len() > MOST {
                continue;
            }
            let Some((id, output)) = graph.producer(value) else {
                if ground.found.ports.iter().any(|p| p.value == value) && axes.has(0) {
                    return true;
                }
                continue;
            };
            let node = graph.node(id);
            for slot in (0..node.inputs().len()).rev() {
                let input = node.input(slot).filter(|v| ground.is_content(*v));
                let before = stream::back(graph, trace, id, output, slot, axes);
                let Some(step) = input.zip(before) else {
                    continue;
                };
                if stream::is_projection(node) {
                    return true;
                }
                stack.push(step);
            }
        }
        false
    }

    /// Whether an axis is as long as the batch.
    fn is_as_long(self, ground: &Ground<'_>) -> bool {
        let length = ground.dims(self.value).and_then(|d| d.get(self.axis));
        length == Some(&ground.found.lengths.batch)
    }
}
