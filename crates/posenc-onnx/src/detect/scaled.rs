//! Positions and lengths that scale content beside the encodings: attention scaled by the logarithm of the length or
//! of the place, for one.

use posenc_ir::eval::Budget;
use posenc_ir::{Model, Node, NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::found::Found;
use super::runs::values_at;
use crate::graph::dataflow::{Class, live};

/// Room for the numbers of another length.
const BUDGET: Budget = Budget { elements: 1 << 20 };

/// Tokens by which the other length is longer.
const MORE: usize = 3;

/// The first node, outside the rotations that were read, that multiplies content by numbers which follow positions or
/// the length. Numbers that only hide, zeros and ones, do not count.
pub(crate) fn by_places(model: &Model, found: &Found) -> Option<NodeId> {
    let graph = model.graph();
    let live = live(graph);
    let rotations = found.rotary.iter();
    let regions = rotations.flat_map(|site| [&site.query.region, &site.key.region]);
    let entries = regions.flat_map(|region| &region.entries);
    let rotates: FxHashSet<NodeId> = entries.map(|at| at.node).collect();
    let class = |value: ValueId| found.classes.of_value(value);
    let follows = |value: ValueId| {
        let dtype = found.trace.get(value).dtype.or(graph.dtype(value));
        let own = class(value);
        let is_free = !own.has(Class::CONTENT) && dtype.is_some_and(|dtype| dtype.is_float());
        is_free
            && match own.has(Class::POSITION) {
                true => !hides(found, value),
                false => own.has(Class::LENGTH) && changes(model, found, value),
            }
    };
    let is_content = |value| class(value).has(Class::CONTENT);
    let scales = |(id, node): &(NodeId, &Node)| {
        node.domain().is_empty()
            && matches!(node.op(), "Mul" | "Div")
            && live[id.index()]
            && !rotates.contains(id)
            && node.output(0).is_some_and(is_content)
            && node.inputs().iter().flatten().any(|value| follows(*value))
    };
    graph.nodes().find(scales).map(|(id, _)| id)
}

/// Whether the numbers are zeros and ones, as those of a mask.
fn hides(found: &Found, value: ValueId) -> bool {
    let known = found.trace.get(value).to_f64();
    known.is_some_and(|numbers| numbers.iter().all(|v| *v == 0.0 || *v == 1.0))
}

/// Whether the numbers are known to be others, or as many others, in a longer sequence.
fn changes(model: &Model, found: &Found, value: ValueId) -> bool {
    let tokens = found.lengths.sequence + MORE;
    let longer = values_at(model, found, &[value], tokens, &BUDGET);
    let longer = longer.and_then(|values| values.first()?.to_f64());
    match (found.trace.get(value).to_f64(), longer) {
        (Some(own), Some(longer)) => own != longer,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{A, Sketch};
    use posenc_ir::DType;

    /// Whether a layer counts as scaled whose scores are multiplied by this.
    fn is_scaled(factor: fn(&mut Sketch) -> String) -> bool {
        let mut s = Sketch::default();
        let x = s.embedded();
        let [scores, v] = s.scored(&x, &x);
        let factor = factor(&mut s);
        let scores = s.op("Mul", &[&scores, &factor]);
        let weights = s.with("Softmax", &[&scores], &[("axis", A::Int(-1))]);
        let y = s.op("MatMul", &[&weights, &v]);
        let y = s.merged(&y);
        let model = s.model(17, &[&y]);
        let found = detect(&model, &Options::default());
        assert_eq!(found.attention.len(), 1);
        by_places(&model, &found).is_some()
    }

    /// The logarithm of the place of each query, two or more.
    fn logarithm(s: &mut Sketch) -> String {
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let two = s.float(2.0);
        let at = s.op("Add", &[&at, &two]);
        let at = s.op("Log", &[&at]);
        s.unsqueeze(&at, &[1])
    }

    #[test]
    fn numbers_of_places_and_of_the_length_scale() {
        assert!(is_scaled(logarithm));
        assert!(is_scaled(|s| {
            let places = logarithm(s);
            s.with("ReduceMax", &[&places], &[("keepdims", A::Int(0))])
        }));
        assert!(is_scaled(|s| {
            let shape = s.op("Shape", &["input_ids"]);
            let axis = s.int(1);
            let length = s.gather(&shape, &axis, 0);
            let length = s.cast(&length, DType::F32);
            s.op("Log", &[&length])
        }));
    }

    #[test]
    fn constants_and_what_hides_do_not() {
        assert!(!is_scaled(|s| s.float(0.25)));
        assert!(!is_scaled(|s| {
            let d = s.distance();
            let d = s.cast(&d, DType::F32);
            let zero = s.float(0.0);
            let sees = s.op("LessOrEqual", &[&d, &zero]);
            s.cast(&sees, DType::F32)
        }));
    }
}
