//! A model with every message type of the schema.

use posenc_ir::proto::attribute_proto::AttributeType;
use posenc_ir::proto::tensor_proto::{DataType, Segment};
use posenc_ir::proto::{
    AttributeProto, DeviceConfigurationProto, FunctionProto, GraphProto, IntIntListEntryProto,
    ModelProto, NodeDeviceConfigurationProto, NodeProto, OperatorSetIdProto, ShardedDimProto,
    ShardingSpecProto, SimpleShardedDimProto, SparseTensorProto, StringStringEntryProto,
    TensorAnnotation, TensorProto, TensorShapeProto, TrainingInfoProto, TypeProto, ValueInfoProto,
    simple_sharded_dim_proto, tensor_shape_proto, type_proto,
};
use prost::Message;

/// y = (x + raw) · … : nodes, initializers as raw and typed lists, subgraphs, a function, and every
/// other part of the format. Integers are below 128.
pub(super) fn every_message() -> Vec<u8> {
    let model = ModelProto {
        ir_version: Some(10),
        producer_name: Some("tests".into()),
        opset_import: vec![import("", 20), import("own", 1)],
        graph: Some(graph()),
        metadata_props: vec![entry("key", "value")],
        training_info: vec![TrainingInfoProto {
            initialization: Some(GraphProto {
                node: vec![node("Neg", &["x"], &["trained"])],
                ..GraphProto::default()
            }),
            initialization_binding: vec![entry("raw", "trained")],
            ..TrainingInfoProto::default()
        }],
        functions: vec![function()],
        configuration: vec![DeviceConfigurationProto {
            name: Some("two".into()),
            num_devices: Some(2),
            device: vec!["a".into(), "b".into()],
        }],
        ..ModelProto::default()
    };
    model.encode_to_vec()
}

fn graph() -> GraphProto {
    let mut held = attribute("value", AttributeType::Tensor);
    held.t = Some(raw("held"));
    let mut constant = node("Constant", &[], &["held"]);
    constant.attribute.push(held);
    let mut sum = node("Add", &["x", "raw"], &["sum"]);
    sum.metadata_props.push(entry("layer", "0"));
    sum.device_configurations.push(devices());
    let mut chosen = node("If", &["flag"], &["chosen"]);
    chosen.attribute.push(branch("then_branch", "then"));
    chosen.attribute.push(branch("else_branch", "else"));
    let mut last = node(
        "Everything",
        &["sum", "raw", "typed", "held", "chosen", "called"],
        &["y"],
    );
    last.domain = Some("own".into());
    last.attribute = attributes();
    let mut call = node("Own", &["sum", "counts", "half", "sparse"], &["called"]);
    call.domain = Some("own".into());
    GraphProto {
        name: Some("main".into()),
        node: vec![constant, sum, chosen, call, last],
        initializer: vec![
            raw("raw"),
            TensorProto {
                float_data: vec![1.0, 2.0],
                segment: Some(Segment {
                    begin: Some(0),
                    end: Some(2),
                }),
                metadata_props: vec![entry("of", "a tensor")],
                ..tensor("typed", DataType::Float)
            },
            TensorProto {
                int64_data: vec![3, 4],
                ..tensor("counts", DataType::Int64)
            },
            TensorProto {
                int32_data: vec![0, 60],
                ..tensor("half", DataType::Float16)
            },
            TensorProto {
                int32_data: vec![1],
                dims: vec![],
                ..tensor("flag", DataType::Bool)
            },
        ],
        sparse_initializer: vec![sparse("sparse")],
        input: vec![value("x", of(Some(DataType::Float), Some("n")))],
        output: vec![value("y", of(Some(DataType::Float), None))],
        value_info: types(),
        quantization_annotation: vec![TensorAnnotation {
            tensor_name: Some("raw".into()),
            quant_parameter_tensor_names: vec![entry("SCALE_TENSOR", "typed")],
        }],
        metadata_props: vec![entry("of", "a graph")],
        doc_string: Some("in words".into()),
    }
}

fn function() -> FunctionProto {
    let mut default = attribute("by", AttributeType::Float);
    default.f = Some(2.0);
    FunctionProto {
        name: Some("Own".into()),
        domain: Some("own".into()),
        input: ["a", "unused", "unused2", "unused3"].map(Into::into).into(),
        output: vec!["b".into()],
        attribute_proto: vec![default],
        opset_import: vec![import("", 20)],
        node: vec![
            node("Add", &["a", "a"], &["doubled"]),
            node("Neg", &["a"], &["b"]),
            node("Neg", &["doubled"], &["rest"]),
        ],
        value_info: vec![value("doubled", of(Some(DataType::Float), None))],
        metadata_props: vec![entry("of", "a function")],
        ..FunctionProto::default()
    }
}

/// A subgraph that reads the input of the outer graph and a constant of its own.
fn branch(name: &str, output: &str) -> AttributeProto {
    let mut attribute = attribute(name, AttributeType::Graph);
    let inner = if output == "then" { "inner" } else { "other" };
    attribute.g = Some(Box::new(GraphProto {
        name: Some(name.into()),
        node: vec![node("Add", &["x", inner], &[output])],
        initializer: vec![raw(inner)],
        output: vec![value(output, of(Some(DataType::Float), None))],
        ..GraphProto::default()
    }));
    attribute
}

