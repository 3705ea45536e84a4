//! What limits the length of a sequence: constants whose rows are picked by position, buffers
//! that are cut to the length, and shapes that were fixed at export.

mod product;

use std::collections::BTreeSet;

use ndarray::{ArrayD, Axis};
use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::finding::Finding;
use crate::detect::found::Found;
use crate::detect::runs::Runs;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::wrap;
use crate::report::{Limit, LimitCause};

/// Every limit of the graph, smallest first.
pub(crate) fn limits(runs: &Runs<'_>) -> Vec<Limit> {
    let graph = runs.model.graph();
    let mut found = BTreeSet::new();
    if let Some(length) = runs.found.ports.fixed_sequence() {
        found.insert((length, LimitCause::StaticShape, None));
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
            ("", "Slice") => cut_to_length(classes, trace, node),
            (_, "RotaryEmbedding") => rotary_cache(classes, trace, node),
            ("com.microsoft", "GroupQueryAttention") => {
                chosen_cache(graph, classes, trace, node.input(7))
            }
            (_, "EmbedLayerNormalization") => embedded(trace, node),
            ("com.microsoft", "SparseAttention") => {
                chosen_cache(graph, classes, trace, node.input(9))
            }
            _ => None,
        };
        if let Some((table, length)) = picked {
            found.push(Bound {
                node: id,
                table,
                length,
                cause: cause(graph, trace, node, table, length),
            });
        } else if let Some((table, length)) = product::rows_by_product(&mut longer, id, node) {
            found.push(Bound {
                node: id,
                table,
                length,
                cause: LimitCause::Table,
            });
        }
    }
    found
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
    let length = at.length_for(rows, runs.found.lengths.past)?;
    let ends = !longer.bends(index) || longer.overruns(index, rows, length);
    ends.then_some((table, length))
}

/// The rows that the trial run reads.
#[derive(Clone, Copy)]
struct Reach {
    least: i64,
    most: i64,
    /// Tokens along the longest axis of the index.
    tokens: usize,
    /// Whether each token reads the row after that of the token before.
    steps: bool,
}

impl Reach {
    /// Of an index in the trial run, which may contain the rows of each of `copies` sequences one after
    /// another.
    fn of(trace: &Trace, node: &Node, index: ValueId, copies: usize) -> Option<Self> {
        let numbers = trace.get(index).to_i64()?;
        let steps = |line: &[i64]| line.windows(2).all(|w| w[0].checked_add(1) == Some(w[1]));
        if node.is("GatherElements") {
            // An index for each element: one lane of them gives the rows.
            let axis = wrap(node.int("axis").ok()?.unwrap_or(0), numbers.ndim())?;
            let line: Vec<i64> = numbers.lanes(Axis(axis)).into_iter().next()?.to_vec();
            return Some(Self {
                least: *numbers.iter().min()?,
                most: *numbers.iter().max()?,
                tokens: line.len(),
                steps: steps(&line),
            })
            .filter(|at| at.tokens > 1);
        }
        // An index of pairs and the like has a last axis that is no sequence.
        let pairs = usize::from(node.op() == "GatherND");
        Self::of_rows(&numbers, numbers.ndim().checked_sub(pairs)?, copies)
    }

    /// Of the rows that are read, where the first `rank` axes may be of tokens.
    fn of_rows(numbers: &ArrayD<i64>, rank: usize, copies: usize) -> Option<Self> {
        let rows: Vec<i64> = numbers.iter().copied().collect();
        let steps = |line: &[i64]| line.windows(2).all(|w| w[0].checked_add(1) == Some(w[1]));
        let longest = numbers.shape()[..rank].iter().copied().max()?;
        let one = longest / copies.max(1);
        let again = one > 1 && longest == one * copies && longest == rows.len();
        let tokens = if again && (one..longest).all(|i| rows[i] == rows[i % one]) {
            one
        } else {
            longest
        };
        let line = rows.get(..tokens)?;
        Some(Self {
            least: *rows.iter().min()?,
            most: *rows.iter().max()?,
            tokens,
            steps: rank < 3 && steps(line),
        })
        .filter(|_| tokens > 1)
    }

    /// The length at which the last row is read, each further token reading one more.
    fn length_for(self, rows: usize, past: usize) -> Option<usize> {
        let last = i64::try_from(rows).ok()? - 1;
        let spare = last.checked_sub(self.most)?;
        let spare = usize::try_from(spare).ok()?;
        // One row for each new token: earlier ones are in the cache.
        let before = if self.steps && self.least >= i64::try_from(past).ok()? {
            past
        } else {
            0
        };
        (before + self.tokens).checked_add(spare)
    }
}

/// Elements that a value of a longer run may have: indices of pairs, but no weights.
const LONG: Budget = Budget { elements: 1 << 18 };

/// The most longer runs.
const RUNS: usize = 8;

/// What longer sequences read.
struct Longer<'a> {
    runs: &'a Runs<'a>,
    /// The last run, by its tokens.
    last: Option<(usize, Option<Trace>)>,
    /// Runs so far.
    made: usize,
    /// Values that grow with the position: nothing that they are computed from bends.
    straight: FxHashSet<ValueId>,
}

impl<'a> Longer<'a> {
    fn of(runs: &'a Runs<'a>) -> Self {
        Self {
            runs,
            last: None,
            made: 0,
            straight: FxHashSet::default(),
        }
    }

