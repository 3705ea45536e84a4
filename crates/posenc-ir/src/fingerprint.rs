//! Hashes that identify a model: one without large weights, and one of all bytes.

use std::ops::Range;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::Result;
use crate::field::tensor as tensor_field;
use crate::file::map::{Map, Mapped, map};
use crate::model::Model;
use crate::nesting::Message;
use crate::wire;

/// Payloads of at least this many bytes are replaced.
const LARGE: usize = 1024;

/// The deepest nesting that is walked; a readable model has less.
const DEPTH: usize = 512;

/// Pages of payloads of at least this many bytes are released.
const LONG: usize = 1 << 18;

/// The number of bytes that are hashed at a time.
const CHUNK: usize = 1 << 20;

impl Model {
    /// The sha256, in lower-case hex, of the file as it was read, with every tensor payload of
    /// 1 KiB or more replaced by its element type, dimensions and length.
    ///
    /// This is true of initializers and attributes at any nesting. Replaced payloads are not read;
    /// models that differ only in the values of large weights have the same fingerprint.
    pub fn fingerprint(&self) -> String {
        fingerprint(self.source(), self.map.as_ref())
    }

    /// The sha256 of the whole file as it was read, in lower-case hex, without external data.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for chunk in self.source().chunks(CHUNK) {
            hash.update(chunk);
        }
        hex(&hash.finalize())
    }
}

/// The fingerprint of the model in a file, without reading its graph; see [`Model::fingerprint`].
///
/// # Errors
/// When the file cannot be opened or is not a regular file.
pub fn fingerprint_of(path: impl AsRef<Path>) -> Result<String> {
    let Mapped { bytes, map, .. } = map(path.as_ref())?;
    Ok(fingerprint(&bytes, map.as_ref()))
}

