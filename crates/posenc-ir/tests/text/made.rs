//! Models made for the text: every element type, kind of attribute and type, and what no text says.

use bytes::Bytes;
use posenc_ir::proto::attribute_proto::AttributeType;
use posenc_ir::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto,
    SparseTensorProto, StringStringEntryProto, TensorAnnotation, TensorProto, TrainingInfoProto,
    TypeProto, ValueInfoProto, type_proto,
};
use posenc_ir::text::Omission;
use posenc_ir::{DType, Model, Weights};
use proptest::prelude::*;
use prost::Message;

use super::any::{a_model, clear_padding, every_dtype, payload_len};
use super::normal::normal;

fn read(proto: &ModelProto) -> Model {
    Model::from_bytes(proto.encode_to_vec()).unwrap()
}

/// The text, and what it parses to.
fn through_text(proto: &ModelProto) -> (String, ModelProto) {
    let text = read(proto).text(Weights::Full).to_string();
    let parsed = Model::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let again = parsed.text(Weights::Full).to_string();
    let body = |t: &str| t[t.find("<\n").unwrap()..].to_owned();
    assert_eq!(body(&text), body(&again));
    (text, ModelProto::decode(parsed.source().clone()).unwrap())
}

pub(super) fn model(graph: GraphProto) -> ModelProto {
    ModelProto {
        ir_version: Some(10),
        opset_import: vec![OperatorSetIdProto {
            domain: None,
            version: Some(20),
        }],
        graph: Some(graph),
        ..Default::default()
    }
}

/// `y = F(x)` with these attributes.
pub(super) fn node(attribute: Vec<AttributeProto>) -> NodeProto {
    NodeProto {
        name: Some("n".into()),
        op_type: Some("F".into()),
        input: vec!["x".into()],
        output: vec!["y".into()],
        attribute,
        ..Default::default()
    }
}

fn graph(node: NodeProto, initializer: Vec<TensorProto>) -> GraphProto {
    GraphProto {
        name: Some("g".into()),
        input: vec![value("x", None)],
        output: node.output.iter().map(|o| value(o, None)).collect(),
        node: vec![node],
        initializer,
        ..Default::default()
    }
}

pub(super) fn value(name: &str, ty: Option<TypeProto>) -> ValueInfoProto {
    ValueInfoProto {
        name: Some(name.into()),
        r#type: ty,
        ..Default::default()
    }
}

pub(super) fn named(name: &str, ty: AttributeType) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(ty as i32),
        ..Default::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn generated_models_round_trip_through_their_text(proto in a_model()) {
        let (text, back) = through_text(&proto);
        prop_assert!(normal(proto) == normal(back), "{text}");
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[a-g<>(){}\\[\\]=:@\"\\\\0-9., #?\n-]{0,60}") {
        let _ = Model::parse(&text);
        let _ = Model::parse(&format!("g () => (y) <float[1] w = {text}> {{ y = F() <a = {text}>"));
    }
}

#[test]
fn tensors_of_every_type_and_size_round_trip() {
    for dtype in every_dtype() {
        for dims in [&[][..], &[0], &[1], &[5], &[2, 3], &[3, 0, 2]] {
            let len = payload_len(dtype, dims);
            let bytes: Vec<u8> = (0..len).map(|i| (i * 37 + 1) as u8).collect();
            let count: i64 = dims.iter().product();
            let mut w = TensorProto {
                name: Some("w".into()),
                dims: dims.to_vec(),
                data_type: Some(dtype as i32),
                ..Default::default()
            };
            match dtype {
                DType::String => {
                    w.string_data = vec![Bytes::from_static(b"\xc3\xa4"); count as usize]
                }
                _ => w.raw_data = Some(clear_padding(dtype, count, &bytes).into()),
            }
            let proto = model(graph(node(vec![]), vec![w.clone()]));
            let (text, back) = through_text(&proto);
            assert!(
                normal(proto.clone()) == normal(back.clone()),
                "{dtype}: {text}"
            );
            assert_eq!(read(&proto).text(Weights::Full).omissions(), [], "{dtype}");
            // Another payload is another model.
            if len > 0 {
                let mut other = bytes;
                other[0] ^= 2;
                w.raw_data = Some(other.into());
                let other = model(graph(node(vec![]), vec![w]));
                assert!(
                    normal(other) != normal(back),
                    "{dtype}: a change is not noticed"
                );
            }
        }
    }
}

