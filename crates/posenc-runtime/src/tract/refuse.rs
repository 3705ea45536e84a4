//! What tract would take and compute wrongly, or stop at in unclear words.

use std::collections::BTreeSet;

use tract_onnx::Onnx;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto};

use super::NAME;
use crate::error::{Result, RuntimeError};

/// The operators of `com.microsoft` that tract means when it says their names, and that the tests
/// cover. It looks operators up without their domain, so that any other one would silently run as
/// the ONNX operator of its name.
const CONTRIB: &[&str] = &[
    "BiasGelu",
    "FastGelu",
    "Gelu",
    "GroupQueryAttention",
    "MultiHeadAttention",
    "QuickGelu",
    "RotaryEmbedding",
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
                // The rank of its positions is looked at in the main graph alone.
                if let Some(node) = graph.node.iter().find(|node| is_contrib_rotary(node)) {
                    let why = "it does not know com.microsoft.RotaryEmbedding in a branch";
                    let why = format!("{why}, of node {}", place(node));
                    return Err(RuntimeError::unsupported(NAME, why));
                }
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
        return check_form(node);
    }
    let domain = match node.domain.as_str() {
        "" => "ai.onnx",
        domain => domain,
    };
    let why = format!("it does not know {domain}.{op}, of node {}", place(node));
    Err(RuntimeError::unsupported(NAME, why))
}

/// Refuses the forms of an operator that tract reads over.
fn check_form(node: &NodeProto) -> Result<()> {
    let set = |name: &str| {
        let mut attributes = node.attribute.iter();
        attributes.any(|attribute| attribute.name == name && attribute.i != 0)
    };
    let given = |i: usize| node.input.get(i).is_some_and(|input| !input.is_empty());
    let form = match node.op_type.as_str() {
        // It would attend in both directions.
        "MultiHeadAttention" if set("unidirectional") => "a causal MultiHeadAttention",
        // It would append to the past of every sequence, however long that is.
        "GroupQueryAttention" if given(3) || given(4) => "a GroupQueryAttention with a past",
        _ => return Ok(()),
    };
    let why = format!("it does not know {form}, of node {}", place(node));
    Err(RuntimeError::unsupported(NAME, why))
}

/// The inputs that tract takes for one position a row, whatever their rank: the positions of
/// `com.microsoft` `RotaryEmbedding`, which are an offset where they hold one number alone.
pub(super) fn position_inputs(model: &ModelProto) -> BTreeSet<String> {
    let nodes = model.graph.iter().flat_map(|graph| &graph.node);
    nodes
        .filter(|node| is_contrib_rotary(node))
        .filter_map(|node| node.input.get(1).cloned())
        .collect()
}

fn is_contrib_rotary(node: &NodeProto) -> bool {
    node.op_type == "RotaryEmbedding" && node.domain == "com.microsoft"
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
