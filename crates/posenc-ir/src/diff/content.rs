//! Hashes of payloads and attributes, without names.

use std::collections::BTreeSet;

use prost::Message;
use sha2::{Digest, Sha256};

use crate::graph::Graph;
use crate::graph::scope::Item;
use crate::id::ValueId;
use crate::model::Model;
use crate::proto::attribute_proto::AttributeType;
use crate::proto::{AttributeProto, SparseTensorProto};
use crate::stored::{External, Payload, Stored};
use crate::tensor::Tensor;
use crate::wire;

/// Location, first byte and length of a payload in another file.
type Place = (String, u64, Option<u64>);

/// External payloads that one of the models cannot read, and that are compared by location.
#[derive(Default)]
pub(super) struct Absent(BTreeSet<Place>);

impl Absent {
    pub(super) fn of(a: &Model, b: &Model) -> Self {
        let of_model = |m: &Model| -> Vec<Place> {
            let absent = externals(m.graph()).filter(|e| m.load(e).is_err());
            absent.map(|e| place(&e)).collect()
        };
        Self([a, b].into_iter().flat_map(of_model).collect())
    }

    fn has(&self, external: &External) -> bool {
        !self.0.is_empty() && self.0.contains(&place(external))
    }
}

fn place(external: &External) -> Place {
    let External { offset, length, .. } = *external;
    (external.location.clone(), offset, length)
}

fn externals(graph: &Graph) -> impl Iterator<Item = External> + '_ {
    let external = |s: Stored| match s.payload {
        Payload::External(e) => Some(e),
        _ => None,
    };
    let initial = graph.values().filter_map(|v| graph.stored(v).cloned());
    let tensors = graph
        .nodes()
        .flat_map(|(_, n)| n.attributes().iter())
        .flat_map(|a| a.t.iter().chain(&a.tensors))
        .filter_map(|t| Stored::from_proto(t).ok());
    initial.chain(tensors).filter_map(external)
}

/// Hashes a list of parts, each with its length.
#[derive(Clone)]
pub(super) struct Hasher(Sha256);

