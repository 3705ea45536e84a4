//! Random numbers that are the same in every run.

use posenc_ir::proto::attribute_proto::AttributeType;
use posenc_ir::{Attr, Graph, Model, NodeId};

use crate::graph::operators::is_random;

/// The name of the attribute.
const SEED: &str = "seed";

/// The model with a seed for each operator that gives random numbers and has none, so that two models with
/// the same operators compute the same; `None` where there is no such operator.
pub(crate) fn seeded(model: &Model) -> Option<Model> {
    let graph = model.graph();
    let mut out = graph.emitter(graph.main(), SEED);
    let mut is_changed = false;
    for (id, node) in graph.nodes() {
        if !is_random(node) || !node.domain().is_empty() || node.attribute(SEED).is_some() {
            continue;
        }
        let (Some(attributes), Some(value)) = (attributes(graph, id), node.output(0)) else {
            continue;
        };
        let mut attributes: Vec<(&str, Attr)> = attributes;
        attributes.push((SEED, Attr::Float(1.0)));
        let inputs: Vec<_> = node.inputs().iter().flatten().copied().collect();
        out.set_scope(node.scope());
        let seeded = out.op_with(node.op(), &inputs, &attributes);
        is_changed |= out.redirect(value, seeded).is_ok();
    }
    let mut next = model.clone();
    (is_changed && next.commit(out.finish()).is_ok()).then_some(next)
}

/// The attributes of a node, all of them numbers.
fn attributes(graph: &Graph, id: NodeId) -> Option<Vec<(&str, Attr)>> {
    let all = graph.node(id).attributes().iter();
    all.map(|attribute| {
        let number = match attribute.r#type() {
            AttributeType::Float => Attr::Float(attribute.f()),
            AttributeType::Int => Attr::Int(attribute.i()),
            AttributeType::Ints => Attr::Ints(attribute.ints.clone()),
            _ => return None,
        };
        Some((attribute.name(), number))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_operators_get_seeds_and_others_stay() {
        let text = "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                    g (float[batch] x) => (float[batch] y) {\n\
                    a = RandomNormalLike<mean: float = 2.0>(x)\n\
                    b = RandomUniformLike<seed: float = 7.0>(x)\n\
                    c = Bernoulli(x)\n d = Add(a, b)\n y = Mul(c, d)\n}\n";
        let model = Model::parse(text).unwrap();
        let next = seeded(&model).expect("seeds are missing");
        let numbers: Vec<(&str, Option<f32>, Option<f32>)> = next
            .graph()
            .nodes()
            .filter(|(_, node)| is_random(node))
            .map(|(_, node)| {
                let number = |name: &str| node.attribute(name).map(|a| a.f());
                (node.op(), number(SEED), number("mean"))
            })
            .collect();
        assert_eq!(numbers.len(), 3);
        for want in [
            ("RandomNormalLike", Some(1.0), Some(2.0)),
            ("RandomUniformLike", Some(7.0), None),
            ("Bernoulli", Some(1.0), None),
        ] {
            assert!(numbers.contains(&want), "{numbers:?}");
        }
        assert!(seeded(&next).is_none());
        let of = |model: &Model, op: &str| {
            let graph = model.graph();
            let mut nodes = graph.nodes().filter(|(_, node)| node.is(op));
            let (_, node) = nodes.next().unwrap();
            let made =
                |v: &posenc_ir::ValueId| graph.producer(*v).map(|(id, _)| graph.node(id).op());
            let inputs = node.inputs().iter().flatten();
            inputs
                .filter_map(made)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for op in ["Add", "Mul"] {
            assert_eq!(of(&model, op), of(&next, op));
            assert_eq!(of(&next, op).len(), 2);
        }
    }
}
