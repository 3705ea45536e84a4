//! How many elements a mask of content selects: a size, as long as no element is told it, nor its rank.

use posenc_ir::{Graph, Node, NodeId, Use, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::dataflow::{Class, Classes};
use crate::graph::operators::is_elementwise;

/// What a value says of the selected elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Says {
    /// How many they are, or a number that follows from that.
    Size,
    /// The same numbers for each, on a shape that says how many they are.
    Filled,
    /// The rank of each among them.
    Rank,
    /// Numbers that are computed from their ranks, of which the shape alone may be read.
    Computed,
}

/// What comes of a value at a use.
enum Next {
    /// An element may be told its rank, or how many there are.
    Told,
    /// Nothing that says anything of them.
    Ends,
    /// Another value that says this.
    Says(Says),
}

/// What is computed from selected elements.
pub(super) struct Counted<'a> {
    pub(super) graph: &'a Graph,
    pub(super) classes: &'a Classes,
}

impl Counted<'_> {
    /// Whether no element is told its rank, nor how many there are. `selected` are the places of
    /// elements, and what is picked at them; elements behind `puts` are all there again.
    pub(super) fn are_sizes(&self, selected: &[ValueId], puts: &FxHashSet<NodeId>) -> bool {
        let mut stack = selected.to_vec();
        let mut seen: FxHashSet<ValueId> = stack.iter().copied().collect();
        let mut counts = vec![];
        while let Some(value) = stack.pop() {
            if self.leaves_body(value) {
                return false;
            }
            for at in self.graph.uses(value) {
                let node = self.graph.node(at.node);
                let outputs = node.outputs().iter().flatten();
                if matches!(node.op(), "Shape" | "Size") {
                    counts.extend(outputs.map(|out| (*out, Says::Size)));
                } else if !puts.contains(&at.node) {
                    stack.extend(outputs.filter(|out| seen.insert(**out)));
                }
            }
        }
        let mut seen: FxHashSet<(ValueId, Says)> = counts.iter().copied().collect();
        while let Some((value, says)) = counts.pop() {
            if self.leaves_body(value) {
                return false;
            }
            for at in self.graph.uses(value) {
                let next = match self.next(*at, says) {
                    Next::Told => return false,
                    Next::Ends => continue,
                    Next::Says(next) => next,
                };
                let outputs = self.graph.node(at.node).outputs().iter().flatten();
                let outputs = outputs.map(|out| (*out, next));
                counts.extend(outputs.filter(|of| seen.insert(*of)));
            }
        }
        true
    }

    /// Whether a value goes on outside of the body that it is in, where it is not followed.
    fn leaves_body(&self, value: ValueId) -> bool {
        let producer = self.graph.producer(value);
        let is_inside =
            producer.is_some_and(|(id, _)| self.graph.node(id).scope() != self.graph.main());
        is_inside && self.graph.value(value).is_output()
    }

    fn is_content(&self, value: ValueId) -> bool {
        self.classes.of_value(value).has(Class::CONTENT)
    }

    fn reads_content(&self, node: &Node) -> bool {
        let mut inputs = node.inputs().iter().flatten();
        inputs.any(|value| self.is_content(*value))
    }

    /// What comes of a value that a node reads.
    fn next(&self, at: Use, says: Says) -> Next {
        let node = self.graph.node(at.node);
        let (op, slot) = (node.op(), at.slot());
        let moves = matches!(
            op,
            "Unsqueeze" | "Squeeze" | "Reshape" | "Expand" | "Tile" | "Cast"
        );
        match says {
            _ if matches!(op, "Shape" | "Size") => Next::Says(Says::Size),
            Says::Computed => Next::Told,
            _ if op == "Concat" || moves && slot == 0 => Next::Says(says),
            Says::Size => self.next_of_size(node, slot),
            Says::Filled => match op {
                "Gather" | "Slice" if slot == 0 => Next::Says(Says::Filled),
                "ScatterND" => Next::Ends,
                _ if is_elementwise(op) && self.reads_content(node) => Next::Ends,
                _ if is_elementwise(op) => Next::Says(Says::Filled),
                _ => Next::Told,
            },
            Says::Rank => match op {
                // Elements in the order that they have.
                "ScatterND" if slot == 1 => Next::Ends,
                _ if is_elementwise(op) && !self.reads_content(node) => Next::Says(Says::Computed),
                _ => Next::Told,
            },
        }
    }

    fn next_of_size(&self, node: &Node, slot: usize) -> Next {
        let data = node.input(0);
        let is_content = data.is_some_and(|data| self.is_content(data));
        match node.op() {
            "ConstantOfShape" => Next::Says(Says::Filled),
            // Content in another shape, or at the last place.
            "Reshape" | "Expand" | "Slice" | "Gather" if is_content => Next::Ends,
            // An axis that is repeated has the same numbers at each place.
            "Expand" => Next::Says(Says::Filled),
            "Reshape" | "Tile" if self.is_equal(data) => Next::Says(Says::Filled),
            "Gather" if slot == 0 && self.is_other_size(node) => Next::Ends,
            "Gather" | "Slice" | "ReduceProd" | "ReduceMax" if slot == 0 => Next::Says(Says::Size),
            "ScatterND" if slot == 1 => Next::Ends,
            "Range" => Next::Says(Says::Rank),
            op if (is_elementwise(op) || op == "Equal") && !self.reads_content(node) => {
                Next::Says(Says::Size)
            }
            _ => Next::Told,
        }
    }

    /// Whether a `Gather` reads the size of another axis than the first of elements that were picked.
    fn is_other_size(&self, node: &Node) -> bool {
        let constant = node.input(1).and_then(|index| self.graph.constant(index));
        let index = constant.and_then(|index| index.to_i64s());
        let shape = node.input(0).and_then(|shape| self.graph.producer(shape));
        let shape = shape.map(|(id, _)| self.graph.node(id));
        let of = shape.filter(|shape| shape.is("Shape") && shape.attribute("start").is_none());
        let of = of.and_then(|shape| self.graph.producer(shape.input(0)?));
        let is_picked = of.is_some_and(|(id, _)| self.graph.node(id).is("GatherND"));
        is_picked && index.is_some_and(|index| index.iter().all(|axis| *axis > 0))
    }

    /// Whether a value has one number everywhere: that of a `ConstantOfShape`, or of a stored one.
    fn is_equal(&self, value: Option<ValueId>) -> bool {
        let mut at = value;
        while let Some(value) = at {
            let stored = self.graph.stored(value);
            if stored.is_some_and(|stored| stored.elements() == Some(1)) {
                return true;
            }
            let Some((id, _)) = self.graph.producer(value) else {
                return false;
            };
            let node = self.graph.node(id);
            match node.op() {
                "ConstantOfShape" => return true,
                "Expand" | "Reshape" | "Unsqueeze" | "Cast" => at = node.input(0),
                _ => return false,
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use posenc_ir::Model;

    use super::*;
    use crate::graph::ports::Ports;

    /// Whether no element is told its rank, nor how many there are, where `some` of `x` are selected.
    fn are_sizes(body: &str) -> bool {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             g (float[batch,sequence] x) => (float[] y) <float zero = {{0.0}}, bool c = {{1}}> {{\n\
             m = Greater(x, zero)\n p = NonZero(m)\n t = Transpose(p)\n some = GatherND(x, t)\n\
             {body} }}\n"
        );
        let model = Model::parse(&text).unwrap();
        let graph = model.graph();
        let ports = Ports::of(graph, &Default::default());
        let counted = Counted {
            graph,
            classes: &Classes::of(graph, &ports),
        };
        let some = graph.find(graph.main(), "some").unwrap();
        counted.are_sizes(&[some], &FxHashSet::default())
    }

    #[test]
    fn sizes_are_followed_until_they_meet_content_or_leave_a_body() {
        for (body, is_size) in [
            (
                "n = Shape(some)\n z = ConstantOfShape(n)\n y = Add(some, z)",
                true,
            ),
            (
                "n = Shape(some)\n f = Cast<to: int = 1>(n)\n y = Mul(some, f)",
                false,
            ),
            (
                "n = Shape(some)\n z = ConstantOfShape(n)\n k = Shape(z)\n y = Expand(zero, k)",
                true,
            ),
            (
                "n = If(c) <then_branch = a () => (int64[k] i) { i = Shape(some) }, \
                 else_branch = b () => (int64[k] j) { j = Shape(some) }>\n \
                 f = Cast<to: int = 1>(n)\n y = Mul(some, f)",
                false,
            ),
        ] {
            assert_eq!(are_sizes(body), is_size, "{body}");
        }
    }
}
