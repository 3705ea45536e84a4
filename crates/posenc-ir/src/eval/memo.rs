//! What nodes computed, for nodes that compute the same of the same inputs, as equal layers do.

use std::sync::Arc;

use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Data, Value};
use crate::dtype::DType;
use crate::node::{Node, Operator};

/// Inputs of more elements are the same where they are one allocation; others are compared.
const SMALL: usize = 64;

/// A node is worth remembering where an input has as many elements.
const LARGE: usize = 1024;

/// The results of nodes.
#[derive(Debug, Default)]
pub(super) struct Memo {
    results: FxHashMap<Key, Vec<Value>>,
    /// Elements of deferred values that a value of the run has.
    kept: FxHashSet<Address<Data>>,
}

/// What a node computes: its operator, its attributes as they are encoded, its inputs, and how many
/// outputs it has, which counts for `Split`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// Nodes of one operator share it, if they were read from one file.
    operator: Address<Operator>,
    attributes: Vec<Vec<u8>>,
    inputs: Vec<Option<Input>>,
    outputs: usize,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Input {
    dtype: Option<DType>,
    dims: Vec<usize>,
    elements: Elements,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Elements {
    /// The bits of the numbers, as i64 or as f64.
    Compared(Vec<u64>),
    Allocated(Address<Data>),
}

/// An allocation that is kept, so that no other has its address.
#[derive(Debug)]
struct Address<T>(Arc<T>);

impl<T> PartialEq for Address<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<T> Eq for Address<T> {}

impl<T> std::hash::Hash for Address<T> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

impl Key {
    /// The key of a node with these inputs; `None` where one is not known, or none is large.
    pub(super) fn of<'v>(
        node: &Node,
        inputs: impl Iterator<Item = Option<&'v Value>> + Clone,
    ) -> Option<Self> {
        let is_large = |v: &Value| v.elements().is_some_and(|n| n >= LARGE);
        let mut given = inputs.clone().flatten();
        if !given.clone().any(is_large) || given.any(|v| v.data.is_none()) {
            return None;
        }
        let attributes = node.attributes().iter().map(Message::encode_to_vec);
        Some(Self {
            operator: Address(node.operator.clone()),
            attributes: attributes.collect(),
            inputs: inputs
                .map(|v| v.map_or(Some(None), |v| Input::of(v).map(Some)))
                .collect::<Option<_>>()?,
            outputs: node.outputs().len(),
        })
    }
}

impl Input {
    fn of(value: &Value) -> Option<Self> {
        let elements = if value.elements()? <= SMALL {
            Elements::Compared(match value.dtype {
                Some(dtype) if dtype.is_int() => {
                    value.to_i64()?.iter().map(|v| v.cast_unsigned()).collect()
                }
                _ => value.to_f64()?.iter().map(|v| v.to_bits()).collect(),
            })
        } else {
            Elements::Allocated(Address(value.data.clone()?))
        };
        Some(Self {
            dtype: value.dtype,
            dims: value.dims.clone()?,
            elements,
        })
    }
}

impl Memo {
    pub(super) fn get(&self, key: &Key) -> Option<Vec<Value>> {
        self.results.get(key).cloned()
    }

    /// Whether another value has the elements of this one; from now on, one has.
    pub(super) fn is_kept(&mut self, value: &Value) -> bool {
        let data = value.data.clone();
        data.is_some_and(|data| !self.kept.insert(Address(data)))
    }

