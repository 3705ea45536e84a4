//! Adds tables and sinusoids where the residual stream starts.

use posenc_ir::{DType, Emitter, NodeId, Tensor, Use, ValueId};

use super::Preserved;
use super::align::align;
use super::axes::ValueAxis;
use super::length::Length;
use super::past_tokens::PastLength;
use super::positions::{PositionSource, PositionValues, Positions};
use crate::attention::stream::{Begin, InsertionPoint, bypass};
use crate::detect::context::Context;
use crate::error::RewriteError;
use crate::plan::swap::Group;
use crate::plan::swap::spec::InputSpec;
use posenc_encodings::families::learned::emit::{Pick, rows};
use posenc_encodings::input_term::{self, InputTerm, Source};

/// Where an encoding is added to the stream of a stack.
#[derive(Clone, Debug)]
pub(crate) struct StreamPoint {
    pub(crate) value: ValueId,
    /// The axis of tokens.
    pub(crate) token: usize,
    /// The axis of features.
    pub(crate) feature: usize,
    /// The axis of sequences; `None` if they have none of their own.
    pub(crate) batch: Option<usize>,
    pub(crate) rank: usize,
    /// Width of the stream.
    pub(crate) dim: usize,
    pub(crate) dtype: DType,
    only: Option<Use>,
    /// The node to name in errors.
    pub(crate) node: NodeId,
}

pub(crate) fn insert(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    positions: &mut Positions<'_>,
    group: &Group,
    spec: &InputSpec,
) -> Result<(), RewriteError> {
    let point = StreamPoint::of(context, positions.preserved(), group, spec.term.width())?;
    let at = ValueAxis {
        value: point.value,
        axis: point.token,
    };
    let source = positions.source(out, group.sites[0], at)?;
    let table = |count: usize| spec.table([count, point.dim], point.dtype);
    let rows = match (spec.term.source(), source) {
        (Source::Table(rows), _) => picked(out, context, positions, &point, source, table(rows)?)?,
        (_, PositionSource::Fixed(n)) => {
            out.set_scope(context.graph().main());
            let rows = out.constant("positions", table(n)?);
            point.aligned(out, context, rows, false)?
        }
        _ => computed(out, context, positions, &point, source, &*spec.term)?,
    };
    out.set_scope(context.graph().value(point.value).scope());
    let sum = out.op("Add", &[point.value, rows]);
    point.replace(out, context, sum)
}

/// The rows of a table at the positions of a stack, aligned with its stream.
fn picked(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    positions: &mut Positions<'_>,
    point: &StreamPoint,
    source: PositionSource,
    table: Tensor,
) -> Result<ValueId, RewriteError> {
    let count = table.dims().first().copied().unwrap_or(0);
    let whole = |out: &mut Emitter<'_>| {
        out.set_scope(context.graph().main());
        out.constant("positions", table)
    };
    // A position beyond the table must be an error of the runtime, never another row: a slice with
    // fewer rows than tokens does not broadcast, except if the table has one row.
    let (pick, by_sequence) = match source {
        PositionSource::Fixed(n) if n > count => {
            let why = format!("its sequence has length {n}, but the table has {count} rows");
            return Err(context.refuse(point.node, why));
        }
        PositionSource::Fixed(n) if n == count => (Pick::All, false),
        PositionSource::Fixed(n) => {
            let list = positions.lengths().list(out, context, Length::Known(n));
            (Pick::First(list), false)
        }
        PositionSource::Counted(PastLength::Zero, length) if count > 1 => {
            let list = positions.lengths().list(out, context, length);
            (Pick::First(list), false)
        }
        PositionSource::Counted(..) | PositionSource::Given(_) => {
            let values = positions.values(out, source);
            (Pick::At(index(out, context, values)), values.by_sequence)
        }
    };
    let scope = match source {
        PositionSource::Fixed(_) => context.graph().main(),
        PositionSource::Counted(past, length) => {
            context.inner([past.scope(context), length.scope(context)])
        }
        PositionSource::Given(values) => out.scope_of(values.value),
    };
    let table = whole(out);
    out.set_scope(scope);
    let rows = rows(out, table, pick);
    point.aligned(out, context, rows, by_sequence)
}

/// Positions as integers of at least 0.
fn index(out: &mut Emitter<'_>, context: &Context<'_>, values: PositionValues) -> ValueId {
    out.set_scope(out.scope_of(values.value));
    let mut index = values.value;
    let mut dtype = values.dtype;
    if !matches!(dtype, DType::I32 | DType::I64) {
        index = out.cast(index, DType::I64);
        dtype = DType::I64;
    }
    if values.below_zero {
        context.opset().at_least_zero(out, index, dtype)
    } else {
        index
    }
}

