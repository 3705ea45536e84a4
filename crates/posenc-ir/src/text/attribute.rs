//! Attributes of nodes and functions.

use std::borrow::Cow;
use std::fmt;

use super::graph::Printer;
use super::{Weights, float, is_word, quote, type_text};
use crate::graph::message::payload_of;
use crate::id::{NodeId, ScopeId};
use crate::proto::{AttributeProto, TensorProto, TypeProto, attribute_proto::AttributeType};
use crate::stored::{Payload, Stored};

impl Printer<'_> {
    /// ` <name = value, …>`, or nothing.
    pub(super) fn attributes(&mut self, id: NodeId, depth: usize) -> fmt::Result {
        let node = self.graph.node(id);
        let all = node.attributes().iter().enumerate();
        let dense: Vec<(usize, &AttributeProto)> = all.filter(|(_, a)| !is_sparse(a)).collect();
        if dense.is_empty() {
            return Ok(());
        }
        self.out.write_str(" <")?;
        for (n, (index, attribute)) in dense.into_iter().enumerate() {
            self.out.write_str(if n > 0 { ", " } else { "" })?;
            let bodies = node.indexed_bodies().iter().filter(|(i, _)| *i == index);
            let bodies: Vec<ScopeId> = bodies.map(|(_, scope)| *scope).collect();
            let output = node.output(0).filter(|_| index == 0 && node.is("Constant"));
            match output.filter(|v| self.graph.revalued.contains_key(v)) {
                Some(value) => {
                    self.out.write_str("value = ")?;
                    let stored = self.graph.stored(value).cloned();
                    stored.map_or(Ok(()), |s| self.plain_tensor(&s, ""))?;
                }
                None => self.attribute(attribute, &bodies, depth)?,
            }
        }
        self.out.write_str(">")
    }

    /// `name = value`, with the type where the value does not show it.
    pub(super) fn attribute(
        &mut self,
        a: &AttributeProto,
        bodies: &[ScopeId],
        depth: usize,
    ) -> fmt::Result {
        let label = self.identifier(a.name(), "attributes");
        let ty = kind(a);
        if let Some(reference) = a.ref_attr_name.as_deref().filter(|r| !r.is_empty()) {
            let reference = if is_word(reference) {
                reference.to_owned()
            } else {
                quote(reference)
            };
            return match type_name(ty) {
                "" => write!(self.out, "{label} = @{reference}"),
                ty => write!(self.out, "{label} : {ty} = @{reference}"),
            };
        }
        if shows_type(a, ty) {
            write!(self.out, "{label} = ")?;
        } else {
            write!(self.out, "{label} : {} = ", type_name(ty))?;
        }
        match ty {
            AttributeType::Int
            | AttributeType::Float
            | AttributeType::String
            | AttributeType::Tensor
            | AttributeType::Graph
            | AttributeType::TypeProto => self.single(a, ty, bodies, depth),
            _ => self.list(a, ty, bodies, depth),
        }
    }

    /// The value of an attribute that contains one.
    fn single(
        &mut self,
        a: &AttributeProto,
        ty: AttributeType,
        bodies: &[ScopeId],
        depth: usize,
    ) -> fmt::Result {
        match ty {
            AttributeType::Int => write!(self.out, "{}", a.i()),
            AttributeType::Float => self.out.write_str(&float(a.f())),
            AttributeType::String => {
                let text = self.text(a.s());
                self.out.write_str(&text)
            }
            AttributeType::Tensor => match &a.t {
                Some(tensor) => self.attribute_tensor(tensor),
                None => self.missing(a, "float[0] {}"),
            },
            AttributeType::Graph => match bodies.first() {
                Some(body) => self.scope(*body, depth + 1),
                None => self.missing(a, "_ () => () {}"),
            },
            _ => {
                let ty = a.tp.clone().unwrap_or_default();
                let ty = self.type_or_opaque(a, &ty);
                self.out.write_str(&ty)
            }
        }
    }

    /// The values of an attribute that contains a list.
    fn list(
        &mut self,
        a: &AttributeProto,
        ty: AttributeType,
        bodies: &[ScopeId],
        depth: usize,
    ) -> fmt::Result {
        let items: Vec<String> = match ty {
            AttributeType::Ints => a.ints.iter().map(i64::to_string).collect(),
            AttributeType::Floats => a.floats.iter().map(|v| float(*v)).collect(),
            AttributeType::Strings => a.strings.iter().map(|s| self.text(s)).collect(),
            AttributeType::Tensors => {
                self.note_dropped(a);
                return self.separated(&a.tensors, |this, t| this.attribute_tensor(t));
            }
            AttributeType::Graphs => {
                self.note_dropped(a);
                return self.separated(bodies, |this, body| this.scope(*body, depth + 1));
            }
            AttributeType::TypeProtos => {
                self.note_dropped(a);
                let types = a.type_protos.iter();
                types.map(|t| self.type_or_opaque(a, t)).collect()
            }
            _ => return self.missing(a, "[]"),
        };
        write!(self.out, "[{}]", items.join(", "))
    }

    fn note_dropped(&mut self, a: &AttributeProto) {
        let what = "lists of tensors, graphs and types are ignored by the parser of onnx 1.23";
        self.notes.note(what, || a.name().to_owned());
    }

    /// Writes a default for an attribute without a value of its type.
    fn missing(&mut self, a: &AttributeProto, default: &str) -> fmt::Result {
        let what = "attributes without a value are written with an empty one";
        self.notes.note(what, || a.name().to_owned());
        self.out.write_str(default)
    }

    fn type_or_opaque(&mut self, a: &AttributeProto, ty: &TypeProto) -> String {
        type_text(ty).unwrap_or_else(|| {
            let what = "types that the syntax cannot express are written as opaque()";
            self.notes.note(what, || a.name().to_owned());
            "opaque()".to_owned()
        })
    }

    /// A string literal of any bytes.
    pub(super) fn text(&mut self, bytes: &[u8]) -> String {
        let text = String::from_utf8_lossy(bytes);
        if let Cow::Owned(_) = text {
            let what = "bytes that are not UTF-8 are written as replacement characters";
            self.notes.note(what, || quote(&text));
        }
        quote(&text)
    }

    fn attribute_tensor(&mut self, tensor: &TensorProto) -> fmt::Result {
        let alone = AttributeProto {
            name: Some("value".to_owned()),
            t: Some(tensor.clone()),
            ..Default::default()
        };
        match payload_of(&alone) {
            Ok(Some(stored)) => self.plain_tensor(&stored, tensor.name()),
            _ => {
                let what = "unreadable tensors are omitted";
                self.notes.note(what, || quote(tensor.name()));
                self.out.write_str("float[0] {}")
            }
        }
    }

    /// A tensor, with its name in a full text.
    fn plain_tensor(&mut self, stored: &Stored, name: &str) -> fmt::Result {
        self.tensor_type(stored)?;
        if self.weights == Weights::Full && !name.is_empty() {
            if is_word(name) {
                write!(self.out, " {name}")?;
            } else {
                let what = "names of tensors in attributes are omitted";
                self.notes.note(what, || quote(name));
            }
        }
        let elsewhere = matches!(stored.payload, Payload::External(_)) || !self.is_written(stored);
        self.out.write_str(if elsewhere { " = " } else { " " })?;
        self.tensor_payload(stored, || name.to_owned()).map(drop)
    }

    fn separated<T>(
        &mut self,
        items: &[T],
        mut each: impl FnMut(&mut Self, &T) -> fmt::Result,
    ) -> fmt::Result {
        self.out.write_str("[")?;
        for (i, item) in items.iter().enumerate() {
            self.out.write_str(if i > 0 { ", " } else { "" })?;
            each(self, item)?;
        }
        self.out.write_str("]")
    }
}

