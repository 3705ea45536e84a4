//! Small models for tests, as messages.

use std::collections::BTreeSet;

use prost::Message;

use crate::dtype::DType;
use crate::graph::Graph;
use crate::id::{NodeId, ValueId};
use crate::model::Model;
use crate::proto::{
    AttributeProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto, TensorProto,
    TensorShapeProto, TypeProto, ValueInfoProto, attribute_proto::AttributeType,
    tensor_shape_proto, type_proto,
};
use crate::tensor::Tensor;

/// A node of ai.onnx, named after its first output.
pub(crate) fn node(op: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        name: outputs.first().map(|o| format!("{o}_node")),
        op_type: Some(op.to_owned()),
        input: inputs.iter().map(|s| (*s).to_owned()).collect(),
        output: outputs.iter().map(|s| (*s).to_owned()).collect(),
        ..Default::default()
    }
}

/// The node with bodies as attributes.
pub(crate) fn with_bodies(mut node: NodeProto, bodies: Vec<(&str, GraphProto)>) -> NodeProto {
    for (name, body) in bodies {
        let mut a = AttributeProto {
            name: Some(name.to_owned()),
            g: Some(Box::new(body)),
            ..Default::default()
        };
        a.set_type(AttributeType::Graph);
        node.attribute.push(a);
    }
    node
}

/// A `Constant` node with a tensor.
pub(crate) fn constant(output: &str, tensor: &Tensor) -> NodeProto {
    let mut a = AttributeProto {
        name: Some("value".to_owned()),
        t: Some(proto("", tensor)),
        ..Default::default()
    };
    a.set_type(AttributeType::Tensor);
    let mut n = node("Constant", &[], &[output]);
    n.attribute.push(a);
    n
}

/// A tensor with a raw payload.
pub(crate) fn proto(name: &str, tensor: &Tensor) -> TensorProto {
    TensorProto {
        name: (!name.is_empty()).then(|| name.to_owned()),
        dims: tensor.dims().iter().map(|d| *d as i64).collect(),
        data_type: Some(tensor.dtype().code()),
        raw_data: Some(tensor.bytes().clone()),
        ..Default::default()
    }
}

/// A float initializer of one axis.
pub(crate) fn floats(name: &str, values: &[f32]) -> TensorProto {
    proto(name, &Tensor::from_f32(&[values.len()], values))
}

/// A value with this type; negative dimensions are symbols.
pub(crate) fn value(name: &str, dtype: DType, dims: &[i64]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = |d: &i64| Dimension {
        denotation: None,
        value: Some(match d {
            0.. => Value::DimValue(*d),
            _ => Value::DimParam(format!("n{}", -d)),
        }),
    };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto {
            denotation: None,
            value: Some(type_proto::Value::TensorType(type_proto::Tensor {
                elem_type: Some(dtype.code()),
                shape: Some(TensorShapeProto {
                    dim: dims.iter().map(dim).collect(),
                }),
            })),
        }),
        ..Default::default()
    }
}

/// A value without a type.
pub(crate) fn untyped(name: &str) -> ValueInfoProto {
    ValueInfoProto {
        name: Some(name.to_owned()),
        ..Default::default()
    }
}

/// An import of an operator set.
pub(crate) fn import(domain: &str, version: i64) -> OperatorSetIdProto {
    OperatorSetIdProto {
        domain: Some(domain.to_owned()),
        version: Some(version),
    }
}

/// A model of a graph that imports version 17 of ai.onnx and version 1 of the other domains of its
/// nodes.
pub(crate) fn model_proto(graph: GraphProto) -> ModelProto {
    let named = graph.node.iter().map(NodeProto::domain);
    let named: BTreeSet<&str> = named.filter(|d| !d.is_empty()).collect();
    let named = named.into_iter().map(|domain| import(domain, 1));
    ModelProto {
        ir_version: Some(8),
        opset_import: std::iter::once(import("", 17)).chain(named).collect(),
        producer_name: Some("by hand".to_owned()),
        graph: Some(graph),
        ..Default::default()
    }
}

/// A model of a graph, read and checked.
pub(crate) fn model(graph: GraphProto) -> Model {
    let model = Model::from_bytes(model_proto(graph).encode_to_vec()).unwrap();
    model.check().unwrap();
    model
}

/// The value with this name in any scope.
pub(crate) fn find(graph: &Graph, name: &str) -> ValueId {
    let found = graph.values().find(|v| graph.name(*v) == name);
    found.unwrap_or_else(|| panic!("no value {name}"))
}

/// The node with this output in any scope.
pub(crate) fn producer(graph: &Graph, output: &str) -> NodeId {
    graph.producer(find(graph, output)).unwrap().0
}

/// Operators of the main graph in order, with what they read and write.
pub(crate) fn lines(model: &Model) -> Vec<String> {
    let graph = model.graph();
    let names = |values: &[Option<ValueId>]| {
        let names = values.iter().map(|v| v.map_or("", |v| graph.name(v)));
        names.collect::<Vec<_>>().join(", ")
    };
    let nodes = graph.scope(graph.main()).nodes().iter();
    nodes
        .map(|id| {
            let n = graph.node(*id);
            format!("{} = {}({})", names(n.outputs()), n.op(), names(n.inputs()))
        })
        .collect()
}