fn fingerprint(source: &[u8], map: Option<&Map>) -> String {
    let mut hash = Sha256::new();
    let mut at = 0;
    each_large_payload(source, |payload| {
        hash.update(&source[at..payload.span.start]);
        hash.update(payload.instead.as_bytes());
        at = payload.span.end;
        if let Some(map) = map.filter(|_| payload.span.len() >= LONG) {
            map.release(&payload.span);
        }
    });
    hash.update(&source[at..]);
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A range of the source, and what is hashed instead of it.
struct Replacement {
    span: Range<usize>,
    instead: String,
}

/// Calls `found` for each large payload, in the order of the file. Malformed messages are hashed as
/// they are.
fn each_large_payload(source: &[u8], mut found: impl FnMut(Replacement)) {
    let walk = |within| wire::fields(source, within).map_while(Result::ok);
    let mut open = vec![(Message::Model, walk(0..source.len()))];
    while let Some((message, fields)) = open.last_mut() {
        let Some(field) = fields.next() else {
            open.pop();
            continue;
        };
        match message.child(field.number).filter(|_| field.delimited) {
            Some(Message::Tensor) => tensor(source, field.payload, &mut found),
            Some(child) if open.len() < DEPTH => open.push((child, walk(field.payload))),
            _ => {}
        }
    }
}

/// Calls `found` for the payload of a tensor where it is large. A list that is not packed consists of
/// many fields.
fn tensor(source: &[u8], within: Range<usize>, found: &mut impl FnMut(Replacement)) {
    if within.len() < LARGE {
        return;
    }
    let (mut dtype, mut dims, mut length) = (0, vec![], 0);
    let mut spans: Vec<Range<usize>> = vec![];
    for field in wire::fields(source, within).map_while(Result::ok) {
        let number = || wire::varint(&source[field.payload.clone()]).map_or(0, |v| v.0);
        match field.number {
            tensor_field::DATA_TYPE => dtype = number(),
            tensor_field::DIMS if field.delimited => {
                let mut packed = &source[field.payload];
                while let Some((dim, len)) = wire::varint(packed) {
                    dims.push(dim);
                    packed = &packed[len..];
                }
            }
            tensor_field::DIMS => dims.push(number()),
            n if n == tensor_field::RAW_DATA || tensor_field::TYPED.contains(&n) => {
                length += field.payload.len();
                match spans.last_mut() {
                    Some(last) if last.end == field.span.start => last.end = field.span.end,
                    _ => spans.push(field.span),
                }
            }
            _ => {}
        }
    }
    if length < LARGE {
        return;
    }
    let mut instead = format!("{dtype} {dims:?} {length}");
    for span in spans {
        let instead = std::mem::take(&mut instead);
        found(Replacement { span, instead });
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto::{AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto};

    fn weights(fill: u8, len: usize, dims: &[i64]) -> TensorProto {
        TensorProto {
            name: Some("w".into()),
            dims: dims.to_vec(),
            data_type: Some(1),
            raw_data: Some(vec![fill; len].into()),
            ..Default::default()
        }
    }

    fn initializer(tensor: TensorProto) -> GraphProto {
        GraphProto {
            initializer: vec![tensor],
            ..Default::default()
        }
    }

    fn constant(tensor: TensorProto) -> GraphProto {
        let mut attribute = AttributeProto {
            name: Some("value".into()),
            t: Some(tensor),
            ..Default::default()
        };
        attribute.set_type(crate::proto::attribute_proto::AttributeType::Tensor);
        let node = NodeProto {
            op_type: Some("Constant".into()),
            output: vec!["w".into()],
            attribute: vec![attribute],
            ..Default::default()
        };
        GraphProto {
            node: vec![node],
            ..Default::default()
        }
    }

    /// The graph as the body of an `If`.
    fn nested(graph: GraphProto) -> GraphProto {
        let mut attribute = AttributeProto {
            name: Some("then_branch".into()),
            g: Some(Box::new(graph)),
            ..Default::default()
        };
        attribute.set_type(crate::proto::attribute_proto::AttributeType::Graph);
        let node = NodeProto {
            op_type: Some("If".into()),
            attribute: vec![attribute],
            ..Default::default()
        };
        GraphProto {
            node: vec![node],
            ..Default::default()
        }
    }

    fn model(graph: GraphProto) -> Model {
        let proto = ModelProto {
            ir_version: Some(8),
            graph: Some(graph),
            ..Default::default()
        };
        Model::from_bytes(proto.encode_to_vec()).unwrap()
    }

    #[test]
    fn large_payloads_do_not_count_but_their_type_dimensions_and_length_do() {
        type Put = fn(TensorProto) -> GraphProto;
        let places: [(&str, Put); 4] = [
            ("initializer", initializer),
            ("constant", constant),
            ("nested initializer", |t| nested(initializer(t))),
            ("nested constant", |t| nested(nested(constant(t)))),
        ];
        for (name, put) in places {
            let print = |tensor| model(put(tensor)).fingerprint();
            let base = print(weights(1, 1024, &[256]));
            assert_eq!(base, print(weights(2, 1024, &[256])), "{name}");
            let half = TensorProto {
                data_type: Some(10),
                ..weights(1, 1024, &[256])
            };
            for (what, other) in [
                ("dimensions", weights(1, 1024, &[2, 128])),
                ("length", weights(1, 1028, &[257])),
                ("type", half),
            ] {
                assert_ne!(base, print(other), "{name}: {what}");
            }
        }
    }

    #[test]
    fn small_payloads_count() {
        let print = |fill| model(initializer(weights(fill, 1020, &[255]))).fingerprint();
        assert_ne!(print(1), print(2));
    }

    #[test]
    fn typed_lists_are_payloads_too() {
        let print = |fill: f32| {
            let tensor = TensorProto {
                raw_data: None,
                float_data: vec![fill; 256],
                ..weights(0, 0, &[256])
            };
            model(initializer(tensor)).fingerprint()
        };
        assert_eq!(print(1.0), print(2.0));
    }

    #[test]
    fn the_full_hash_sees_every_byte() {
        let hash = |fill| model(initializer(weights(fill, 4096, &[1024]))).sha256();
        assert_ne!(hash(1), hash(2));
        let empty = Sha256::digest(model(GraphProto::default()).source());
        assert_eq!(model(GraphProto::default()).sha256(), hex(&empty));
    }
}
