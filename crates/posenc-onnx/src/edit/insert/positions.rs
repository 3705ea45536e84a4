//! Positions of new tokens: from an input, from the graph, or counted by new operators.

use posenc_ir::{DType, Dim, Emitter, ScopeId, Tensor, ValueId};
use rustc_hash::FxHashMap;

use super::Preserved;
use super::axes::{Axes, ValueAxis};
use super::last_index::positions_up_to;
use super::length::{Length, Lengths, range};
use super::past_tokens::{PastLength, PastTokens, counting, past_tokens};
use crate::detect::context::Context;
use crate::error::{Refusal, RewriteError};
use crate::graph::ports::{Port, Role};
use crate::plan::swap::SwapPlan;
use posenc_encodings::kind::Stack;

/// Positions of tokens, made on first use.
pub(crate) struct Positions<'a> {
    context: &'a Context<'a>,
    axes: &'a Axes<'a>,
    preserved: Option<Preserved>,
    add: bool,
    /// The added input, and the stack that it serves.
    added: Option<(Option<Stack>, PositionValues)>,
    lengths: Lengths,
    /// By stack, number of tokens in the trial run, and scope of the site.
    sources: FxHashMap<(Option<Stack>, usize, ScopeId), PositionSource>,
    counted: FxHashMap<PositionSource, PositionValues>,
    floats: FxHashMap<(ValueId, DType), ValueId>,
}

/// What the positions of the new tokens of a stack are computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PositionSource {
    /// From 0 on, for a fixed number of tokens.
    Fixed(usize),
    /// Counted from the number of earlier tokens on.
    Counted(PastLength, Length),
    /// Given by a value.
    Given(PositionValues),
}

/// Positions as a value: `[token]`, or `[batch, token]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PositionValues {
    pub(crate) value: ValueId,
    pub(crate) dtype: DType,
    /// Whether sequences of a batch have different positions.
    pub(crate) by_sequence: bool,
    /// Whether positions of padding may be below 0.
    pub(crate) below_zero: bool,
}

/// The name of the added input.
const NAME: &str = "position_ids";

impl<'a> Positions<'a> {
    pub(crate) fn new(axes: &'a Axes<'a>, plan: &SwapPlan, preserved: Option<Preserved>) -> Self {
        Self {
            context: axes.context,
            axes,
            preserved,
            add: plan.add_position_ids,
            added: None,
            lengths: Lengths::default(),
            sources: FxHashMap::default(),
            counted: FxHashMap::default(),
            floats: FxHashMap::default(),
        }
    }

    pub(crate) fn preserved(&self) -> Option<&Preserved> {
        self.preserved.as_ref()
    }

    pub(crate) fn lengths(&mut self) -> &mut Lengths {
        &mut self.lengths
    }

    /// The source of positions for a site, given an axis of its new tokens.
    ///
    /// # Errors
    /// If an input of positions has an unsupported shape, or earlier tokens cannot be counted.
    pub(crate) fn source(
        &mut self,
        out: &mut Emitter<'_>,
        site: usize,
        at: ValueAxis,
    ) -> Result<PositionSource, RewriteError> {
        let context = self.context;
        let site = context.site(site);
        let tokens = context.dims(at.value).and_then(|d| d.get(at.axis).copied());
        let Some(tokens) = tokens else {
            return Err(context.refuse(site.node, "cannot determine the length of its sequence"));
        };
        let key = (site.place.stack, tokens, site.scope);
        if let Some(known) = self.sources.get(&key) {
            return Ok(*known);
        }
        let length = Length::of(self.axes, at);
        let source = match self.given(out, site.place.stack, tokens, length)? {
            Some(given) => PositionSource::Given(given),
            None => match (past_tokens(self.axes, counting(self.axes, site))?, length) {
                (PastTokens::LastIndex(last), _) => PositionSource::Given(PositionValues {
                    by_sequence: true,
                    ..PositionValues::counted(positions_up_to(
                        out,
                        context,
                        &mut self.lengths,
                        last,
                        length,
                    ))
                }),
                (PastTokens::Same(PastLength::Zero), Length::Known(n)) => PositionSource::Fixed(n),
                (PastTokens::Same(past), length) => PositionSource::Counted(past, length),
            },
        };
        self.sources.insert(key, source);
        Ok(source)
    }

