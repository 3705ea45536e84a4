//! What limits the length of a sequence: constants whose rows are picked by position, buffers
//! that are cut to the length, and shapes that were fixed at export.

mod edge;
mod held;
mod longer;
mod product;
mod reach;

use std::collections::BTreeSet;

use ndarray::Axis;
use posenc_ir::eval::Trace;
use posenc_ir::{Dim, Graph, Node, NodeId, ValueId};

use crate::detect::finding::Finding;
use crate::detect::found::Found;
use crate::detect::runs::Runs;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::wrap;
use crate::graph::operators::{cache_slots, is_rotary};
use crate::report::{Limit, LimitCause};
use edge::Edge;
use longer::Longer;
use reach::Reach;

/// Every limit of the graph, smallest first.
pub(crate) fn limits(runs: &Runs<'_>) -> Vec<Limit> {
    let graph = runs.model.graph();
    let mut found = BTreeSet::new();
    if let Some(length) = runs.found.ports.fixed_sequence() {
        found.insert((length, LimitCause::StaticShape, None));
    }
    // A run writes as many new keys as its cache is declared to have slots at the most.
    let attention = runs.found.attention.iter();
    let caches = attention.filter_map(|site| site.buffer.or(shared_cache(graph, site.node)));
    for (cache, axis) in caches {
        if let Some(slots) = slots(graph, cache, axis) {
            let name = graph.name(cache).to_owned();
            found.insert((slots, LimitCause::StaticShape, Some(name)));
        }
    }
    for bound in bounds(runs) {
        found.insert((bound.length, bound.cause, source_name(graph, bound.table)));
    }
    found
        .into_iter()
        .map(|(length, cause, value)| Limit {
            length,
            cause,
            value,
        })
        .collect()
}

/// The cache that an operator of attention reads and writes with the same number of slots, and their axis; `None` for
/// one of a window, where the newest tokens take the slots of the oldest.
fn shared_cache(graph: &Graph, id: NodeId) -> Option<(ValueId, usize)> {
    let node = graph.node(id);
    if node.int("sliding_window_cache") == Ok(Some(1)) {
        return None;
    }
    let past = node.input(*cache_slots(node).first()?)?;
    let present = node.output(1)?;
    let axis = graph.value(past).shape()?.len().checked_sub(2)?;
    let before = slots(graph, past, axis)?;
    (slots(graph, present, axis) == Some(before)).then_some((past, axis))
}

/// The declared slots of a cache.
fn slots(graph: &Graph, cache: ValueId, axis: usize) -> Option<usize> {
    match graph.value(cache).shape()?.get(axis)? {
        Dim::Known(slots) => Some(*slots),
        Dim::Symbol(_) | Dim::Unknown => None,
    }
}

/// Ends tables where several frames make a token as their rows tell: runs count no class tokens there, and no rows
/// before the first one that is read.
pub(super) fn end_where_rows_do(graph: &Graph, found: &mut Found) {
    let mut limits = std::mem::take(&mut found.limits);
    let is_joined = |finding: &&Finding| !finding.sites.is_empty() && !found.are_elements(finding);
    for finding in found.findings.iter().filter(is_joined) {
        let Some(table) = finding.table else {
            continue;
        };
        // Of stacks that share it, the longest.
        let sharing = found.findings.iter().filter(|f| f.table == Some(table));
        let lengths = sharing.map(|f| f.max_length);
        let Some(Some(tokens)) = lengths.reduce(|a, b| Some(a?.max(b?))) else {
            continue;
        };
        let name = source_name(graph, table);
        let ends_later = |limit: &&mut Limit| {
            limit.value == name && limit.cause == LimitCause::Table && limit.length > tokens
        };
        let own = limits.iter_mut().filter(ends_later);
        own.for_each(|limit| limit.length = tokens);
    }
    limits.sort_by_key(|limit| limit.length);
    found.limits = limits;
}

/// A constant that ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    /// The node that reads it.
    pub(crate) node: NodeId,
    /// The constant, as the node reads it.
    pub(crate) table: ValueId,
    /// The longest sequence that it has rows for.
    pub(crate) length: usize,
    /// What it is.
    pub(crate) cause: LimitCause,
    /// Whether its last rows are taken where the sequence is shorter.
    pub(crate) from_end: bool,
}

