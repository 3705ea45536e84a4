//! The cosines and sines that a fused operator reads.

use posenc_ir::eval::{Trace, position_streams};
use posenc_ir::{Attr, Emitter, NodeId, Tensor, ValueId};

use super::waves::{Source, Waves};
use crate::detect::RotaryOperand;
use crate::graph::operators::position_sections;
use crate::graph::region::Inside;
use crate::graph::sizes::is_of_sizes;

impl Waves<'_> {
    /// Those of an operator of attention: rows that positions pick.
    pub(super) fn of_attention(
        &self,
        out: &mut Emitter<'_>,
        inside: &Inside,
        positions: ValueId,
    ) -> Source {
        Source {
            values: [inside.cos, inside.sin].map(|table| out.op("Gather", &[table, positions])),
            by_sequence: true,
            dtype: self.context.dtype(inside.cos),
        }
    }

    /// Those of the standard operator: of each token, or rows that positions pick.
    pub(super) fn of_standard(&self, out: &mut Emitter<'_>, id: NodeId) -> Result<Source, String> {
        let node = self.context.graph().node(id);
        let [cos, sin] = tables(node.input(1), node.input(2))?;
        let dtype = self.context.dtype(cos);
        Ok(match node.input(3) {
            Some(positions) => Source {
                values: [cos, sin].map(|table| out.op("Gather", &[table, positions])),
                by_sequence: true,
                dtype,
            },
            None => Source {
                values: [cos, sin],
                by_sequence: self.is_batch(cos, 0),
                dtype,
            },
        })
    }

    /// Those of the operator of ONNX Runtime: rows that positions pick, or from a position on.
    pub(super) fn of_contrib(
        &self,
        out: &mut Emitter<'_>,
        side: &RotaryOperand,
        id: NodeId,
    ) -> Result<Source, String> {
        let node = self.context.graph().node(id);
        let [cos, sin] = tables(node.input(2), node.input(3))?;
        let positions = node.input(1).ok_or("it has no positions")?;
        let scale = node.float("scale").map_err(|e| e.to_string())?;
        let packed = node.int("is_packed_batching").map_err(|e| e.to_string())?;
        if scale.is_some_and(|scale| scale != 1.0) || packed.is_some_and(|flag| flag != 0) {
            return Err("it has a scale, or sequences of different lengths in one".to_owned());
        }
        let dtype = self.context.dtype(cos);
        if let Some(sections) = position_sections(node) {
            let values = self.by_streams(out, sections, [cos, sin], positions);
            return Ok(Source {
                values: values.ok_or("the streams of its positions do not share out its pairs")?,
                by_sequence: true,
                dtype,
            });
        }
        if let Some(values) = self.unfolded([cos, sin], positions) {
            return Ok(Source {
                values,
                by_sequence: self.is_batch(values[0], 0),
                dtype,
            });
        }
        if self.context.dims(positions).map(<[usize]>::len) == Some(2) {
            return Ok(Source {
                values: [cos, sin].map(|table| out.op("Gather", &[table, positions])),
                by_sequence: true,
                dtype,
            });
        }
        let int =
            |out: &mut Emitter<'_>, label, n: i64| out.constant(label, Tensor::from_i64(&[], &[n]));
        let shape = out.op("Shape", &[side.region.input]);
        let axis = int(out, "axis", side.region.input_lane.sequence as i64);
        let count = out.op("Gather", &[shape, axis]);
        let (zero, one) = (int(out, "zero", 0), int(out, "one", 1));
        let counted = out.op("Range", &[zero, count, one]);
        let rows = out.op("Add", &[counted, positions]);
        let opset = self.context.opset();
        let values = [cos, sin].map(|table| {
            let rows = out.op("Gather", &[table, rows]);
            opset.unsqueeze(out, rows, &[0])
        });
        Ok(Source {
            values,
            by_sequence: false,
            dtype,
        })
    }

    /// Rows `[sequence, token, pair]` of tables, of which each pair is picked by a stream of positions
    /// `[3, sequence, token]`.
    fn by_streams(
        &self,
        out: &mut Emitter<'_>,
        (sections, takes_turns): (&[i64], bool),
        tables: [ValueId; 2],
        positions: ValueId,
    ) -> Option<[ValueId; 2]> {
        let &[_, pairs] = self.context.dims(tables[0])? else {
            return None;
        };
        let streams = position_streams(sections, pairs, takes_turns)?;
        let of_stream = [0, 1, 2].map(|stream| {
            let stream = out.constant("stream", Tensor::from_i64(&[], &[stream]));
            out.op_with("Gather", &[positions, stream], &[("axis", Attr::Int(0))])
        });
        let masks = [1, 2].map(|stream| {
            let own: Vec<bool> = streams.iter().map(|own| *own == stream).collect();
            out.constant("pairs", Tensor::from_bool(&[pairs], &own))
        });
        Some(tables.map(|table| {
            let [time, height, width] = of_stream.map(|rows| out.op("Gather", &[table, rows]));
            let made = out.op("Where", &[masks[0], height, time]);
            out.op("Where", &[masks[1], width, made])
        }))
    }

    /// The values `[sequence, token, pair]` that tables are reshaped from, where the rows of all tokens follow
    /// each other and are picked in this order.
    fn unfolded(&self, tables: [ValueId; 2], picks: ValueId) -> Option<[ValueId; 2]> {
        let (graph, trace) = (self.context.graph(), &self.context.found.trace);
        let mut whole = tables;
        for table in &mut whole {
            let (id, _) = graph.producer(*table)?;
            let node = graph.node(id);
            *table = node.input(0).filter(|_| node.is("Reshape"))?;
        }
        let [sequences, tokens, pairs] = self.context.dims(whole[0])?[..] else {
            return None;
        };
        let is_flat = self.context.dims(tables[0]) == Some(&[sequences * tokens, pairs][..]);
        let run = self.run.as_ref()?;
        let [wide, long, _] = run.get(whole[0]).dims.as_deref()?[..] else {
            return None;
        };
        let is_counted = |trace: &Trace, [sequences, tokens]: [usize; 2]| {
            trace.get(picks).to_i64().is_some_and(|rows| {
                let row = |at: &ndarray::IxDyn| at[0] % sequences * tokens + at[1];
                let mut all = rows.indexed_iter();
                let is_whole = rows.ndim() == 2 && rows.shape()[1] == tokens;
                is_whole && all.all(|(at, n)| usize::try_from(*n) == Ok(row(&at)))
            })
        };
        let counts = is_counted(trace, [sequences, tokens]) && is_counted(run, [wide, long]);
        (is_flat && counts && is_of_sizes(graph, picks)).then_some(whole)
    }
}

/// The tables of a fused operator.
fn tables(cos: Option<ValueId>, sin: Option<ValueId>) -> Result<[ValueId; 2], String> {
    match (cos, sin) {
        (Some(cos), Some(sin)) => Ok([cos, sin]),
        _ => Err("it has no cosines and sines".to_owned()),
    }
}