    /// Positions from an input, or counted by the original graph.
    fn given(
        &mut self,
        out: &mut Emitter<'_>,
        stack: Option<Stack>,
        tokens: usize,
        length: Length,
    ) -> Result<Option<PositionValues>, RewriteError> {
        let context = self.context;
        let ports = context.found.ports.iter();
        let mut ports = ports.filter(|p| p.role == Role::Positions);
        let several = stack.is_some();
        if let Some(port) = ports.find(|p| !several || runs_along(context, p, length)) {
            return from_input(context, port, tokens).map(Some);
        }
        if self.add {
            return self.added(out, stack, length).map(Some);
        }
        let preserved = self.preserved.as_ref();
        let preserved = preserved.and_then(|k| k.positions.iter().find(|k| k.0 == stack));
        let Some((_, value)) = preserved.copied() else {
            return Ok(None);
        };
        let values = PositionValues {
            value,
            dtype: context.dtype(value),
            by_sequence: true,
            below_zero: true,
        };
        let all = context.dims(value).and_then(|d| d.last().copied());
        if all == Some(tokens) {
            return Ok(Some(values));
        }
        if all != Some(tokens + context.found.lengths.past) {
            return Ok(None);
        }
        // Positions of earlier tokens are first.
        let count = self.lengths.list(out, context, length);
        out.set_scope(context.graph().value(value).scope());
        let first = out.op("Neg", &[count]);
        let end = out.ints("end", &[i64::MAX]);
        let axis = out.ints("axis", &[1]);
        let value = out.op("Slice", &[value, first, end, axis]);
        Ok(Some(PositionValues { value, ..values }))
    }

    /// A new input, as long as the input of tokens.
    fn added(
        &mut self,
        out: &mut Emitter<'_>,
        stack: Option<Stack>,
        length: Length,
    ) -> Result<PositionValues, RewriteError> {
        let refuse = |why: String| Err(RewriteError::from(Refusal::invalid(why)));
        match self.added {
            Some((of, values)) if of == stack => return Ok(values),
            Some(_) => {
                let why = "an added input of positions serves one stack, and the model has two: \
                           give `stack`";
                return refuse(why.into());
            }
            None => {}
        }
        let context = self.context;
        let Some(dims) = dims_of_tokens(context, length) else {
            let why = "cannot add an input of positions: no input is as long as the tokens; \
                       remove `add-position-ids`";
            return refuse(why.into());
        };
        let graph = context.graph();
        if graph.values().any(|v| graph.name(v) == NAME) {
            let why =
                format!("cannot add the input {NAME}: the graph has another value of that name");
            return refuse(why);
        }
        let values = PositionValues {
            value: out.input(NAME, DType::I64, &dims)?,
            dtype: DType::I64,
            by_sequence: dims.len() > 1,
            below_zero: false,
        };
        self.added = Some((stack, values));
        Ok(values)
    }

    /// Positions as a value.
    pub(crate) fn values(
        &mut self,
        out: &mut Emitter<'_>,
        source: PositionSource,
    ) -> PositionValues {
        let context = self.context;
        let (past, length) = match source {
            PositionSource::Given(values) => return values,
            PositionSource::Fixed(n) => {
                out.set_scope(context.graph().main());
                return PositionValues::counted(out.constant("positions", range(n)));
            }
            PositionSource::Counted(past, length) => (past, length),
        };
        if let Some(known) = self.counted.get(&source) {
            return *known;
        }
        let values = PositionValues::counted(self.count(out, past, length));
        self.counted.insert(source, values);
        values
    }