/// Every read of a constant that ends, in the order of the nodes.
pub(crate) fn bounds(runs: &Runs<'_>) -> Vec<Bound> {
    let (model, detection) = (runs.model, runs.found);
    let (classes, trace) = (&detection.classes, &detection.trace);
    let graph = model.graph();
    let mut found = vec![];
    let mut longer = Longer::of(runs);
    for (id, node) in graph.nodes() {
        let picked = match (node.domain(), node.op()) {
            ("", "Gather" | "GatherElements" | "GatherND")
            | ("com.microsoft", "GatherBlockQuantized") => rows_by_position(&mut longer, node),
            ("", "Slice") => cut_to_length(&mut longer, node),
            _ if is_rotary(node) => cache(&mut longer, rotary_cache(node)),
            ("com.microsoft", "GroupQueryAttention") => cache(&mut longer, node.input(7)),
            (_, "EmbedLayerNormalization") => embedded(trace, node),
            ("com.microsoft", "SparseAttention") => cache(&mut longer, node.input(9)),
            ("com.microsoft", "PagedAttention") => cache(&mut longer, node.input(8)),
            _ => None,
        };
        if let Some((table, length)) = picked {
            found.push(Bound {
                node: id,
                table,
                length,
                cause: cause(graph, trace, node, table, length),
                from_end: starts_at_length(classes, node),
            });
        } else if let Some((table, length)) = product::rows_by_product(&mut longer, id, node) {
            found.push(Bound {
                node: id,
                table,
                length,
                cause: LimitCause::Table,
                from_end: false,
            });
        }
    }
    found
}

/// The value behind cuts that leave everything in the trial run.
fn uncut(runs: &Runs<'_>, mut value: ValueId) -> ValueId {
    let (graph, trace) = (runs.model.graph(), &runs.found.trace);
    while let Some((id, _)) = graph.producer(value) {
        let node = graph.node(id);
        let Some(whole) = node.input(0).filter(|_| node.is("Slice")) else {
            break;
        };
        if trace.get(whole).dims.is_none() || trace.get(whole).dims != trace.get(value).dims {
            break;
        }
        value = whole;
    }
    value
}

/// Whether a `Slice` starts at a place that follows the length, and ends where its input does.
fn starts_at_length(classes: &Classes, node: &Node) -> bool {
    let follows = |slot: usize| {
        let given = node.input(slot).filter(|_| node.is("Slice"));
        given.is_some_and(|given| classes.of_value(given).has(Class::LENGTH))
    };
    follows(1) && !follows(2)
}

/// A constant whose rows are picked by an index that follows position, and the longest sequence
/// that it has rows for.
fn rows_by_position(longer: &mut Longer<'_>, node: &Node) -> Option<(ValueId, usize)> {
    let runs = longer.runs;
    let (classes, trace) = (&runs.found.classes, &runs.found.trace);
    let (table, index) = (node.input(0)?, node.input(1)?);
    let class = classes.of_value(index);
    let follows = class.has(Class::POSITION) && !class.has(Class::CONTENT);
    // A shape vector is picked from by constants, never by position.
    let dims = trace.get(table).dims.as_ref()?;
    let axis = match node.op() {
        "GatherND" => 0,
        _ => wrap(node.int("axis").ok()?.unwrap_or(0), dims.len())?,
    };
    let class = classes.of_value(table);
    let stored = !class.has(Class::CONTENT) && !class.has(Class::PADDING);
    let rows = *dims.get(axis)?;
    if !follows || !stored || rows < 2 {
        return None;
    }
    let at = Reach::of(trace, node, index, runs.found.lengths.batch)?;
    // A table that is made for the positions at hand has no row to spare.
    let grows = class.has(Class::POSITION) || class.has(Class::LENGTH);
    if at.most == at.least || grows && at.most >= i64::try_from(rows).ok()? - 1 {
        return None;
    }
    // Sizes are picked from a vector of them by as many indices whatever the length.
    if class.has(Class::LENGTH) && !longer.grows(index) {
        return None;
    }
    if !grows {
        match edge::of_rows(longer, node, index, rows) {
            Edge::At(length) => return Some((table, length)),
            Edge::Never => return None,
            Edge::Unknown => {}
        }
    }
    let past = runs.found.lengths.past;
    // A class token has a row too.
    let ahead = longer.beside(index);
    let length_for = |rows| at.length_for(rows, past)?.checked_sub(ahead);
    let length = length_for(rows)?;
    if !grows {
        let ends = !longer.bends(index) || longer.overruns((index, at.tokens), rows, length);
        return ends.then_some((table, length));
    }
    // Another table may be chosen for a longer sequence.
    let mut then = |length| {
        let dims = longer.beyond(length)?.get(table).dims.as_ref()?;
        dims.get(axis).copied()
    };
    let chosen = then(length).unwrap_or(rows);
    let last = length_for(chosen)?;
    for (rows, length) in [(chosen, length), (then(last).unwrap_or(chosen), last)] {
        if longer.overruns((index, at.tokens), rows, length) {
            return Some((table, length));
        }
    }
    None
}

