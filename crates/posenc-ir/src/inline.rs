//! Calls of local functions, replaced by what the functions hold.
//!
//! A model that calls functions keeps each of them once; a rewrite of one layer needs a copy of
//! its own. Values of a copy carry the name of the call in front.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use crate::error::{Error, Result};
use crate::model::Model;
use crate::proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto};

/// Calls within calls, and nodes in all, that are unfolded at most: functions that call each other
/// twice grow without bound.
const DEPTH: usize = 32;
const NODES: usize = 1 << 20;

/// Domain, name and overload.
type Key = (String, String, String);

fn key_of(node: &NodeProto) -> Key {
    (
        domain(node.domain()),
        node.op_type().to_owned(),
        node.overload().to_owned(),
    )
}

/// The default domain has two names.
fn domain(name: &str) -> String {
    match name {
        "ai.onnx" => String::new(),
        other => other.to_owned(),
    }
}

impl Model {
    /// The same model without calls of local functions; `None` where it calls none.
    ///
    /// # Errors
    /// When a function needs another version of an operator set than the model, calls itself, or
    /// all of them together unfold to more than a million nodes.
    pub fn inlined(&self) -> Result<Option<Self>> {
        let graph = self.graph();
        let calls = graph.scopes().count() > 1 && {
            let kinds = graph.scopes().map(|s| graph.scope(s).kind());
            kinds
                .into_iter()
                .any(|k| matches!(k, crate::ScopeKind::Function { .. }))
        };
        if !calls {
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
        let versions = model.opset_import.iter();
        let mut versions: BTreeMap<String, i64> = versions
            .map(|o| (domain(o.domain()), o.version()))
            .collect();
        for function in functions.values() {
            for needed in &function.opset_import {
                let known = versions.insert(domain(needed.domain()), needed.version());
                match known {
                    Some(version) if version != needed.version() => {
                        let why = "a function needs another version of an operator set";
                        return Err(Error::invalid(why).at(function.name()));
                    }
                    Some(_) => {}
                    None => model.opset_import.push(needed.clone()),
                }
            }
        }
        let mut inliner = Inliner {
            functions: &functions,
            nodes: 0,
            calls: 0,
        };
        if let Some(graph) = &mut model.graph {
            inliner.graph(graph, 0)?;
        }
        let own: BTreeSet<String> = functions.keys().map(|k| k.0.clone()).collect();
        model.opset_import.retain(|o| {
            let name = domain(o.domain());
            name.is_empty() || !own.contains(&name)
        });
        Self::from_bytes(model.encode_to_vec(), self.path()).map(Some)
    }
}

struct Inliner<'a> {
    functions: &'a BTreeMap<Key, FunctionProto>,
    nodes: usize,
    calls: usize,
}

impl Inliner<'_> {
    fn graph(&mut self, graph: &mut GraphProto, depth: usize) -> Result<()> {
        let nodes = std::mem::take(&mut graph.node);
        graph.node = self.list(nodes, depth)?;
        Ok(())
    }

    fn list(&mut self, nodes: Vec<NodeProto>, depth: usize) -> Result<Vec<NodeProto>> {
        let mut out = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            for attribute in &mut node.attribute {
                for graph in attribute
                    .g
                    .as_deref_mut()
                    .into_iter()
                    .chain(&mut attribute.graphs)
                {
                    self.graph(graph, depth)?;
                }
            }
            self.nodes += 1;
            if self.nodes > NODES || depth > DEPTH {
                return Err(Error::invalid("its functions unfold without end"));
            }
            match self.functions.get(&key_of(&node)) {
                Some(function) => {
                    let body = self.call(function, &node);
                    out.extend(self.list(body, depth + 1)?);
                }
                None => out.push(node),
            }
        }
        Ok(out)
    }

    /// The nodes of a function, with the names and attributes of one call.
    fn call(&mut self, function: &FunctionProto, node: &NodeProto) -> Vec<NodeProto> {
        self.calls += 1;
        let label = match node.name() {
            "" => format!("{}_{}", function.name(), self.calls),
            name => format!("{name}_{}", self.calls),
        };
        let mut names = BTreeMap::new();
        let mut passed = vec![];
        for (i, own) in function.input.iter().enumerate() {
            names.insert(own.clone(), node.input.get(i).cloned().unwrap_or_default());
        }
        for (own, given) in function.output.iter().zip(&node.output) {
            if given.is_empty() {
                continue;
            }
            // An input that leaves as it is, or a value that leaves twice, needs a node of its own.
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
        let mut body: Vec<NodeProto> = function.node.iter().map(|n| copy.node(n)).collect();
        body.extend(passed.into_iter().map(|(source, given)| NodeProto {
            op_type: Some("Identity".to_owned()),
            input: vec![source],
            output: vec![given],
            ..NodeProto::default()
        }));
        body
    }
}

/// A copy of a function's body under way.
struct Copy<'a> {
    label: String,
    names: BTreeMap<String, String>,
    function: &'a FunctionProto,
    call: &'a NodeProto,
}