    /// Whether an operator between positions and an index may keep it from growing with them.
    fn bends(&mut self, index: ValueId) -> bool {
        let graph = self.runs.model.graph();
        let classes = &self.runs.found.classes;
        let mut stack = vec![index];
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            let class = classes.of_value(value);
            let known = self.straight.contains(&value);
            if known || !class.has(Class::POSITION) || !seen.insert(value) {
                continue;
            }
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            let node = graph.node(id);
            let bends = matches!(
                node.op(),
                "Clip" | "Min" | "Max" | "Where" | "Log" | "Mod" | "Div" | "Floor" | "If" | "Loop"
            );
            if bends {
                return true;
            }
            stack.extend(node.inputs().iter().flatten());
        }
        self.straight.extend(seen);
        false
    }

    /// Whether an index has more elements where the sequence is longer; where that cannot be run,
    /// yes.
    fn grows(&self, index: ValueId) -> bool {
        let count = |trace: &Trace| trace.get(index).elements();
        let tokens = self.runs.found.lengths.sequence;
        let longer = self.runs.once(2 * tokens, &LONG);
        // The longer run is of one sequence, as a shorter one is.
        let same = self.runs.once(tokens, &LONG);
        match (
            same.as_ref().and_then(count),
            longer.as_ref().and_then(count),
        ) {
            (Some(now), Some(then)) => then > now,
            _ => true,
        }
    }

    /// Whether a sequence longer than `length` reads beyond the rows; where that cannot be run,
    /// yes.
    fn overruns(&mut self, index: ValueId, rows: usize, length: usize) -> bool {
        let beyond = |v: &i64| *v < 0 || usize::try_from(*v).is_ok_and(|v| v >= rows);
        let trace = self.beyond(length);
        match trace.and_then(|t| t.get(index).to_i64()) {
            Some(numbers) => numbers.iter().any(beyond),
            None => true,
        }
    }

    /// A run of one token more than `length`; `None` where it cannot be made.
    fn beyond(&mut self, length: usize) -> Option<&Trace> {
        let wanted = (length + 1).saturating_sub(self.runs.found.lengths.past);
        if self
            .last
            .as_ref()
            .is_none_or(|(tokens, _)| *tokens != wanted)
        {
            if self.made == RUNS {
                return None;
            }
            self.made += 1;
            self.last = Some((wanted, self.runs.once(wanted, &LONG)));
        }
        self.last.as_ref().and_then(|(_, trace)| trace.as_ref())
    }
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
    all.extend(added(graph, &found.findings));
    all.sort_by_key(|l| l.length);
    all
}

/// Tables that are added whole: they fit one length alone.
fn added(graph: &Graph, findings: &[Finding]) -> Vec<Limit> {
    let whole = |finding: &Finding| {
        let entry = finding.entries.first()?;
        let value = graph.node(entry.node).input(entry.slot())?;
        let plain = graph.node(entry.node).domain().is_empty();
        graph.stored(value).filter(|_| plain)?;
        Some(Limit {
            length: finding.max_length?,
            cause: LimitCause::Table,
            value: Some(graph.name(value).to_owned()),
        })
    };
    let absolute = findings.iter().filter(|f| f.encoding.is_absolute());
    absolute.filter_map(whole).collect()
}

/// A constant that is cut to the length of the sequence.
fn cut_to_length(classes: &Classes, trace: &Trace, node: &Node) -> Option<(ValueId, usize)> {
    let (table, ends) = (node.input(0)?, node.input(2)?);
    let length = classes.of_value(ends).has(Class::LENGTH);
    if !length || !classes.of_value(table).is_constant() {
        return None;
    }
    let from = trace.get(table).dims.clone()?;
    let to = trace.get(node.output(0)?).dims.clone()?;
    let axis = (0..from.len()).find(|a| from[*a] != to[*a])?;
    Some((table, from[axis]))
}

/// cos and sin of a rotary operator that picks rows itself.
fn rotary_cache(classes: &Classes, trace: &Trace, node: &Node) -> Option<(ValueId, usize)> {
    let cache = match node.domain() {
        "" => node.input(3).and(node.input(1))?,
        _ => node.input(1).and(node.input(2))?,
    };
    let dims = trace.get(cache).dims.as_ref()?;
    (dims.len() == 2 && !is_made(classes, cache)).then(|| (cache, dims[0]))
}

/// Whether rows are made for the positions at hand, and so end nowhere.
fn is_made(classes: &Classes, cache: ValueId) -> bool {
    classes.of_value(cache).has(Class::POSITION)
}

/// The rows of a cache; of several that a branch chooses from, those of the longest.
fn chosen_cache(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    cache: Option<ValueId>,
) -> Option<(ValueId, usize)> {
    let cache = cache.filter(|v| !is_made(classes, *v))?;
    let rows = |v: ValueId| match trace.get(v).dims.as_deref() {
        Some([rows, _]) => Some(*rows),
        _ => None,
    };
    let mut most = rows(cache);
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
    if fused || node.op() == "RotaryEmbedding" {
        return LimitCause::Cache;
    }
    let dims = trace.get(table).dims.clone().unwrap_or_default();
    let square = dims.ends_with(&[length, length]);
    // A quantized table has many integers to a row, an index one.
    let line = dims.iter().filter(|n| **n != 1).count() < 2;
    match graph.dtype(table).or(trace.get(table).dtype) {
        Some(dtype) if dtype.is_int() && line => match trace.get(table).to_i64() {
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
fn source_name(graph: &Graph, mut value: ValueId) -> Option<String> {
    loop {
        if graph.stored(value).is_some() {
            return Some(graph.name(value).to_owned());
        }
        let (id, _) = graph.producer(value)?;
        value = graph.node(id).input(0)?;
    }
}
