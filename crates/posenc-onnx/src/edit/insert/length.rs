//! Lengths of axes: fixed, or computed while the graph runs.

use posenc_ir::{Attr, Dim, Emitter, NodeId, ScopeId, Tensor, Use, ValueId};
use rustc_hash::FxHashMap;

use super::axes::{Axes, ValueAxis};
use crate::detect::context::Context;

/// The length of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Length {
    /// The same for all inputs.
    Known(usize),
    /// That of an axis.
    Of(ValueAxis),
}

/// Lengths as values, each made once.
#[derive(Debug, Default)]
pub(crate) struct Lengths {
    scalars: FxHashMap<ValueAxis, ValueId>,
    lists: FxHashMap<ValueAxis, ValueId>,
}

impl Length {
    /// The length of an axis, read from an axis of an input of the graph if possible.
    pub(crate) fn of(axes: &Axes<'_>, at: ValueAxis) -> Self {
        let context = axes.context;
        let origin = axes.origin(at);
        let graph = context.graph();
        let declared = |at: ValueAxis| match graph.value(at.value).shape()?.get(at.axis)? {
            Dim::Known(n) => Some(*n),
            _ => None,
        };
        let is_port = |at: ValueAxis| context.found.ports.iter().any(|p| p.value == at.value);
        if let Some(n) = declared(origin).filter(|_| is_port(origin)) {
            return Self::Known(n);
        }
        let length = context.dims(at.value).and_then(|d| d.get(at.axis));
        match length {
            Some(n) if !is_port(origin) && axes.is_fixed(at, *n) => Self::Known(*n),
            _ => Self::Of(origin),
        }
    }

    /// A known length as a constant of these dimensions.
    ///
    /// # Errors
    /// The axis, if the length is not known.
    fn constant(
        self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        dims: &[usize],
    ) -> Result<ValueId, ValueAxis> {
        match self {
            Self::Known(n) => {
                out.set_scope(context.graph().main());
                Ok(out.constant("length", Tensor::from_i64(dims, &[n as i64])))
            }
            Self::Of(at) => Err(at),
        }
    }

    /// The scope for operators that read it.
    pub(crate) fn scope(self, context: &Context<'_>) -> ScopeId {
        match self {
            Self::Known(_) => context.graph().main(),
            Self::Of(at) => context.graph().value(at.value).scope(),
        }
    }
}

impl Lengths {
    /// A length as a scalar. Sets the scope of `out` to that of the length.
    pub(crate) fn scalar(
        &mut self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        length: Length,
    ) -> ValueId {
        let at = match length.constant(out, context, &[]) {
            Ok(constant) => return constant,
            Err(at) => at,
        };
        if let Some(known) = self.scalars.get(&at) {
            return *known;
        }
        out.set_scope(length.scope(context));
        let scalar = match Existing::of(context, at).scalar {
            Some(scalar) => scalar,
            None if context.model.opset() < 15 && !self.lists.contains_key(&at) => {
                let index = out.constant("axis", Tensor::from_i64(&[], &[at.axis as i64]));
                gathered(out, at, index)
            }
            None => {
                let list = self.list(out, context, length);
                context.opset().squeeze(out, list, &[0])
            }
        };
        self.scalars.insert(at, scalar);
        scalar
    }

    /// A length as a list of one element.
    pub(crate) fn list(
        &mut self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        length: Length,
    ) -> ValueId {
        let at = match length.constant(out, context, &[1]) {
            Ok(constant) => return constant,
            Err(at) => at,
        };
        if let Some(known) = self.lists.get(&at) {
            return *known;
        }
        out.set_scope(length.scope(context));
        let list = match Existing::of(context, at).list {
            Some(list) => list,
            None if context.model.opset() < 15 => {
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

/// The length of an axis; the result has the rank of `index`.
fn gathered(out: &mut Emitter<'_>, at: ValueAxis, index: ValueId) -> ValueId {
    let shape = out.op("Shape", &[at.value]);
    out.op_with("Gather", &[shape, index], &[("axis", Attr::Int(0))])
}

/// Values of the graph that are the length of an axis already.
#[derive(Debug, Default)]
struct Existing {
    scalar: Option<ValueId>,
    list: Option<ValueId>,
}

impl Existing {
    /// Searches the readers of a value, and of inputs that are declared to be as long.
    fn of(context: &Context<'_>, at: ValueAxis) -> Self {
        let mut existing = Self::default();
        existing.search(context, at);
        for other in equal_axes(context, at) {
            existing.search(context, other);
        }
        existing
    }

    /// Searches the readers of a value in its own scope.
    fn search(&mut self, context: &Context<'_>, at: ValueAxis) {
        let graph = context.graph();
        let scope = graph.value(at.value).scope();
        let readers = |value: ValueId| -> Vec<NodeId> {
            let here = |u: &&Use| graph.node(u.node).scope() == scope;
            let uses = graph.uses(value).iter().filter(here);
            uses.map(|u| u.node).collect()
        };
        let rank = context.dims(at.value).map_or(0, <[usize]>::len);
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
                    self.take(context, id, shape, at.axis);
                }
            }
        }
    }

    /// Takes the result of a node that selects the length from all dimensions.
    fn take(&mut self, context: &Context<'_>, id: NodeId, shape: ValueId, axis: usize) {
        let graph = context.graph();
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

/// Axes of inputs that are declared to be as long as an axis of an input, and are as long in the
/// trial run.
fn equal_axes(context: &Context<'_>, at: ValueAxis) -> Vec<ValueAxis> {
    let ports = || context.found.ports.iter();
    let length = |at: ValueAxis| context.dims(at.value)?.get(at.axis).copied();
    let own = ports().find(|p| p.value == at.value);
    let Some(dim @ Dim::Symbol(_)) = own.and_then(|p| p.dims.get(at.axis)) else {
        return vec![];
    };
    let axes = ports().flat_map(|p| {
        let same = p.dims.iter().enumerate().filter(|(_, d)| *d == dim);
        same.map(|(axis, _)| ValueAxis {
            value: p.value,
            axis,
        })
    });
    axes.filter(|other| *other != at && length(*other) == length(at))
        .collect()
}

/// The positions of so many tokens from 0 on.
pub(super) fn range(n: usize) -> Tensor {
    Tensor::from_i64(&[n], &(0..n as i64).collect::<Vec<_>>())
}
