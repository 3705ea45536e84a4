//! Signatures of regions, independent of names: equal regions are evaluated once.

use std::sync::Arc;

use bytes::Bytes;
use posenc_ir::eval::Trace;
use posenc_ir::proto::AttributeProto;
use posenc_ir::{DType, Graph, ValueId};
use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::lane::Lane;
use crate::graph::region::{Aspect, Region};

/// Constants up to this many bytes are compared by their payload, larger ones by identity.
const PAYLOAD: usize = 1 << 23;

/// Up to this many numbers of the trial run are compared, more by where they are kept.
const NUMBERS: usize = 1 << 16;

/// Numbers for values: equal ones for values that are computed alike.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    ids: FxHashMap<Key, usize>,
    leaves: FxHashMap<ValueId, usize>,
    /// Values told by their whole origin, which no region's content enters: one number everywhere.
    settled: FxHashMap<ValueId, usize>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The content that enters.
    Content,
    /// A constant by its payload.
    Constant(DType, Vec<usize>, Bytes),
    /// Content that enters by its shape alone.
    Shape(Option<DType>, Vec<usize>),
    /// Numbers of the trial run, by their bits.
    Numbers(Option<DType>, Vec<usize>, Vec<u64>),
    /// Numbers of the trial run by where it keeps them, which values that are computed alike share.
    Allocation(Option<DType>, Vec<usize>, usize),
    /// A value that equals nothing but itself.
    Itself(ValueId),
    /// An output of an operator: domain, operator, encoded attributes, place, inputs.
    Node(String, Vec<u8>, usize, Vec<Option<usize>>),
    /// A whole region.
    Region(usize, LaneKey, LaneKey, Option<DType>, Vec<usize>),
}

/// The lane as something to compare.
type LaneKey = (usize, Option<usize>, Option<usize>, i64);

impl Signatures {
    /// The number of a region: equal for regions of equal operators and constants over content of
    /// equal type and dimensions. `aspect` is what is compared of a value.
    pub(crate) fn region(
        &mut self,
        graph: &Graph,
        region: &Region,
        trace: &Trace,
        aspect: impl Fn(ValueId) -> Aspect,
    ) -> usize {
        let shape = |v: ValueId| {
            let known = trace.get(v);
            (known.dtype, known.dims.clone().unwrap_or_default())
        };
        let output = self.value(graph, region, trace, aspect);
        let (dtype, dims) = shape(region.input);
        let key = |lane: &Lane| (lane.sequence, lane.feature, lane.group, lane.offset);
        self.id(Key::Region(
            output,
            key(&region.input_lane),
            key(&region.output_lane),
            dtype,
            dims,
        ))
    }

    fn id(&mut self, key: Key) -> usize {
        let next = self.ids.len();
        *self.ids.entry(key).or_insert(next)
    }

    /// The number of the region's output, from what it is computed of, without recursion.
    fn value(
        &mut self,
        graph: &Graph,
        region: &Region,
        trace: &Trace,
        aspect: impl Fn(ValueId) -> Aspect,
    ) -> usize {
        let mut of: FxHashMap<ValueId, usize> = FxHashMap::default();
        let mut open = FxHashSet::default();
        of.insert(region.input, self.id(Key::Content));
        // What is computed from this input is something else where the input is content.
        let settles = !self.settled.contains_key(&region.input);
        let mut stack = vec![region.output];
        while let Some(value) = stack.last().copied() {
            if of.contains_key(&value) {
                stack.pop();
                continue;
            }
            let leaf = match aspect(value) {
                Aspect::Origin if settles => self.settled.get(&value).copied(),
                Aspect::Origin => None,
                Aspect::Numbers => Some(self.numbers(graph, trace, value)),
                Aspect::Shape => {
                    let known = trace.get(value);
                    let dims = known.dims.clone().unwrap_or_default();
                    Some(self.id(Key::Shape(known.dtype, dims)))
                }
            };
            if let Some(id) = leaf {
                of.insert(value, id);
                continue;
            }
            let producer = match graph.producer(value) {
                Some((id, place)) if graph.stored(value).is_none() => Some((id, place)),
                _ => None,
            };
            let (id, settled) = match producer {
                None => (self.leaf(graph, value), true),
                Some((id, _)) if graph.node(id).bodies().next().is_some() => {
                    (self.id(Key::Itself(value)), true)
                }
                Some((id, place)) => {
                    let node = graph.node(id);
                    let inputs = node.inputs();
                    let missing = |v: &&ValueId| !of.contains_key(*v);
                    let waiting: Vec<ValueId> =
                        inputs.iter().flatten().filter(missing).copied().collect();
                    if !waiting.is_empty() && open.insert(value) {
                        stack.extend(waiting);
                        continue;
                    }
                    let settled = inputs
                        .iter()
                        .flatten()
                        .all(|v| self.settled.contains_key(v));
                    let inputs = inputs
                        .iter()
                        .map(|v| v.and_then(|v| of.get(&v).copied()))
                        .collect();
                    let operator = format!("{}:{}", node.domain(), node.op());
                    let encode = |a: &AttributeProto| a.encode_length_delimited_to_vec();
                    let attributes = node.attributes().iter().flat_map(encode).collect();
                    (
                        self.id(Key::Node(operator, attributes, place, inputs)),
                        settled,
                    )
                }
            };
            of.insert(value, id);
            if settles && settled {
                self.settled.insert(value, id);
            }
            stack.pop();
        }
        of[&region.output]
    }

    /// The number of a value by its numbers in the trial run.
    fn numbers(&mut self, graph: &Graph, trace: &Trace, value: ValueId) -> usize {
        let known = trace.get(value);
        if graph.stored(value).is_some() {
            return self.leaf(graph, value);
        }
        if let Some(id) = self.leaves.get(&value) {
            return *id;
        }
        let (dtype, dims) = (known.dtype, known.dims.clone().unwrap_or_default());
        let key = match &known.data {
            Some(data) if known.elements().is_none_or(|n| n > NUMBERS) => {
                Key::Allocation(dtype, dims, Arc::as_ptr(data).addr())
            }
            _ => match known.to_f64() {
                Some(data) => {
                    let bits = data.iter().map(|v| v.to_bits()).collect();
                    Key::Numbers(dtype, dims, bits)
                }
                None => Key::Itself(value),
            },
        };
        let id = self.id(key);
        self.leaves.insert(value, id);
        id
    }

    fn leaf(&mut self, graph: &Graph, value: ValueId) -> usize {
        if let Some(id) = self.leaves.get(&value) {
            return *id;
        }
        let small = graph
            .stored(value)
            .filter(|s| {
                let bytes = s.elements().and_then(|n| s.dtype?.payload(n));
                bytes.is_some_and(|n| n <= PAYLOAD)
            })
            .and_then(|_| graph.constant(value));
        let key = match small {
            Some(t) => Key::Constant(t.dtype(), t.dims().to_vec(), t.bytes().clone()),
            None => Key::Itself(value),
        };
        let id = self.id(key);
        self.leaves.insert(value, id);
        id
    }
}
