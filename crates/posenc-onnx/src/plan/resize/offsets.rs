//! Biases by the offset of two patches of the image: where they are read, and what they become.

use ndarray::{ArrayD, IxDyn};
use posenc_ir::{NodeId, Use, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::scores;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};

/// A bias that gets the numbers of another grid, where it is added.
#[derive(Clone, Debug)]
pub(crate) struct ResizedBias {
    /// Its finding, by the place in `Found::findings`.
    pub(crate) finding: usize,
    /// What is added, `[…, query, key]`.
    pub(crate) value: ValueId,
    /// Where it is added.
    pub(crate) entry: Use,
    /// Rows before those of patches.
    pub(crate) prefix: usize,
    /// Rows and columns of patches before.
    pub(crate) old: [usize; 2],
    /// Rows and columns of patches afterwards.
    pub(crate) new: [usize; 2],
    /// The graph computes it for the new grid.
    pub(crate) is_computed: bool,
}

impl ResizedBias {
    /// The number of each offset, `[…, rows, columns]`; `None` where pairs of one offset, or tokens of the
    /// prefix with different patches, have several.
    pub(crate) fn offsets(&self, numbers: &ArrayD<f64>) -> Option<ArrayD<f64>> {
        let lead = numbers.ndim().checked_sub(2)?;
        let mut dims = numbers.shape()[..lead].to_vec();
        dims.extend(self.old.map(|side| 2 * side - 1));
        let mut table = ArrayD::from_elem(dims, f64::NAN);
        for (index, number) in numbers.indexed_iter() {
            let index: &[usize] = ndarray::Dimension::slice(&index);
            let (lead, pair) = index.split_at(lead);
            let patches = [pair[0], pair[1]].map(|token| token.checked_sub(self.prefix));
            let [Some(query), Some(key)] = patches else {
                let first = [pair[0], pair[1]].map(|token| token.min(self.prefix));
                if numbers[IxDyn(&[lead, &first].concat())] != *number {
                    return None;
                }
                continue;
            };
            let own = &mut table[IxDyn(&[lead, &offset(self.old, query, key)].concat())];
            if own.is_nan() {
                *own = *number;
            } else if *own != *number {
                return None;
            }
        }
        Some(table)
    }

    /// The encoding of the finding on the new grid.
    pub(super) fn after(&self, encoding: &Encoding) -> Encoding {
        let other = match encoding {
            Encoding::ScoreBias(kind, bias) => bias.in_window(self.new).map(|bias| (*kind, bias)),
            _ => None,
        };
        other.map_or_else(
            || encoding.clone(),
            |(kind, bias)| Encoding::ScoreBias(kind, bias),
        )
    }
}

/// Where constants that may hold a bias by the offset of tokens are read on their way to the scores, with
/// their findings.
pub(super) fn entries(context: &Context<'_>) -> FxHashMap<Use, usize> {
    let (graph, found) = (context.graph(), context.found);
    let is_windowed = |finding: &Finding| match &finding.encoding {
        Encoding::ScoreBias(_, bias) => bias.window().is_some(),
        _ => false,
    };
    let findings = found.findings.iter().enumerate();
    let own = findings.filter(|(_, finding)| is_windowed(finding));
    // Of layers with equal biases, the finding has the entries of one.
    let mut stack: Vec<(Use, usize)> = own
        .flat_map(|(at, finding)| {
            let sites = finding.sites.iter().map(|site| &found.attention[*site]);
            let others =
                sites.flat_map(|s| scores::entries(graph, &found.classes, &found.trace, s));
            let own = finding.entries.iter().copied();
            own.chain(others).map(move |entry| (entry, at))
        })
        .collect();
    let mut all = FxHashMap::default();
    while let Some((at, finding)) = stack.pop() {
        if !graph.node(at.node).is("Add") || all.insert(at, finding).is_some() {
            continue;
        }
        let value = graph.node(at.node).input(at.slot());
        if let Some((maker, _)) = value.and_then(|value| graph.producer(value)) {
            stack.extend([0, 1].map(|slot| (Use::new(maker, slot), finding)));
        }
    }
    all
}

/// The nodes that compute such biases from the sizes of the image and from constants, and nothing else.
pub(super) fn makers(context: &Context<'_>, windowed: &FxHashMap<Use, usize>) -> FxHashSet<NodeId> {
    let graph = context.graph();
    let classes = &context.found.classes;
    let is_made =
        |value: &ValueId| !context.is_content(*value) && !classes.of_value(*value).is_constant();
    let read = windowed
        .keys()
        .filter_map(|at| graph.node(at.node).input(at.slot()));
    let mut stack: Vec<ValueId> = read.filter(is_made).collect();
    let mut all = FxHashSet::default();
    while let Some(value) = stack.pop() {
        let maker = graph.producer(value).map(|(maker, _)| maker);
        if let Some(maker) = maker.filter(|maker| all.insert(*maker)) {
            let inputs = graph.node(maker).inputs().iter().flatten().copied();
            stack.extend(inputs.filter(is_made));
        }
    }
    // Those whose results are read elsewhere too are no part.
    let order = graph.order(graph.main()).unwrap_or_default();
    let mut own = FxHashSet::default();
    for id in order.into_iter().rev().filter(|id| all.contains(id)) {
        let outputs = || graph.node(id).outputs().iter().flatten().copied();
        let mut uses = outputs().flat_map(|value| graph.uses(value));
        let is_own = uses.all(|at| own.contains(&at.node) || windowed.contains_key(at));
        if is_own && !outputs().any(|value| graph.value(value).is_output()) {
            own.insert(id);
        }
    }
    own
}

/// The place of a pair of patches in a table of offsets, key − query.
pub(crate) fn offset(grid: [usize; 2], query: usize, key: usize) -> [usize; 2] {
    let [q, k] = [query, key].map(|patch| [patch / grid[1], patch % grid[1]]);
    [0, 1].map(|side| k[side] + grid[side] - 1 - q[side])
}
