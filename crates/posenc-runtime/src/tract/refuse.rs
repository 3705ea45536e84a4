//! Models that tract would accept and compute wrongly, or refuse with an unclear message.

use std::collections::BTreeSet;

use tract_onnx::Onnx;
use tract_onnx::pb::{GraphProto, ModelProto, NodeProto, TensorProto};

use super::error::NAME;
use crate::error::{Result, RuntimeError};

/// The operators of `com.microsoft` that tract implements and the tests cover. tract looks operators
/// up without their domain: any other one would silently run as the ONNX operator of that name.
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

/// Refuses operators that tract does not implement or would mistake for another, and bfloat16.
pub(super) fn check(framework: &Onnx, model: &ModelProto) -> Result<()> {
    match &model.graph {
        Some(graph) => check_graph(framework, graph),
        None => Err(RuntimeError::unsupported(NAME, "the model has no graph")),
    }
}

fn check_graph(framework: &Onnx, graph: &GraphProto) -> Result<()> {
    if !graph.sparse_initializer.is_empty() {
        let why = "it does not support sparse initializers";
        return Err(RuntimeError::unsupported(NAME, why));
    }
    for tensor in &graph.initializer {
        check_tensor(tensor, &tensor.name)?;
    }
    for node in &graph.node {
        check_operator(framework, node)?;
        for attribute in &node.attribute {
            // `Cast` and similar operators have their type in `to` or `dtype`.
            let names_type = attribute.name == "to" || attribute.name == "dtype";
            if names_type && attribute.i == i64::from(BF16) {
                return Err(no_bf16(label(node)));
            }
            for tensor in attribute.t.iter().chain(&attribute.tensors) {
                check_tensor(tensor, label(node))?;
            }
            for graph in attribute.g.iter().chain(&attribute.graphs) {
                check_graph(framework, graph)?;
                // The rank of its positions is checked in the main graph only.
                if let Some(node) = graph.node.iter().find(|node| is_contrib_rotary(node)) {
                    let why = "it does not support com.microsoft.RotaryEmbedding in a branch";
                    let why = format!("{why}, of node {}", label(node));
                    return Err(RuntimeError::unsupported(NAME, why));
                }
            }
        }
    }
    Ok(())
}

fn check_operator(framework: &Onnx, node: &NodeProto) -> Result<()> {
    let op = node.op_type.as_str();
    let same_operator = match node.domain.as_str() {
        "" | "ai.onnx" => true,
        "com.microsoft" => CONTRIB.contains(&op),
        _ => false,
    };
    if same_operator && framework.op_register.0.contains_key(op) {
        return check_form(node);
    }
    let domain = match node.domain.as_str() {
        "" => "ai.onnx",
        domain => domain,
    };
    let why = format!("it does not support {domain}.{op}, of node {}", label(node));
    Err(RuntimeError::unsupported(NAME, why))
}

/// Refuses the forms of an operator whose attributes or inputs tract ignores.
fn check_form(node: &NodeProto) -> Result<()> {
    let is_set = |name: &str| {
        let mut attributes = node.attribute.iter();
        attributes.any(|attribute| attribute.name == name && attribute.i != 0)
    };
    let is_bounded = |name: &str| {
        let mut attributes = node.attribute.iter();
        attributes.any(|attribute| attribute.name == name && attribute.i >= 0)
    };
    let has_input = |i: usize| node.input.get(i).is_some_and(|input| !input.is_empty());
    let form = match node.op_type.as_str() {
        // It would attend in both directions.
        "MultiHeadAttention" if is_set("unidirectional") => "a causal MultiHeadAttention",
        // It would attend to all keys.
        "Attention" if is_bounded("left_window_size") || is_bounded("right_window_size") => {
            "an Attention with a window"
        }
        // It takes the new tokens for the first ones.
        "Attention" if is_set("is_causal") && has_input(4) => "a causal Attention with a past",
        // It computes no numbers in longer sequences.
        "GroupQueryAttention" if is_bounded("local_window_size") => {
            "a GroupQueryAttention with a window"
        }
        // It would append to the past of every sequence, whatever its length.
        "GroupQueryAttention" if has_input(3) || has_input(4) => {
            "a GroupQueryAttention with a past"
        }
        _ => return Ok(()),
    };
    let why = format!("it does not support {form}, of node {}", label(node));
    Err(RuntimeError::unsupported(NAME, why))
}

/// The positions of `com.microsoft` `RotaryEmbedding`. tract reads one position a row, whatever
/// their rank; a single number is an offset by specification.
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

fn check_tensor(tensor: &TensorProto, at: &str) -> Result<()> {
    if tensor.data_type == BF16 {
        return Err(no_bf16(at));
    }
    Ok(())
}

fn no_bf16(at: &str) -> RuntimeError {
    RuntimeError::unsupported(NAME, format!("it does not support bfloat16, at {at}"))
}

/// The node's name, else its first output.
fn label(node: &NodeProto) -> &str {
    match node.output.first() {
        Some(output) if node.name.is_empty() => output,
        _ => &node.name,
    }
}