    /// Positions as floats of a type. Sets the scope of `out` to that of the positions.
    pub(crate) fn floats(
        &mut self,
        out: &mut Emitter<'_>,
        values: PositionValues,
        dtype: DType,
    ) -> ValueId {
        out.set_scope(out.scope_of(values.value));
        if values.dtype == dtype {
            return values.value;
        }
        let made = self.floats.entry((values.value, dtype));
        *made.or_insert_with(|| out.cast(values.value, dtype))
    }

    fn count(&mut self, out: &mut Emitter<'_>, past: PastLength, length: Length) -> ValueId {
        let context = self.context;
        let scopes = [length.scope(context), past.scope(context)];
        let scope = context.inner(scopes);
        if let (PastLength::Keys(before), Length::Known(n)) = (past, length) {
            let before = self.lengths.scalar(out, context, before);
            out.set_scope(scope);
            let new = out.constant("positions", range(n));
            return out.op("Add", &[before, new]);
        }
        let new = self.lengths.scalar(out, context, length);
        let (first, end) = match past {
            PastLength::Zero => {
                out.set_scope(scope);
                (out.constant("zero", Tensor::from_i64(&[], &[0])), new)
            }
            PastLength::Keys(before) => {
                let before = self.lengths.scalar(out, context, before);
                out.set_scope(scope);
                (before, out.op("Add", &[before, new]))
            }
        };
        let one = out.constant("one", Tensor::from_i64(&[], &[1]));
        out.op("Range", &[first, end, one])
    }

    /// Releases preserved positions that nothing reads.
    ///
    /// # Errors
    /// If a preserved value does not belong to the graph.
    pub(crate) fn finish(self, out: &mut Emitter<'_>) -> Result<(), RewriteError> {
        for (_, value) in self.preserved.into_iter().flat_map(|k| k.positions) {
            out.remove_if_unused(value)?;
        }
        Ok(())
    }
}

impl PositionValues {
    fn counted(value: ValueId) -> Self {
        Self {
            value,
            dtype: DType::I64,
            by_sequence: false,
            below_zero: false,
        }
    }
}

/// The dimensions of batch and tokens, as declared by the input that a length is read from.
fn dims_of_tokens(context: &Context<'_>, length: Length) -> Option<Vec<Dim>> {
    let ports = &context.found.ports;
    let (port, axis) = match length {
        Length::Of(at) => (ports.iter().find(|p| p.value == at.value)?, at.axis),
        Length::Known(n) => {
            let port = ports.first(Role::Tokens)?;
            let axis = port.dims.iter().rposition(|d| *d == Dim::Known(n))?;
            (port, axis)
        }
    };
    let tokens = port.dims.get(axis)?.clone();
    let batch = (0..2).filter(|a| *a != axis).find_map(|a| port.dims.get(a));
    Some(batch.cloned().into_iter().chain([tokens]).collect())
}

/// Whether an input of positions is declared to be as long as the tokens of a stack.
fn runs_along(context: &Context<'_>, port: &Port, length: Length) -> bool {
    let last = port.dims.last();
    match length {
        Length::Known(n) => last == Some(&Dim::Known(n)),
        Length::Of(at) => {
            let declared = context.graph().value(at.value).shape();
            let tokens = declared.and_then(|d| d.get(at.axis));
            matches!(tokens, Some(Dim::Symbol(_))) && tokens == last
        }
    }
}

/// Positions from an input.
fn from_input(
    context: &Context<'_>,
    port: &Port,
    tokens: usize,
) -> Result<PositionValues, RewriteError> {
    let name = context.graph().name(port.value);
    let by_sequence = match context.dims(port.value) {
        Some([all]) if *all == tokens => false,
        Some([_, all]) if *all == tokens => true,
        _ => {
            let why = format!("the input {name} does not contain one position for each new token");
            return Err(Refusal::unsupported(why).into());
        }
    };
    Ok(PositionValues {
        value: port.value,
        dtype: port.dtype,
        by_sequence,
        below_zero: false,
    })
}