/// Whether the value shows its type: not an empty list, and not a type.
fn shows_type(a: &AttributeProto, ty: AttributeType) -> bool {
    match ty {
        AttributeType::Ints => !a.ints.is_empty(),
        AttributeType::Floats => !a.floats.is_empty(),
        AttributeType::Strings => !a.strings.is_empty(),
        AttributeType::Int
        | AttributeType::Float
        | AttributeType::String
        | AttributeType::Tensor
        | AttributeType::Graph => true,
        _ => false,
    }
}

/// Whether the attribute contains sparse tensors, which the syntax cannot express.
pub(super) fn is_sparse(a: &AttributeProto) -> bool {
    matches!(
        kind(a),
        AttributeType::SparseTensor | AttributeType::SparseTensors
    )
}

/// The type of the attribute; files of IR version 1 do not give it.
pub(crate) fn kind(a: &AttributeProto) -> AttributeType {
    match a.r#type() {
        AttributeType::Undefined => {}
        ty => return ty,
    }
    let reference = a.ref_attr_name.as_ref().map(|_| AttributeType::Undefined);
    let found = a.filled().next().or(reference);
    found.unwrap_or(AttributeType::Ints)
}

/// Every type of an attribute.
pub(super) const TYPES: [AttributeType; 14] = [
    AttributeType::Float,
    AttributeType::Int,
    AttributeType::String,
    AttributeType::Tensor,
    AttributeType::Graph,
    AttributeType::SparseTensor,
    AttributeType::TypeProto,
    AttributeType::Floats,
    AttributeType::Ints,
    AttributeType::Strings,
    AttributeType::Tensors,
    AttributeType::Graphs,
    AttributeType::SparseTensors,
    AttributeType::TypeProtos,
];

/// The name of the type in the syntax; empty for an undefined one.
pub(super) fn type_name(ty: AttributeType) -> &'static str {
    match ty {
        AttributeType::Undefined => "",
        AttributeType::Float => "float",
        AttributeType::Int => "int",
        AttributeType::String => "string",
        AttributeType::Tensor => "tensor",
        AttributeType::Graph => "graph",
        AttributeType::SparseTensor => "sparse_tensor",
        AttributeType::TypeProto => "type_proto",
        AttributeType::Floats => "floats",
        AttributeType::Ints => "ints",
        AttributeType::Strings => "strings",
        AttributeType::Tensors => "tensors",
        AttributeType::Graphs => "graphs",
        AttributeType::SparseTensors => "sparse_tensors",
        AttributeType::TypeProtos => "type_protos",
    }
}