#[test]
fn only_what_is_not_written_is_listed() {
    type Change = fn(&mut ModelProto);
    fn graph_of(m: &mut ModelProto) -> &mut GraphProto {
        m.graph.as_mut().unwrap()
    }
    fn node_of(m: &mut ModelProto) -> &mut NodeProto {
        &mut graph_of(m).node[0]
    }
    fn text(s: &str) -> Option<String> {
        Some(s.to_owned())
    }
    fn entry() -> Vec<StringStringEntryProto> {
        vec![StringStringEntryProto {
            key: text("k"),
            value: text("v"),
        }]
    }
    fn push(m: &mut ModelProto, a: AttributeProto) {
        node_of(m).attribute.push(a);
    }
    fn scalar(name: &str) -> TensorProto {
        TensorProto {
            name: text(name),
            data_type: Some(1),
            raw_data: Some(1f32.to_le_bytes().to_vec().into()),
            ..Default::default()
        }
    }
    let cases: [(&str, Change); 23] = [
        ("documentation of nodes is omitted", |m| {
            node_of(m).doc_string = text("d")
        }),
        ("metadata of nodes is omitted", |m| {
            node_of(m).metadata_props = entry()
        }),
        ("documentation of graphs is omitted", |m| {
            graph_of(m).doc_string = text("d")
        }),
        ("metadata of graphs is omitted", |m| {
            graph_of(m).metadata_props = entry()
        }),
        ("documentation of values is omitted", |m| {
            graph_of(m).input[0].doc_string = text("d")
        }),
        ("documentation of tensors is omitted", |m| {
            let w = TensorProto {
                doc_string: text("d"),
                ..scalar("w")
            };
            graph_of(m).initializer.push(w);
        }),
        ("further payloads of a tensor are omitted", |m| {
            let w = TensorProto {
                float_data: vec![1.0],
                ..scalar("w")
            };
            graph_of(m).initializer.push(w);
        }),
        (
            "tensors whose payload does not fit their type and dimensions are omitted",
            |m| {
                graph_of(m).initializer.push(TensorProto {
                    dims: vec![2],
                    ..scalar("w")
                });
            },
        ),
        ("bits of not-a-number values are omitted", |m| {
            let raw_data = Some(0x7fc0_0001u32.to_le_bytes().to_vec().into());
            graph_of(m).initializer.push(TensorProto {
                raw_data,
                ..scalar("w")
            });
        }),
        ("quantization annotations are omitted", |m| {
            graph_of(m).quantization_annotation.push(TensorAnnotation {
                tensor_name: text("x"),
                ..Default::default()
            });
        }),
        ("sparse tensors are declared without values", |m| {
            graph_of(m).sparse_initializer.push(SparseTensorProto {
                values: Some(scalar("w")),
                dims: vec![1],
                ..Default::default()
            });
        }),
        ("training information is omitted", |m| {
            m.training_info.push(TrainingInfoProto {
                algorithm: Some(GraphProto::default()),
                ..Default::default()
            });
        }),
        ("names of operators are written differently", |m| {
            node_of(m).op_type = text("F-1")
        }),
        ("names of attributes are written differently", |m| {
            push(
                m,
                AttributeProto {
                    i: Some(1),
                    ..named("a b", AttributeType::Int)
                },
            );
        }),
        ("names of graphs are written differently", |m| {
            push(
                m,
                AttributeProto {
                    g: Some(Box::default()),
                    ..named("a", AttributeType::Graph)
                },
            );
        }),
        ("names of tensors in attributes are omitted", |m| {
            push(
                m,
                AttributeProto {
                    t: Some(scalar("a b")),
                    ..named("a", AttributeType::Tensor)
                },
            );
        }),
        ("documentation of attributes is omitted", |m| {
            let a = named("a", AttributeType::Ints);
            push(
                m,
                AttributeProto {
                    doc_string: text("d"),
                    ..a
                },
            );
        }),
        (
            "values of attributes that do not have their type are omitted",
            |m| {
                push(
                    m,
                    AttributeProto {
                        f: Some(1.0),
                        ..named("a", AttributeType::Ints)
                    },
                );
            },
        ),
        (
            "values of attributes that do not have their type are omitted",
            |m| {
                let g = GraphProto {
                    name: text("g"),
                    ..Default::default()
                };
                push(
                    m,
                    AttributeProto {
                        g: Some(Box::new(g)),
                        ..named("a", AttributeType::Ints)
                    },
                );
            },
        ),
        ("sparse tensors in attributes are omitted", |m| {
            let sparse_tensor = Some(SparseTensorProto {
                dims: vec![1],
                ..Default::default()
            });
            push(
                m,
                AttributeProto {
                    sparse_tensor: sparse_tensor.map(Box::new),
                    ..named("a", AttributeType::SparseTensor)
                },
            );
        }),
        (
            "bytes that are not UTF-8 are written as replacement characters",
            |m| {
                let s = Some(Bytes::from_static(b"\xff"));
                push(
                    m,
                    AttributeProto {
                        s,
                        ..named("a", AttributeType::String)
                    },
                );
            },
        ),
        ("NUL characters are shown as symbols", |m| {
            node_of(m).name = text("a\0")
        }),
        ("denotations of types are omitted", |m| {
            let mut ty = dense(1);
            ty.denotation = text("d");
            graph_of(m).input[0].r#type = Some(ty);
        }),
    ];
    let plain = model(graph(node(vec![]), vec![]));
    assert_eq!(read(&plain).text(Weights::Full).omissions(), []);
    for (want, change) in cases {
        let mut changed = plain.clone();
        change(&mut changed);
        let changed = read(&changed);
        let text = changed.text(Weights::Full);
        let found: Vec<String> = text.omissions().into_iter().map(|u| u.what).collect();
        assert_eq!(found, [want]);
        let head = text.to_string();
        assert!(head.starts_with(&format!("# {want}")), "{head}");
    }
}

