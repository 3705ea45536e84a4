//! What tract would take and compute wrongly, or stop at in unclear words.

use tract_onnx::Onnx;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto};

use super::NAME;
use crate::error::{Result, RuntimeError};

/// The operators of `com.microsoft` that tract means when it says their names. It looks operators up
/// without their domain, so that any other one would silently run as the ONNX operator of its name.
const CONTRIB: &[&str] = &[
    "BiasGelu",
    "FastGelu",
    "GatherBlockQuantized",
    "Gelu",
    "GroupQueryAttention",
    "MatMulNBits",
    "MultiHeadAttention",
    "QuickGelu",
    "RotaryEmbedding",
    "SimplifiedLayerNormalization",
    "SkipLayerNormalization",
    "SkipSimplifiedLayerNormalization",
];

/// The number of bfloat16 in the file format.
const BF16: i32 = 16;

/// Refuses operators that tract does not know or would mistake for another, and bfloat16.
pub(super) fn check(framework: &Onnx, model: &ModelProto) -> Result<()> {
    match &model.graph {
        Some(graph) => check_graph(framework, graph),
        None => Err(RuntimeError::unsupported(NAME, "the model has no graph")),
    }
}

fn check_graph(framework: &Onnx, graph: &GraphProto) -> Result<()> {
    if !graph.sparse_initializer.is_empty() {
        let why = "it does not know sparse initializers";
        return Err(RuntimeError::unsupported(NAME, why));
    }
    for tensor in &graph.initializer {
        check_tensor(tensor, &tensor.name)?;
    }
    for node in &graph.node {
        check_operator(framework, node)?;
        for attribute in &node.attribute {
            // `Cast` and its like name their type in `to` or `dtype`.
            let names_type = attribute.name == "to" || attribute.name == "dtype";
            if names_type && attribute.i == i64::from(BF16) {
                return Err(no_bf16(place(node)));
            }
            for tensor in attribute.t.iter().chain(&attribute.tensors) {
                check_tensor(tensor, place(node))?;
            }
            for graph in attribute.g.iter().chain(&attribute.graphs) {
                check_graph(framework, graph)?;
            }
        }
    }
    Ok(())
}

fn check_operator(framework: &Onnx, node: &NodeProto) -> Result<()> {
    let op = node.op_type.as_str();
    let meant = match node.domain.as_str() {
        "" | "ai.onnx" => true,
        "com.microsoft" => CONTRIB.contains(&op),
        _ => false,
    };
    if meant && framework.op_register.0.contains_key(op) {
        return Ok(());
    }
    let domain = match node.domain.as_str() {
        "" => "ai.onnx",
        domain => domain,
    };
    let why = format!("it does not know {domain}.{op}, of node {}", place(node));
    Err(RuntimeError::unsupported(NAME, why))
}

fn check_tensor(tensor: &TensorProto, place: &str) -> Result<()> {
    if tensor.data_type == BF16 {
        return Err(no_bf16(place));
    }
    Ok(())
}

fn no_bf16(place: &str) -> RuntimeError {
    RuntimeError::unsupported(NAME, format!("it does not know bfloat16, at {place}"))
}

fn place(node: &NodeProto) -> &str {
    match node.output.first() {
        Some(output) if node.name.is_empty() => output,
        _ => &node.name,
    }
}
