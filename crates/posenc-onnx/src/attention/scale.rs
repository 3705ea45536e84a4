//! The factor that a graph puts on queries or keys before their product.

use posenc_ir::eval::Trace;
use posenc_ir::{Graph, Node};

use crate::attention::site::Operand;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::lane::{Lane, back, wrap};
use crate::graph::operators::{is_copy, is_layout};

/// Operators to look back through.
const STEPS: usize = 24;

/// The product of the numbers that an operand is multiplied with between its projection and the product.
/// Where earlier keys join, the factor is that of the new ones: the cache contains its keys as they
/// join.
pub(crate) fn before(graph: &Graph, classes: &Classes, trace: &Trace, operand: &Operand) -> f64 {
    let mut value = operand.value;
    let mut lane = Some(operand.lane);
    let mut factor = 1.0;
    for _ in 0..STEPS {
        let Some((id, output)) = graph.producer(value) else {
            break;
        };
        let node = graph.node(id);
        let one = |slot: usize| {
            let v = node.input(slot)?;
            let known = trace.get(v).to_f64()?;
            (known.len() == 1).then(|| known.first().copied()).flatten()
        };
        let slot = match node.op() {
            _ if !node.domain().is_empty() => None,
            "Mul" => match (one(0), one(1)) {
                (_, Some(m)) => {
                    factor *= m;
                    Some(0)
                }
                (Some(m), None) => {
                    factor *= m;
                    Some(1)
                }
                _ => None,
            },
            "Div" => one(1).map(|m| {
                factor /= m;
                0
            }),
            "Slice" | "Split" | "Gather" => Some(0),
            // A bias of a projection that was scaled apart from it.
            "Add" => only_content(classes, node),
            "Concat" => lane.and_then(|lane| joined(classes, trace, node, lane)),
            op if is_copy(op) || is_layout(op) => Some(0),
            _ => None,
        };
        let Some((slot, next)) = slot.and_then(|slot| Some((slot, node.input(slot)?))) else {
            break;
        };
        lane = lane.and_then(|lane| back(graph, trace, id, output, slot, lane));
        value = next;
    }
    factor
}

/// The slot of what a constant is added to.
fn only_content(classes: &Classes, node: &Node) -> Option<usize> {
    let class = |slot: usize| Some(classes.of_value(node.input(slot)?));
    let other = |slot: &usize| class(1 - slot).is_some_and(Class::is_constant);
    let is_content = |slot: &usize| class(*slot).is_some_and(|c| c.has(Class::CONTENT));
    [0, 1]
        .into_iter()
        .find(|slot| is_content(slot) && other(slot))
}

/// The slot of the new keys, where earlier ones are joined with them along the tokens.
fn joined(classes: &Classes, trace: &Trace, node: &Node, lane: Lane) -> Option<usize> {
    let rank = trace.get(node.output(0)?).dims.as_ref()?.len();
    let axis = wrap(node.int("axis").ok()??, rank)?;
    let fresh = |slot: &usize| {
        let value = node.input(*slot);
        value.is_some_and(|v| classes.of_value(v).has(Class::FRESH))
    };
    let mut new = (0..node.inputs().len()).filter(fresh);
    let slot = new.next().filter(|_| new.next().is_none())?;
    (axis == lane.sequence).then_some(slot)
}

