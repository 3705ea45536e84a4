//! What every value depends on.

use posenc_ir::{DType, Graph, Node, NodeId, ScopeId, ValueId};
use rustc_hash::FxHashSet;

use crate::graph::operators::{is_copy, is_elementwise, is_layout, is_reshape};
use crate::graph::ports::{Ports, Role};

/// What a value depends on: any of content, position, padding and length; none of them for what
/// is constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Class(u64);

impl Class {
    /// Nothing: the value is the same in every run.
    pub(crate) const CONSTANT: Self = Self(0);
    /// Ids, embeddings, pixels, audio, earlier keys and values.
    pub(crate) const CONTENT: Self = Self(1);
    /// Content of this run, which keys and values of earlier steps are not.
    pub(crate) const FRESH: Self = Self(16);
    /// Position inputs; ranges and running sums.
    pub(crate) const POSITION: Self = Self(2);
    /// The attention mask; ids compared with a constant.
    pub(crate) const PADDING: Self = Self(4);
    /// Lengths of axes.
    pub(crate) const LENGTH: Self = Self(8);

    /// Content of this run from one input of the graph; inputs beyond the 48th share a bit.
    fn from_input(index: usize) -> Self {
        Self(Self::CONTENT.0 | Self::FRESH.0 | Self::FIRST << index.min(47))
    }

    /// The bit of the first input.
    const FIRST: u64 = 1 << 16;

    /// Whether the content of this and `other` is from the same inputs.
    pub(crate) fn shares_inputs(self, other: Self) -> bool {
        self.0 / Self::FIRST == other.0 / Self::FIRST
    }

    /// The same without content.
    fn without_content(self) -> Self {
        let kept = Self::POSITION.and(Self::PADDING).and(Self::LENGTH);
        Self(self.0 & kept.0)
    }

    /// Whether every part of `other` is among the parts of this.
    pub(crate) fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether the value depends on nothing.
    pub(crate) fn is_constant(self) -> bool {
        self == Self::CONSTANT
    }

    /// Whether the value depends on lengths of axes, and on nothing else.
    pub(crate) fn is_length(self) -> bool {
        self == Self::LENGTH
    }

    const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The class of every value of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Classes(Vec<Class>);

impl Classes {
    /// Runs every scope forward once.
    pub(crate) fn of(graph: &Graph, ports: &Ports) -> Self {
        let mut classes = Self(vec![Class::CONSTANT; graph.value_count()]);
        let mut fresh = 0..;
        for port in ports.iter() {
            classes.0[port.value.index()] = match port.role {
                Role::Past => Class::CONTENT,
                Role::Tokens | Role::Content => Class::from_input(fresh.next().unwrap_or(0)),
                Role::TokenTypes | Role::CacheFlag => Class::CONTENT.and(Class::FRESH),
                Role::Positions => Class::POSITION,
                Role::Padding | Role::Counts => Class::PADDING,
                Role::Table => Class::CONSTANT,
            };
        }
        classes.scope(graph, graph.main());
        classes
    }

    /// The class of a value.
    pub(crate) fn of_value(&self, value: ValueId) -> Class {
        self.0[value.index()]
    }

    /// The inputs of a node that carry content.
    pub(crate) fn content<'n>(&'n self, node: &'n Node) -> impl Iterator<Item = ValueId> + 'n {
        let inputs = node.inputs().iter().flatten().copied();
        inputs.filter(|v| self.of_value(*v).has(Class::CONTENT))
    }

