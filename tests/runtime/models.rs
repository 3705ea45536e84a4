//! Tiny models, written node by node.

use posenc_ir::proto::attribute_proto::AttributeType;
use posenc_ir::proto::tensor_shape_proto::{Dimension, dimension};
use posenc_ir::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, StringStringEntryProto,
    TensorProto, TensorShapeProto, TypeProto, ValueInfoProto, tensor_proto, type_proto,
};
use posenc_ir::{DType, Tensor};
use prost::Message;

/// An attribute of a node.
pub(crate) enum Attr {
    Int(i64),
    Float(f32),
    Ints(&'static [i64]),
    Graph(Box<GraphProto>),
}

/// A graph under construction. Dimensions are numbers, names, or empty for unknown.
#[derive(Clone, Default)]
pub(crate) struct Graph(pub(crate) GraphProto);

impl Graph {
    pub(crate) fn new() -> Self {
        Self(GraphProto {
            name: Some("g".into()),
            ..GraphProto::default()
        })
    }

    pub(crate) fn input(mut self, name: &str, dtype: DType, dims: &[&str]) -> Self {
        self.0.input.push(typed(name, dtype, dims));
        self
    }

    pub(crate) fn node(
        self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: Vec<(&str, Attr)>,
    ) -> Self {
        self.node_of("", op, inputs, outputs, attributes)
    }

    /// A node of `com.microsoft`.
    pub(crate) fn contrib(
        self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: Vec<(&str, Attr)>,
    ) -> Self {
        self.node_of("com.microsoft", op, inputs, outputs, attributes)
    }

    fn node_of(
        mut self,
        domain: &str,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attributes: Vec<(&str, Attr)>,
    ) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        self.0.node.push(NodeProto {
            input: owned(inputs),
            output: owned(outputs),
            name: Some(format!("node_{}", self.0.node.len())),
            op_type: Some(op.into()),
            domain: (!domain.is_empty()).then(|| domain.to_owned()),
            attribute: attributes.into_iter().map(attribute).collect(),
            ..NodeProto::default()
        });
        self
    }

    pub(crate) fn init(mut self, name: &str, tensor: &Tensor) -> Self {
        self.0.initializer.push(encoded(name, tensor));
        self
    }

    /// An initializer whose elements are stored in `file`.
    pub(crate) fn external(mut self, name: &str, dtype: DType, dims: &[i64], file: &str) -> Self {
        self.0.initializer.push(TensorProto {
            name: Some(name.into()),
            dims: dims.to_vec(),
            data_type: Some(dtype.code()),
            data_location: Some(tensor_proto::DataLocation::External as i32),
            external_data: vec![StringStringEntryProto {
                key: Some("location".into()),
                value: Some(file.into()),
            }],
            ..TensorProto::default()
        });
        self
    }

    pub(crate) fn output(mut self, name: &str, dtype: DType, dims: &[&str]) -> Self {
        self.0.output.push(typed(name, dtype, dims));
        self
    }

    /// The encoded model.
    pub(crate) fn model(self, opset: i64) -> Vec<u8> {
        let import = |domain: &str, version| OperatorSetIdProto {
            domain: Some(domain.into()),
            version: Some(version),
        };
        let model = ModelProto {
            ir_version: Some(if opset > 21 { 10 } else { 8 }),
            opset_import: vec![import("", opset), import("com.microsoft", 1)],
            graph: Some(self.0),
            ..ModelProto::default()
        };
        model.encode_to_vec()
    }
}

fn typed(name: &str, dtype: DType, dims: &[&str]) -> ValueInfoProto {
    let dims = dims.iter().map(|dim| Dimension {
        denotation: None,
        value: match (dim.parse(), dim.is_empty()) {
            (Ok(size), _) => Some(dimension::Value::DimValue(size)),
            (Err(_), false) => Some(dimension::Value::DimParam((*dim).to_owned())),
            (Err(_), true) => None,
        },
    });
    let tensor = type_proto::Tensor {
        elem_type: Some(dtype.code()),
        shape: Some(TensorShapeProto {
            dim: dims.collect(),
        }),
    };
    ValueInfoProto {
        name: Some(name.into()),
        r#type: Some(TypeProto {
            denotation: None,
            value: Some(type_proto::Value::TensorType(tensor)),
        }),
        ..ValueInfoProto::default()
    }
}

fn encoded(name: &str, tensor: &Tensor) -> TensorProto {
    TensorProto {
        name: Some(name.into()),
        dims: tensor.dims().iter().map(|d| *d as i64).collect(),
        data_type: Some(tensor.dtype().code()),
        raw_data: Some(tensor.bytes().clone()),
        ..TensorProto::default()
    }
}

fn attribute((name, value): (&str, Attr)) -> AttributeProto {
    let mut proto = AttributeProto {
        name: Some(name.into()),
        ..AttributeProto::default()
    };
    let kind = match value {
        Attr::Int(i) => {
            proto.i = Some(i);
            AttributeType::Int
        }
        Attr::Float(f) => {
            proto.f = Some(f);
            AttributeType::Float
        }
        Attr::Ints(ints) => {
            proto.ints = ints.to_vec();
            AttributeType::Ints
        }
        Attr::Graph(graph) => {
            proto.g = Some(graph);
            AttributeType::Graph
        }
    };
    proto.r#type = Some(kind as i32);
    proto
}
