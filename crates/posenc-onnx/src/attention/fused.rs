//! Attention as one operator of ai.onnx or com.microsoft.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node, NodeId, ValueId};

use super::site::{Mask, Operand, Site, StackLayer};
use crate::graph::lane::Lane;
use posenc_encodings::kind::Form;

/// The site of a fused operator; `None` for any other node.
pub(crate) fn fused(graph: &Graph, trace: &Trace, id: NodeId) -> Option<Site> {
    let op = Op {
        node: graph.node(id),
        trace,
    };
    let (form, shape) = match (op.node.domain(), op.node.op()) {
        ("", "Attention") => (Form::Onnx, op.standard()?),
        ("com.microsoft", "MultiHeadAttention") => (Form::Contrib, op.multi_head()?),
        ("com.microsoft", "GroupQueryAttention" | "SparseAttention" | "PagedAttention") => {
            (Form::Contrib, op.group_query()?)
        }
        ("com.microsoft", "Attention") => (Form::Contrib, op.projecting()?),
        _ => return None,
    };
    Some(Site {
        node: id,
        scope: op.node.scope(),
        name: String::new(),
        index: 0,
        place: StackLayer::default(),
        query: shape.query,
        key: shape.key,
        product: None,
        scores: None,
        plane: None,
        heads: Some(shape.heads),
        kv_heads: Some(shape.kv_heads),
        head_dim: Some(shape.head_dim),
        mask: shape.mask,
        cross: false,
        past: shape.past,
        buffer: None,
        folded: false,
        form,
        bias: None,
    })
}

/// Operands and counts of a fused operator.
struct Shape {
    query: Operand,
    key: Operand,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    mask: Mask,
    past: bool,
}

struct Op<'a> {
    node: &'a Node,
    trace: &'a Trace,
}

impl Op<'_> {
    fn count(&self, attribute: &str) -> Option<usize> {
        let n = self.node.int(attribute).ok()??;
        usize::try_from(n).ok().filter(|n| *n > 0)
    }

    fn flag(&self, attribute: &str, default: bool) -> bool {
        let set = self.node.int(attribute).ok().flatten();
        set.map_or(default, |n| n != 0)
    }

    fn dims(&self, value: ValueId) -> Option<&[usize]> {
        self.trace.get(value).dims.as_deref()
    }

    /// An operand `[b, heads, s, d]`, `[b, s, heads · d]` or `[tokens, heads · d]`, of heads of `width`.
    fn operand(&self, slot: usize, width: usize) -> Option<Operand> {
        let value = self.node.input(slot)?;
        let lane = match *self.dims(value)? {
            [_, _, _, last] => Lane {
                sequence: 2,
                feature: (last == width).then_some(3),
                group: None,
                offset: 0,
            },
            [_, _, _] => Lane {
                sequence: 1,
                feature: Some(2),
                group: Some(width),
                offset: 0,
            },
            // The tokens of all sequences, one after the other.
            [_, _] => Lane {
                sequence: 0,
                feature: Some(1),
                group: Some(width),
                offset: 0,
            },
            // Packed as `[b, s, heads, 3, d]`.
            [_, _, _, 3, _] => Lane {
                sequence: 1,
                feature: Some(4),
                group: None,
                offset: 0,
            },
            _ => return None,
        };
        Some(Operand { value, lane })
    }

    /// Heads of an operand and the width of each: of rank 4 from its shape, of rank 3 from the
    /// count that an attribute gives.
    fn heads(&self, slot: usize, attribute: &str) -> Option<(usize, usize)> {
        match *self.dims(self.node.input(slot)?)? {
            [_, heads, _, width] => Some((heads, width)),
            [_, _, hidden] => {
                let heads = self.count(attribute)?;
                Some((heads, hidden / heads))
            }
            [_, _, heads, 3, width] => Some((heads, width)),
            _ => None,
        }
    }

    /// The standard operator of ai.onnx 23 and later.
    fn standard(&self) -> Option<Shape> {
        let (heads, head_dim) = self.heads(0, "q_num_heads")?;
        let (kv_heads, _) = self.heads(1, "kv_num_heads")?;
        let (causal, window) = self.sides()?;
        Some(Shape {
            query: self.operand(0, head_dim)?,
            key: self.operand(1, head_dim)?,
            heads,
            kv_heads,
            head_dim,
            mask: Mask {
                causal,
                window,
                padding: false,
            },
            past: self.node.input(4).is_some(),
        })
    }

    /// Whether later keys are hidden by the window of the standard operator, and its width; `None` for one that differs
    /// before and behind a query.
    fn sides(&self) -> Option<(Option<bool>, Option<usize>)> {
        let side = |name: &str| {
            let keys = self.node.int(name).ok().flatten();
            keys.and_then(|keys| usize::try_from(keys).ok())
        };
        let [left, right] = [side("left_window_size"), side("right_window_size")];
        let is_causal = right == Some(0) || self.flag("is_causal", false);
        let hides_later = (right == Some(0)).then_some(true);
        // A query sees itself besides those.
        let window = match left {
            Some(left) if is_causal || right == Some(left) => Some(left.checked_add(1)?),
            None if is_causal || right.is_none() => None,
            _ => return None,
        };
        Some((hides_later, window))
    }

    /// Queries, keys and values apart, or packed in the first input.
    fn multi_head(&self) -> Option<Shape> {
        let (heads, head_dim) = self.heads(0, "num_heads")?;
        let key = if self.node.input(1).is_some() { 1 } else { 0 };
        Some(Shape {
            query: self.operand(0, head_dim)?,
            key: self.operand(key, head_dim)?,
            heads,
            kv_heads: heads,
            head_dim,
            mask: Mask {
                causal: self.flag("unidirectional", false).then_some(true),
                ..Mask::default()
            },
            past: self.node.input(6).is_some(),
        })
    }

    /// Fewer heads of keys than of queries; always causal.
    fn group_query(&self) -> Option<Shape> {
        let (heads, kv_heads) = (self.count("num_heads")?, self.count("kv_num_heads")?);
        let hidden = *self.dims(self.node.input(0)?)?.last()?;
        let packed = self.node.input(1).is_none();
        let parts = if packed { heads + 2 * kv_heads } else { heads };
        let head_dim = hidden / parts;
        let window = self.node.int("local_window_size").ok().flatten();
        Some(Shape {
            query: self.operand(0, head_dim)?,
            key: self.operand(if packed { 0 } else { 1 }, head_dim)?,
            heads,
            kv_heads,
            head_dim,
            mask: Mask {
                causal: Some(self.flag("causal", true)),
                window: window
                    .and_then(|n| usize::try_from(n).ok())
                    .filter(|n| *n > 0),
                padding: false,
            },
            past: self.node.input(3).is_some(),
        })
    }

    /// The operator that contains the projections itself.
    fn projecting(&self) -> Option<Shape> {
        let heads = self.count("num_heads")?;
        let hidden = match self.node.ints("qkv_hidden_sizes").ok()? {
            Some([q, ..]) => usize::try_from(*q).ok()?,
            _ => *self.dims(self.node.input(1)?)?.last()? / 3,
        };
        let value = self.node.input(0)?;
        let operand = Operand {
            value,
            lane: Lane::of_sequence(self.dims(value)?.len().checked_sub(2)?),
        };
        Some(Shape {
            query: operand,
            key: operand,
            heads,
            kv_heads: heads,
            head_dim: hidden / heads,
            mask: Mask {
                causal: Some(self.flag("unidirectional", false)),
                ..Mask::default()
            },
            past: self.node.input(4).is_some(),
        })
    }
}
