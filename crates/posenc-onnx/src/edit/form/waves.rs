//! The cosines and sines of the pairs, as values of the graph.

use posenc_encodings::kind::Layout;
use posenc_ir::eval::{Budget, Trace};
use posenc_ir::{DType, Emitter, ScopeId, ValueId};
use rustc_hash::FxHashMap;

use super::counted::Counted;
use crate::detect::context::Context;
use crate::detect::{RotaryOperand, run_at};
use crate::graph::operators::{is_rotary, position_sections};
use crate::graph::ports::Lengths;

/// The domain of the operators of ONNX Runtime.
pub(super) const CONTRIB: &str = "com.microsoft";

/// Elements of shapes and positions that are computed.
pub(super) const BUDGET: Budget = Budget { elements: 1 << 16 };

/// cos and sin of the pairs.
#[derive(Clone, Copy, Debug)]
pub(super) struct HalfWaves {
    /// cos and sin, `[sequence, token, pair]`, times the factor of the rotation.
    pub(super) values: [ValueId; 2],
    /// Whether sequences of a batch have rows of their own; they share them otherwise, and there is one
    /// sequence.
    pub(super) by_sequence: bool,
    /// How many pairs there are.
    pub(super) pairs: usize,
    /// Their type.
    pub(super) dtype: DType,
}

/// What was written of them so far.
pub(super) struct Waves<'a> {
    pub(super) context: &'a Context<'a>,
    /// How many sequences that run has: as many as the trial run where the graph takes no others.
    batch: usize,
    /// A run with another sequence.
    pub(super) run: Option<Trace>,
    /// The positions that operators of attention count.
    counted: Counted<'a>,
    known: FxHashMap<Key, HalfWaves>,
}

/// What waves are computed from, the layout, the streams of positions and the scope.
type Key = (Vec<ValueId>, Layout, Option<(Vec<i64>, bool)>, ScopeId);

/// cos and sin as a graph has them: see [`HalfWaves`].
pub(super) struct Source {
    pub(super) values: [ValueId; 2],
    pub(super) by_sequence: bool,
    pub(super) dtype: DType,
}

impl<'a> Waves<'a> {
    pub(super) fn new(context: &'a Context<'a>) -> Self {
        let of_batch = Lengths {
            batch: context.found.lengths.batch + 1,
            ..context.found.lengths
        };
        Self {
            context,
            batch: context.found.ports.fit(of_batch).batch,
            run: run_at(context.model, context.found, of_batch, &BUDGET),
            counted: Counted::new(context),
            known: FxHashMap::default(),
        }
    }

    /// Those of one rotation.
    ///
    /// # Errors
    /// Where no values of the graph hold them.
    pub(super) fn of(
        &mut self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        layout: Layout,
    ) -> Result<HalfWaves, String> {
        let graph = self.context.graph();
        let id = side.region.entries[0].node;
        let node = graph.node(id);
        let is_fused = is_rotary(node);
        let entries = side.region.entries.iter();
        let inside = side.region.inside.as_ref();
        let counted = inside.map(|own| self.counted.positions(out, side, own));
        let counted = counted.transpose()?;
        let from: Vec<ValueId> = match is_fused {
            true => {
                // Positions are counted for as many tokens as there are, where the first is given.
                let counts = node.input(1).and_then(|v| self.context.dims(v));
                let of_tokens = node.domain() == CONTRIB && counts.is_none_or(|d| d.len() != 2);
                let inputs = node.inputs().iter().skip(usize::from(!of_tokens));
                inputs.flatten().copied().collect()
            }
            false => entries
                .filter_map(|at| graph.node(at.node).input(at.slot()))
                .chain(counted)
                .collect(),
        };
        let sections = position_sections(node).map(|(all, in_turns)| (all.to_vec(), in_turns));
        let key = (from, layout, sections, node.scope());
        if let Some(known) = self.known.get(&key) {
            return Ok(*known);
        }
        out.set_scope(node.scope());
        let made = match (inside.zip(counted), is_fused, node.domain()) {
            (Some((inside, positions)), ..) => Ok(self.of_attention(out, inside, positions)),
            (None, true, "") => self.of_standard(out, id),
            (None, true, CONTRIB) => self.of_contrib(out, side, id),
            _ => self.of_operators(out, side, layout),
        };
        let Source {
            values,
            by_sequence,
            dtype,
        } = made?;
        let made = HalfWaves {
            values,
            by_sequence,
            pairs: side.rotation.rope.pairs.len(),
            dtype,
        };
        self.known.insert(key, made);
        Ok(made)
    }

    /// Whether an axis is that of the sequences of a batch.
    pub(super) fn is_batch(&self, value: ValueId, axis: usize) -> bool {
        let batch = self.context.found.lengths.batch;
        let size = |dims: Option<&[usize]>| dims.and_then(|dims| dims.get(axis)).copied();
        let wide = self.run.as_ref().map(|run| run.get(value));
        let wide = wide.and_then(|value| value.dims.as_deref());
        let own = size(self.context.dims(value));
        // Where the graph takes one number of sequences, theirs is the first axis.
        let is_fixed = self.batch == batch && batch > 1 && axis == 0;
        own == Some(batch) && (size(wide) == Some(batch + 1) || is_fixed)
    }
}
