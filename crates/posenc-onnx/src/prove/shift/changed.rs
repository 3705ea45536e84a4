//! What is done to queries and keys between their rotation and their product.

use posenc_ir::{Graph, Node, NodeId, ValueId};
use rustc_hash::FxHashMap;

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
            let mut between = Between {
                graph,
                found,
                start: side.region.output,
                known: FxHashMap::default(),
                nodes: vec![],
            };
            between.leads_to(operand.value);
            between.nodes.into_iter().find(changes)
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

/// The nodes between a value and what is computed from it.
struct Between<'a> {
    graph: &'a Graph,
    found: &'a Found,
    start: ValueId,
    known: FxHashMap<ValueId, bool>,
    nodes: Vec<NodeId>,
}

impl Between<'_> {
    /// Whether a value is computed from the start, with no projection between them.
    fn leads_to(&mut self, value: ValueId) -> bool {
        if value == self.start {
            return true;
        }
        if let Some(known) = self.known.get(&value) {
            return *known;
        }
        self.known.insert(value, false);
        let Some((id, _)) = self.graph.producer(value) else {
            return false;
        };
        let node = self.graph.node(id);
        let is_content = self.found.classes.of_value(value).has(Class::CONTENT);
        if is_projection(node) || !is_content {
            return false;
        }
        let mut leads = false;
        for input in node.inputs().iter().flatten() {
            leads |= self.leads_to(*input);
        }
        if leads && !self.nodes.contains(&id) {
            self.nodes.push(id);
        }
        self.known.insert(value, leads);
        leads
    }
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
