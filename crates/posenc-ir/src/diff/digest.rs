//! Digests of what nodes and outputs compute, independent of names and of the order of nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::content::{Absent, Hasher, attributes, initializer, sampled};
use super::hash::walk;
use crate::error::Result;
use crate::graph::{Def, ScopeKind};
use crate::id::{NodeId, ValueId};
use crate::model::Model;
use crate::stored::Payload;

/// Digests of a model's nodes and outputs: of the operators, attributes, constants and inputs of the
/// graph that they are computed from. `Identity` counts for nothing, and a `Constant` node for as
/// much as an initializer.
///
/// ```
/// use posenc_ir::Model;
/// use posenc_ir::diff::Digests;
///
/// let digest = |body: &str| -> Result<u128, posenc_ir::Error> {
///     let text = format!("<ir_version: 8, opset_import: [\"\" : 17]> \
///         g (float[n] x) => (float[n] y) {{ {body} }}");
///     let model = Model::parse(&text)?;
///     let digests = Digests::of(&model, &Default::default(), |_| true)?;
///     Ok(digests.outputs()[0].1)
/// };
/// assert_eq!(digest("y = Relu(x)")?, digest("a = Identity(x) y = Relu(a)")?);
/// assert_ne!(digest("y = Relu(x)")?, digest("y = Sigmoid(x)")?);
/// # Ok::<(), posenc_ir::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Digests {
    nodes: Vec<u128>,
    outputs: Vec<(String, u128)>,
}

impl Digests {
    /// The digests of a model. Where a node of `cuts` is reached, its label is hashed instead of what
    /// it is computed from. Constants count with all their bytes where `whole` says so, others with
    /// type, dimensions and some of their bytes.
    ///
    /// # Errors
    /// When the nodes of a graph depend on each other in a cycle.
    pub fn of(
        model: &Model,
        cuts: &BTreeMap<NodeId, usize>,
        whole: impl Fn(ValueId) -> bool,
    ) -> Result<Self> {
        let graph = model.graph();
        let mut nodes = vec![0; graph.node_count()];
        let mut values = leaves(model, &whole);
        let mut sequence = vec![];
        for root in graph
            .scopes()
            .filter(|s| graph.scope(*s).parent().is_none())
        {
            walk(graph, root, &mut sequence)?;
        }
        for id in sequence {
            let node = graph.node(id);
            if node.is("Identity")
                && let (Some(from), Some(to)) = (node.input(0), node.output(0))
            {
                values[to.index()] = values[from.index()];
                nodes[id.index()] = values[from.index()];
                continue;
            }
            nodes[id.index()] = own(model, id, &values);
            let hash = match cuts.get(&id) {
                Some(label) => labelled("cut", *label),
                None => nodes[id.index()],
            };
            for (i, value) in node.outputs().iter().enumerate() {
                let Some(value) = value else { continue };
                values[value.index()] = match constant(model, *value, &whole) {
                    Some(content) => content,
                    None if i == 0 => hash,
                    None => {
                        let mut hasher = Hasher::new("output");
                        hasher.number(hash);
                        hasher.number(i as u128);
                        hasher.finish()
                    }
                };
            }
        }
        let functions = functions(model, &nodes);
        let outputs = graph.scope(graph.main()).outputs().iter();
        let outputs = outputs.map(|v| {
            let mut hasher = Hasher::new("graph output");
            hasher.number(functions);
            hasher.number(values[v.index()]);
            (graph.name(*v).to_owned(), hasher.finish())
        });
        Ok(Self {
            outputs: outputs.collect(),
            nodes,
        })
    }

    /// The digest of a node, with everything that it is computed from up to the cuts.
    pub fn node(&self, id: NodeId) -> u128 {
        self.nodes[id.index()]
    }

    /// The digests of the outputs of the graph, with their names, in their order.
    pub fn outputs(&self) -> &[(String, u128)] {
        &self.outputs
    }
}

impl Model {
    /// The digest of a constant's type, dimensions and bytes; `None` for other values.
    pub fn digest_of(&self, constant: ValueId) -> Option<u128> {
        initializer(self, constant, &Absent::default())
    }

