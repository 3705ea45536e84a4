//! An `If` that chooses nothing: its condition is a constant, or both branches compute the same.
//! One of its branches takes its place.

use std::collections::BTreeMap;

use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};

use super::{Inliner, all_nodes, call};
use crate::error::Result;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, NodeProto, TensorProto};

/// What is known where a node is.
#[derive(Clone, Default)]
struct Around {
    /// Names that are defined there.
    names: FxHashSet<String>,
    /// Constants of one truth value.
    flags: FxHashMap<String, bool>,
}

impl Around {
    /// Adds what a graph defines.
    fn with(&self, graph: &GraphProto, nodes: &[NodeProto]) -> Self {
        let mut around = self.clone();
        let fed: FxHashSet<&str> = graph.input.iter().map(|v| v.name()).collect();
        around.names.extend(fed.iter().map(|n| (*n).to_owned()));
        for tensor in &graph.initializer {
            around.names.insert(tensor.name().to_owned());
            if let Some(flag) = flag(tensor).filter(|_| !fed.contains(tensor.name())) {
                around.flags.insert(tensor.name().to_owned(), flag);
            }
        }
        for node in nodes {
            around.names.extend(node.output.iter().cloned());
            let stored = node.attribute.iter().find(|a| a.name() == "value");
            let flag = match (node.domain(), node.op_type()) {
                ("" | "ai.onnx", "Constant") => stored.and_then(|a| flag(a.t.as_ref()?)),
                ("" | "ai.onnx", "Identity") => node
                    .input
                    .first()
                    .and_then(|v| around.flags.get(v).copied()),
                _ => None,
            };
            if let (Some(flag), Some(name)) = (flag, node.output.first()) {
                around.flags.insert(name.clone(), flag);
            }
        }
        around
    }
}

/// The truth value of a stored tensor of one.
fn flag(tensor: &TensorProto) -> Option<bool> {
    const BOOL: i32 = 9;
    let is_one = tensor.dims.iter().all(|d| *d == 1) && tensor.data_type() == BOOL;
    if !is_one || tensor.data_location.is_some() {
        return None;
    }
    match (tensor.raw_data.as_deref(), &tensor.int32_data[..]) {
        (Some([byte]), []) => Some(*byte != 0),
        (None, [number]) => Some(*number != 0),
        _ => None,
    }
}

/// Unfolds every `If` that chooses nothing; whether there was any.
pub(super) fn unfold(graph: &mut GraphProto, inliner: &mut Inliner) -> Result<bool> {
    let before = inliner.calls;
    unfold_below(graph, &Around::default(), inliner)?;
    Ok(inliner.calls > before)
}

fn unfold_below(graph: &mut GraphProto, around: &Around, inliner: &mut Inliner) -> Result<()> {
    let nodes = std::mem::take(&mut graph.node);
    if !all_nodes(&nodes).any(|n| n.op_type() == "If") {
        graph.node = nodes;
        return Ok(());
    }
    let around = around.with(graph, &nodes);
    for mut node in nodes {
        for attribute in &mut node.attribute {
            let one = attribute.g.as_deref_mut().into_iter();
            for body in one.chain(&mut attribute.graphs) {
                unfold_below(body, &around, inliner)?;
            }
        }
        match chosen(&node, &around) {
            Some((function, reads)) => {
                let label = inliner.label(&node, function.name());
                call(
                    &function,
                    (&reads, label),
                    &mut inliner.limits,
                    &mut graph.node,
                )?;
            }
            None => graph.node.push(node),
        }
    }
    Ok(())
}

/// The branch that an `If` always takes, as a function of what it reads, with its call.
fn chosen(node: &NodeProto, around: &Around) -> Option<(FunctionProto, NodeProto)> {
    if !matches!(node.domain(), "" | "ai.onnx") || node.op_type() != "If" {
        return None;
    }
    let branch = |name: &str| {
        let attribute = node.attribute.iter().find(|a| a.name() == name)?;
        attribute.g.as_deref()
    };
    let (then, or) = (branch("then_branch")?, branch("else_branch")?);
    let body = match around.flags.get(node.input.first()?) {
        Some(true) => then,
        Some(false) => or,
        None => {
            let mut numbers = Numbers::default();
            let both = [then, or].map(|body| numbers.outputs(body));
            let [Some(a), Some(b)] = both else {
                return None;
            };
            if a != b {
                return None;
            }
            then
        }
    };
    let (own, below) = defined(body);
    let hides = |name: &String| around.names.contains(name);
    let is_plain = body.sparse_initializer.is_empty() && body.input.is_empty();
    if !is_plain || own.iter().chain(&below).any(hides) {
        return None;
    }
    let read = all_nodes(&body.node).flat_map(|n| &n.input).cloned();
    let given = body.output.iter().map(|v| v.name().to_owned());
    let mut captured: Vec<String> = read.chain(given).chain(outputs_below(&body.node)).collect();
    captured.retain(|name| !name.is_empty() && !own.contains(name) && !below.contains(name));
    captured.sort();
    captured.dedup();
    let stored = body.initializer.iter().map(constant);
    let function = FunctionProto {
        name: Some("choice".to_owned()),
        input: captured.clone(),
        output: body.output.iter().map(|v| v.name().to_owned()).collect(),
        node: stored.chain(body.node.iter().cloned()).collect(),
        ..FunctionProto::default()
    };
    let reads = NodeProto {
        name: node.name.clone(),
        input: captured,
        output: node.output.clone(),
        ..NodeProto::default()
    };
    Some((function, reads))
}

