//! Graphs, bodies and their nodes.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use super::{Weights, is_identifier, name, quote, shape_text, type_text};
use crate::graph::{Def, Dim, Graph, Type};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::proto::{TensorShapeProto, tensor_shape_proto};
use crate::stored::Payload;

/// Whether what only tools read is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Names of nodes and types of inner values too.
    All,
    /// What is computed.
    Computation,
}

/// Writes parts of a graph.
pub(super) struct Printer<'a> {
    pub(super) graph: &'a Graph,
    pub(super) weights: Weights,
    pub(super) detail: Detail,
    pub(super) out: &'a mut dyn Write,
    /// What was written differently, for the head.
    pub(super) notes: BTreeSet<String>,
}

impl Graph {
    /// The main graph in the ONNX text syntax, for people and snapshots: without names of nodes,
    /// types of inner values, and the payloads of larger weights, of which hashes are shown.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut printer = Printer {
            graph: self,
            weights: Weights::Hash,
            detail: Detail::Computation,
            out: &mut out,
            notes: BTreeSet::new(),
        };
        printer
            .scope(self.main(), 0)
            .expect("writing into a string does not fail");
        out
    }
}

impl Printer<'_> {
    /// A graph or body from its name to its closing brace.
    pub(super) fn scope(&mut self, scope: ScopeId, depth: usize) -> fmt::Result {
        let own = self.graph.scope(scope).name();
        let title = match (depth, own) {
            (0, _) => name(own),
            // In the place of an attribute a literal is read as a string.
            (_, "") => "_".to_owned(),
            _ => self.identifier(own, "graph"),
        };
        write!(self.out, "{title} (")?;
        for (i, value) in self.graph.scope(scope).inputs().iter().enumerate() {
            self.out.write_str(if i > 0 { ", " } else { "" })?;
            self.typed(*value)?;
            if self.graph.stored(*value).is_some() {
                self.payload(*value)?;
            }
        }
        self.out.write_str(") => (")?;
        for (i, value) in self.graph.scope(scope).outputs().iter().enumerate() {
            self.out.write_str(if i > 0 { ", " } else { "" })?;
            self.typed(*value)?;
        }
        self.out.write_str(")")?;
        self.values(scope, depth)?;
        self.body(scope, depth)
    }

    /// The nodes between braces.
    pub(super) fn body(&mut self, scope: ScopeId, depth: usize) -> fmt::Result {
        self.out.write_str(" {\n")?;
        for node in self.graph.scope(scope).nodes() {
            if !self.graph.is_removed(*node) {
                self.node(*node, depth + 1)?;
            }
        }
        self.indent(depth)?;
        self.out.write_str("}")
    }

    /// Initializers, and the types of inner values.
    pub(super) fn values(&mut self, scope: ScopeId, depth: usize) -> fmt::Result {
        let graph = self.graph;
        let s = graph.scope(scope);
        let initial =
            |v: &&ValueId| graph.value(**v).def() == Def::Initializer && !graph.dropped.contains(v);
        let mut listed: Vec<ValueId> = s.initializers().iter().filter(initial).copied().collect();
        if self.detail == Detail::All {
            let computed = s.nodes().iter().filter(|n| !graph.is_removed(**n));
            let computed = computed.flat_map(|n| graph.node(*n).outputs()).flatten();
            let inner = computed.filter(|v| !s.outputs().contains(v));
            listed.extend(inner.filter(|v| self.type_of(**v).is_some()));
        }
        if listed.is_empty() {
            return Ok(());
        }
        self.out.write_str("\n")?;
        self.indent(depth)?;
        self.out.write_str("<\n")?;
        for (i, value) in listed.iter().enumerate() {
            self.indent(depth + 1)?;
            let comment = match graph.value(*value).def() {
                Def::Initializer => self.initializer(*value)?,
                _ => {
                    self.typed(*value)?;
                    None
                }
            };
            if i + 1 < listed.len() {
                self.out.write_str(",")?;
            }
            if let Some(comment) = comment {
                write!(self.out, " # {comment}")?;
            }
            self.out.write_str("\n")?;
        }
        self.indent(depth)?;
        self.out.write_str(">")
    }

    /// One initializer, without what follows it; returns a comment on its values.
    pub(super) fn initializer(&mut self, value: ValueId) -> Result<Option<String>, fmt::Error> {
        let graph = self.graph;
        let Some(stored) = graph.stored(value) else {
            return Ok(None);
        };
        let label = name(graph.name(value));
        if matches!(stored.payload, Payload::Sparse) {
            self.note(format!("the sparse tensor {label} is only declared"));
            let dtype = stored.dtype.map_or("float", |d| d.name());
            let dims: Vec<String> = stored.dims.iter().map(usize::to_string).collect();
            write!(
                self.out,
                "sparse_tensor({dtype}[{}]) {label}",
                dims.join(",")
            )?;
            return Ok(None);
        }
        self.tensor_type(stored)?;
        write!(self.out, " {label}")?;
        self.payload(value)
    }

    fn payload(&mut self, value: ValueId) -> Result<Option<String>, fmt::Error> {
        let graph = self.graph;
        match graph.stored(value) {
            Some(stored) => {
                self.out.write_str(" = ")?;
                self.tensor_payload(stored)
            }
            None => Ok(None),
        }
    }

    /// A value with its declared type, where it has one.
    fn typed(&mut self, value: ValueId) -> fmt::Result {
        let label = name(self.graph.name(value));
        match self.type_of(value) {
            Some(ty) => write!(self.out, "{ty} {label}"),
            None => self.out.write_str(&label),
        }
    }

    fn type_of(&self, value: ValueId) -> Option<String> {
        use tensor_shape_proto::{Dimension, dimension::Value};
        match self.graph.value(value).ty()? {
            Type::Other => type_text(self.graph.other_types.get(&value)?),
            Type::Tensor { dtype, shape } => {
                let dim = |d: &Dim| Dimension {
                    denotation: None,
                    value: match d {
                        Dim::Known(n) => Some(Value::DimValue(*n as i64)),
                        Dim::Symbol(s) => Some(Value::DimParam(s.to_string())),
                        Dim::Unknown => None,
                    },
                };
                let shape = shape.as_ref().map(|s| TensorShapeProto {
                    dim: s.iter().map(dim).collect(),
                });
                Some(format!("{}{}", (*dtype)?, shape_text(shape.as_ref())))
            }
        }
    }

    /// One node in lines of its own.
    pub(super) fn node(&mut self, id: NodeId, depth: usize) -> fmt::Result {
        let graph = self.graph;
        let node = graph.node(id);
        for attribute in node.attributes() {
            if attribute.sparse_tensor.is_some() || !attribute.sparse_tensors.is_empty() {
                self.note("sparse tensors among attributes are left out".to_owned());
            }
        }
        self.indent(depth)?;
        if self.detail == Detail::All && !node.name().is_empty() {
            write!(self.out, "[{}] ", quote(node.name()))?;
        }
        let outputs = values(node.outputs(), |v| name(graph.name(v)));
        write!(self.out, "{outputs} = ")?;
        self.call(id)?;
        if node.bodies.is_empty() {
            self.attributes(id, depth)?;
        }
        let inputs = values(node.inputs(), |v| name(graph.name(v)));
        write!(self.out, "({inputs})")?;
        if !node.bodies.is_empty() {
            self.attributes(id, depth)?;
        }
        self.out.write_str("\n")
    }

    /// Domain, operator and overload.
    fn call(&mut self, id: NodeId) -> fmt::Result {
        let node = self.graph.node(id);
        for part in node.domain().split('.').filter(|p| !p.is_empty()) {
            let part = self.identifier(part, "domain");
            write!(self.out, "{part}.")?;
        }
        let op = self.identifier(node.op(), "operator");
        self.out.write_str(&op)?;
        if !self.graph.overload(id).is_empty() {
            let overload = self.identifier(self.graph.overload(id), "overload");
            write!(self.out, ":{overload}")?;
        }
        Ok(())
    }

    /// The name itself where the syntax takes it bare, else one in which other characters are
    /// `_`, and a note.
    pub(super) fn identifier(&mut self, own: &str, what: &str) -> String {
        if is_identifier(own) {
            return own.to_owned();
        }
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut made: String = own.chars().map(|c| if good(c) { c } else { '_' }).collect();
        if !is_identifier(&made) {
            made.insert(0, '_');
        }
        self.note(format!("the {what} {} is written {made}", quote(own)));
        made
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.insert(note.replace(['\n', '\r'], " "));
    }

    pub(super) fn indent(&mut self, depth: usize) -> fmt::Result {
        write!(self.out, "{:1$}", "", depth * 2)
    }
}

/// Values with commas between them; those left out are empty names.
pub(super) fn values(values: &[Option<ValueId>], label: impl Fn(ValueId) -> String) -> String {
    let labels = values.iter().map(|v| match v {
        Some(v) => label(*v),
        None => "\"\"".to_owned(),
    });
    labels.collect::<Vec<_>>().join(", ")
}
