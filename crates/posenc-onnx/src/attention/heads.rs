//! The axes that hold the heads of queries.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, ValueId};

use crate::attention::site::Operand;
use crate::graph::dataflow::Classes;
use crate::graph::lane::{Lane, back};
use crate::graph::operators::{is_copy, is_elementwise, is_projection};

/// Values to look back through for the `Reshape` that makes heads.
const NEAR: usize = 12;

/// The axes of an operand into which a `Reshape` splits the features of a projection, but for the last, that of the
/// features of one head. `None` where no such node is found, or other axes cannot be followed to it.
pub(crate) fn split(
    (graph, classes, trace): (&Graph, &Classes, &Trace),
    operand: &Operand,
) -> Option<Vec<usize>> {
    let Operand {
        mut value,
        mut lane,
    } = *operand;
    let dims = |value: ValueId| trace.get(value).dims.as_ref();
    let rank = dims(value)?.len();
    let is_lead = |axis: &usize| *axis != lane.sequence && Some(*axis) != lane.feature;
    // Each axis of the operand, with the axis of the value that it is.
    let mut leads: Vec<(usize, usize)> = (0..rank).filter(is_lead).map(|a| (a, a)).collect();
    for _ in 0..NEAR {
        let (id, output) = graph.producer(value)?;
        let node = graph.node(id);
        if node.is("Reshape")
            && let (to, from) = (dims(value)?, dims(node.input(0)?)?)
            && let Some(begin) = split_from(to, from)
            && lane.feature == Some(to.len() - 1)
            && is_projected(graph, classes, node.input(0)?)
        {
            let heads = leads.iter().filter(|(_, now)| *now >= begin);
            return Some(heads.map(|(own, _)| *own).collect());
        }
        let mut before = (0..node.inputs().len()).filter_map(|slot| {
            let lane = back(graph, trace, id, output, slot, lane)?;
            Some((slot, lane)).filter(|(_, lane)| lane.feature.is_some())
        });
        let (slot, input_lane) = before.next()?;
        for (_, now) in &mut leads {
            *now = back(graph, trace, id, output, slot, Lane::of_sequence(*now))?.sequence;
        }
        (value, lane) = (node.input(slot)?, input_lane);
    }
    None
}

/// Whether a value is what a projection gives, or a part of it, in the order of its axes: what was reordered has
/// its heads apart already.
fn is_projected(graph: &Graph, classes: &Classes, mut value: ValueId) -> bool {
    for _ in 0..NEAR {
        let Some((id, _)) = graph.producer(value) else {
            return false;
        };
        let node = graph.node(id);
        let mut inputs = classes.content(node);
        let (Some(input), None) = (inputs.next(), inputs.next()) else {
            return false;
        };
        if is_projection(node) {
            return true;
        }
        let passes = is_elementwise(node.op())
            || is_copy(node.op())
            || matches!(
                node.op(),
                "Split" | "Slice" | "DequantizeLinear" | "QuantizeLinear"
            );
        if !passes {
            return false;
        }
        value = input;
    }
    false
}

/// The first of several last axes `to` that the last axis of `from` is split into.
fn split_from(to: &[usize], from: &[usize]) -> Option<usize> {
    let last = *from.last()?;
    let (mut product, mut begin) = (1usize, to.len());
    while let Some(axis) = begin.checked_sub(1)
        && let Some(more) = product.checked_mul(to[axis]).filter(|more| *more <= last)
    {
        (product, begin) = (more, axis);
    }
    (product == last && begin + 1 < to.len()).then_some(begin)
}