    /// Whether a constant is the constant `its` of another model, by where its bytes are stored; they are
    /// not read. False for other values, and for equal bytes in another place.
    pub fn shares_constant(&self, constant: ValueId, other: &Self, its: ValueId) -> bool {
        let stored = |model: &Self, value: ValueId| {
            let graph = model.graph();
            let kept = !graph.revalued.contains_key(&value);
            graph.stored(value).filter(|_| kept).cloned()
        };
        let (Some(a), Some(b)) = (stored(self, constant), stored(other, its)) else {
            return false;
        };
        let at = |bytes: &Bytes| (bytes.as_ptr(), bytes.len());
        let is_one = match (&a.payload, &b.payload) {
            (Payload::Raw(a), Payload::Raw(b)) | (Payload::Typed(a), Payload::Typed(b)) => {
                at(a) == at(b)
            }
            (Payload::External(a), Payload::External(b)) => {
                let folders = (&self.graph().external_dir, &other.graph().external_dir);
                a == b && Arc::ptr_eq(folders.0, folders.1)
            }
            _ => false,
        };
        is_one && a.dtype == b.dtype && a.dims == b.dims
    }
}

/// The hashes of values that no node computes.
fn leaves(model: &Model, whole: &impl Fn(ValueId) -> bool) -> Vec<u128> {
    let graph = model.graph();
    let leaf = |value: ValueId| match graph.value(value).def() {
        Def::Node(..) => 0,
        Def::Initializer => constant(model, value, whole).unwrap_or(0),
        Def::Input(i) => {
            let mut hasher = Hasher::new("input");
            hasher.number(labelled("place", i as usize));
            let scope = graph.value(value).scope();
            if scope == graph.main() {
                hasher.bytes(graph.name(value).as_bytes());
                hasher.number(graph.dtype(value).map_or(0, |d| d.code() as u128));
                hasher.number(constant(model, value, whole).unwrap_or(0));
            } else {
                // A body reads the inputs of those around it too.
                let around = std::iter::successors(Some(scope), |s| graph.scope(*s).parent());
                hasher.number(labelled("depth", around.count()));
            }
            hasher.finish()
        }
    };
    graph.values().map(leaf).collect()
}

/// The hash of a constant's type and values; `None` for a value that is none.
fn constant(model: &Model, value: ValueId, whole: &impl Fn(ValueId) -> bool) -> Option<u128> {
    model.graph().stored(value)?;
    if whole(value) {
        initializer(model, value, &Absent::default())
    } else {
        sampled(model, value)
    }
}

/// The hash of a node and of the values that it reads.
fn own(model: &Model, id: NodeId, values: &[u128]) -> u128 {
    let graph = model.graph();
    let node = graph.node(id);
    let mut hasher = Hasher::new("node");
    for text in [node.domain(), node.op(), graph.overload(id)] {
        hasher.bytes(text.as_bytes());
    }
    let is_constant = |v: &Option<ValueId>| v.is_some_and(|v| graph.stored(v).is_some());
    if !node.attributes().is_empty() && !node.outputs().iter().any(is_constant) {
        hasher.number(attributes(model, node.attributes(), &Absent::default()));
    }
    let reads = |v: &Option<ValueId>| v.map_or(0, |v| values[v.index()]);
    hasher.all(&node.inputs().iter().map(reads).collect::<Vec<_>>());
    for (attribute, body) in node.bodies() {
        hasher.bytes(attribute.as_bytes());
        let outputs = graph.scope(body).outputs().iter();
        hasher.all(&outputs.map(|v| values[v.index()]).collect::<Vec<_>>());
    }
    hasher.finish()
}

/// The hash of all nodes of local functions.
fn functions(model: &Model, nodes: &[u128]) -> u128 {
    let graph = model.graph();
    let of_functions = graph.scopes().filter(|s| {
        let scope = graph.scope(*s);
        matches!(scope.kind(), ScopeKind::Function { .. })
    });
    let mut all: Vec<u128> = of_functions
        .flat_map(|s| graph.scope(s).nodes())
        .map(|id| nodes[id.index()])
        .collect();
    all.sort_unstable();
    let mut hasher = Hasher::new("functions");
    hasher.all(&all);
    hasher.finish()
}

