//! What is done to queries and keys between their rotation and their product.

use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use crate::detect::{Found, RotarySite};
use crate::graph::dataflow::Class;
use crate::graph::operators::{is_copy, is_layout, is_projection, is_rotary, is_write};

/// The first node that changes features of queries or keys after their rotation, other than all by one number, as a
/// norm with weights: with it, scores depend on more than distances.
pub(super) fn changed_after_rotation(graph: &Graph, found: &Found) -> Option<NodeId> {
    let changes = |id: &NodeId| !keeps_angles(found, graph.node(*id));
    let of_site = |rotary: &RotarySite| {
        let site = &found.attention[rotary.site];
        let sides = [(&rotary.query, &site.query), (&rotary.key, &site.key)];
        sides.into_iter().find_map(|(side, operand)| {
            let nodes = between(graph, found, side.region.output, operand.value);
            nodes.into_iter().find(changes)
        })
    };
    found.rotary.iter().find_map(of_site)
}

/// Whether the angles between features of queries and of keys stay.
fn keeps_angles(found: &Found, node: &Node) -> bool {
    let is_content = |value: ValueId| found.classes.of_value(value).has(Class::CONTENT);
    let is_number = |value: ValueId| found.trace.get(value).elements() == Some(1);
    let mut others = node.inputs().iter().flatten().filter(|v| !is_content(**v));
    match node.op() {
        "Concat" | "Split" | "Slice" | "Gather" | "Pad" | "Neg" => true,
        "Mul" | "Div" => others.all(|v| is_number(*v)),
        op => is_layout(op) || is_copy(op) || is_write(node) || is_rotary(node),
    }
}

/// The nodes between a value and another that is computed from it, up to projections.
fn between(graph: &Graph, found: &Found, start: ValueId, end: ValueId) -> Vec<NodeId> {
    let mut before = FxHashSet::default();
    let mut stack = vec![end];
    while let Some(value) = stack.pop() {
        let is_content = found.classes.of_value(value).has(Class::CONTENT);
        if !is_content || !before.insert(value) || value == start {
            continue;
        }
        let maker = graph.producer(value).map(|(id, _)| graph.node(id));
        let maker = maker.filter(|node| !is_projection(node));
        stack.extend(
            maker
                .into_iter()
                .flat_map(|node| node.inputs().iter().flatten()),
        );
    }
    let mut nodes = vec![];
    let mut seen = FxHashSet::default();
    let mut stack = vec![start];
    while let Some(value) = stack.pop() {
        for at in graph.uses(value) {
            let node = graph.node(at.node);
            let made = node.outputs().iter().flatten().copied();
            let made: Vec<ValueId> = made.filter(|v| before.contains(v)).collect();
            if !is_projection(node) && !made.is_empty() && seen.insert(at.node) {
                nodes.push(at.node);
                stack.extend(made);
            }
        }
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{SIZE, Sketch};

    /// The operator that changes queries or keys after their rotation.
    fn changed(queries: fn(&mut Sketch, String) -> String) -> Option<String> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let pairs = SIZE / 2;
        let cells = |wave: fn(f64) -> f64| {
            let row = move |at: usize| {
                (0..pairs).map(move |i| at as f64 * 100f64.powf(-(i as f64) / pairs as f64))
            };
            (0..64).flat_map(row).map(wave)
        };
        let (cos, sin) = (cells(f64::cos), cells(f64::sin));
        let tables = [s.floats(&[64, pairs], cos), s.floats(&[64, pairs], sin)];
        let at = s.range();
        let at = s.unsqueeze(&at, &[0]);
        let [q, k] = [(); 2].map(|()| {
            let heads = s.headed(&x);
            let [cos, sin] = &tables;
            s.op("RotaryEmbedding", &[&heads, cos, sin, &at])
        });
        let (q, v) = (queries(&mut s, q), s.headed(&x));
        let y = s.weighted(&q, &k, &v);
        let model = s.model(23, &[&y]);
        let found = detect(&model, &Options::default());
        assert_eq!(found.rotary.len(), 1);
        let id = changed_after_rotation(model.graph(), &found)?;
        Some(model.graph().node(id).op().to_owned())
    }

    #[test]
    fn factors_of_features_change_queries_and_one_number_does_not() {
        assert_eq!(changed(|_, q| q), None);
        let scaled = changed(|s, q| {
            let half = s.float(0.5);
            s.op("Mul", &[&q, &half])
        });
        assert_eq!(scaled, None);
        let relaid = changed(|s, q| {
            let q = s.transpose(&q, &[0, 2, 1, 3]);
            s.transpose(&q, &[0, 2, 1, 3])
        });
        assert_eq!(relaid, None);
        let weighted = changed(|s, q| {
            let weights = s.weights(&[SIZE]);
            s.op("Mul", &[&q, &weights])
        });
        assert_eq!(weighted.as_deref(), Some("Mul"));
        let normalized = changed(|s, q| {
            let weights = s.weights(&[SIZE]);
            s.op("RMSNormalization", &[&q, &weights])
        });
        assert_eq!(normalized.as_deref(), Some("RMSNormalization"));
        assert_eq!(changed(|s, q| s.op("Relu", &[&q])).as_deref(), Some("Relu"));
    }
}
