//! Attributes of nodes and functions.

use std::fmt;

use super::graph::Printer;
use super::{float, quote, type_text};
use crate::graph::message::payload_of;
use crate::id::{NodeId, ScopeId};
use crate::proto::{AttributeProto, TensorProto, attribute_proto::AttributeType};
use crate::stored::{Payload, Stored};

impl Printer<'_> {
    /// ` <name = value, …>`, or nothing.
    pub(super) fn attributes(&mut self, id: NodeId, depth: usize) -> fmt::Result {
        let node = self.graph.node(id);
        let shown = |a: &&AttributeProto| {
            !matches!(
                kind(a),
                AttributeType::SparseTensor | AttributeType::SparseTensors
            )
        };
        let shown: Vec<(usize, &AttributeProto)> = node
            .attributes()
            .iter()
            .enumerate()
            .filter(|(_, a)| shown(a))
            .collect();
        if shown.is_empty() {
            return Ok(());
        }
        self.out.write_str(" <")?;
        for (n, (index, attribute)) in shown.into_iter().enumerate() {
            self.out.write_str(if n > 0 { ", " } else { "" })?;
            let bodies = node.bodies.iter().filter(|(i, _)| *i == index);
            let bodies: Vec<ScopeId> = bodies.map(|(_, scope)| *scope).collect();
            let output = node.output(0).filter(|_| index == 0 && node.is("Constant"));
            match output.filter(|v| self.graph.revalued.contains_key(v)) {
                Some(value) => {
                    self.out.write_str("value = ")?;
                    let stored = self.graph.stored(value).cloned();
                    stored.map_or(Ok(()), |s| self.plain_tensor(&s, "value"))?;
                }
                None => self.attribute(attribute, &bodies, depth)?,
            }
        }
        self.out.write_str(">")
    }

    /// `name = value`, with the type where the value does not tell it.
    pub(super) fn attribute(
        &mut self,
        a: &AttributeProto,
        bodies: &[ScopeId],
        depth: usize,
    ) -> fmt::Result {
        let label = self.identifier(a.name(), "attribute");
        let ty = kind(a);
        if let Some(reference) = a.ref_attr_name.as_deref().filter(|r| !r.is_empty()) {
            let reference = self.identifier(reference, "attribute");
            return match type_name(ty) {
                "" => write!(self.out, "{label} = @{reference}"),
                ty => write!(self.out, "{label} : {ty} = @{reference}"),
            };
        }
        let bare = match ty {
            AttributeType::Ints => !a.ints.is_empty(),
            AttributeType::Floats => !a.floats.is_empty(),
            AttributeType::Strings => !a.strings.is_empty(),
            AttributeType::Int
            | AttributeType::Float
            | AttributeType::String
            | AttributeType::Tensor
            | AttributeType::Graph => true,
            _ => false,
        };
        match bare {
            true => write!(self.out, "{label} = ")?,
            false => write!(self.out, "{label} : {} = ", type_name(ty))?,
        }
        let list = |items: Vec<String>| format!("[{}]", items.join(", "));
        match ty {
            AttributeType::Int => write!(self.out, "{}", a.i()),
            AttributeType::Float => self.out.write_str(&float(a.f())),
            AttributeType::String => {
                let text = text(a.s());
                self.out.write_str(&text)
            }
            AttributeType::Tensor => match &a.t {
                Some(tensor) => self.attribute_tensor(a, tensor, &label),
                None => self.out.write_str("float {}"),
            },
            AttributeType::Graph => match bodies.first() {
                Some(body) => self.scope(*body, depth + 1),
                None => self.out.write_str("_ () => () {}"),
            },
            AttributeType::Ints => {
                let items = a.ints.iter().map(i64::to_string).collect();
                self.out.write_str(&list(items))
            }
            AttributeType::Floats => {
                let items = a.floats.iter().map(|v| float(*v)).collect();
                self.out.write_str(&list(items))
            }
            AttributeType::Strings => {
                let items = a.strings.iter().map(|s| text(s)).collect();
                self.out.write_str(&list(items))
            }
            AttributeType::Tensors => {
                self.separated(&a.tensors, |this, t| this.attribute_tensor(a, t, &label))
            }
            AttributeType::Graphs => {
                self.separated(bodies, |this, body| this.scope(*body, depth + 1))
            }
            AttributeType::TypeProto => {
                let ty = a.tp.as_ref().and_then(type_text);
                self.out.write_str(ty.as_deref().unwrap_or("opaque()"))
            }
            AttributeType::TypeProtos => {
                let items = a.type_protos.iter();
                let items = items.map(|t| type_text(t).unwrap_or_else(|| "opaque()".to_owned()));
                self.out.write_str(&list(items.collect()))
            }
            AttributeType::Undefined
            | AttributeType::SparseTensor
            | AttributeType::SparseTensors => self.out.write_str("[]"),
        }
    }

    fn attribute_tensor(
        &mut self,
        a: &AttributeProto,
        tensor: &TensorProto,
        label: &str,
    ) -> fmt::Result {
        let alone = AttributeProto {
            name: Some("value".to_owned()),
            t: Some(tensor.clone()),
            ..Default::default()
        };
        match payload_of(&alone) {
            Ok(Some(stored)) => self.plain_tensor(&stored, label),
            _ => {
                self.note(format!("the tensor {} is not readable", quote(a.name())));
                self.out.write_str("float {}")
            }
        }
    }

    /// A tensor without a name, but for one whose payload is elsewhere: that form needs one.
    fn plain_tensor(&mut self, stored: &Stored, label: &str) -> fmt::Result {
        self.tensor_type(stored)?;
        let elsewhere = matches!(stored.payload, Payload::External(_)) || !self.is_written(stored);
        match elsewhere {
            true => write!(self.out, " {label} = ")?,
            false => self.out.write_str(" ")?,
        }
        self.tensor_payload(stored).map(drop)
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

/// A string of an attribute, which may hold any bytes.
fn text(bytes: &[u8]) -> String {
    quote(&String::from_utf8_lossy(bytes))
}

/// What the attribute holds; files of IR version 1 leave the type out.
fn kind(a: &AttributeProto) -> AttributeType {
    match a.r#type() {
        AttributeType::Undefined => {}
        ty => return ty,
    }
    let held = [
        (a.f.is_some(), AttributeType::Float),
        (a.i.is_some(), AttributeType::Int),
        (a.s.is_some(), AttributeType::String),
        (a.t.is_some(), AttributeType::Tensor),
        (a.g.is_some(), AttributeType::Graph),
        (!a.floats.is_empty(), AttributeType::Floats),
        (!a.ints.is_empty(), AttributeType::Ints),
        (!a.strings.is_empty(), AttributeType::Strings),
        (!a.tensors.is_empty(), AttributeType::Tensors),
        (a.sparse_tensor.is_some(), AttributeType::SparseTensor),
        (!a.sparse_tensors.is_empty(), AttributeType::SparseTensors),
        (a.tp.is_some(), AttributeType::TypeProto),
        (!a.type_protos.is_empty(), AttributeType::TypeProtos),
        (a.ref_attr_name.is_some(), AttributeType::Undefined),
    ];
    let found = held.into_iter().find(|(there, _)| *there);
    found.map_or(AttributeType::Ints, |(_, ty)| ty)
}

/// The type's name in the syntax; empty where undefined.
fn type_name(ty: AttributeType) -> &'static str {
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
