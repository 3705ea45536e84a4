//! Rotations on the way to an output, as of keys that are cached, which a rescale would leave.

use posenc_ir::eval::{Trace, Value};
use posenc_ir::{Graph, Node, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::{is_elementwise, is_layout, is_projection, is_rotary};

/// The first node before an output, with no projection between, at which a position acts on content by a
/// factor at no use of `meant`.
pub(crate) fn left(
    graph: &Graph,
    classes: &Classes,
    trace: &Trace,
    meant: &FxHashSet<Use>,
) -> Option<NodeId> {
    let mut stack: Vec<ValueId> = graph.scope(graph.main()).outputs().to_vec();
    let mut seen: FxHashSet<ValueId> = stack.iter().copied().collect();
    while let Some(value) = stack.pop() {
        let Some((id, place)) = graph.producer(value) else {
            continue;
        };
        let node = graph.node(id);
        let is_left = |slot: usize| {
            let position = node.input(slot).filter(|value| {
                let class = classes.of_value(*value);
                class.has(Class::POSITION) && !class.has(Class::CONTENT)
            });
            let is_meant = meant.contains(&Use::new(id, slot));
            // Weights are not looked into.
            position.is_some_and(|value| !is_meant && !is_mask(trace.get(value)))
        };
        let has_content = classes.of_value(value).has(Class::CONTENT);
        if has_content && multiplies(node) && (0..node.inputs().len()).any(is_left) {
            return Some(id);
        }
        let before: Vec<ValueId> = if node.is("If") {
            let bodies = node.bodies().map(|(_, body)| graph.scope(body).outputs());
            bodies
                .filter_map(|given| given.get(place).copied())
                .collect()
        } else if passes(node) {
            node.inputs().iter().flatten().copied().collect()
        } else {
            vec![]
        };
        stack.extend(before.into_iter().filter(|value| seen.insert(*value)));
    }
    None
}

/// Whether a node may rotate by an operand.
fn multiplies(node: &Node) -> bool {
    is_projection(node) || is_rotary(node) || matches!(node.op(), "Mul" | "Div")
}

/// Whether an output has the elements of inputs, each alone or a few of them computed.
fn passes(node: &Node) -> bool {
    let moves = matches!(
        node.op(),
        "Concat" | "Slice" | "Split" | "Pad" | "Gather" | "ScatterND" | "ScatterElements"
    );
    moves || is_layout(node.op()) || is_elementwise(node.op())
}

/// Whether all numbers are 0 or 1.
fn is_mask(value: &Value) -> bool {
    let numbers = value.to_f64();
    numbers.is_some_and(|all| all.iter().all(|number| [0.0, 1.0].contains(number)))
}

#[cfg(test)]
mod tests {
    use posenc_ir::Model;

    use super::*;
    use crate::detect::{Options, detect};

    /// The operator at which embeddings `x` of an output meet cosines of positions, with `meant` uses.
    fn found(body: &str, is_meant: bool) -> Option<String> {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             g (int64[batch,sequence] input_ids, int64[batch,sequence] position_ids) => (float[] y)\n\
             <float[2,2] w = {{1.0, 2.0, 3.0, 4.0}}, int64[1] two = {{2}}> {{\n\
             x = Gather(w, input_ids)\n p = Cast<to: int = 1>(position_ids)\n\
             p3 = Unsqueeze(p, two)\n c = Cos(p3)\n {body} }}\n"
        );
        let model = Model::parse(&text).unwrap();
        let graph = model.graph();
        let found = detect(&model, &Options::default());
        let cos = graph.find(graph.main(), "c").unwrap();
        let meant = graph.uses(cos).iter().copied().filter(|_| is_meant);
        let id = left(graph, &found.classes, &found.trace, &meant.collect())?;
        Some(graph.node(id).op().to_owned())
    }

    #[test]
    fn factors_on_the_way_to_an_output_are_seen() {
        for (body, is_left) in [
            ("y = Mul(x, c)", true),
            (
                "r = Mul(c, x)\n s = Neg(r)\n y = Concat<axis: int = 1>(x, s)",
                true,
            ),
            (
                "r = Div(x, c)\n y = Transpose<perm: ints = [0, 2, 1]>(r)",
                true,
            ),
            // A projection lies between.
            ("r = Mul(x, c)\n y = MatMul(r, w)", false),
            ("y = Add(x, c)", false),
            (
                "b = Greater(c, p3)\n m = Cast<to: int = 1>(b)\n y = Mul(x, m)",
                false,
            ),
            ("r = Mul(x, c)\n y = Relu(x)", false),
        ] {
            assert_eq!(found(body, false).is_some(), is_left, "{body}");
            assert_eq!(found(body, true), None, "{body}");
        }
    }
}
