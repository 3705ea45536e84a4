//! Graphs, bodies and their nodes.

use std::fmt::{self, Write};

use super::controls::visible;
use super::notes::Notes;
use super::{Weights, is_identifier, is_keyword, is_word, name, quote, shape_text, type_text};
use crate::graph::message::shape_proto;
use crate::graph::{Graph, Type};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::stored::Payload;

/// How much of a graph is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Everything, with names of nodes and types of inner values.
    All,
    /// Only what is computed.
    Computation,
}

/// The purpose of a pass over the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pass {
    /// Collecting notes; no element of a tensor is read.
    Note,
    /// Writing the text.
    Write,
}

/// Writes parts of a graph.
pub(super) struct Printer<'a> {
    pub(super) graph: &'a Graph,
    pub(super) weights: Weights,
    pub(super) detail: Detail,
    pub(super) pass: Pass,
    pub(super) out: &'a mut dyn Write,
    /// What is written differently.
    pub(super) notes: Notes,
}

impl Graph {
    /// The main graph in the ONNX text syntax, for display and snapshots: without names of nodes and
    /// types of inner values, and with hashes instead of larger weights.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut printer = Printer {
            graph: self,
            weights: Weights::Hash,
            detail: Detail::Computation,
            pass: Pass::Write,
            out: &mut out,
            notes: Notes::default(),
        };
        printer
            .scope(self.main(), 0)
            .expect("writing into a string does not fail");
        visible(&out)
    }
}

impl Printer<'_> {
    /// A graph or body from its name to its closing brace.
    pub(super) fn scope(&mut self, scope: ScopeId, depth: usize) -> fmt::Result {
        let own = self.graph.scope(scope).name();
        let title = match depth {
            0 => name(own),
            // As the value of an attribute, a quoted name would be a string.
            _ => self.written(own, "graphs", is_body_name),
        };
        write!(self.out, "{title} (")?;
        for (i, value) in self.graph.scope(scope).inputs().iter().enumerate() {
            self.out.write_str(if i > 0 { ", " } else { "" })?;
            self.typed(*value)?;
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
        let initial = s.initializers().iter().copied();
        let mut listed: Vec<ValueId> = initial.filter(|v| !graph.dropped.contains(v)).collect();
        let initializers = listed.len();
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
            let comment = if i < initializers {
                self.initializer(*value)?
            } else {
                self.typed(*value)?;
                None
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

    /// One initializer, without a separator; returns a comment on its values.
    pub(super) fn initializer(&mut self, value: ValueId) -> Result<Option<String>, fmt::Error> {
        let graph = self.graph;
        let Some(stored) = graph.stored(value) else {
            return Ok(None);
        };
        let label = name(graph.name(value));
        if matches!(stored.payload, Payload::Sparse) {
            let what = "sparse tensors are declared without values";
            self.notes.note(what, || label.clone());
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
        write!(self.out, " {label} = ")?;
        self.tensor_payload(stored, || label)
    }

    /// A value with its declared type, where it has one.
    pub(super) fn typed(&mut self, value: ValueId) -> fmt::Result {
        let label = name(self.graph.name(value));
        match self.type_of(value) {
            Some(ty) => write!(self.out, "{ty} {label}"),
            None => self.out.write_str(&label),
        }
    }

    /// The type that is written for a value.
    pub(super) fn type_of(&self, value: ValueId) -> Option<String> {
        if let Some(ty) = self.graph.other_types.get(&value) {
            return type_text(ty);
        }
        match self.graph.value(value).ty()? {
            Type::Other => None,
            Type::Tensor { dtype, shape } => {
                let shape = shape.as_deref().map(shape_proto);
                Some(format!("{}{}", (*dtype)?, shape_text(shape.as_ref())))
            }
        }
    }

    /// One node, on its own lines.
    pub(super) fn node(&mut self, id: NodeId, depth: usize) -> fmt::Result {
        let graph = self.graph;
        let node = graph.node(id);
        self.indent(depth)?;
        if self.detail == Detail::All && !node.name().is_empty() {
            write!(self.out, "[{}] ", quote(node.name()))?;
        }
        self.names(node.outputs())?;
        self.out.write_str(" = ")?;
        self.call(id)?;
        if node.indexed_bodies().is_empty() {
            self.attributes(id, depth)?;
        }
        self.out.write_str("(")?;
        self.names(node.inputs())?;
        self.out.write_str(")")?;
        if !node.indexed_bodies().is_empty() {
            self.attributes(id, depth)?;
        }
        self.out.write_str("\n")
    }

    /// The names of values, separated by commas; omitted ones are empty.
    fn names(&mut self, values: &[Option<ValueId>]) -> fmt::Result {
        for (i, value) in values.iter().enumerate() {
            self.out.write_str(if i > 0 { ", " } else { "" })?;
            match value.map_or("", |v| self.graph.name(v)) {
                own if is_identifier(own) => self.out.write_str(own)?,
                own => self.out.write_str(&quote(own))?,
            }
        }
        Ok(())
    }

    /// Domain, operator and overload.
    fn call(&mut self, id: NodeId) -> fmt::Result {
        let node = self.graph.node(id);
        if !node.domain().is_empty() {
            for part in node.domain().split('.') {
                let part = self.identifier(part, "domains");
                write!(self.out, "{part}.")?;
            }
        }
        // Without a domain, the syntax allows a node without an operator.
        if !(node.op().is_empty() && node.domain().is_empty()) {
            let op = self.identifier(node.op(), "operators");
            self.out.write_str(&op)?;
        }
        if !self.graph.overload(id).is_empty() {
            let overload = self.identifier(self.graph.overload(id), "overloads");
            write!(self.out, ":{overload}")?;
        }
        Ok(())
    }

    /// Writes a name that cannot be quoted.
    pub(super) fn identifier(&mut self, own: &str, of: &str) -> String {
        self.written(own, of, is_word)
    }

    /// The name where it `fits`, else with `_` for other characters, and a note.
    fn written(&mut self, own: &str, of: &str, fits: fn(&str) -> bool) -> String {
        if fits(own) {
            return own.to_owned();
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let mut made: String = own
            .chars()
            .map(|c| if allowed(c) { c } else { '_' })
            .collect();
        if !fits(&made) {
            made.insert(0, '_');
        }
        let what = format!("names of {of} are written differently");
        self.notes
            .note(&what, || format!("{} as {made}", quote(own)));
        made
    }

    pub(super) fn indent(&mut self, depth: usize) -> fmt::Result {
        write!(self.out, "{:1$}", "", depth * 2)
    }
}

/// Values, separated by commas; omitted ones are empty names.
pub(super) fn values(values: &[Option<ValueId>], label: impl Fn(ValueId) -> String) -> String {
    let labels = values.iter().map(|v| match v {
        Some(v) => label(*v),
        None => "\"\"".to_owned(),
    });
    labels.collect::<Vec<_>>().join(", ")
}

/// Whether an attribute's value that starts with this name is read as a graph, and not as a type or a
/// number.
fn is_body_name(own: &str) -> bool {
    let letters = own.bytes().take_while(u8::is_ascii_alphabetic).count();
    let (first, rest) = own.split_at(letters);
    let number = ["inf", "infinity", "nan"].contains(&first.to_ascii_lowercase().as_str())
        && !rest.starts_with(|c: char| c.is_ascii_digit());
    is_word(own) && !is_keyword(own) && !number
}