/// Rows that are computed from positions.
fn computed(
    out: &mut Emitter<'_>,
    context: &Context<'_>,
    positions: &mut Positions<'_>,
    point: &StreamPoint,
    source: PositionSource,
    term: &dyn InputTerm,
) -> Result<ValueId, RewriteError> {
    let values = positions.values(out, source);
    let dtype = wide(point.dtype);
    let floats = input_term::Positions {
        value: positions.floats(out, values, dtype),
        lead: usize::from(values.by_sequence),
        dtype,
    };
    let Some(mut rows) = term.emit(out, context.opset(), point.dim, floats) else {
        let why = format!("{} is not computed from positions", term.word());
        return Err(context.refuse(point.node, why));
    };
    if point.dtype != dtype {
        rows = out.cast(rows, point.dtype);
    }
    point.aligned(out, context, rows, values.by_sequence)
}

/// The type in which angles are computed for values of a type.
pub(crate) fn wide(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

impl StreamPoint {
    /// Where the stack of a group starts. A value of width `width` is preferred.
    ///
    /// # Errors
    /// If the stack does not start at a single value.
    pub(crate) fn of(
        context: &Context<'_>,
        preserved: Option<&Preserved>,
        group: &Group,
        width: Option<usize>,
    ) -> Result<Self, RewriteError> {
        let site = context.site(group.sites[0]);
        let found = context.found;
        let refuse = |why: &str| Err(context.refuse(site.node, why));
        let known = preserved.and_then(|k| k.place(context, site.place.stack));
        let place = match known {
            Some(place) => place,
            None => {
                let graph = context.graph();
                let begin = Begin::of(graph, &found.classes, &found.trace, site);
                let Some(begin) = begin else {
                    return refuse("cannot locate the start of its residual stream");
                };
                let wide = |place: &&InsertionPoint| {
                    let dims = context.dims(place.value);
                    width.is_some() && dims.and_then(|d| d.last().copied()) == width
                };
                let usual = begin.places.get(begin.usual);
                let usual = usual.filter(|p| width.is_none() || wide(p));
                let place = usual.or(begin.places.iter().find(wide));
                match place.or(begin.places.get(begin.usual)) {
                    Some(place) => place.clone(),
                    None => return refuse("cannot locate the start of its residual stream"),
                }
            }
        };
        let graph = context.graph();
        let sites = group.sites.iter().map(|i| context.site(*i));
        if let (None, Some(node)) = (
            place.only,
            bypass(graph, &found.classes, sites, place.value),
        ) {
            let why = "its content reaches the residual stream at more than one place";
            return Err(context.refuse(node, why));
        }
        let dims = context.dims(place.value).unwrap_or_default();
        let all = context.dims(site.query.value);
        let all = all.and_then(|d| d.get(site.query.lane.sequence));
        // If tokens share an axis with sequences later, both axes are candidates here.
        let own = |axis: &usize| {
            let at = ValueAxis {
                value: place.value,
                axis: *axis,
            };
            dims.get(*axis) == all && !at.is_batch(context)
        };
        let mut tokens = place.tokens.iter().filter(own);
        let (Some(token), None) = (tokens.next(), tokens.next()) else {
            return refuse("its tokens form a grid, or share an axis with something else");
        };
        let rank = dims.len();
        if rank < 2 {
            return refuse("its embeddings have no features");
        }
        let feature = if token + 1 == rank {
            rank - 2
        } else {
            rank - 1
        };
        let mut others = (0..rank).filter(|a| *a != token && *a != feature);
        let batch = others.next().filter(|_| others.next().is_none());
        let dtype = context.dtype(place.value);
        if !dtype.is_float() {
            return refuse("its embeddings are not floats");
        }
        let producer = context.graph().producer(place.value);
        Ok(Self {
            value: place.value,
            token,
            feature,
            batch,
            rank,
            dim: dims[feature],
            dtype,
            only: place.only,
            node: producer.map_or(site.node, |p| p.0),
        })
    }

    /// Rows `[token, dim]` or `[batch, token, dim]`, aligned with the stream.
    fn aligned(
        &self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        rows: ValueId,
        by_sequence: bool,
    ) -> Result<ValueId, RewriteError> {
        let mut axes = vec![self.token, self.feature];
        if by_sequence {
            let Some(batch) = self.batch else {
                let why = "positions differ between sequences, and its sequences have no axis of \
                           their own";
                return Err(context.refuse(self.node, why));
            };
            axes.insert(0, batch);
        }
        Ok(align(out, context.opset(), rows, &axes, self.rank))
    }

    /// Replaces the value for all readers, except for those that read only its dimensions.
    pub(crate) fn replace(
        &self,
        out: &mut Emitter<'_>,
        context: &Context<'_>,
        new: ValueId,
    ) -> Result<(), RewriteError> {
        let graph = context.graph();
        if let Some(at) = self.only {
            out.redirect_use(self.value, at, new)?;
            return Ok(());
        }
        for at in graph.uses(self.value) {
            let node = graph.node(at.node);
            if !node.is("Shape") && !node.is("Size") {
                out.redirect_use(self.value, *at, new)?;
            }
        }
        if graph.value(self.value).is_output() {
            out.redirect_output(self.value, new)?;
        }
        Ok(())
    }
}
