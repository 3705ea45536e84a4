//! Inlining of local functions.
//!
//! A model stores each function once, but a rewrite of one layer needs a copy for this layer.
//! Names of a copy start with the name of its call.
//!
//! Callees are inlined before their callers, without recursion.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use rustc_hash::FxHashSet;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto};

/// The most nodes that calls may expand to, without those of the graph itself.
pub(crate) const MAX_NODES: u64 = 1 << 17;

/// The deepest nesting of bodies that calls may expand to.
pub(crate) const MAX_DEPTH: u64 = 64;

/// The most bytes of nodes that calls may expand to.
pub(crate) const MAX_BYTES: u64 = 1 << 26;

/// Longer names are replaced in copies.
const MAX_NAME: usize = 256;

/// Domain, name and overload.
type Key = (String, String, String);

fn key_of(node: &NodeProto) -> Key {
    (
        domain(node.domain()),
        node.op_type().to_owned(),
        node.overload().to_owned(),
    )
}

/// The name of a domain; empty for ai.onnx.
fn domain(name: &str) -> String {
    match name {
        "ai.onnx" => String::new(),
        other => other.to_owned(),
    }
}

impl Model {
    /// The model with all calls of local functions inlined; `None` where it has no functions.
    ///
    /// # Errors
    /// When a function imports another version of an operator set than the model, calls itself, or
    /// its calls expand to too many nodes.
    pub fn inlined(&self) -> Result<Option<Self>> {
        let graph = self.graph();
        let is_function = |s| matches!(graph.scope(s).kind(), crate::ScopeKind::Function { .. });
        if !graph.scopes().any(is_function) {
            return Ok(None);
        }
        let mut model =
            ModelProto::decode(self.source().clone()).map_err(|e| Error::decode(e.to_string()))?;
        let functions: BTreeMap<Key, FunctionProto> = std::mem::take(&mut model.functions)
            .into_iter()
            .map(|f| {
                let key = (
                    domain(f.domain()),
                    f.name().to_owned(),
                    f.overload().to_owned(),
                );
                (key, f)
            })
            .collect();
        let mut main = model.graph.take().unwrap_or_default();
        let order = callees_first(&main.node, &functions)?;
        let versions = model.opset_import.iter();
        let mut versions: BTreeMap<String, i64> = versions
            .map(|o| (domain(o.domain()), o.version()))
            .collect();
        for function in order.iter().filter_map(|key| functions.get(key)) {
            for needed in &function.opset_import {
                let known = versions.insert(domain(needed.domain()), needed.version());
                match known {
                    Some(version) if version != needed.version() => {
                        let why = "the function imports another version of an operator set than the model";
                        return Err(Error::unsupported(why).at(function.name()));
                    }
                    Some(_) => {}
                    None => model.opset_import.push(needed.clone()),
                }
            }
        }
        let own: BTreeSet<String> = functions.keys().map(|k| k.0.clone()).collect();
        let mut inliner = Inliner {
            taken: taken(&main, functions.values()),
            functions: BTreeMap::new(),
            limits: Limits {
                nodes: MAX_NODES,
                bytes: MAX_BYTES,
            },
            calls: 0,
        };
        let mut functions = functions;
        for key in order {
            if let Some(mut function) = functions.remove(&key) {
                let nodes = std::mem::take(&mut function.node);
                function.node = inliner.list(nodes)?;
                inliner.functions.insert(key, function);
            }
        }
        main.node = inliner.list(std::mem::take(&mut main.node))?;
        model.graph = Some(main);
        model.opset_import.retain(|o| {
            let name = domain(o.domain());
            name.is_empty() || !own.contains(&name)
        });
        Self::from_bytes_at(model.encode_to_vec(), self.path()).map(Some)
    }
}

/// The nodes of a list and of the bodies in it.
fn all_nodes(nodes: &[NodeProto]) -> impl Iterator<Item = &NodeProto> {
    let mut stack = vec![nodes.iter()];
    std::iter::from_fn(move || {
        loop {
            let Some(node) = stack.last_mut()?.next() else {
                stack.pop();
                continue;
            };
            for attribute in &node.attribute {
                let graphs = attribute.g.as_deref().into_iter().chain(&attribute.graphs);
                stack.extend(graphs.map(|g| g.node.iter()));
            }
            return Some(node);
        }
    })
}