impl Copy<'_> {
    fn rename(&self, name: &mut String) {
        if name.is_empty() {
            return;
        }
        *name = match self.names.get(name.as_str()) {
            Some(other) => other.clone(),
            None => format!("{}/{name}", self.label),
        };
    }

    fn node(&mut self, node: &NodeProto) -> NodeProto {
        let mut node = node.clone();
        for name in node.input.iter_mut().chain(&mut node.output) {
            self.rename(name);
        }
        node.name = Some(format!("{}/{}", self.label, node.name()));
        node.attribute = node
            .attribute
            .into_iter()
            .filter_map(|a| self.attribute(a))
            .collect();
        node
    }

    /// An attribute with what the call gives for it; none, where it gives nothing.
    fn attribute(&mut self, mut attribute: AttributeProto) -> Option<AttributeProto> {
        let named = attribute.ref_attr_name().to_owned();
        if !named.is_empty() {
            let defaults = &self.function.attribute_proto;
            let mut given = self.call.attribute.iter().chain(defaults);
            let mut value = given.find(|a| a.name() == named)?.clone();
            value.name = attribute.name.take();
            return Some(value);
        }
        for graph in attribute
            .g
            .as_deref_mut()
            .into_iter()
            .chain(&mut attribute.graphs)
        {
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
        for tensor in &mut graph.initializer {
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
mod tests {
    use super::*;
    use crate::proto::attribute_proto::AttributeType;
    use crate::proto::{OperatorSetIdProto, ValueInfoProto};

    fn node(op: &str, domain: &str, input: &[&str], output: &[&str]) -> NodeProto {
        let own = |l: &[&str]| l.iter().map(|s| (*s).to_owned()).collect();
        NodeProto {
            op_type: Some(op.to_owned()),
            domain: Some(domain.to_owned()),
            input: own(input),
            output: own(output),
            ..NodeProto::default()
        }
    }

    fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
        FunctionProto {
            name: Some(name.to_owned()),
            domain: Some("own".to_owned()),
            input: vec!["a".into()],
            output: vec!["b".into()],
            node: nodes,
            ..FunctionProto::default()
        }
    }

    fn model(functions: Vec<FunctionProto>, nodes: Vec<NodeProto>) -> Model {
        let value = |name: &str| ValueInfoProto {
            name: Some(name.to_owned()),
            ..ValueInfoProto::default()
        };
        let proto = ModelProto {
            ir_version: Some(8),
            opset_import: vec![
                OperatorSetIdProto {
                    domain: Some(String::new()),
                    version: Some(17),
                },
                OperatorSetIdProto {
                    domain: Some("own".into()),
                    version: Some(1),
                },
            ],
            graph: Some(GraphProto {
                node: nodes,
                input: vec![value("x")],
                output: vec![value("y")],
                ..GraphProto::default()
            }),
            functions,
            ..ModelProto::default()
        };
        Model::from_bytes(proto.encode_to_vec(), None).unwrap()
    }

    fn ops(model: &Model) -> Vec<String> {
        let graph = model.graph();
        let order = graph.order(graph.main()).unwrap();
        let nodes = order.iter().map(|n| graph.node(*n));
        nodes.map(|n| n.op().to_owned()).collect()
    }

    #[test]
    fn every_call_gets_a_copy_of_its_own() {
        let inner = function(
            "Twice",
            vec![
                node("Neg", "", &["a"], &["t"]),
                node("Abs", "", &["t"], &["b"]),
            ],
        );
        let outer = function("Outer", vec![node("Twice", "own", &["a"], &["b"])]);
        let m = model(
            vec![inner, outer],
            vec![
                node("Outer", "own", &["x"], &["m"]),
                node("Twice", "own", &["m"], &["y"]),
            ],
        );
        let flat = m.inlined().unwrap().unwrap();
        assert_eq!(ops(&flat), ["Neg", "Abs", "Neg", "Abs"]);
        assert!(!flat.opsets().contains_key("own"));
        assert!(flat.inlined().unwrap().is_none(), "nothing is left to call");
    }

    #[test]
    fn an_attribute_of_the_call_reaches_the_body() {
        let mut inside = node("Softmax", "", &["a"], &["b"]);
        inside.attribute = vec![AttributeProto {
            name: Some("axis".into()),
            ref_attr_name: Some("along".into()),
            r#type: Some(AttributeType::Int as i32),
            ..AttributeProto::default()
        }];
        let mut call = node("F", "own", &["x"], &["y"]);
        call.attribute = vec![AttributeProto {
            name: Some("along".into()),
            i: Some(3),
            r#type: Some(AttributeType::Int as i32),
            ..AttributeProto::default()
        }];
        let flat = model(vec![function("F", vec![inside])], vec![call]);
        let flat = flat.inlined().unwrap().unwrap();
        let id = flat.graph().order(flat.graph().main()).unwrap()[0];
        assert_eq!(flat.graph().node(id).int("axis").unwrap(), Some(3));
    }

    #[test]
    fn a_function_that_calls_itself_is_refused() {
        let endless = function("F", vec![node("F", "own", &["a"], &["b"])]);
        let m = model(vec![endless], vec![node("F", "own", &["x"], &["y"])]);
        assert!(m.inlined().is_err());
    }
}