fn dense(dtype: i32) -> TypeProto {
    let tensor = type_proto::Tensor {
        elem_type: Some(dtype),
        shape: None,
    };
    TypeProto {
        denotation: None,
        value: Some(type_proto::Value::TensorType(tensor)),
    }
}

#[test]
fn unknown_fields_are_listed_everywhere() {
    // Field 1007 with the varint 1.
    const UNKNOWN: [u8; 3] = [0xf8, 0x3e, 1];
    let with = |bytes: Vec<u8>| [&bytes[..], &UNKNOWN].concat();
    let field = |number: u8, bytes: Vec<u8>| {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend(bytes);
        out
    };
    let node = node(vec![]).encode_to_vec();
    let name = |s: &str| field(1, s.as_bytes().to_vec());
    let places: [(&str, Vec<u8>); 5] = [
        (
            "model",
            [field(7, field(1, node.clone())), UNKNOWN.to_vec()].concat(),
        ),
        ("graph", field(7, with(field(1, node.clone())))),
        ("node", field(7, field(1, with(node.clone())))),
        (
            "attribute",
            field(
                7,
                field(1, [node.clone(), field(5, with(name("a")))].concat()),
            ),
        ),
        (
            "value",
            field(7, [field(1, node), field(13, with(name("y")))].concat()),
        ),
    ];
    for (place, bytes) in places {
        // What the node reads is defined here.
        let mut bytes = bytes;
        let input = field(11, name("x"));
        let at = 2;
        bytes[1] += u8::try_from(input.len()).unwrap();
        bytes.splice(at..at, input);
        let model = Model::from_bytes(bytes).unwrap_or_else(|e| panic!("{place}: {e}"));
        let found: Vec<Omission> = model.text(Weights::None).omissions();
        assert_eq!(found.len(), 1, "{place}: {found:?}");
        assert_eq!(found[0].what, "unknown field 1007 is omitted", "{place}");
    }
}

#[test]
fn functions_round_trip_with_all_that_they_declare() {
    let function = FunctionProto {
        name: Some("f g".into()),
        domain: Some("l".into()),
        overload: Some("o 1".into()),
        doc_string: Some("d\r\n".into()),
        input: vec!["a b".into(), "c".into()],
        output: vec!["y".into()],
        attribute: vec!["p q".into(), "r".into()],
        attribute_proto: vec![AttributeProto {
            i: Some(1),
            ..named("s", AttributeType::Int)
        }],
        value_info: vec![value("y", Some(dense(1))), value("c", Some(dense(7)))],
        node: vec![NodeProto {
            input: vec!["c".into()],
            attribute: vec![AttributeProto {
                ref_attr_name: Some("p q".into()),
                ..named("k", AttributeType::Ints)
            }],
            ..node(vec![])
        }],
        opset_import: vec![OperatorSetIdProto {
            domain: Some("ai.onnx".into()),
            version: Some(18),
        }],
        ..Default::default()
    };
    let mut proto = model(graph(node(vec![]), vec![]));
    proto.functions = vec![function];
    let (text, back) = through_text(&proto);
    assert!(normal(proto.clone()) == normal(back), "{text}");
    assert_eq!(read(&proto).text(Weights::Full).omissions(), []);
}

#[test]
fn external_payloads_round_trip_as_their_location() {
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    };
    let outside = |name: &str| TensorProto {
        name: Some(name.into()),
        dims: vec![2],
        data_type: Some(16),
        data_location: Some(1),
        external_data: vec![
            entry("location", "sub/\"w\".bin"),
            entry("offset", "4096"),
            entry("length", "4"),
            entry("checksum", "abc"),
        ],
        ..Default::default()
    };
    let attribute = AttributeProto {
        t: Some(outside("t")),
        ..named("a", AttributeType::Tensor)
    };
    let proto = model(graph(node(vec![attribute]), vec![outside("w")]));
    let (text, back) = through_text(&proto);
    assert_eq!(text.matches("\"checksum\": \"abc\"").count(), 2, "{text}");
    assert!(normal(proto) == normal(back), "{text}");
}