/// The functions that the nodes call, directly or not, each after those that it calls.
fn callees_first(
    nodes: &[NodeProto],
    functions: &BTreeMap<Key, FunctionProto>,
) -> Result<Vec<Key>> {
    let callees = |nodes: &[NodeProto]| -> Vec<Key> {
        let keys = all_nodes(nodes).map(key_of);
        let own: BTreeSet<Key> = keys.filter(|key| functions.contains_key(key)).collect();
        own.into_iter().collect()
    };
    let mut order = vec![];
    // `false`: waiting for its callees.
    let mut done: BTreeMap<Key, bool> = BTreeMap::new();
    let mut stack = callees(nodes);
    while let Some(key) = stack.pop() {
        match done.get(&key) {
            Some(true) => {}
            Some(false) => {
                done.insert(key.clone(), true);
                order.push(key);
            }
            None => {
                done.insert(key.clone(), false);
                let body = functions.get(&key).map_or(&[][..], |f| &f.node);
                let callees = callees(body);
                stack.push(key);
                for callee in callees {
                    match done.get(&callee) {
                        Some(true) => {}
                        Some(false) => {
                            let why = "the function calls itself";
                            return Err(Error::invalid(why).at(callee.1));
                        }
                        None => stack.push(callee),
                    }
                }
            }
        }
    }
    Ok(order)
}

/// The prefixes of names up to a slash, which labels of calls must not be.
fn taken<'a>(
    main: &GraphProto,
    functions: impl Iterator<Item = &'a FunctionProto>,
) -> FxHashSet<String> {
    let mut taken = FxHashSet::default();
    let mut take = |name: &str| {
        // Labels of calls are not longer.
        for (end, _) in name
            .match_indices('/')
            .take_while(|(end, _)| *end <= MAX_NAME)
        {
            if !taken.contains(&name[..end]) {
                taken.insert(name[..end].to_owned());
            }
        }
    };
    let given = main.input.iter().filter_map(|v| v.name.as_deref());
    let stored = main.initializer.iter().filter_map(|t| t.name.as_deref());
    given.chain(stored).for_each(&mut take);
    for nodes in std::iter::once(&main.node).chain(functions.map(|f| &f.node)) {
        for node in all_nodes(nodes) {
            node.output.iter().for_each(|name| take(name));
            take(node.name());
        }
    }
    taken
}

struct Inliner {
    /// Functions that are inlined completely.
    functions: BTreeMap<Key, FunctionProto>,
    taken: FxHashSet<String>,
    limits: Limits,
    calls: u64,
}

/// What calls may still expand to.
struct Limits {
    nodes: u64,
    bytes: u64,
}

impl Limits {
    fn take(&mut self, node: &NodeProto) -> Result<()> {
        let nodes = all_nodes(std::slice::from_ref(node)).count() as u64;
        let bytes = node.encoded_len() as u64;
        match (self.nodes.checked_sub(nodes), self.bytes.checked_sub(bytes)) {
            (Some(nodes), Some(bytes)) => {
                *self = Self { nodes, bytes };
                Ok(())
            }
            _ => {
                let why = "the calls of functions expand to too many nodes";
                Err(Error::unsupported(why))
            }
        }
    }
}

impl Inliner {
    /// The nodes with calls inlined. The depth is bounded by decoding.
    fn list(&mut self, nodes: Vec<NodeProto>) -> Result<Vec<NodeProto>> {
        let mut out = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            for attribute in &mut node.attribute {
                let one = attribute.g.as_deref_mut().into_iter();
                for graph in one.chain(&mut attribute.graphs) {
                    graph.node = self.list(std::mem::take(&mut graph.node))?;
                }
            }
            match self.functions.get(&key_of(&node)) {
                Some(function) => {
                    let label = loop {
                        self.calls += 1;
                        let name = match node.name() {
                            "" => function.name(),
                            name => name,
                        };
                        let name = if name.len() < MAX_NAME / 2 {
                            name
                        } else {
                            "call"
                        };
                        let label = format!("{name}_{}", self.calls);
                        if !self.taken.contains(&label) {
                            break label;
                        }
                    };
                    call(function, &node, label, &mut self.limits, &mut out)?;
                }
                None => out.push(node),
            }
        }
        Ok(out)
    }
}