/// One attribute of every type that needs no names.
fn attributes() -> Vec<AttributeProto> {
    use AttributeType::*;
    let mut list = vec![];
    let mut add = |name: &str, kind, fill: &dyn Fn(&mut AttributeProto)| {
        let mut a = attribute(name, kind);
        fill(&mut a);
        list.push(a);
    };
    add("f", Float, &|a| a.f = Some(0.5));
    add("i", Int, &|a| a.i = Some(7));
    add("s", String, &|a| a.s = Some("text".into()));
    add("floats", Floats, &|a| a.floats = vec![1.0, 2.0]);
    add("ints", Ints, &|a| a.ints = vec![1, 2, 3]);
    add("strings", Strings, &|a| {
        a.strings = vec!["a".into(), "b".into()]
    });
    add("tensors", Tensors, &|a| {
        a.tensors = vec![raw("t"), raw("u")]
    });
    add("sparse", SparseTensor, &|a| {
        a.sparse_tensor = Some(Box::new(sparse("v")))
    });
    add("type", TypeProto, &|a| {
        a.tp = Some(of(Some(DataType::Int8), None))
    });
    add("types", TypeProtos, &|a| {
        a.type_protos = vec![of(None, None)]
    });
    list
}

/// Declared types of every kind, of values that nothing computes.
fn types() -> Vec<ValueInfoProto> {
    use type_proto::{Map, Opaque, Optional, Sequence, SparseTensor, Value};
    let boxed = || Some(Box::new(of(Some(DataType::Float), Some("n"))));
    let values = [
        Value::SequenceType(Box::new(Sequence { elem_type: boxed() })),
        Value::OptionalType(Box::new(Optional { elem_type: boxed() })),
        Value::MapType(Box::new(Map {
            key_type: Some(7),
            value_type: boxed(),
        })),
        Value::SparseTensorType(SparseTensor {
            elem_type: Some(1),
            shape: Some(TensorShapeProto::default()),
        }),
        Value::OpaqueType(Opaque {
            domain: Some("own".into()),
            name: Some("Thing".into()),
        }),
    ];
    let declared = values.into_iter().enumerate().map(|(i, v)| {
        let ty = TypeProto {
            value: Some(v),
            denotation: Some("denoted".into()),
        };
        value(&format!("nothing {i}"), ty)
    });
    let mut list: Vec<ValueInfoProto> = declared.collect();
    list.push(value("sum", of(Some(DataType::Float), Some("n"))));
    list
}

fn devices() -> NodeDeviceConfigurationProto {
    NodeDeviceConfigurationProto {
        configuration_id: Some("two".into()),
        pipeline_stage: Some(1),
        sharding_spec: vec![ShardingSpecProto {
            tensor_name: Some("raw".into()),
            device: vec![0, 1],
            index_to_device_group_map: vec![IntIntListEntryProto {
                key: Some(0),
                value: vec![0, 1],
            }],
            sharded_dim: vec![ShardedDimProto {
                axis: Some(0),
                simple_sharding: vec![SimpleShardedDimProto {
                    num_shards: Some(2),
                    dim: Some(simple_sharded_dim_proto::Dim::DimValue(2)),
                }],
            }],
        }],
    }
}

fn tensor(name: &str, dtype: DataType) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: vec![2],
        data_type: Some(dtype as i32),
        ..TensorProto::default()
    }
}

fn raw(name: &str) -> TensorProto {
    let bytes: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    TensorProto {
        raw_data: Some(bytes.into()),
        doc_string: Some("raw".into()),
        ..tensor(name, DataType::Float)
    }
}

fn sparse(name: &str) -> SparseTensorProto {
    SparseTensorProto {
        values: Some(raw(name)),
        indices: Some(TensorProto {
            int64_data: vec![0, 3],
            ..tensor("", DataType::Int64)
        }),
        dims: vec![4],
    }
}

fn attribute(name: &str, kind: AttributeType) -> AttributeProto {
    AttributeProto {
        name: Some(name.into()),
        r#type: Some(kind as i32),
        ..AttributeProto::default()
    }
}

fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    let own = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
    NodeProto {
        op_type: Some(op.into()),
        input: own(inputs),
        output: own(outputs),
        ..NodeProto::default()
    }
}

fn of(dtype: Option<DataType>, symbol: Option<&str>) -> TypeProto {
    let dim = symbol.map(|s| tensor_shape_proto::Dimension {
        denotation: Some("DATA_BATCH".into()),
        value: Some(tensor_shape_proto::dimension::Value::DimParam(s.into())),
    });
    TypeProto {
        value: Some(type_proto::Value::TensorType(type_proto::Tensor {
            elem_type: dtype.map(|d| d as i32),
            shape: dim.map(|d| TensorShapeProto { dim: vec![d] }),
        })),
        ..TypeProto::default()
    }
}

fn value(name: &str, ty: TypeProto) -> ValueInfoProto {
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(ty),
        metadata_props: vec![entry("of", "a value")],
        ..ValueInfoProto::default()
    }
}

fn import(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto {
        domain: Some(domain.into()),
        version: Some(version),
    }
}

fn entry(key: &str, value: &str) -> StringStringEntryProto {
    StringStringEntryProto {
        key: Some(key.into()),
        value: Some(value.into()),
    }
}
