//! The grid of patches that the tokens of an image are made from, and the tokens before them.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, ValueId};

use crate::attention::stream::{Tokens, back};
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::pads::pads;
use crate::graph::lane::wrap;

/// How tokens make up an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Patches {
    /// Tokens before the first patch: class and registers.
    pub(crate) prefix: usize,
    /// Rows and columns, where there are such.
    pub(crate) grid: Option<[usize; 2]>,
    /// Class tokens and the like before the first token, where there are no rows and columns.
    pub(crate) lead: usize,
}

/// Between patches and tokens there are few operators.
const STEPS: usize = 64;

/// Follows the tokens of a value, so many in a sequence, back to where they are on two axes, rows and
/// columns.
pub(crate) fn patches(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    mut value: ValueId,
    mut tokens: Tokens,
    length: Option<usize>,
) -> Patches {
    let content = |v: ValueId| classes.of_value(v).has(Class::CONTENT);
    let mut found = Patches::default();
    let count = |v: ValueId, tokens: Tokens| -> usize {
        let dims = trace.get(v).dims.as_deref().unwrap_or_default();
        tokens.iter().filter_map(|a| dims.get(a)).product()
    };
    let mut length = length.unwrap_or_else(|| count(value, tokens));
    for _ in 0..STEPS {
        let Some(dims) = trace.get(value).dims.as_deref() else {
            break;
        };
        // Sequences that were folded with their tokens are apart again.
        if tokens.has(0) && count(value, tokens.without(0)) == length {
            tokens = tokens.without(0);
        }
        let axes: Vec<usize> = tokens.iter().filter(|a| dims.get(*a) > Some(&1)).collect();
        if let [rows, columns] = axes[..] {
            // Batch and sequence of one axis are no grid, and neither are tokens with the features that each is made of.
            let fits = rows > 0 && dims[rows] * dims[columns] <= length;
            found.grid = fits.then(|| [dims[rows], dims[columns]]);
            break;
        }
        let Some((id, output)) = graph.producer(value) else {
            break;
        };
        let node = graph.node(id);
        let joined = if node.is("Concat") {
            node.int("axis")
                .ok()
                .flatten()
                .and_then(|a| wrap(a, dims.len()))
        } else {
            None
        };
        if let Some(axis) = joined.filter(|a| tokens.has(*a)) {
            let before = node.inputs().iter().flatten().take_while(|v| !content(**v));
            let rows = |v: &ValueId| {
                let dims = trace.get(*v).dims.as_ref();
                dims.and_then(|d| d.get(axis)).copied().unwrap_or(0)
            };
            found.prefix += before.map(rows).sum::<usize>();
        }
        if node.is("Pad")
            && let Some(pads) = pads(node, trace, dims.len())
        {
            let rows = axes.iter().map(|a| pads[*a][0]);
            found.prefix += rows.filter_map(|n| usize::try_from(n).ok()).sum::<usize>();
        }
        let elements = |v: ValueId| trace.get(v).elements().unwrap_or(0);
        let inputs = node.inputs().iter().enumerate();
        let next = inputs
            .filter_map(|(slot, v)| Some((slot, v.filter(|v| content(*v))?)))
            .rev()
            .max_by_key(|(_, v)| elements(*v));
        let Some((slot, input)) = next else {
            break;
        };
        let Some(before) = back(graph, trace, id, output, slot, tokens) else {
            break;
        };
        if joined.is_some_and(|a| tokens.has(a)) {
            length = count(input, before);
        }
        (value, tokens) = (input, before);
    }
    if found.grid.is_none() {
        found.lead = std::mem::take(&mut found.prefix);
    }
    found
}