    /// Remembers outputs, if all of them are known.
    pub(super) fn insert<'v>(
        &mut self,
        key: Key,
        outputs: impl Iterator<Item = Option<&'v Value>>,
    ) {
        let known = |v: Option<&Value>| match v {
            None => Some(Value::unknown()),
            Some(v) => v.data.is_some().then(|| v.clone()),
        };
        if let Some(outputs) = outputs.map(known).collect() {
            self.results.insert(key, outputs);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::eval::{Budget, Trace, Value, trace};
    use crate::id::ValueId;
    use crate::model::Model;
    use rustc_hash::FxHashMap;
    use std::sync::Arc;

    fn run(body: &str, seeds: impl Fn(&Model) -> FxHashMap<ValueId, Value>) -> (Model, Trace) {
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]> g () => (float[n] y)\n\
             <int64 a = {{0}}, int64 b = {{2000}}, int64 c = {{1}}, int64 d = {{1}}, int64 e = {{2}}>\n\
             {{ r = Range(a, b, c) {body} y = Cast<to = 1>(r) }}\n"
        );
        let model = Model::parse(&text).unwrap();
        let seeds = seeds(&model);
        let trace = trace(&model, &seeds, &|_| false, &Budget { elements: 1 << 20 });
        (model, trace)
    }

    fn of<'t>((model, trace): &'t (Model, Trace), name: &str) -> &'t Value {
        let graph = model.graph();
        trace.get(graph.find(graph.main(), name).unwrap())
    }

    fn is_shared(ran: &(Model, Trace), a: &str, b: &str) -> bool {
        let [a, b] = [a, b].map(|name| of(ran, name).data.clone().unwrap());
        Arc::ptr_eq(&a, &b)
    }

    #[test]
    fn equal_nodes_of_equal_inputs_share_what_is_computed_and_no_others_do() {
        let none = |_: &Model| FxHashMap::default();
        let ran = run(
            "s = Add(r, c) t = Add(r, d) u = Add(r, e) v = Sub(r, c) w = Neg(s) x = Neg(t) \
             p = Cast<to = 1>(r) q = Cast<to = 11>(r)",
            none,
        );
        assert!(is_shared(&ran, "s", "t"), "constants of the same number");
        assert!(is_shared(&ran, "w", "x"), "what follows from shared values");
        for (a, b) in [("s", "u"), ("s", "v"), ("s", "w"), ("p", "q")] {
            assert!(!is_shared(&ran, a, b), "{a} {b}");
        }
        assert_eq!(of(&ran, "u").to_i64().unwrap()[[3]], 5);
    }

    #[test]
    fn deferred_values_that_are_computed_alike_share_their_elements() {
        let large = "s = Expand(r, shape) t = Expand(r, shape) u = Neg(s) v = Neg(t) w = Abs(t)";
        let meets = "m = Add(x, u) n = Add(x, v) o = Add(x, w)";
        let text = format!(
            "<ir_version: 8, opset_import: [\"\" : 17]> g (int64[20, 2000] x) => \
             (int64[20, 2000] m, int64[20, 2000] n, int64[20, 2000] o)\n\
             <int64 a = {{0}}, int64 b = {{2000}}, int64 c = {{1}}, int64[2] shape = {{20, 2000}}>\n\
             {{ r = Range(a, b, c) {large} {meets} }}\n"
        );
        let model = Model::parse(&text).unwrap();
        let none = FxHashMap::default();
        let budget = Budget { elements: 1 << 20 };
        let trace = trace(&model, &none, &|_| false, &budget);
        let ran = (model, trace);
        assert!(is_shared(&ran, "u", "v"));
        assert!(!is_shared(&ran, "u", "w"));
        assert_eq!(of(&ran, "v").to_i64().unwrap()[[19, 3]], -3);
        assert_eq!(of(&ran, "w").to_i64().unwrap()[[19, 3]], 3);
    }

    #[test]
    fn parts_are_those_of_as_many_outputs() {
        let ran = run(
            "h, i = Split<axis = 0>(r) j, k, l, m = Split<axis = 0>(r)",
            |_| FxHashMap::default(),
        );
        assert_eq!(of(&ran, "h").elements(), Some(1000));
        assert_eq!(of(&ran, "j").elements(), Some(500));
        assert_eq!(of(&ran, "k").to_i64().unwrap()[[0]], 500);
    }

    #[test]
    fn a_seed_is_the_value_of_one_output_alone() {
        let ran = run("s = Add(r, c) t = Add(r, d)", |model| {
            let graph = model.graph();
            let s = graph.find(graph.main(), "s").unwrap();
            let numbers = ndarray::ArrayD::from_elem(vec![2000], 7);
            [(s, Value::int(numbers))].into_iter().collect()
        });
        assert_eq!(of(&ran, "s").to_i64().unwrap()[[3]], 7);
        assert_eq!(of(&ran, "t").to_i64().unwrap()[[3]], 4);
    }
}