fn labelled(tag: &str, label: usize) -> u128 {
    let mut hasher = Hasher::new(tag);
    hasher.number(label as u128);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Tensor};

    fn model(body: &str) -> Model {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             g (float[2] x, float[2] z) => (float[2] y)\n\
             <float[2] w = {{1.0, 2.0}}, float[2] u = {{3.0, 4.0}}> {{ {body} }}\n"
        );
        Model::parse(&text).unwrap()
    }

    fn output(model: &Model, whole: bool) -> u128 {
        let digests = Digests::of(model, &BTreeMap::new(), |_| whole).unwrap();
        digests.outputs()[0].1
    }

    #[test]
    fn names_order_and_identities_do_not_count_and_everything_else_does() {
        let of = |body: &str| output(&model(body), true);
        let want = of("a = Add(x, w) b = Mul(z, u) y = Sub(a, b)");
        for same in [
            "d = Mul(z, u) c = Add(x, w) y = Sub(c, d)",
            "i = Identity(x) a = Add(i, w) b = Mul(z, u) y = Sub(a, b)",
            "k = Constant <value = float[2] {1.0, 2.0}> () a = Add(x, k) b = Mul(z, u) y = Sub(a, b)",
            "unused = Relu(x) a = Add(x, w) b = Mul(z, u) y = Sub(a, b)",
        ] {
            assert_eq!(of(same), want, "{same}");
        }
        for other in [
            "a = Add(x, w) b = Mul(z, u) y = Sub(b, a)",
            "a = Add(z, w) b = Mul(x, u) y = Sub(a, b)",
            "a = Add(x, u) b = Mul(z, w) y = Sub(a, b)",
            "a = Add(x, w) b = Div(z, u) y = Sub(a, b)",
            "a = Add(x, w) b = Mul(z, u) c = Softmax<axis = 0>(b) y = Sub(a, c)",
        ] {
            assert_ne!(of(other), want, "{other}");
        }
        let softmax = |axis| of(&format!("y = Softmax<axis = {axis}>(x)"));
        assert_ne!(softmax(0), softmax(-1));
    }

    #[test]
    fn a_change_before_a_cut_is_seen_at_the_cut_alone() {
        let digests = |body| {
            let model = model(body);
            let graph = model.graph();
            let cut = graph.nodes().find(|(_, n)| n.is("Softmax")).unwrap().0;
            let digests = Digests::of(&model, &[(cut, 0)].into(), |_| true).unwrap();
            (digests.node(cut), digests.outputs()[0].1)
        };
        let want = digests("a = Add(x, w) b = Softmax(a) y = Mul(b, u)");
        let before = digests("a = Add(x, u) b = Softmax(a) y = Mul(b, u)");
        let after = digests("a = Add(x, w) b = Softmax(a) y = Mul(b, w)");
        assert!(before.0 != want.0 && before.1 == want.1);
        assert!(after.0 == want.0 && after.1 != want.1);
    }

    #[test]
    fn a_large_constant_counts_the_same_before_it_is_written_and_after() {
        let before = model("y = Add(x, w)");
        let graph = before.graph();
        let w = graph.find(graph.main(), "w").unwrap();
        let changed = |last: f64| {
            let mut numbers = vec![1.0; 5000];
            numbers[4999] = last;
            let mut out = graph.emitter(graph.main(), "test");
            let tensor = Tensor::from_f64(DType::F32, &[2500, 2], &numbers);
            out.replace_constant(w, graph.uses(w), tensor).unwrap();
            before.clone().with_patch(out.finish()).unwrap().0
        };
        let written = |model: &Model| Model::from_bytes(model.to_bytes().unwrap()).unwrap();
        for whole in [false, true] {
            let of = |last| output(&changed(last), whole);
            assert_eq!(output(&written(&changed(1.0)), whole), of(1.0));
            assert_ne!(of(2.0), of(1.0));
        }
    }

    #[test]
    fn inputs_of_nested_bodies_count_by_the_body_that_has_them() {
        let of = |read: &str| {
            let text = format!(
                "n = Constant <value = int64 {{2}}> () t = Constant <value = bool {{1}}> ()
                 y = Loop(n, t, x) <body = outer (int64 i, bool c, float[2] a) => (bool d, float[2] b) {{
                     d = Identity(c)
                     b = Loop(n, t, a) <body = inner (int64 j, bool e, float[2] p) => (bool f, float[2] q) {{
                         f = Identity(e) g = Cast <to = 1> ({read}) q = Add(p, g)
                     }}>
                 }}>"
            );
            output(&model(&text), true)
        };
        assert_eq!(of("j"), of("j"));
        assert_ne!(of("j"), of("i"));
    }

    #[test]
    fn a_branch_counts_with_what_it_returns() {
        let of = |body: &str| {
            let text = format!(
                "c = Cast<to = 9>(x) y = If(c) <then_branch = t () => (float[2] r) {{ {body} }}, \
                 else_branch = e () => (float[2] s) {{ s = Relu(x) }}>"
            );
            output(&model(&text), true)
        };
        assert_eq!(of("r = Neg(x)"), of("n = Identity(x) r = Neg(n)"));
        assert_ne!(of("r = Neg(x)"), of("r = Abs(x)"));
    }
}
