//! Any model: arbitrary names, element types, kinds of attributes and types.

use bytes::Bytes;
use posenc_ir::DType;
use posenc_ir::proto::attribute_proto::AttributeType;
use posenc_ir::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto,
    TensorShapeProto, TypeProto, tensor_shape_proto, type_proto,
};
use proptest::prelude::*;
use proptest::sample::Index;

use super::made::{model, named, node, value};

/// Bytes that a tensor's payload takes.
pub(super) fn payload_len(dtype: DType, dims: &[i64]) -> usize {
    let elements: i64 = dims.iter().product();
    dtype.payload(elements as usize).unwrap_or(0)
}

pub(super) fn every_dtype() -> impl Iterator<Item = DType> {
    (1..=28).filter_map(DType::from_code)
}

fn a_dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(every_dtype().collect::<Vec<_>>())
}

/// Any text, with more of what has to be escaped.
fn a_text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[\"\\\\ a\u{e4}#{}<>\n\r\t\u{1b}\u{85}]{0,6}",
        "[a-z_][a-z0-9_]{0,5}",
        "[^\0]{0,4}",
        Just("float".to_owned()),
        Just("nan".to_owned()),
    ]
}

fn a_word() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_][a-z0-9_]{0,5}",
        Just("float".to_owned()),
        Just("inf".to_owned())
    ]
}

/// A tensor of any type and up to three axes, stored raw or in lists.
fn a_tensor(name: impl Strategy<Value = Option<String>>) -> impl Strategy<Value = TensorProto> {
    let dims = prop::collection::vec(0i64..4, 0..4);
    let bytes = prop::collection::vec(any::<u8>(), 27 * 16);
    let strings = prop::collection::vec(a_text(), 27);
    (a_dtype(), dims, bytes, strings, name, any::<bool>()).prop_map(
        |(dtype, dims, bytes, strings, name, lists)| {
            let count: i64 = dims.iter().product();
            let mut tensor = TensorProto {
                name,
                data_type: Some(dtype as i32),
                ..Default::default()
            };
            let bytes = &bytes[..payload_len(dtype, &dims)];
            tensor.dims = dims;
            match (dtype, lists) {
                (DType::String, _) => {
                    let strings = strings.into_iter().take(count as usize);
                    tensor.string_data = strings.map(|s| Bytes::from(s.into_bytes())).collect();
                }
                (DType::F32 | DType::Complex64, true) => {
                    let words = bytes.chunks(4).map(|b| b.try_into().unwrap());
                    tensor.float_data = words.map(f32::from_le_bytes).collect();
                }
                (DType::I64, true) => {
                    let words = bytes.chunks(8).map(|b| b.try_into().unwrap());
                    tensor.int64_data = words.map(i64::from_le_bytes).collect();
                }
                (DType::U32, true) => {
                    let words = bytes.chunks(4).map(|b| b.try_into().unwrap());
                    let words = words.map(u32::from_le_bytes).map(u64::from);
                    tensor.uint64_data = words.collect();
                }
                (DType::F6E2M3 | DType::F6E3M2, true) => {
                    let codes = bytes.iter().cycle().take(count as usize);
                    tensor.int32_data = codes.map(|b| i32::from(b & 63)).collect();
                }
                (DType::I8 | DType::I4 | DType::U2 | DType::Bool | DType::F8E5M2, true) => {
                    tensor.int32_data = bytes.iter().map(|b| i32::from(*b)).collect();
                }
                _ => tensor.raw_data = Some(clear_padding(dtype, count, bytes).into()),
            }
            tensor
        },
    )
}

/// Bits after the last element of six bits do not count.
pub(super) fn clear_padding(dtype: DType, count: i64, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let used = count as usize * 6 % 8;
    if let (DType::F6E2M3 | DType::F6E3M2, Some(last), 1..) = (dtype, bytes.last_mut(), used) {
        *last &= (1 << used) - 1;
    }
    bytes
}

