//! The numbers of queries and keys, and the distance of each pair.

use posenc_ir::eval::Trace;
use posenc_ir::{DType, Dim, Emitter, ScopeId, Tensor, ValueId};

use super::path::ScorePath;
use crate::attention::{Operand, Site};
use crate::detect::context::Context;
use crate::edit::insert::axes::{Axes, ValueAxis};
use crate::edit::insert::length::{Length, Lengths};
use crate::error::RewriteError;
use crate::graph::mixing::token_axes;
use crate::graph::ports::{Port, Role};
use posenc_encodings::kind::Stack;

/// The most distances of fixed lengths that are stored as a constant.
const STORED: usize = 1 << 14;

/// A number of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TokenCount {
    /// The sum of the lengths of axes.
    Along(Vec<Length>),
    /// A value: an integer of any type, with one element.
    Value(ValueId),
}

/// The numbers of queries and keys of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) queries: TokenCount,
    /// `None`: equal to the number of queries in every run.
    pub(crate) keys: Option<TokenCount>,
    /// The last index of each sequence, if sequences of different lengths start at the start of
    /// their rows.
    pub(crate) last: Option<ValueId>,
}

/// Values that are computed from counts, once for all sites with the same counts. The position of
/// the last query is that of the last key.
#[derive(Debug)]
struct Grid {
    scope: ScopeId,
    /// The stack of its sites: two stacks may be of one length in runs by chance.
    stack: Option<Stack>,
    counts: Counts,
    /// Queries and keys in runs, which differ between the grids of a stack.
    runs: Vec<[usize; 2]>,
    queries: Option<ValueId>,
    keys: Option<ValueId>,
    last_key: Option<ValueId>,
    key_indices: Option<ValueId>,
    query_positions: Option<ValueId>,
    distances: Option<ValueId>,
}

/// The grids of a graph.
pub(crate) struct Grids<'a> {
    context: &'a Context<'a>,
    axes: &'a Axes<'a>,
    lengths: Lengths,
    grids: Vec<Grid>,
    /// Whether caches may have different lengths in one run.
    caches_differ: bool,
}

impl<'a> Grids<'a> {
    pub(crate) fn new(axes: &'a Axes<'a>) -> Self {
        Self {
            context: axes.context,
            axes,
            lengths: Lengths::default(),
            grids: vec![],
            caches_differ: caches_differ(axes.context),
        }
    }

    /// The index of the grid of a site.
    pub(crate) fn of(&mut self, site: &Site, counts: Counts) -> usize {
        let exact = |g: &Grid| g.scope == site.scope && g.counts == counts;
        if let Some(known) = self.grids.iter().position(exact) {
            return known;
        }
        let runs = self.in_runs(&counts);
        let value_of = |c: &Counts| match c.keys {
            Some(TokenCount::Value(value)) => Some(value),
            _ => None,
        };
        let same = |g: &Grid| {
            let alike = g.counts.keys.is_some() == counts.keys.is_some()
                && g.counts.last == counts.last
                && value_of(&g.counts) == value_of(&counts);
            let is_near = g.scope == site.scope && g.stack == site.place.stack;
            let is_told = !self.caches_differ || counts.keys.is_none();
            alike && is_near && is_told && !runs.is_empty() && g.runs == runs
        };
        if let Some(known) = self.grids.iter().position(same) {
            return known;
        }
        self.grids.push(Grid {
            scope: site.scope,
            stack: site.place.stack,
            counts,
            runs,
            queries: None,
            keys: None,
            last_key: None,
            key_indices: None,
            query_positions: None,
            distances: None,
        });
        self.grids.len() - 1
    }

    /// Queries and keys in the trial run and, if there is one, in a longer run.
    fn in_runs(&self, counts: &Counts) -> Vec<[usize; 2]> {
        let found = self.context.found;
        let of = |trace: &Trace| -> Option<[usize; 2]> {
            let length = |length: &Length| match length {
                Length::Known(n) => Some(*n),
                Length::Of(at) => trace.get(at.value).dims.as_ref()?.get(at.axis).copied(),
            };
            let count = |count: &TokenCount| match count {
                TokenCount::Along(parts) => parts.iter().map(length).sum::<Option<usize>>(),
                TokenCount::Value(_) => Some(0),
            };
            let queries = count(&counts.queries)?;
            Some([queries, counts.keys.as_ref().map_or(Some(queries), count)?])
        };
        let short = of(&found.trace);
        let long = self.axes.longer(of).flatten();
        short.into_iter().chain(long).collect()
    }

    /// Whether distances differ between sequences.
    pub(crate) fn is_ragged(&self, grid: usize) -> bool {
        self.grids[grid].counts.last.is_some()
    }

    /// The number of queries, a scalar.
    pub(crate) fn queries(&mut self, out: &mut Emitter<'_>, grid: usize) -> ValueId {
        if let Some(queries) = self.grids[grid].queries {
            return queries;
        }
        let count = self.grids[grid].counts.queries.clone();
        let queries = self.count(out, grid, &count);
        *self.grids[grid].queries.insert(queries)
    }

