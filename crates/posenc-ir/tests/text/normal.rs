//! Models as messages in one form, so that what a text can say is equal exactly where the models are.

use std::collections::{BTreeMap, BTreeSet};

use posenc_ir::DType;
use posenc_ir::proto::attribute_proto::AttributeType;
use posenc_ir::proto::{
    AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto,
    TensorProto, TypeProto, ValueInfoProto, tensor_shape_proto, type_proto,
};
use prost::Message;

/// The bytes of the model in the one form. Two models are equal but for what a text does not say
/// where these are.
pub(super) fn normal(mut model: ModelProto) -> Vec<u8> {
    model.training_info.clear();
    model.configuration.clear();
    model.producer_name = model.producer_name.take().filter(|s| !s.is_empty());
    if let Some(graph) = &mut model.graph {
        normal_graph(graph, true);
    }
    for opset in &mut model.opset_import {
        opset.domain.get_or_insert_default();
        opset.version.get_or_insert_default();
    }
    model.functions.iter_mut().for_each(normal_function);
    model.encode_to_vec()
}

fn normal_graph(graph: &mut GraphProto, is_main: bool) {
    if !is_main {
        graph.name = Some(bare(graph.name()));
    }
    graph.name.get_or_insert_default();
    graph.doc_string = None;
    graph.metadata_props.clear();
    graph.quantization_annotation.clear();
    let sparse = std::mem::take(&mut graph.sparse_initializer);
    for tensor in sparse {
        graph.value_info.push(declared(tensor));
    }
    graph.node.iter_mut().for_each(normal_node);
    graph.initializer.iter_mut().for_each(normal_tensor);
    graph.input.iter_mut().for_each(normal_value);
    graph.output.iter_mut().for_each(normal_value);
    let outputs = graph.output.iter().map(|v| v.name().to_owned()).collect();
    normal_infos(&mut graph.value_info, &graph.node, &outputs);
}

/// What a text makes of a sparse tensor.
fn declared(tensor: posenc_ir::proto::SparseTensorProto) -> ValueInfoProto {
    let values = tensor.values.unwrap_or_default();
    let dims = tensor.dims.iter().map(|d| tensor_shape_proto::Dimension {
        denotation: None,
        value: Some(tensor_shape_proto::dimension::Value::DimValue(*d)),
    });
    let ty = type_proto::SparseTensor {
        elem_type: values.data_type,
        shape: Some(posenc_ir::proto::TensorShapeProto {
            dim: dims.collect(),
        }),
    };
    ValueInfoProto {
        name: values.name,
        r#type: Some(TypeProto {
            denotation: None,
            value: Some(type_proto::Value::SparseTensorType(ty)),
        }),
        ..Default::default()
    }
}