fn a_type() -> impl Strategy<Value = TypeProto> {
    use tensor_shape_proto::{Dimension, dimension::Value as D};
    use type_proto::{Map, Opaque, Optional, Sequence, SparseTensor, Tensor, Value as V};
    let of = |value| TypeProto {
        denotation: None,
        value: Some(value),
    };
    let dim = prop_oneof![
        Just(None),
        any::<i64>().prop_map(|n| Some(D::DimValue(n))),
        a_text().prop_map(|s| Some(D::DimParam(s))),
    ];
    let dim = dim.prop_map(|value| Dimension {
        denotation: None,
        value,
    });
    let shape = prop::option::of(prop::collection::vec(dim, 0..3));
    let shape = shape.prop_map(|dim| dim.map(|dim| TensorShapeProto { dim }));
    let leaf = prop_oneof![
        (a_dtype(), shape.clone()).prop_map(move |(t, shape)| of(V::TensorType(Tensor {
            elem_type: Some(t as i32),
            shape,
        }))),
        (a_dtype(), shape).prop_map(move |(t, shape)| of(V::SparseTensorType(SparseTensor {
            elem_type: Some(t as i32),
            shape,
        }))),
        (prop::option::of("[a-z]{1,3}(\\.[a-z]{1,3}){0,2}"), a_word()).prop_map(
            move |(domain, name)| of(V::OpaqueType(Opaque {
                domain,
                name: Some(name),
            }))
        ),
    ];
    leaf.prop_recursive(3, 6, 1, move |inner| {
        let inner = inner.prop_map(Box::new);
        prop_oneof![
            inner
                .clone()
                .prop_map(move |t| of(V::SequenceType(Box::new(Sequence { elem_type: Some(t) })))),
            inner
                .clone()
                .prop_map(move |t| of(V::OptionalType(Box::new(Optional { elem_type: Some(t) })))),
            (a_dtype(), inner).prop_map(move |(key, t)| of(V::MapType(Box::new(Map {
                key_type: Some(key as i32),
                value_type: Some(t),
            })))),
        ]
    })
}

