//! Cosines and sines of one sequence for a batch: the standard `RotaryEmbedding` without positions wants those
//! of every sequence, and exporters write those of one.

use std::collections::BTreeMap;

use posenc_ir::eval::Budget;
use posenc_ir::{Applied, Attr, Emitter, Model, NodeId, Use, ValueId};

use crate::detect::{Found, run_at};
use crate::error::RewriteError;
use crate::graph::ports::Lengths;

/// What a report says of it.
pub(crate) const REPEATED: &str = "RotaryEmbedding had the cosines and sines of one sequence, which runtimes take for a \
                                   batch of one: they are repeated for every sequence";

/// Sequences of the run that tells which sizes are those of the batch.
const BATCH: usize = 2;

/// Elements of shapes and positions that are computed.
const BUDGET: Budget = Budget { elements: 1 << 16 };

/// The inputs of the operator.
const TOKENS: usize = 0;
const TABLES: [usize; 2] = [1, 2];
const POSITIONS: usize = 3;

/// Repeats cosines and sines of one sequence for all of the batch where an operator needs these; `None` where
/// none does. The model computes what it did for one sequence.
///
/// # Errors
/// When the edit does not fit the graph.
pub(crate) fn repeated(
    model: &Model,
    found: &Found,
) -> Result<Option<(Model, Applied)>, RewriteError> {
    let graph = model.graph();
    let is_own = |id: &NodeId| {
        let node = graph.node(*id);
        node.is("RotaryEmbedding") && node.input(POSITIONS).is_none()
    };
    let order = graph.order(graph.main())?;
    let nodes: Vec<NodeId> = order.into_iter().filter(is_own).collect();
    if nodes.is_empty() {
        return Ok(None);
    }
    let of_batch = Lengths {
        batch: BATCH,
        ..found.lengths
    };
    let Some(run) = run_at(model, found, of_batch, &BUDGET) else {
        return Ok(None);
    };
    let sequences = |value: ValueId| run.get(value).dims.as_deref()?.first().copied();
    let mut out = graph.emitter(graph.main(), "posenc_batch");
    let mut known: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    for id in nodes {
        let node = graph.node(id);
        let Some(tokens) = node.input(TOKENS).filter(|v| sequences(*v) == Some(BATCH)) else {
            continue;
        };
        let mut dims: Option<ValueId> = None;
        for slot in TABLES {
            let Some(table) = node.input(slot).filter(|v| sequences(*v) == Some(1)) else {
                continue;
            };
            let all = *known.entry(table).or_insert_with(|| {
                let dims = *dims.get_or_insert_with(|| of_every_sequence(&mut out, tokens, 3));
                out.op("Expand", &[table, dims])
            });
            out.redirect_use(table, Use::new(id, slot), all)?;
        }
    }
    let patch = out.finish();
    if patch.is_empty() {
        return Ok(None);
    }
    Ok(Some(model.clone().with_patch(patch)?))
}

/// The dimensions `[sequences, 1, ..]` of this rank, which repeat what is the same for every sequence of tokens
/// `[sequence, ..]`.
pub(crate) fn of_every_sequence(out: &mut Emitter<'_>, tokens: ValueId, rank: usize) -> ValueId {
    let dims = out.op("Shape", &[tokens]);
    let [first, one] = [0, 1].map(|n| out.ints("bound", &[n]));
    let sequences = out.op("Slice", &[dims, first, one]);
    let same = out.ints("same", &vec![1; rank - 1]);
    out.op_with("Concat", &[sequences, same], &[("axis", Attr::Int(0))])
}