    /// The number of keys, a scalar.
    fn keys(&mut self, out: &mut Emitter<'_>, grid: usize) -> ValueId {
        if let Some(keys) = self.grids[grid].keys {
            return keys;
        }
        let keys = match self.grids[grid].counts.keys.clone() {
            Some(count) => self.count(out, grid, &count),
            None => self.queries(out, grid),
        };
        *self.grids[grid].keys.insert(keys)
    }

    /// A count as a scalar.
    fn count(&mut self, out: &mut Emitter<'_>, grid: usize, count: &TokenCount) -> ValueId {
        let parts = match count {
            TokenCount::Value(value) => {
                let value = out.cast(*value, DType::I64);
                let none = out.ints("scalar", &[]);
                return out.op("Reshape", &[value, none]);
            }
            TokenCount::Along(parts) => parts,
        };
        let mut parts: Vec<ValueId> = parts
            .iter()
            .map(|length| self.lengths.scalar(out, self.context, *length))
            .collect();
        out.set_scope(self.grids[grid].scope);
        let first = parts.pop();
        let first = first.unwrap_or_else(|| scalar(out, 0));
        parts
            .into_iter()
            .fold(first, |all, part| out.op("Add", &[part, all]))
    }

    /// The index of the last key, a scalar.
    pub(crate) fn last_key(&mut self, out: &mut Emitter<'_>, grid: usize) -> ValueId {
        if let Some(last) = self.grids[grid].last_key {
            return last;
        }
        let last = match self.grids[grid].fixed() {
            Some([_, keys]) => scalar(out, keys as i64 - 1),
            None => {
                let (keys, one) = (self.keys(out, grid), scalar(out, 1));
                out.op("Sub", &[keys, one])
            }
        };
        *self.grids[grid].last_key.insert(last)
    }

    /// The index of each key, `[keys]`.
    pub(crate) fn key_indices(&mut self, out: &mut Emitter<'_>, grid: usize) -> ValueId {
        if let Some(places) = self.grids[grid].key_indices {
            return places;
        }
        let places = match self.grids[grid].fixed() {
            Some([_, keys]) => {
                let all: Vec<i64> = (0..keys as i64).collect();
                out.ints("places", &all)
            }
            None => {
                let keys = self.keys(out, grid);
                range(out, 0, keys)
            }
        };
        *self.grids[grid].key_indices.insert(places)
    }

    /// The distance of each pair, key − query: `[queries, keys]`, or `[batch, queries, keys]` if
    /// sequences differ.
    pub(crate) fn distances(&mut self, out: &mut Emitter<'_>, grid: usize) -> ValueId {
        if let Some(distances) = self.grids[grid].distances {
            return distances;
        }
        let distances = match self.grids[grid].fixed() {
            Some([queries, keys]) if queries * keys <= STORED => {
                let past = keys as i64 - queries as i64;
                let rows = 0..queries as i64;
                let all = rows.flat_map(|i| (0..keys as i64).map(move |j| j - i - past));
                let all: Vec<i64> = all.collect();
                out.constant("distances", Tensor::from_i64(&[queries, keys], &all))
            }
            _ => {
                let (places, queries) =
                    (self.key_indices(out, grid), self.query_positions(out, grid));
                out.op("Sub", &[places, queries])
            }
        };
        *self.grids[grid].distances.insert(distances)
    }

    /// The index of each query among the keys, `[queries, 1]`, after an axis of sequences if these
    /// differ.
    pub(crate) fn query_positions(&mut self, out: &mut Emitter<'_>, grid: usize) -> ValueId {
        if let Some(known) = self.grids[grid].query_positions {
            return known;
        }
        let emitted = self.emit_query_positions(out, grid);
        *self.grids[grid].query_positions.insert(emitted)
    }

    fn emit_query_positions(&mut self, out: &mut Emitter<'_>, grid: usize) -> ValueId {
        let known = &self.grids[grid];
        if let Some([queries, keys]) = known.fixed() {
            let past = keys as i64 - queries as i64;
            let all: Vec<i64> = (0..queries as i64).map(|i| i + past).collect();
            return out.constant("queries", Tensor::from_i64(&[queries, 1], &all));
        }
        let (square, last) = (known.counts.keys.is_none(), known.counts.last);
        if let Some(last) = last {
            return self.up_to_last(out, grid, last);
        }
        let places = if square {
            self.key_indices(out, grid)
        } else {
            let (queries, keys) = (self.queries(out, grid), self.keys(out, grid));
            let past = out.op("Sub", &[keys, queries]);
            let one = scalar(out, 1);
            out.op("Range", &[past, keys, one])
        };
        let column = out.ints("column", &[-1, 1]);
        out.op("Reshape", &[places, column])
    }