/// The table of an operator that gathers by itself, from the first row that a token reads on.
fn embedded(trace: &Trace, node: &Node) -> Option<(ValueId, usize)> {
    let table = node.input(3)?;
    let rows = *trace.get(table).dims.as_ref()?.first()?;
    let ids = node.input(8).and_then(|v| trace.get(v).to_i64());
    let first = ids.and_then(|ids| ids.iter().next().copied()).unwrap_or(0);
    let unused = usize::try_from(first).unwrap_or(0);
    Some((table, rows.checked_sub(unused)?))
}

/// Everything that bounds the length, shortest first.
pub(crate) fn all(graph: &Graph, found: &Found) -> Vec<Limit> {
    let mut all = found.limits.clone();
    all.extend(added(graph, found));
    all.sort_by_key(|l| l.length);
    all
}

/// Tables that are added whole: they fit one length alone.
fn added(graph: &Graph, found: &Found) -> Vec<Limit> {
    let whole = |finding: &Finding| {
        let entry = finding.entries.first()?;
        let value = graph.node(entry.node).input(entry.slot())?;
        let plain = graph.node(entry.node).domain().is_empty();
        let whole = plain && found.classes.of_value(value).is_constant();
        whole.then_some(Limit {
            length: finding.max_length?,
            cause: LimitCause::Table,
            value: Some(graph.name(value).to_owned()),
        })
    };
    let absolute = found.findings.iter().filter(|f| f.encoding.is_absolute());
    absolute.filter_map(whole).collect()
}

/// A constant that is cut to the length of the sequence.
fn cut_to_length(longer: &mut Longer<'_>, node: &Node) -> Option<(ValueId, usize)> {
    let found = longer.runs.found;
    let (classes, trace) = (&found.classes, &found.trace);
    let (table, ends) = (node.input(0)?, node.input(2)?);
    let length = classes.of_value(ends).has(Class::LENGTH) || starts_at_length(classes, node);
    if !length || !classes.of_value(uncut(longer.runs, table)).is_constant() {
        return None;
    }
    let from = trace.get(table).dims.clone()?;
    let to = trace.get(node.output(0)?).dims.clone()?;
    let axis = (0..from.len()).find(|a| from[*a] != to[*a])?;
    let rows = from[axis];
    // Rows of distances are twice as many as tokens, less one.
    let start = node.input(1)?;
    if longer.grows(node.output(0)?) {
        let step = node
            .input(4)
            .map_or(Some(1), |step| trace.get(step).scalar_i64());
        let step = step.filter(|step| *step > 0).unwrap_or(1);
        match edge::of_places(longer, [start, ends], step, rows) {
            Edge::At(length) => return Some((table, length)),
            Edge::Never => return None,
            Edge::Unknown => {}
        }
    }
    if longer.widens([start, ends]) {
        let length = rows.div_ceil(2);
        let stays = held::stays(longer, node, rows, length);
        return (!stays).then_some((table, length));
    }
    // Weights may be cut to the width of their input, which is no number of tokens.
    let is_longer = longer.grows(node.output(0)?);
    // A class token has a row too, and reserved rows are left out.
    let length = rows.checked_sub(longer.ahead(ends))?;
    is_longer.then_some((table, length))
}