/// A value of every kind, of which the attribute picks one.
fn an_attribute() -> impl Strategy<Value = AttributeProto> {
    use AttributeType as T;
    let bytes = |s: String| Bytes::from(s.into_bytes());
    let a = |ty| named("", ty);
    let tensor = || a_tensor(prop::option::of(a_word()));
    let float = || any::<u32>().prop_map(f32::from_bits);
    let few = 0..3usize;
    let kinds = vec![
        any::<i64>()
            .prop_map(move |v| AttributeProto {
                i: Some(v),
                ..a(T::Int)
            })
            .boxed(),
        float()
            .prop_map(move |v| AttributeProto {
                f: Some(v),
                ..a(T::Float)
            })
            .boxed(),
        a_text()
            .prop_map(move |v| AttributeProto {
                s: Some(bytes(v)),
                ..a(T::String)
            })
            .boxed(),
        tensor()
            .prop_map(move |v| AttributeProto {
                t: Some(v),
                ..a(T::Tensor)
            })
            .boxed(),
        a_type()
            .prop_map(move |v| AttributeProto {
                tp: Some(v),
                ..a(T::TypeProto)
            })
            .boxed(),
        a_body()
            .prop_map(move |v| AttributeProto {
                g: Some(Box::new(v)),
                ..a(T::Graph)
            })
            .boxed(),
        prop::collection::vec(any::<i64>(), few.clone())
            .prop_map(move |ints| AttributeProto { ints, ..a(T::Ints) })
            .boxed(),
        prop::collection::vec(float(), few.clone())
            .prop_map(move |floats| AttributeProto {
                floats,
                ..a(T::Floats)
            })
            .boxed(),
        prop::collection::vec(a_text().prop_map(bytes), few.clone())
            .prop_map(move |strings| AttributeProto {
                strings,
                ..a(T::Strings)
            })
            .boxed(),
        prop::collection::vec(tensor(), few.clone())
            .prop_map(move |tensors| AttributeProto {
                tensors,
                ..a(T::Tensors)
            })
            .boxed(),
        prop::collection::vec(a_type(), few.clone())
            .prop_map(move |type_protos| AttributeProto {
                type_protos,
                ..a(T::TypeProtos)
            })
            .boxed(),
        prop::collection::vec(a_body(), few)
            .prop_map(move |graphs| AttributeProto {
                graphs,
                ..a(T::Graphs)
            })
            .boxed(),
        (a_text(), 1..=14i32)
            .prop_map(move |(reference, ty)| AttributeProto {
                ref_attr_name: Some(reference)
                    .filter(|r| !r.is_empty())
                    .or(Some("r".into())),
                r#type: Some(ty),
                ..Default::default()
            })
            .prop_filter("sparse tensors have no form", |a| {
                !matches!(a.r#type, Some(11 | 12))
            })
            .boxed(),
    ];
    (a_word(), prop::strategy::Union::new(kinds)).prop_map(|(name, a)| AttributeProto {
        name: Some(name),
        ..a
    })
}

/// A graph with one node, or none, that reads what is outside.
fn a_body() -> impl Strategy<Value = GraphProto> {
    ("b[a-z]{0,3}", any::<bool>(), prop::option::of(a_type())).prop_map(|(name, filled, ty)| {
        let inner = NodeProto {
            output: vec!["in".into()],
            ..node(vec![])
        };
        GraphProto {
            name: Some(name),
            node: filled.then_some(inner).into_iter().collect(),
            output: filled.then(|| value("in", ty)).into_iter().collect(),
            ..Default::default()
        }
    })
}

/// A model with names of every kind, initializers, inputs left out, and types.
pub(super) fn a_model() -> impl Strategy<Value = ModelProto> {
    let names = prop::collection::btree_set(a_text(), 8);
    let names = names.prop_map(|names| {
        let made = names.into_iter().enumerate();
        made.map(|(i, n)| format!("{n}{i}")).collect::<Vec<_>>()
    });
    let tensors = prop::collection::vec(a_tensor(Just(None)), 0..3);
    let types = prop::collection::vec(prop::option::of(a_type()), 3);
    let attributes = prop::collection::vec(an_attribute(), 0..4);
    let reads = prop::collection::vec(prop::option::of(any::<Index>()), 0..4);
    let words = (a_word(), prop::option::of(a_word()), a_text());
    (names, tensors, types, attributes, reads, words).prop_map(
        |(names, mut tensors, types, attributes, reads, (op, overload, doc))| {
            let [input, output, inner, rest @ ..] = &names[..] else {
                panic!("eight names were made")
            };
            for (tensor, name) in tensors.iter_mut().zip(rest) {
                tensor.name = Some(name.clone());
            }
            let known: Vec<&String> = [input].into_iter().chain(&rest[..tensors.len()]).collect();
            let read = |i: &Option<Index>| i.map_or(String::new(), |i| (*i.get(&known)).clone());
            let first = NodeProto {
                name: Some(doc.clone()),
                domain: Some("a.b_1".into()),
                op_type: Some(op),
                overload,
                input: reads.iter().map(read).collect(),
                output: vec![inner.clone(), String::new(), output.clone()],
                attribute: attributes,
                ..Default::default()
            };
            let mut types = types.into_iter();
            let mut typed = |name: &str| value(name, types.next().flatten());
            let graph = GraphProto {
                name: Some(doc.clone()),
                input: vec![typed(input)],
                output: vec![typed(output)],
                value_info: [typed(inner)]
                    .into_iter()
                    .filter(|v| v.r#type.is_some())
                    .collect(),
                // What bodies read.
                initializer: tensors,
                node: vec![
                    NodeProto {
                        op_type: Some("X".into()),
                        output: vec!["x".into()],
                        ..Default::default()
                    },
                    first,
                ],
                ..Default::default()
            };
            ModelProto {
                doc_string: Some(doc.clone()),
                metadata_props: vec![StringStringEntryProto {
                    key: Some(doc.clone()),
                    value: Some(doc),
                }],
                ..model(graph)
            }
        },
    )
}