/// The names that a body defines, and those that bodies below it do.
fn defined(body: &GraphProto) -> (FxHashSet<String>, FxHashSet<String>) {
    let stored = body.initializer.iter().map(|t| t.name().to_owned());
    let made = body.node.iter().flat_map(|n| &n.output).cloned();
    let own = stored.chain(made).filter(|n| !n.is_empty()).collect();
    let mut below = FxHashSet::default();
    for graph in bodies(&body.node) {
        below.extend(graph.input.iter().map(|v| v.name().to_owned()));
        below.extend(graph.initializer.iter().map(|t| t.name().to_owned()));
        below.extend(graph.node.iter().flat_map(|n| &n.output).cloned());
    }
    below.remove("");
    (own, below)
}

/// The bodies of these nodes and of all nodes in them.
fn bodies(nodes: &[NodeProto]) -> impl Iterator<Item = &GraphProto> {
    all_nodes(nodes)
        .flat_map(|n| &n.attribute)
        .flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs))
}

fn outputs_below(nodes: &[NodeProto]) -> impl Iterator<Item = String> {
    bodies(nodes).flat_map(|graph| graph.output.iter().map(|v| v.name().to_owned()))
}

/// A stored tensor of a branch as a node.
fn constant(tensor: &TensorProto) -> NodeProto {
    const TENSOR: i32 = 4;
    NodeProto {
        op_type: Some("Constant".to_owned()),
        output: vec![tensor.name().to_owned()],
        attribute: vec![AttributeProto {
            name: Some("value".to_owned()),
            r#type: Some(TENSOR),
            t: Some(tensor.clone()),
            ..AttributeProto::default()
        }],
        ..NodeProto::default()
    }
}

/// Numbers of values by what computes them: equal ones for equal computations.
#[derive(Default)]
struct Numbers {
    known: BTreeMap<(Vec<u8>, Vec<usize>), usize>,
}

impl Numbers {
    fn number(&mut self, key: (Vec<u8>, Vec<usize>)) -> usize {
        let next = self.known.len();
        *self.known.entry(key).or_insert(next)
    }

    /// The numbers of the outputs of a branch; `None` where its nodes are not in order.
    fn outputs(&mut self, body: &GraphProto) -> Option<Vec<usize>> {
        let (own, _) = defined(body);
        let mut numbers: FxHashMap<&str, usize> = FxHashMap::default();
        for tensor in &body.initializer {
            let unnamed = TensorProto {
                name: None,
                doc_string: None,
                ..tensor.clone()
            };
            let key = [&b"tensor "[..], &unnamed.encode_to_vec()].concat();
            numbers.insert(tensor.name(), self.number((key, vec![])));
        }
        for node in &body.node {
            let read: Option<Vec<usize>> = node
                .input
                .iter()
                .map(|name| self.of(name, &numbers, &own))
                .collect();
            let read = read?;
            if node.op_type() == "Identity"
                && let ([input], [output]) = (&read[..], &node.output[..])
            {
                numbers.insert(output, *input);
                continue;
            }
            let unnamed = NodeProto {
                name: None,
                doc_string: None,
                input: vec![],
                output: vec![],
                metadata_props: vec![],
                ..node.clone()
            };
            let key = [&b"node "[..], &unnamed.encode_to_vec()].concat();
            for (i, output) in node.output.iter().enumerate() {
                let place = [&read[..], &[i]].concat();
                numbers.insert(output, self.number((key.clone(), place)));
            }
        }
        let outputs = body
            .output
            .iter()
            .map(|v| self.of(v.name(), &numbers, &own));
        outputs.collect()
    }

    fn of(
        &mut self,
        name: &str,
        numbers: &FxHashMap<&str, usize>,
        own: &FxHashSet<String>,
    ) -> Option<usize> {
        match numbers.get(name) {
            Some(number) => Some(*number),
            None if own.contains(name) => None,
            None => Some(self.number(([&b"outer "[..], name.as_bytes()].concat(), vec![]))),
        }
    }
}