impl Hasher {
    pub(super) fn new(tag: &str) -> Self {
        let mut this = Self(Sha256::new());
        this.bytes(tag.as_bytes());
        this
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(super) fn number(&mut self, number: u128) {
        self.0.update(number.to_le_bytes());
    }

    pub(super) fn all(&mut self, numbers: &[u128]) {
        self.number(numbers.len() as u128);
        numbers.iter().for_each(|n| self.number(*n));
    }

    pub(super) fn finish(self) -> u128 {
        let mut half = [0; 16];
        half.copy_from_slice(&self.0.finalize()[..16]);
        u128::from_le_bytes(half)
    }
}

/// The hash of an initializer's type and values; `None` for other values.
pub(super) fn initializer(model: &Model, value: ValueId, absent: &Absent) -> Option<u128> {
    let graph = model.graph();
    let stored = graph.stored(value)?;
    if let Some(tensor) = graph.revalued.get(&value) {
        return Some(payload(model, &plain(tensor), absent));
    }
    if matches!(stored.payload, Payload::Sparse) {
        return sparse(model, value);
    }
    Some(payload(model, stored, absent))
}

/// A tensor as it is stored when the model is written.
fn plain(tensor: &Tensor) -> Stored {
    Stored {
        dtype: Some(tensor.dtype()),
        dims: tensor.dims().to_vec(),
        payload: Payload::Raw(tensor.bytes().clone()),
    }
}

/// The hash of the attributes of a `Constant` node that is given another tensor: that of the node
/// which is written.
pub(super) fn revalued(model: &Model, tensor: &Tensor, absent: &Absent) -> u128 {
    let mut value = AttributeProto {
        name: Some("value".to_owned()),
        ..AttributeProto::default()
    };
    value.set_type(AttributeType::Tensor);
    let mut hasher = Hasher::new("attributes");
    hasher.bytes(&value.encode_to_vec());
    hasher.number(payload(model, &plain(tensor), absent));
    hasher.finish()
}

/// Bytes of one sample.
const SAMPLE: usize = 256;

/// Bytes that are few.
const SMALL: usize = 4096;

/// The hash of an initializer's type and of its first and last bytes; of all bytes where they are few
/// or not stored as bytes. Weights lie next to each other, so that few pages of a file are read.
pub(super) fn sampled(model: &Model, value: ValueId) -> Option<u128> {
    let changed = model.graph().revalued.get(&value).map(plain);
    let stored = match &changed {
        Some(stored) => stored,
        None => model.graph().stored(value)?,
    };
    let bytes = match &stored.payload {
        Payload::Raw(bytes) => bytes.clone(),
        Payload::External(e) => model.load(e).ok()?,
        _ => return initializer(model, value, &Absent::default()),
    };
    if bytes.len() <= SMALL {
        return initializer(model, value, &Absent::default());
    }
    let mut hasher = Hasher::new("sampled tensor");
    hasher.number(stored.dtype.map_or(0, |d| d.code() as u128));
    hasher.all(&stored.dims.iter().map(|d| *d as u128).collect::<Vec<_>>());
    hasher.bytes(&bytes[..SAMPLE]);
    hasher.bytes(&bytes[bytes.len() - SAMPLE..]);
    Some(hasher.finish())
}

fn sparse(model: &Model, value: ValueId) -> Option<u128> {
    let scope = model.graph().scope(model.graph().value(value).scope());
    let mut pieces = scope.pieces();
    let (span, _) = pieces.find(|(_, item)| *item == Item::Initializer(value))?;
    let bytes = model
        .source
        .slice(wire::field(&model.source, span).ok()?.payload);
    let mut proto = SparseTensorProto::decode(bytes).ok()?;
    for tensor in proto.values.iter_mut().chain(&mut proto.indices) {
        tensor.name = None;
        tensor.doc_string = None;
    }
    let mut hasher = Hasher::new("sparse");
    hasher.bytes(&proto.encode_to_vec());
    Some(hasher.finish())
}

fn payload(model: &Model, stored: &Stored, absent: &Absent) -> u128 {
    let mut hasher = Hasher::new("tensor");
    hasher.number(stored.dtype.map_or(0, |d| d.code() as u128));
    hasher.number(stored.dims.len() as u128);
    for dim in &stored.dims {
        hasher.number(*dim as u128);
    }
    match &stored.payload {
        Payload::Raw(bytes) => hasher.bytes(bytes),
        Payload::External(e) => match model.load(e) {
            Ok(bytes) if !absent.has(e) => hasher.bytes(&bytes),
            _ => {
                hasher.bytes(e.location.as_bytes());
                hasher.number(e.offset.into());
                hasher.number(e.length.map_or(u128::MAX, Into::into));
            }
        },
        // Strings have no dense form: the message is hashed.
        Payload::Typed(message) => match stored.tensor() {
            Ok(tensor) => hasher.bytes(tensor.bytes()),
            Err(_) => {
                let mut proto = crate::proto::TensorProto::decode(message.clone());
                if let Ok(proto) = &mut proto {
                    proto.name = None;
                    proto.doc_string = None;
                }
                hasher.bytes(&proto.unwrap_or_default().encode_to_vec());
            }
        },
        Payload::Sparse => {}
    }
    hasher.finish()
}

/// The hash of attributes in any order, without their bodies.
pub(super) fn attributes(model: &Model, attributes: &[AttributeProto], absent: &Absent) -> u128 {
    let mut sorted: Vec<&AttributeProto> = attributes.iter().collect();
    sorted.sort_by_key(|a| a.name());
    let mut hasher = Hasher::new("attributes");
    for a in sorted {
        let alone = AttributeProto {
            doc_string: None,
            t: None,
            g: None,
            tensors: vec![],
            graphs: vec![],
            r#type: Some(crate::text::kind(a) as i32),
            ..a.clone()
        };
        hasher.bytes(&alone.encode_to_vec());
        for tensor in a.t.iter().chain(&a.tensors) {
            match Stored::from_proto(tensor) {
                Ok(stored) => hasher.number(payload(model, &stored, absent)),
                Err(_) => hasher.bytes(&tensor.encode_to_vec()),
            }
        }
    }
    hasher.finish()
}
