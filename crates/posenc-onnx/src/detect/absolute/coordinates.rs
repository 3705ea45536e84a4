//! Tables that coordinates of the input pick from: boxes of words on a page, rows and columns of
//! patches, the time of each step.

use posenc_ir::{Dim, Graph, Model, NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::stream::Lookup;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::found::Found;
use crate::graph::operators::{is_copy, is_product, is_rearrangement};
use crate::graph::ports::{Port, Role, contains_time_steps};
use posenc_encodings::families::learned::Learned;
use posenc_encodings::kind::Form;

pub(crate) fn find(model: &Model, found: &Found, lookups: &[Lookup]) -> Vec<Finding> {
    let graph = model.graph();
    let mut findings: Vec<(ValueId, Finding)> = vec![];
    for lookup in lookups {
        let node = graph.node(lookup.entry.node);
        let (Some(table), Some(index)) = (node.input(0), node.input(1)) else {
            continue;
        };
        let Some([rows, dim]) = found.trace.get(table).dims.as_deref() else {
            continue;
        };
        if fed_by_coordinates(graph, found, index).is_none() {
            continue;
        }
        let encoding = Encoding::Learned(Learned {
            max_positions: *rows,
            table_rows: *rows,
            dim: *dim,
            offset: 0,
            prefix: 0,
            grid: None,
        });
        let finding = Finding {
            encoding,
            sites: lookup.sites.clone(),
            entries: vec![lookup.entry],
            table: None,
            form: Form::Ops,
            fit_error: None,
            max_length: None,
            lead: 0,
            evidence: vec![],
        };
        match findings.iter_mut().find(|(t, _)| *t == table) {
            Some((_, before)) => before.merge(finding),
            None => findings.push((table, finding)),
        }
    }
    findings.into_iter().map(|(_, f)| f).collect()
}

/// The input whose coordinates pick the rows of an encoding, if some do.
pub(crate) fn input_of_coordinates(
    graph: &Graph,
    found: &Found,
    finding: &Finding,
) -> Option<ValueId> {
    let index = |entry: &Use| graph.node(entry.node).input(1);
    let is_learned = matches!(finding.encoding, Encoding::Learned(_));
    let mut picked = finding.entries.iter().filter(|_| is_learned);
    picked.find_map(|entry| fed_by_coordinates(graph, found, index(entry)?))
}

/// The first input that an index follows from, where all are coordinates that the caller feeds: integers,
/// four for each token (or two), single columns of floats that are converted to integers, or time steps.
fn fed_by_coordinates(graph: &Graph, found: &Found, index: ValueId) -> Option<ValueId> {
    let mut stack = vec![(index, false)];
    let mut seen = FxHashSet::default();
    let mut fed = vec![];
    while let Some((value, cut)) = stack.pop() {
        if !seen.insert((value, cut)) {
            continue;
        }
        let Some((id, _)) = graph.producer(value) else {
            fed.push((value, cut));
            continue;
        };
        let node = graph.node(id);
        let cuts = matches!(node.op(), "Slice" | "Gather" | "Split" | "GatherElements");
        let op = node.op();
        let moves = is_copy(op)
            || is_rearrangement(op)
            || matches!(op, "Add" | "Sub" | "Mul" | "Div" | "Clip")
            || matches!(op, "Min" | "Max" | "Round" | "Floor");
        if !cuts && !moves {
            return None;
        }
        let inputs = node.inputs().iter().flatten().copied();
        stack.extend(
            inputs
                .filter(|v| found.is_content(*v))
                .map(|v| (v, cut || cuts)),
        );
    }
    let coordinates = |(value, cut): &(ValueId, bool)| {
        let port = found.ports.iter().find(|p| p.value == *value);
        port.is_some_and(|p| *cut && contains_coordinates(p) || contains_time_steps(graph, p))
    };
    let (first, _) = *fed.first()?;
    fed.iter().all(coordinates).then_some(first)
}

/// Whether values are computed from coordinates alone, as far as known.
pub(crate) type CoordinateCache = FxHashMap<ValueId, bool>;

/// Whether a term of the scores follows coordinates: it is computed from them alone, or content
/// meets what is.
pub(crate) fn meet_coordinates(
    graph: &Graph,
    found: &Found,
    known: &mut CoordinateCache,
    term: ValueId,
) -> bool {
    if !found
        .ports
        .iter()
        .any(|p| is_coordinate_input(graph, found, p))
    {
        return false;
    }
    let mut stack = vec![term];
    let mut seen = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if !seen.insert(value) {
            continue;
        }
        if follows(graph, found, known, value) {
            return true;
        }
        let Some((id, _)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        let mut content = content(graph, found, id);
        if !is_product(node) {
            stack.extend(content);
        } else if content.any(|v| follows(graph, found, known, v)) {
            return true;
        }
    }
    false
}

/// The content that a node reads.
fn content(graph: &Graph, found: &Found, id: NodeId) -> impl Iterator<Item = ValueId> {
    let reads = crate::graph::region::reads(graph, id).into_iter();
    reads.filter(|v| found.is_content(*v))
}

/// Whether an input contains a few coordinates of each token: a point, a box or the corners of a
/// quadrilateral. Floats count where another input contains the tokens.
fn is_coordinate_input(graph: &Graph, found: &Found, port: &Port) -> bool {
    let few = matches!(port.dims.last(), Some(Dim::Known(2 | 4 | 8)));
    let are_tokens = |other: &Port| {
        let content = matches!(other.role, Role::Content | Role::Tokens);
        other.value != port.value && content && !contains_coordinates(other)
    };
    let has_tokens = || found.ports.iter().any(are_tokens);
    few && contains_coordinates(port) && (port.dtype.is_int() || has_tokens())
        || contains_time_steps(graph, port)
}

/// Whether the content of a value is computed from coordinates alone.
fn follows(graph: &Graph, found: &Found, known: &mut CoordinateCache, value: ValueId) -> bool {
    if !found.is_content(value) {
        return false;
    }
    let mut stack = vec![value];
    while let Some(at) = stack.last().copied() {
        let follows = match (known.get(&at), graph.producer(at)) {
            (Some(follows), _) => Some(*follows),
            (None, Some((id, _))) => {
                let unread = content(graph, found, id).find(|v| known.get(v) != Some(&true));
                match unread {
                    Some(v) if !known.contains_key(&v) => {
                        stack.push(v);
                        None
                    }
                    Some(_) => Some(false),
                    // What is drawn at random is read from nothing.
                    None => Some(content(graph, found, id).next().is_some()),
                }
            }
            (None, None) => {
                let port = found.ports.iter().find(|p| p.value == at);
                Some(port.is_some_and(|p| is_coordinate_input(graph, found, p)))
            }
        };
        if let Some(follows) = follows {
            known.insert(at, follows);
            stack.pop();
        }
    }
    known.get(&value) == Some(&true)
}

fn contains_coordinates(port: &Port) -> bool {
    let last = match port.dims.last() {
        Some(Dim::Known(n)) => Some(*n),
        _ => None,
    };
    let each = port.dims.len() == 3 && port.role == Role::Content;
    // Floats are cut to a column before they become integers.
    each && (port.dtype.is_float() || matches!(last, Some(2 | 4)))
}