    /// The index of each query of each sequence, `[batch, queries, 1]`: queries are the last tokens
    /// of a sequence, or all tokens without earlier ones.
    fn up_to_last(&mut self, out: &mut Emitter<'_>, grid: usize, last: ValueId) -> ValueId {
        let queries = self.queries(out, grid);
        let places = range(out, 0, queries);
        let column = out.ints("column", &[-1, 1]);
        let places = out.op("Reshape", &[places, column]);
        let last = out.cast(last, DType::I64);
        let sequences = out.ints("sequences", &[-1, 1, 1]);
        let last = out.op("Reshape", &[last, sequences]);
        let one = scalar(out, 1);
        let length = out.op("Add", &[last, one]);
        let past = out.op("Sub", &[length, queries]);
        let past = self.context.opset().at_least_zero(out, past, DType::I64);
        out.op("Add", &[past, places])
    }
}

impl Grid {
    /// Queries and keys, if they are the same in every run.
    fn fixed(&self) -> Option<[usize; 2]> {
        let count = |count: &TokenCount| match count {
            TokenCount::Along(parts) => {
                let known = parts.iter().map(|length| match length {
                    Length::Known(n) => Some(*n),
                    Length::Of(_) => None,
                });
                known.sum()
            }
            TokenCount::Value(_) => None,
        };
        let Counts {
            queries,
            keys,
            last,
        } = &self.counts;
        let queries = count(queries).filter(|_| last.is_none())?;
        Some([queries, keys.as_ref().map_or(Some(queries), count)?])
    }
}

/// Whether caches are not declared to be of one length, though runs feed all of them in one.
fn caches_differ(context: &Context<'_>) -> bool {
    let (graph, found) = (context.graph(), context.found);
    let ports = &found.ports;
    let length = |port: &'_ Port| {
        let dims = ports.dims(port, found.lengths);
        let axes = token_axes((graph, ports), port, &dims, found.lengths)?;
        port.dims.get(*axes.first()?).cloned()
    };
    let caches = ports.iter().filter(|port| port.role == Role::Past);
    let lengths: Vec<Dim> = caches.filter_map(length).collect();
    let mut pairs = lengths.windows(2);
    pairs.any(|pair| pair[0] != pair[1] || pair[0] == Dim::Unknown)
}

fn scalar(out: &mut Emitter<'_>, n: i64) -> ValueId {
    out.constant("count", Tensor::from_i64(&[], &[n]))
}

/// The integers from `first` up to a scalar.
fn range(out: &mut Emitter<'_>, first: i64, end: ValueId) -> ValueId {
    let (first, one) = (scalar(out, first), scalar(out, 1));
    out.op("Range", &[first, end, one])
}

/// The length of an axis of a value.
pub(crate) fn length(axes: &Axes<'_>, value: ValueId, axis: usize) -> Length {
    Length::of(axes, ValueAxis { value, axis })
}

/// The numbers of queries and keys of a site in plain operators.
///
/// # Errors
/// If the scores do not determine them, or the position of the last query may not be that of the
/// last key.
pub(crate) fn counts(
    axes: &Axes<'_>,
    site: &Site,
    path: &ScorePath,
) -> Result<Counts, RewriteError> {
    let context = axes.context;
    let refuse = |why: &str| context.refuse(site.node, why);
    let tokens = |o: &Operand| context.dims(o.value)?.get(o.lane.sequence).copied();
    // The first scores with an axis of keys only.
    let stage = path.stages.iter().rev().find(|s| {
        let dims = context.dims(s.value).unwrap_or_default();
        dims.get(s.plane[1]).copied() == tokens(&site.key)
    });
    let stage = stage.ok_or_else(|| refuse("cannot locate the axis of keys in its scores"))?;
    let dims = context.dims(stage.value).unwrap_or_default();
    let size = |axis: usize| dims.get(axis).copied();
    let of = |operand: &Operand, axis: usize| {
        let length = if tokens(operand) == size(axis) {
            length(axes, operand.value, operand.lane.sequence)
        } else {
            length(axes, stage.value, axis)
        };
        TokenCount::Along(vec![length])
    };
    let square = !site.past && size(stage.plane[0]) == size(stage.plane[1]);
    let [queries, keys] = [stage.plane[0], stage.plane[1]].map(|axis| size(axis).unwrap_or(0));
    let more = keys.saturating_sub(queries);
    // A cache may be read in a way that is not known as one.
    let is_beside_tokens = !site.past && queries > 1 && more != context.found.lengths.past;
    if is_beside_tokens && more > 0 {
        let why = format!(
            "its keys are {more} more than its tokens, and which ones are tokens is not known"
        );
        return Err(refuse(&why));
    }
    if !square && !ends_with_queries(site) {
        return Err(refuse(
            "cannot determine the positions of its queries among the keys",
        ));
    }
    Ok(Counts {
        queries: of(&site.query, stage.plane[0]),
        keys: (!square).then(|| of(&site.key, stage.plane[1])),
        last: None,
    })
}

/// Whether no mask hides the key at the position of a query, if the last query is at the last key.
fn ends_with_queries(site: &Site) -> bool {
    let Some(plane) = &site.bias else {
        return true;
    };
    let (_, _, queries, keys) = plane.bias.dim();
    (0..queries).all(|i| {
        let own = i + plane.past;
        own >= keys || !plane.is_hidden([0, 0, i, own])
    })
}