/// Types of inner values, in the order of their names; those of inputs, outputs and initializers
/// are elsewhere.
fn normal_infos(infos: &mut Vec<ValueInfoProto>, nodes: &[NodeProto], outputs: &BTreeSet<String>) {
    let computed: BTreeSet<&str> = nodes
        .iter()
        .flat_map(|n| &n.output)
        .map(String::as_str)
        .filter(|name| !outputs.contains(*name))
        .collect();
    infos.iter_mut().for_each(normal_value);
    let sparse = |v: &ValueInfoProto| {
        let value = v.r#type.as_ref().and_then(|t| t.value.as_ref());
        matches!(value, Some(type_proto::Value::SparseTensorType(_)))
    };
    infos.retain(|v| (computed.contains(v.name()) || sparse(v)) && v.r#type.is_some());
    infos.sort_by(|a, b| a.name().cmp(b.name()));
    infos.dedup();
}

fn normal_function(function: &mut FunctionProto) {
    function.metadata_props.clear();
    function.name.get_or_insert_default();
    function.domain.get_or_insert_default();
    function.overload = function.overload.take().filter(|o| !o.is_empty());
    for opset in &mut function.opset_import {
        opset.domain.get_or_insert_default();
        opset.version.get_or_insert_default();
    }
    function.node.iter_mut().for_each(normal_node);
    function
        .attribute_proto
        .iter_mut()
        .for_each(normal_attribute);
    function.value_info.iter_mut().for_each(normal_value);
    function.value_info.sort_by(|a, b| a.name().cmp(b.name()));
}

fn normal_node(node: &mut NodeProto) {
    node.doc_string = None;
    node.metadata_props.clear();
    node.device_configurations.clear();
    node.name.get_or_insert_default();
    let domain = node.domain.get_or_insert_default();
    if domain == "ai.onnx" {
        domain.clear();
    }
    let domain: Vec<String> = domain.split('.').map(bare).collect();
    if !node.domain().is_empty() {
        node.domain = Some(domain.join("."));
    }
    node.op_type = Some(bare(node.op_type()));
    node.overload = node.overload.take().filter(|o| !o.is_empty());
    node.attribute.iter_mut().for_each(normal_attribute);
    node.attribute
        .retain(|a| a.sparse_tensor.is_none() && a.sparse_tensors.is_empty());
}

fn normal_attribute(a: &mut AttributeProto) {
    use AttributeType as T;
    a.doc_string = None;
    a.name = Some(bare(a.name()));
    a.ref_attr_name = a.ref_attr_name.take().filter(|r| !r.is_empty());
    if a.ref_attr_name.is_some() {
        return;
    }
    match a.r#type() {
        T::Int => _ = a.i.get_or_insert_default(),
        T::Float => _ = a.f.get_or_insert_default(),
        T::String => _ = a.s.get_or_insert_default(),
        _ => {}
    }
    for v in a.f.iter_mut().chain(&mut a.floats) {
        *v = canonical(*v);
    }
    for graph in a.g.as_deref_mut().into_iter().chain(&mut a.graphs) {
        normal_graph(graph, false);
    }
    for tensor in a.t.iter_mut().chain(&mut a.tensors) {
        if bare(tensor.name()) != tensor.name() {
            tensor.name = None;
        }
        normal_tensor(tensor);
    }
    for ty in a.tp.iter_mut().chain(&mut a.type_protos) {
        normal_type(ty);
    }
}

/// A NaN with this sign, and no other bits.
fn canonical(v: f32) -> f32 {
    if v.is_nan() { f32::NAN.copysign(v) } else { v }
}

/// The name where it is a word, else one whose other characters are `_`.
fn bare(name: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let made: String = name
        .chars()
        .map(|c| if good(c) { c } else { '_' })
        .collect();
    let digit = made.starts_with(|c: char| c.is_ascii_digit());
    if made.is_empty() || digit {
        format!("_{made}")
    } else {
        made
    }
}

fn normal_tensor(tensor: &mut TensorProto) {
    tensor.doc_string = None;
    tensor.metadata_props.clear();
    tensor.segment = None;
    tensor.name = tensor.name.take().filter(|n| !n.is_empty());
    if tensor.data_location == Some(1) || !tensor.external_data.is_empty() {
        let entries: BTreeMap<String, String> = tensor
            .external_data
            .iter()
            .map(|e| (e.key().to_owned(), e.value().to_owned()))
            .chain(
                [("offset".to_owned(), "0".to_owned())]
                    .into_iter()
                    .filter(|_| !tensor.external_data.iter().any(|e| e.key() == "offset")),
            )
            .collect();
        let entry = |(key, value)| StringStringEntryProto {
            key: Some(key),
            value: Some(value),
        };
        tensor.external_data = entries.into_iter().map(entry).collect();
        tensor.data_location = Some(1);
        return;
    }
    tensor.data_location = None;
    if tensor.data_type() == DType::String as i32 {
        tensor.raw_data = None;
        return;
    }
    if tensor.raw_data.is_none() {
        tensor.raw_data = Some(raw(tensor).into());
    }
    tensor.float_data.clear();
    tensor.double_data.clear();
    tensor.int32_data.clear();
    tensor.int64_data.clear();
    tensor.uint64_data.clear();
    let bytes = tensor.raw_data.take().unwrap_or_default();
    tensor.raw_data = Some(match tensor.data_type() {
        1 | 14 => bytes
            .chunks_exact(4)
            .flat_map(|b| canonical(f32::from_le_bytes(b.try_into().unwrap())).to_le_bytes())
            .collect(),
        11 | 15 => bytes
            .chunks_exact(8)
            .flat_map(|b| {
                let v = f64::from_le_bytes(b.try_into().unwrap());
                let v = if v.is_nan() { f64::NAN.copysign(v) } else { v };
                v.to_le_bytes()
            })
            .collect(),
        _ => bytes,
    });
}

