//! An attention site: where it is in the graph, its operands and its shape. Data only.

use std::sync::Arc;

use posenc_encodings::kind::{Form, Stack};
use posenc_ir::eval::Trace;
use posenc_ir::{Graph, NodeId, ScopeId, ValueId};

use super::plane::Plane;
use crate::graph::lane::Lane;

/// One attention: its operands and its shape.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The softmax, or the fused operator.
    pub node: NodeId,
    /// The scope of the node.
    pub scope: ScopeId,
    /// A name for users: the path in the node's name, or its label.
    pub name: String,
    /// Index among the sites, in order of computation.
    pub index: usize,
    /// The stack and the layer in it.
    pub place: StackLayer,
    /// Queries as they enter the product, or before they are folded for it.
    pub query: Operand,
    /// Keys as they enter the product.
    pub key: Operand,
    /// The product of queries and keys; `None` for a fused operator.
    pub product: Option<ValueId>,
    /// The input of the softmax.
    pub scores: Option<ValueId>,
    /// The axes of queries and keys in `scores`; `None` where they cannot be followed from the product.
    pub plane: Option<[usize; 2]>,
    /// Number of query heads.
    pub heads: Option<usize>,
    /// Number of key heads.
    pub kv_heads: Option<usize>,
    /// Features of a head.
    pub head_dim: Option<usize>,
    /// Which keys are masked.
    pub mask: Mask,
    /// Whether keys are computed from another sequence.
    pub cross: bool,
    /// Whether earlier keys join.
    pub past: bool,
    /// The input that new keys are written into, a cache of fixed size, and its axis of slots; `None` where keys are
    /// appended.
    pub buffer: Option<(ValueId, usize)>,
    /// Whether queries are folded with heads into one axis before the product; `query` is before
    /// that.
    pub folded: bool,
    /// Plain operators or a fused one.
    pub form: Form,
    /// Bias and mask in the trial run; `None` where they could not be evaluated. Equal sites share
    /// one.
    pub(crate) bias: Option<Arc<Plane>>,
}

/// The input of `GroupQueryAttention` that takes a number for each head beside the scores.
const SINK: usize = 11;

impl Site {
    /// Whether part of the attention goes to no key; `None` where the sizes of its scores are not known.
    pub(crate) fn has_sink(&self, graph: &Graph, trace: &Trace) -> Option<bool> {
        let node = graph.node(self.node);
        if self.product.is_none() {
            let smooth = node.int("smooth_softmax").ok().flatten();
            let is_smooth = smooth.is_some_and(|flag| flag != 0);
            let is_given = node.op() == "GroupQueryAttention" && node.input(SINK).is_some();
            return Some(is_smooth || is_given);
        }
        let columns = trace.get(self.scores?).dims.as_ref()?;
        Some(*columns.get(self.plane?[1])? != self.keys(trace)?)
    }

    /// The number of keys.
    pub(crate) fn keys(&self, trace: &Trace) -> Option<usize> {
        let dims = trace.get(self.key.value).dims.as_ref()?;
        dims.get(self.key.lane.sequence).copied()
    }

    /// The axis of keys in the scores, counted from the end; `None` where it cannot be followed from the product.
    pub(crate) fn keys_from_end(&self, trace: &Trace) -> Option<usize> {
        let Some(scores) = self.scores else {
            return Some(1);
        };
        let rank = trace.get(scores).dims.as_ref()?.len();
        rank.checked_sub(self.plane?[1])
    }

    /// Whether the mask makes the order of tokens matter.
    pub(crate) fn is_ordered(&self) -> bool {
        self.mask.causal != Some(false) || self.mask.window.is_some()
    }

    /// Whether a mask hides any key in the trial run, where every token counts: which ones then depends on the order
    /// of tokens.
    pub(crate) fn hides_keys(&self) -> bool {
        let hidden = |plane: &Arc<Plane>| plane.bias.iter().any(|v| *v == f64::NEG_INFINITY);
        self.is_ordered() || self.bias.as_ref().is_some_and(hidden)
    }
}

/// Queries or keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand {
    /// The value.
    pub value: ValueId,
    /// The axes of tokens and features.
    pub lane: Lane,
}

/// Which keys a query may attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Mask {
    /// Later keys are masked; `None` where the mask could not be evaluated.
    pub causal: Option<bool>,
    /// Keys at this distance and farther are masked.
    pub window: Option<usize>,
    /// The attention mask of the inputs is applied.
    pub padding: bool,
}

/// The layer of a site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StackLayer {
    /// The stack; `None` where the model has one.
    pub stack: Option<Stack>,
    /// Index among the sites of self-attention of the stack; cross-attention has the index of the
    /// self-attention before it.
    pub layer: usize,
}