    fn scope(&mut self, graph: &Graph, main: posenc_ir::ScopeId) {
        // The scopes being visited, with the index of the next node of each.
        let order = |s| graph.order(s).unwrap_or_default();
        let mut stack = vec![(order(main), 0usize, None::<NodeId>)];
        while let Some((nodes, at, holder)) = stack.last_mut() {
            let Some(id) = nodes.get(*at).copied() else {
                if let Some(holder) = holder.take() {
                    self.control_flow(graph, holder);
                }
                stack.pop();
                continue;
            };
            *at += 1;
            let node = graph.node(id);
            let bodies: Vec<_> = node.bodies().map(|b| b.1).collect();
            if bodies.is_empty() {
                let class = self.node(graph, id);
                for out in node.outputs().iter().flatten() {
                    self.0[out.index()] = class;
                }
                if is_embedding_with_lengths(node)
                    && let Some(lengths) = node.output(1)
                {
                    let mask = node.input(7).map(|v| self.of_value(v));
                    self.0[lengths.index()] = mask.unwrap_or(Class::CONSTANT);
                }
                continue;
            }
            // Loop-carried values and scanned slices: as content as what enters the loop.
            let entering = self.inputs(graph, id);
            for (i, body) in bodies.iter().enumerate() {
                for (slot, input) in graph.scope(*body).inputs().iter().enumerate() {
                    let is_trip = node.is("Loop") && slot == 0 && !entering.is_constant();
                    self.0[input.index()] = match unchanged(graph, node, *body, slot) {
                        Some(first) => self.of_value(first),
                        None if is_trip => entering.and(Class::POSITION),
                        None => entering,
                    };
                }
                // The stack visits the first body last.
                let last = i == 0;
                stack.push((order(*body), 0, last.then_some(id)));
            }
        }
    }

    /// Outputs of a control-flow node, once its bodies are done.
    fn control_flow(&mut self, graph: &Graph, id: NodeId) {
        let node = graph.node(id);
        let entering = self.inputs(graph, id);
        let bodies: Vec<_> = node.bodies().map(|b| b.1).collect();
        // What trips count up is position where their number follows a length.
        let counts = matches!(node.op(), "Loop" | "Scan") && !entering.is_constant();
        let entering = match counts && !entering.has(Class::CONTENT) {
            true => entering.and(Class::POSITION),
            false => entering,
        };
        for (i, out) in node.outputs().iter().enumerate() {
            let Some(out) = out else { continue };
            let mut class = entering;
            for body in &bodies {
                let outputs = graph.scope(*body).outputs();
                let same = (node.is("If") && outputs.len() > i).then(|| outputs[i]);
                let all = same.map_or(outputs, |_| &outputs[i..=i]);
                for v in all {
                    class = class.and(self.of_value(*v));
                }
            }
            self.0[out.index()] = class;
        }
    }

    fn inputs(&self, graph: &Graph, id: NodeId) -> Class {
        let inputs = graph.node(id).inputs().iter().flatten();
        inputs.fold(Class::CONSTANT, |c, v| c.and(self.of_value(*v)))
    }

    fn node(&self, graph: &Graph, id: NodeId) -> Class {
        let node = graph.node(id);
        let inputs = self.inputs(graph, id);
        if !node.domain().is_empty() {
            return inputs;
        }
        match node.op() {
            // Of the second input the type alone matters.
            "CastLike" => node.input(0).map_or(inputs, |v| self.of_value(v)),
            // The length of weights is that of no sequence.
            "Shape" | "Size" if inputs.is_constant() => Class::CONSTANT,
            "Shape" | "Size" => Class::LENGTH,
            // Counting up is position where the count follows a length; from constants alone it
            // may be anything.
            "Range" if inputs.is_constant() => Class::CONSTANT,
            "Range" => inputs.and(Class::POSITION),
            // A constant that is cut to a length has a row for each position.
            "Slice" if inputs == Class::LENGTH && self.cuts_constant(graph, id) => {
                inputs.and(Class::POSITION)
            }
            "CumSum" | "Trilu" | "EyeLike" | "NonZero" if !inputs.is_constant() => {
                inputs.and(Class::POSITION)
            }
            // Ids compared with a constant indicate padding, not content.
            "Equal" | "Not" | "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual"
                if inputs.has(Class::CONTENT) && self.compares_ids(graph, id) =>
            {
                inputs.without_content().and(Class::PADDING)
            }
            _ => inputs,
        }
    }

    fn cuts_constant(&self, graph: &Graph, id: NodeId) -> bool {
        let data = graph.node(id).input(0);
        data.is_some_and(|v| self.of_value(v).is_constant())
    }