#[cfg(test)]
mod tests {
    use posenc_encodings::kind::Kind;
    use posenc_ir::{DType, Model};

    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HEADS, SIZE, Sketch};
    use crate::request::Request;
    use crate::rewrite::rewrite;

    #[test]
    fn the_last_axis_is_split() {
        assert_eq!(split_from(&[2, 5, 4, 8], &[2, 5, 32]), Some(2));
        // Queries, keys and values of three heads, in windows.
        let windows = [2, 9, 49, 3, 3, 8];
        assert_eq!(split_from(&windows, &[2, 3, 3, 7, 7, 72]), Some(3));
        assert_eq!(split_from(&[2, 5, 32], &[2, 5, 32]), None);
        assert_eq!(split_from(&[2, 5, 5, 8], &[2, 5, 32]), None);
        assert_eq!(split_from(&[10, 32], &[2, 5, 32]), None);
    }

    /// Attention in `count` windows of 24 tokens, whose queries, keys and values have the axes of sequences, windows,
    /// heads, tokens and features in this order.
    fn model(count: i64, heads: i64, order: [i64; 5]) -> Model {
        let mut s = Sketch::default();
        let x = s.input("x", DType::F32, &["batch", "24", "24"]);
        let w = s.weights(&[24, 72]);
        let packed = s.op("MatMul", &[&x, &w]);
        let (tokens, size) = (24 / count, 24 / heads);
        let packed = s.reshape(&packed, &[0, count, tokens, 3, heads, size]);
        let packed = s.transpose(&packed, &[3, 0, 1, 4, 2, 5]);
        let [q, k, v] = [0, 1, 2].map(|part| {
            let one = s.slice(&packed, 0, [part, part + 1, 1]);
            let axes = s.ints(&[0]);
            let one = s.op("Squeeze", &[&one, &axes]);
            s.transpose(&one, &order)
        });
        let k = s.transpose(&k, &[0, 1, 2, 4, 3]);
        let scores = s.op("MatMul", &[&q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        s.model(17, &[&y])
    }

    /// The axes of heads, and how many heads are found.
    fn read(model: &Model) -> (Option<Vec<usize>>, Option<usize>) {
        let found = detect(model, &Options::default());
        let site = &found.attention[0];
        (
            split((model.graph(), &found.classes, &found.trace), &site.query),
            site.heads,
        )
    }

    const WINDOWS_FIRST: [i64; 5] = [0, 1, 2, 3, 4];
    const HEADS_FIRST: [i64; 5] = [0, 2, 1, 3, 4];

    #[test]
    fn windows_are_no_heads_on_either_side() {
        for (count, heads) in [(4, 1), (4, 2), (4, 4), (2, 4), (6, 3)] {
            for (axis, order) in [(2, WINDOWS_FIRST), (1, HEADS_FIRST)] {
                let found = read(&model(count, heads, order));
                let want = (Some(vec![axis]), Some(heads as usize));
                assert_eq!(found, want, "{count} windows, {heads} heads");
            }
        }
    }

    #[test]
    fn parts_of_a_head_are_no_heads() {
        // A group of all features for a norm, and halves of them.
        for parts in [1, 2] {
            let mut s = Sketch::default();
            let x = s.embedded();
            let [q, k, v] = [0; 3].map(|_| s.headed(&x));
            let [q, k] = [q, k].map(|y| {
                let shape = s.op("Shape", &[&y]);
                let apart = s.reshape(&y, &[0, 0, 0, parts, SIZE as i64 / parts]);
                let factor = s.floats(&[parts as usize, 1], (0..parts).map(|i| 1.0 + i as f64));
                let scaled = s.op("Mul", &[&apart, &factor]);
                s.op("Reshape", &[&scaled, &shape])
            });
            let y = s.weighted(&q, &k, &v);
            let (_, heads) = read(&s.model(17, &[&y]));
            assert_eq!(heads, Some(HEADS), "{parts} parts");
        }
    }

    #[test]
    fn a_bias_of_heads_before_windows_is_refused() {
        let swapped = |order| {
            let request = Request {
                to: Some(Kind::Alibi),
                ..Request::default()
            };
            rewrite(&mut model(4, 4, order), &request).map_err(|why| why.to_string())
        };
        swapped(WINDOWS_FIRST).expect("windows are before heads");
        let why = swapped(HEADS_FIRST).expect_err("windows are behind heads");
        assert!(
            why.contains("an axis of windows behind the axis of heads"),
            "{why}"
        );
    }
}
