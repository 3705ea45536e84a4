//! Rotations within an operator of attention, which are written before it instead, and those that it takes over.

use posenc_encodings::kind::Layout;
use posenc_ir::{Attr, DType, Emitter, NodeId, ValueId};

use super::joined::{Joined, TABLES};
use super::waves::CONTRIB;
use super::{Unrotated, Writer, unsupported};
use crate::detect::RotarySite;
use crate::edit::remove::rotation::{OperatorInputs, remove_from_operator};
use crate::error::RewriteError;

/// The weights with which queries and keys are normalized before they are rotated.
const NORMS: [usize; 2] = [14, 15];

/// What is added to the mean square where the attribute is left out.
const EPSILON: f64 = 1e-6;

impl Writer<'_> {
    /// Replaces an operator that rotates queries and keys by rotations of both, and an operator without.
    pub(super) fn within(
        &mut self,
        out: &mut Emitter<'_>,
        site: &RotarySite,
    ) -> Result<(), RewriteError> {
        let (context, graph) = (self.context, self.context.graph());
        let own = context.site(site.site);
        let (id, node) = (own.node, graph.node(own.node));
        let refuse = |why: &str| Err(unsupported(context, id, why.to_owned()));
        if (node.domain(), node.op()) != (CONTRIB, "GroupQueryAttention") {
            let op = node.op();
            let why = format!("{op} rotates within itself, and keeps its form");
            return refuse(&why);
        }
        let (Some(heads), Some(kv_heads), Some(head_dim), Some(query)) =
            (own.heads, own.kv_heads, own.head_dim, node.input(0))
        else {
            return refuse("cannot determine its heads");
        };
        if !self.done.insert(id) {
            return Ok(());
        }
        out.set_scope(node.scope());
        let query = self.replacements.current(query);
        let mut operands = match node.input(1) {
            Some(key) => vec![query, self.replacements.current(key)],
            None => {
                let sizes = [heads, kv_heads, kv_heads].map(|n| n * head_dim);
                context.opset().split(out, query, 2, &sizes)
            }
        };
        let sides = [(&site.query, heads), (&site.key, kv_heads)];
        for (((side, heads), operand), norm) in sides.into_iter().zip(&mut operands).zip(NORMS) {
            let (layout, waves) = self.read(out, side, id)?;
            out.set_scope(node.scope());
            let value = match node.input(norm) {
                Some(weight) => self.normalized(out, id, (*operand, weight), [heads, head_dim]),
                None => *operand,
            };
            let x = Unrotated {
                value,
                layout,
                heads: Some(heads),
            };
            *operand = self.rotate(out, (side, id), x, &waves)?;
        }
        let changed = OperatorInputs {
            operands: &operands,
            left_out: &NORMS,
        };
        remove_from_operator(out, context, &mut self.replacements, id, &changed)
    }

    /// Heads divided by the root of their mean square and multiplied with weights, as the operator does it:
    /// `[batch, token, heads · width]`.
    fn normalized(
        &self,
        out: &mut Emitter<'_>,
        id: NodeId,
        (x, weight): (ValueId, ValueId),
        [heads, width]: [usize; 2],
    ) -> ValueId {
        let context = self.context;
        let node = context.graph().node(id);
        let epsilon = node.float("qk_norm_epsilon").ok().flatten();
        let epsilon = out.scalar("epsilon", DType::F32, epsilon.unwrap_or(EPSILON));
        // Packed queries are split by nodes that the graph does not have yet.
        let dtype = context.dtype(node.input(0).unwrap_or(x));
        let apart = out.ints("heads", &[0, 0, heads as i64, width as i64]);
        let together = out.ints("hidden", &[0, 0, (heads * width) as i64]);
        let of_heads = out.op("Reshape", &[x, apart]);
        // The kernel computes in single precision.
        let [wide, weight] = [of_heads, weight].map(|x| match dtype {
            DType::F32 => x,
            _ => out.cast(x, DType::F32),
        });
        let squares = out.op("Mul", &[wide, wide]);
        let sum = context.opset().sum(out, squares, &[-1]);
        let sum = context.opset().unsqueeze(out, sum, &[-1]);
        let count = out.scalar("width", DType::F32, width as f64);
        let mean = out.op("Div", &[sum, count]);
        let mean = out.op("Add", &[mean, epsilon]);
        let root = out.op("Sqrt", &[mean]);
        let unit = out.op("Div", &[wide, root]);
        let mut made = out.op("Mul", &[unit, weight]);
        if dtype != DType::F32 {
            made = out.cast(made, dtype);
        }
        out.op("Reshape", &[made, together])
    }

    /// Lets an operator rotate queries and keys that were rotated before it.
    pub(super) fn joined(
        &mut self,
        out: &mut Emitter<'_>,
        joined: Joined<'_>,
    ) -> Result<(), RewriteError> {
        let node = self.context.graph().node(joined.id);
        for side in [&joined.site.query, &joined.site.key] {
            let value = self.unrotated(out, side, joined.id)?;
            self.replacements.replace(side.region.output, value);
        }
        out.set_scope(node.scope());
        let pairs = joined.site.query.rotation.rope.pairs.len();
        let tables = joined.tables.map(|rows| {
            let key = (rows, node.scope());
            let cut = || rows.cut(self.context, out, pairs);
            *self.tables.entry(key).or_insert_with(cut)
        });
        let inputs = node.inputs().iter();
        let mut inputs: Vec<_> = inputs
            .map(|v| v.map(|v| self.replacements.current(v)))
            .collect();
        inputs.resize(inputs.len().max(TABLES[1] + 1), None);
        for (slot, table) in TABLES.into_iter().zip(tables) {
            inputs[slot] = Some(table);
        }
        let flag = i64::from(joined.layout == Layout::Interleaved);
        let attributes = [
            ("do_rotary", Attr::Int(1)),
            ("rotary_interleaved", Attr::Int(flag)),
        ];
        let new = out.copy(joined.id, &inputs, &attributes)?;
        self.replacements.replace_outputs(node, &new);
        Ok(())
    }
}