#[cfg(test)]
mod tests {
    use posenc_ir::{DType, Model};

    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, HEADS, SIZE, Sketch};
    use crate::request::Request;
    use crate::rewrite::swap::branch::swap;
    use posenc_encodings::kind::Kind;

    /// How earlier keys join the new ones.
    #[derive(Clone, Copy, PartialEq)]
    enum Joined {
        Not,
        AlongTokens,
        AlongFeatures,
    }

    /// A model whose keys are multiplied with one number before earlier ones join, and with
    /// another after.
    fn model(early: f64, late: f64, joined: Joined) -> Model {
        let mut s = Sketch::default();
        let x = s.embedded();
        let (heads, size) = (HEADS.to_string(), SIZE.to_string());
        let [q, k, v] = [0; 3].map(|_| s.headed(&x));
        let earlier = |s: &mut Sketch, name: &str, y: &str| {
            let name = format!("past_key_values.0.{name}");
            let past = s.input(&name, DType::F32, &["batch", &heads, "past", &size]);
            s.concat(&[&past, y], 2)
        };
        let (first, second) = (s.float(early), s.float(late));
        let mut k = s.op("Mul", &[&k, &first]);
        let mut v = v;
        match joined {
            Joined::Not => {}
            Joined::AlongTokens => {
                k = earlier(&mut s, "key", &k);
                v = earlier(&mut s, "value", &v);
            }
            Joined::AlongFeatures => {
                let half = SIZE as i64 / 2;
                let (a, b) = (s.slice(&k, 3, [0, half, 1]), s.slice(&k, 3, [half, 99, 1]));
                k = s.concat(&[&a, &b], 3);
            }
        }
        let k = s.op("Mul", &[&k, &second]);
        attended(s, &x, [&q, &k, &v])
    }

    /// A layer of these queries, keys and values.
    fn attended(mut s: Sketch, x: &str, [q, k, v]: [&str; 3]) -> Model {
        let k = s.transpose(k, &[0, 1, 3, 2]);
        let scores = s.op("MatMul", &[q, &k]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, v]);
        let y = s.merged(&y);
        let y = s.op("Add", &[x, &y]);
        s.model(17, &[&y])
    }

    fn on_keys(model: &Model) -> f64 {
        let found = detect(model, &Options::default());
        let site = &found.attention[0];
        before(model.graph(), &found.classes, &found.trace, &site.key)
    }

    #[test]
    fn a_factor_is_found_before_earlier_keys_join() {
        for joined in [Joined::Not, Joined::AlongTokens] {
            for [early, late] in [[1.0, 0.5], [0.25, 1.0], [0.25, 0.5]] {
                assert_eq!(on_keys(&model(early, late, joined)), early * late);
            }
        }
        // Parts of the features may be of other factors.
        assert_eq!(on_keys(&model(0.25, 0.5, Joined::AlongFeatures)), 0.5);
    }

    /// Both forms of a scaled projection, and a sum of contents of which one is scaled.
    #[test]
    fn a_factor_is_found_before_a_bias() {
        let of = |add: fn(&mut Sketch, &str, &str) -> String| {
            let mut s = Sketch::default();
            let x = s.embedded();
            let [q, k, v] = [0; 3].map(|_| s.headed(&x));
            let quarter = s.float(0.25);
            let k = add(&mut s, &k, &quarter);
            on_keys(&attended(s, &x, [&q, &k, &v]))
        };
        let behind = of(|s, k, quarter| {
            let bias = s.weights(&[SIZE]);
            let k = s.op("Mul", &[k, quarter]);
            s.op("Add", &[&bias, &k])
        });
        let before = of(|s, k, quarter| {
            let bias = s.weights(&[SIZE]);
            let k = s.op("Add", &[k, &bias]);
            s.op("Mul", &[&k, quarter])
        });
        let of_part = of(|s, k, quarter| {
            let part = s.op("Mul", &[k, quarter]);
            s.op("Add", &[k, &part])
        });
        assert_eq!([behind, before, of_part], [0.25, 0.25, 1.0]);
    }

    /// The largest number of the vectors that are inserted.
    fn largest(model: &Model) -> f64 {
        let mut request = Request {
            to: Some(Kind::Shaw),
            ..Request::default()
        };
        request.parameters.seed = Some(3);
        let options = Options::default();
        let found = detect(model, &options);
        let done = swap(model, &found, &request, &options).unwrap().unwrap();
        let graph = done.model.graph();
        let named = |v: &posenc_ir::ValueId| graph.name(*v).contains("relative_key");
        let table = graph
            .values()
            .find(|v| named(v) && graph.stored(*v).is_some());
        let table = graph.constant(table.unwrap()).unwrap();
        let numbers = (0..table.len()).filter_map(|i| table.get_f64(i));
        numbers.fold(0.0, |most, n| most.max(n.abs()))
    }

    #[test]
    fn vectors_next_to_keys_get_their_factor() {
        for joined in [Joined::Not, Joined::AlongTokens] {
            let [one, half] = [1.0, 0.5].map(|early| largest(&model(early, 1.0, joined)));
            assert!((half / one - 0.5).abs() < 1e-6, "{half} {one}");
        }
    }
}