    /// Whether a comparison reads integer ids as they are fed. A comparison with several numbers at
    /// once picks rows of a table: that is content.
    fn compares_ids(&self, graph: &Graph, id: NodeId) -> bool {
        let node = graph.node(id);
        let fits = |v: ValueId| match self.of_value(v).has(Class::CONTENT) {
            true => is_fed_ids(graph, v),
            false => !(self.of_value(v).is_constant() && has_several(graph, v)),
        };
        node.inputs().iter().flatten().copied().all(fits)
    }
}

/// Whether a constant has several elements, which may differ.
fn has_several(graph: &Graph, constant: ValueId) -> bool {
    let mut seen = FxHashSet::default();
    let mut stack = vec![constant];
    while let Some(value) = stack.pop() {
        if let Some(stored) = graph.stored(value) {
            if stored.elements() != Some(1) {
                return true;
            }
            continue;
        }
        let Some((id, _)) = graph.producer(value).filter(|_| seen.insert(value)) else {
            continue;
        };
        let node = graph.node(id);
        match node.op() {
            "Concat" | "Range" => return true,
            op if is_elementwise(op) => stack.extend(node.inputs().iter().flatten()),
            op if is_layout(op) => stack.extend(node.input(0)),
            _ => {}
        }
    }
    false
}

/// What a loop carries in this slot of its body, where no trip changes it.
fn unchanged(graph: &Graph, node: &Node, body: ScopeId, slot: usize) -> Option<ValueId> {
    let carried = slot.checked_sub(2).filter(|_| node.is("Loop"))?;
    let scope = graph.scope(body);
    let mut given = *scope.outputs().get(carried + 1)?;
    while let Some((id, _)) = graph.producer(given)
        && graph.node(id).is("Identity")
    {
        given = graph.node(id).input(0)?;
    }
    (given == *scope.inputs().get(slot)?).then(|| node.input(slot))?
}

/// Whether an output of the model depends on a node, by its index.
pub(crate) fn live(graph: &Graph) -> Vec<bool> {
    let mut live = vec![false; graph.node_count()];
    let mut stack = graph.scope(graph.main()).outputs().to_vec();
    while let Some(value) = stack.pop() {
        let Some((id, _)) = graph.producer(value).filter(|(id, _)| !live[id.index()]) else {
            continue;
        };
        live[id.index()] = true;
        let node = graph.node(id);
        stack.extend(node.inputs().iter().flatten());
        stack.extend(
            node.bodies()
                .flat_map(|(_, body)| graph.scope(body).outputs()),
        );
    }
    live
}

/// Whether a node makes embeddings, and beside them the lengths of its mask.
fn is_embedding_with_lengths(node: &Node) -> bool {
    node.domain() == "com.microsoft" && node.op() == "EmbedLayerNormalization"
}

/// Whether a value contains the integers of a graph input, reshaped or cast at most.
pub(crate) fn is_fed_ids(graph: &Graph, value: ValueId) -> bool {
    let input = fed_by(graph, value).and_then(|input| graph.dtype(input));
    input.is_some_and(DType::is_int)
}

/// The value without a producer whose numbers a value contains, reshaped or cast at most.
pub(crate) fn fed_by(graph: &Graph, mut value: ValueId) -> Option<ValueId> {
    while let Some((id, _)) = graph.producer(value) {
        let node = graph.node(id);
        let keeps = is_copy(node.op()) || is_reshape(node.op());
        value = node
            .input(0)
            .filter(|_| keeps && node.domain().is_empty())?;
    }
    Some(value)
}

/// Whether a value contains what a graph input is fed, as ids or a flag, which a trial run knows.
pub(crate) fn is_fed(graph: &Graph, value: ValueId) -> bool {
    is_fed_ids(graph, value) || is_fed_flag(graph, value)
}

/// Whether a value contains a flag of a graph input, reshaped, cast or negated at most.
fn is_fed_flag(graph: &Graph, mut value: ValueId) -> bool {
    while let Some((id, _)) = graph.producer(value) {
        let node = graph.node(id);
        let keeps = is_copy(node.op()) || is_reshape(node.op()) || node.op() == "Not";
        match node.input(0) {
            Some(x) if keeps && node.domain().is_empty() => value = x,
            _ => return false,
        }
    }
    let is_single = graph.value(value).shape().is_some_and(|d| d.len() < 2);
    is_single && graph.dtype(value) == Some(DType::Bool)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::sketch::Sketch;

    #[test]
    fn what_no_trip_changes_is_as_it_was_before_the_loop() {
        let text = "<ir_version: 9, opset_import: [\"\" : 18]>\n\
             test (float[batch,sequence] x) => (float[] y) {\n\
             yes = Constant<value: tensor = bool {1}>()\n\
             four = Constant<value: tensor = int64 {4}>()\n\
             w = Constant<value_floats = [1.0, 2.0]>()\n\
             b = Constant<value_floats = [1.0, 2.0]>()\n\
             v, c, y = Loop (four, yes, w, b, x) <body: graph = each \
             (int64 i, bool go, float[] kept, float[] moved, float[] z) => \
             (bool on, float[] again, float[] other, float[] next) {\n\
             on = Identity(go)\n copy = Identity(kept)\n again = Identity(copy)\n\
             other = Add(moved, z)\n next = Mul(z, kept)\n }>\n }\n";
        let model = posenc_ir::Model::parse(text).unwrap();
        let graph = model.graph();
        let classes = Classes::of(graph, &Ports::of(graph, &Default::default()));
        let class = |name: &str| {
            let mut all = graph.values().filter(|v| graph.name(*v) == name);
            classes.of_value(all.next().unwrap())
        };
        assert!(class("kept").is_constant());
        assert!(class("moved").has(Class::CONTENT));
        assert!(class("z").has(Class::CONTENT));
    }

    #[test]
    fn the_length_of_weights_is_a_constant_and_that_of_tokens_is_not() {
        let mut s = Sketch::default();
        s.embedded();
        let table = s.weights(&[30, 4]);
        let all = ["input_ids", &table].map(|of| s.op("Shape", &[of]));
        let model = s.model(17, &[&all[0], &all[1]]);
        let graph = model.graph();
        let classes = Classes::of(graph, &Ports::of(graph, &Default::default()));
        let [tokens, weights] = all.map(|v| graph.find(graph.main(), &v).unwrap());
        assert!(classes.of_value(weights).is_constant());
        assert_eq!(classes.of_value(tokens), Class::LENGTH);
    }

    #[test]
    fn a_number_of_the_type_of_content_is_none() {
        let mut s = Sketch::default();
        let (x, two) = (s.embedded(), s.float(2.0));
        let casts = [[&two, &x], [&x, &two]].map(|[a, b]| s.op("CastLike", &[a, b]));
        let model = s.model(17, &[&casts[0], &casts[1]]);
        let graph = model.graph();
        let classes = Classes::of(graph, &Ports::of(graph, &Default::default()));
        let [number, content] =
            casts.map(|v| classes.of_value(graph.find(graph.main(), &v).unwrap()));
        assert!(number.is_constant());
        assert!(content.has(Class::CONTENT));
    }

    #[test]
    fn ids_that_are_compared_with_one_number_are_a_mask_and_with_several_content() {
        for (count, is_content) in [(1, false), (7, true)] {
            let mut s = Sketch::default();
            s.embedded();
            let numbers: Vec<i64> = (0..count).collect();
            let stored = s.ints(&numbers);
            let (first, last) = numbers.split_at(numbers.len() / 2);
            let (first, last) = (s.ints(first), s.ints(last));
            let joined = match is_content {
                true => s.concat(&[&first, &last], 0),
                false => s.op("Identity", &[&last]),
            };
            let computed = s.op("Neg", &[&joined]);
            let ids = s.unsqueeze("input_ids", &[-1]);
            let same = [&stored, &computed].map(|n| s.op("Equal", &[&ids, n]));
            let model = s.model(17, &[&same[0], &same[1]]);
            let graph = model.graph();
            let ports = Ports::of(graph, &Default::default());
            let classes = Classes::of(graph, &ports);
            for same in same {
                let class = classes.of_value(graph.find(graph.main(), &same).unwrap());
                assert_eq!(class.has(Class::CONTENT), is_content, "{count}");
                assert_eq!(class.has(Class::PADDING), !is_content, "{count}");
            }
        }
    }
}