/// The payload of typed lists, by the words of the format.
fn raw(tensor: &TensorProto) -> Vec<u8> {
    let ints = |width: usize| -> Vec<u8> {
        let ints = tensor.int32_data.iter();
        ints.flat_map(|v| v.to_le_bytes().into_iter().take(width))
            .collect()
    };
    match tensor.data_type() {
        1 | 14 => tensor
            .float_data
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect(),
        11 | 15 => tensor
            .double_data
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect(),
        7 => tensor
            .int64_data
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect(),
        13 => tensor
            .uint64_data
            .iter()
            .flat_map(|v| v.to_le_bytes())
            .collect(),
        12 => {
            let words = tensor.uint64_data.iter();
            words.flat_map(|v| (*v as u32).to_le_bytes()).collect()
        }
        6 => ints(4),
        4 | 5 | 10 | 16 => ints(2),
        27 | 28 => {
            let mut bits = vec![];
            for code in &tensor.int32_data {
                bits.extend((0..6).map(|i| code >> i & 1 == 1));
            }
            let byte = |b: &[bool]| b.iter().rev().fold(0, |sum, bit| sum << 1 | u8::from(*bit));
            bits.chunks(8).map(byte).collect()
        }
        _ => ints(1),
    }
}

fn normal_value(value: &mut ValueInfoProto) {
    value.doc_string = None;
    value.metadata_props.clear();
    value.name.get_or_insert_default();
    value.r#type = value.r#type.take().filter(|t| t.value.is_some());
    if let Some(ty) = &mut value.r#type {
        normal_type(ty);
    }
    // An element type that is not known leaves nothing to write.
    let undefined = |t: &TypeProto| {
        matches!(&t.value, Some(type_proto::Value::TensorType(t))
            if DType::from_code(t.elem_type()).is_none())
    };
    value.r#type = value.r#type.take().filter(|t| !undefined(t));
}

fn normal_type(ty: &mut TypeProto) {
    use type_proto::Value;
    ty.denotation = None;
    match &mut ty.value {
        Some(Value::TensorType(t)) => t.shape.iter_mut().for_each(normal_shape),
        Some(Value::SparseTensorType(t)) => t.shape.iter_mut().for_each(normal_shape),
        Some(Value::SequenceType(t)) => t.elem_type.iter_mut().for_each(|t| normal_type(t)),
        Some(Value::OptionalType(t)) => t.elem_type.iter_mut().for_each(|t| normal_type(t)),
        Some(Value::MapType(t)) => t.value_type.iter_mut().for_each(|t| normal_type(t)),
        Some(Value::OpaqueType(t)) => {
            t.domain = t.domain.take().filter(|d| !d.is_empty());
            t.name = t.name.take().filter(|n| !n.is_empty());
        }
        None => {}
    }
}

fn normal_shape(shape: &mut posenc_ir::proto::TensorShapeProto) {
    use tensor_shape_proto::dimension::Value;
    for dim in &mut shape.dim {
        dim.denotation = None;
        if matches!(&dim.value, Some(Value::DimParam(s)) if s.is_empty()) {
            dim.value = None;
        }
    }
}