/// cos and sin of a rotary operator that picks rows itself.
fn rotary_cache(node: &Node) -> Option<ValueId> {
    match node.domain() {
        "" => node.input(3).and(node.input(1)),
        _ => node.input(1).and(node.input(2)),
    }
}

/// The rows of a cache; of several that a branch chooses from, those of the longest. Rows that are made for the
/// positions at hand end nowhere; which rows are taken may follow positions too.
fn cache(longer: &mut Longer<'_>, cache: Option<ValueId>) -> Option<(ValueId, usize)> {
    let cache = cache?;
    let (graph, found) = (longer.runs.model.graph(), longer.runs.found);
    if found.classes.of_value(cache).has(Class::POSITION) && longer.grows(cache) {
        return None;
    }
    let mut most = match found.trace.get(cache).dims.as_deref() {
        Some([rows, _]) => Some(*rows),
        _ => None,
    };
    if let Some((id, output)) = graph.producer(cache) {
        for (_, body) in graph.node(id).bodies() {
            let made = graph.scope(body).outputs().get(output).copied();
            let stored = made.and_then(|v| graph.constant(v)?.dims().first().copied());
            most = most.max(stored);
        }
    }
    Some((cache, most?))
}

fn cause(graph: &Graph, trace: &Trace, node: &Node, table: ValueId, length: usize) -> LimitCause {
    use posenc_ir::DType;
    let fused = !node.domain().is_empty() && !gathers(node);
    if fused || is_rotary(node) {
        return LimitCause::Cache;
    }
    let dims = trace.get(table).dims.clone().unwrap_or_default();
    let square = dims.ends_with(&[length, length]);
    // A quantized table has many integers to a row, an index one; sequences may have copies of it.
    let is_line = || varying_axes(trace, table) < 2;
    match graph.dtype(table).or(trace.get(table).dtype) {
        Some(dtype) if dtype.is_int() && is_line() => match trace.get(table).to_i64() {
            Some(data) if data.iter().all(|v| *v == 0) => LimitCause::TokenTypeBuffer,
            _ => LimitCause::PositionBuffer,
        },
        Some(DType::Bool) => LimitCause::CausalBuffer,
        _ if square && two_valued(trace, table) => LimitCause::CausalBuffer,
        _ => LimitCause::Table,
    }
}

/// Whether a fused operator reads rows of a table.
fn gathers(node: &Node) -> bool {
    matches!(
        node.op(),
        "GatherBlockQuantized" | "EmbedLayerNormalization"
    )
}

/// Axes along which the numbers of a constant differ.
fn varying_axes(trace: &Trace, table: ValueId) -> usize {
    let value = trace.get(table);
    let Some(data) = value.to_i64() else {
        let dims = value.dims.as_deref().unwrap_or_default();
        return dims.iter().filter(|n| **n != 1).count();
    };
    let varies = |axis: &usize| {
        let first = data.index_axis(Axis(*axis), 0);
        data.axis_iter(Axis(*axis)).any(|row| row != first)
    };
    let axes = (0..data.ndim()).filter(|axis| data.shape()[*axis] > 1);
    axes.filter(varies).count()
}

/// Whether a constant contains no more than two different numbers, as masks do.
fn two_valued(trace: &Trace, table: ValueId) -> bool {
    let Some(data) = trace.get(table).to_f64() else {
        return false;
    };
    let first = data.iter().next().copied();
    let mut others = data.iter().copied().filter(|v| Some(*v) != first);
    let second = others.next();
    others.all(|v| Some(v) == second)
}

/// The name of the stored tensor that a constant is computed from.
pub(crate) fn source_name(graph: &Graph, mut value: ValueId) -> Option<String> {
    loop {
        if graph.stored(value).is_some() {
            return Some(graph.name(value).to_owned());
        }
        let (id, output) = graph.producer(value)?;
        let node = graph.node(id);
        // Of several that are chosen from, the first.
        let mut bodies = node.bodies();
        value = match bodies.next() {
            Some((_, body)) => *graph.scope(body).outputs().get(output)?,
            None => node.input(usize::from(node.is("Where")))?,
        };
    }
}