/// Adds the nodes of a function, with the names and attributes of a call.
fn call(
    function: &FunctionProto,
    node: &NodeProto,
    label: String,
    limits: &mut Limits,
    out: &mut Vec<NodeProto>,
) -> Result<()> {
    let mut names = BTreeMap::new();
    let mut passed = vec![];
    for (i, own) in function.input.iter().enumerate() {
        names.insert(own.clone(), node.input.get(i).cloned().unwrap_or_default());
    }
    for (own, given) in function.output.iter().zip(&node.output) {
        if given.is_empty() {
            continue;
        }
        // An input that is an output, or a value that is two outputs, needs an `Identity`.
        match names.get(own) {
            Some(source) => passed.push((source.clone(), given.clone())),
            None => {
                names.insert(own.clone(), given.clone());
            }
        }
    }
    let mut copy = Copy {
        label,
        names,
        function,
        call: node,
    };
    for node in &function.node {
        let node = copy.node(node);
        limits.take(&node)?;
        out.push(node);
    }
    out.extend(passed.into_iter().map(|(source, given)| NodeProto {
        op_type: Some("Identity".to_owned()),
        input: vec![source],
        output: vec![given],
        ..NodeProto::default()
    }));
    Ok(())
}

/// Copies the nodes of a function for one call.
struct Copy<'a> {
    label: String,
    names: BTreeMap<String, String>,
    function: &'a FunctionProto,
    call: &'a NodeProto,
}

impl Copy<'_> {
    fn rename(&mut self, name: &mut String) {
        if name.is_empty() {
            return;
        }
        if let Some(other) = self.names.get(name.as_str()) {
            name.clone_from(other);
        } else if name.len() <= MAX_NAME {
            *name = format!("{}/{name}", self.label);
        } else {
            // Nested calls would make it longer and longer.
            let short = format!("{}/long {}", self.label, self.names.len());
            self.names
                .insert(std::mem::replace(name, short.clone()), short);
        }
    }

    fn node(&mut self, node: &NodeProto) -> NodeProto {
        let mut node = node.clone();
        for name in node.input.iter_mut().chain(&mut node.output) {
            self.rename(name);
        }
        node.name = match node.name() {
            // Nested calls would make it longer and longer.
            name if name.is_empty() || name.len() > MAX_NAME => None,
            name => Some(format!("{}/{name}", self.label)),
        };
        node.attribute = node
            .attribute
            .into_iter()
            .filter_map(|a| self.attribute(a))
            .collect();
        node
    }

    /// An attribute, with references replaced by attributes of the call; `None` where it has none.
    fn attribute(&mut self, mut attribute: AttributeProto) -> Option<AttributeProto> {
        let named = attribute.ref_attr_name().to_owned();
        if !named.is_empty() {
            let defaults = &self.function.attribute_proto;
            let mut given = self.call.attribute.iter().chain(defaults);
            let mut value = given.find(|a| a.name() == named)?.clone();
            value.name = attribute.name.take();
            return Some(value);
        }
        let one = attribute.g.as_deref_mut().into_iter();
        for graph in one.chain(&mut attribute.graphs) {
            self.graph(graph);
        }
        Some(attribute)
    }

    fn graph(&mut self, graph: &mut GraphProto) {
        for value in graph.input.iter_mut().chain(&mut graph.output) {
            if let Some(name) = &mut value.name {
                self.rename(name);
            }
        }
        let sparse = graph.sparse_initializer.iter_mut();
        let sparse = sparse.filter_map(|t| t.values.as_mut());
        for tensor in graph.initializer.iter_mut().chain(sparse) {
            if let Some(name) = &mut tensor.name {
                self.rename(name);
            }
        }
        graph.value_info.clear();
        graph.node = std::mem::take(&mut graph.node)
            .iter()
            .map(|n| self.node(n))
            .collect();
    }
}

#[cfg(test)]
mod tests;
