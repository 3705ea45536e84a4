//! Encoding an edited graph: messages that no patch changed keep their bytes.

mod ports;

use std::ops::Range;

use bytes::Bytes;
use prost::Message;

use crate::encoded::Encoded;
use crate::error::{Error, Result};
use crate::field::{
    attribute, function, graph, model as model_field, node as node_field, tensor as tensor_field,
};
use crate::graph::Graph;
use crate::graph::scope::{Item, Piece};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::{Model, Part, PartKind, domain};
use crate::proto::{
    AttributeProto, NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
};
use crate::tensor::Tensor;
use crate::wire;

impl Model {
    /// Encodes the model with its edits. Unchanged bytes are ranges of the source.
    ///
    /// # Errors
    /// When the source is malformed, which reading has ruled out.
    pub(crate) fn encode(&self) -> Result<Encoded> {
        let mut out = Encoded::default();
        if self.set.is_empty() && self.imported.is_empty() && self.graph.revision == 0 {
            out.source(0..self.source.len());
            return Ok(out);
        }
        let splice = Splice::new(self);
        let has_version = self.layout.iter().any(|p| p.kind == PartKind::IrVersion);
        if self.raised.is_some() && !has_version {
            self.put_ir_version(&mut out);
        }
        let last = |kind: fn(&PartKind) -> bool| self.layout.iter().rposition(|p| kind(&p.kind));
        let opsets_end = last(|k| *k == PartKind::Opset);
        let metadata_end = last(|k| matches!(k, PartKind::Metadata(_)));
        let mut functions = self
            .graph
            .scopes()
            .filter(|s| matches!(self.graph.scope(*s).kind, crate::ScopeKind::Function { .. }));
        for (i, part) in self.layout.iter().enumerate() {
            match &part.kind {
                PartKind::Graph => {
                    splice.scope_field(model_field::GRAPH, self.graph.main(), part, &mut out)?;
                }
                PartKind::Function(_) => {
                    let scope = functions
                        .next()
                        .ok_or_else(|| Error::decode("a function is missing"))?;
                    splice.scope_field(model_field::FUNCTION, scope, part, &mut out)?;
                }
                // A replaced entry keeps its position.
                PartKind::Metadata(key) if self.set.contains_key(key) => {
                    put_metadata(key, &self.set[key], &mut out);
                }
                PartKind::Opset => match self.replaced(&self.source[part.payload.clone()])? {
                    Some((domain, version)) => put_import(domain, version, &mut out),
                    None => out.source(part.span.clone()),
                },
                PartKind::IrVersion if self.raised.is_some() => self.put_ir_version(&mut out),
                _ => out.source(part.span.clone()),
            }
            if Some(i) == opsets_end {
                self.put_imports(&mut out);
            }
            if Some(i) == metadata_end {
                self.put_new_metadata(&mut out);
            }
        }
        if opsets_end.is_none() {
            self.put_imports(&mut out);
        }
        if metadata_end.is_none() {
            self.put_new_metadata(&mut out);
        }
        Ok(out)
    }

    /// The encoded model in memory, with its edits. External data stays external.
    ///
    /// # Errors
    /// When the source is malformed, which reading has ruled out.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.encode()?.to_vec(&self.source))
    }

    fn put_ir_version(&self, out: &mut Encoded) {
        let mut bytes = vec![];
        let version = self.ir_version().cast_unsigned();
        wire::put_int(model_field::IR_VERSION, version, &mut bytes);
        out.owned(&bytes);
    }

    /// The import that takes the place of one that was read, if any does.
    fn replaced(&self, import: &[u8]) -> Result<Option<(&str, i64)>> {
        let import =
            OperatorSetIdProto::decode(import).map_err(|e| Error::decode(e.to_string()))?;
        let own = self.imported.get_key_value(&domain(import.domain()));
        Ok(own.map(|(domain, version)| (domain.as_str(), *version)))
    }

    /// Writes the imports that take no place of another.
    fn put_imports(&self, out: &mut Encoded) {
        let read = &self.head.opsets;
        for (domain, version) in self.imported.iter().filter(|(d, _)| !read.contains_key(*d)) {
            put_import(domain, *version, out);
        }
    }

    fn put_new_metadata(&self, out: &mut Encoded) {
        for (key, value) in &self.set {
            if !self.metadata.iter().any(|(k, _)| k == key) {
                put_metadata(key, value, out);
            }
        }
    }
}

fn put_import(domain: &str, version: i64, out: &mut Encoded) {
    let import = OperatorSetIdProto {
        domain: Some(domain.to_owned()),
        version: Some(version),
    };
    let mut bytes = vec![];
    wire::put_bytes(model_field::OPSET, &import.encode_to_vec(), &mut bytes);
    out.owned(&bytes);
}

fn put_metadata(key: &str, value: &str, out: &mut Encoded) {
    let entry = StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value.to_owned()),
    };
    let mut bytes = vec![];
    wire::put_bytes(model_field::METADATA, &entry.encode_to_vec(), &mut bytes);
    out.owned(&bytes);
}

/// Encodes messages of an edited graph.
pub(crate) struct Splice<'a> {
    source: &'a Bytes,
    graph: &'a Graph,
}

impl<'a> Splice<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        Self {
            source: &model.source,
            graph: &model.graph,
        }
    }

    /// The message of a node.
    pub(crate) fn node_message(&self, id: NodeId) -> Result<Encoded> {
        match self.graph.source(id) {
            Some(span) => self.edited_node(id, wire::field(self.source, span)?.payload),
            None => Ok(self.new_node(id)),
        }
    }

    fn scope_field(
        &self,
        number: u32,
        scope: ScopeId,
        part: &Part,
        out: &mut Encoded,
    ) -> Result<()> {
        if self.is_untouched(scope) {
            out.source(part.span.clone());
        } else {
            debug_assert_eq!(self.graph.scope(scope).span, part.payload);
            out.field(number, self.scope(scope)?);
        }
        Ok(())
    }

    /// Whether a scope and all bodies in it are unchanged.
    fn is_untouched(&self, scope: ScopeId) -> bool {
        let g = self.graph;
        let mut stack = vec![scope];
        while let Some(scope) = stack.pop() {
            let s = g.scope(scope);
            let pieces = s.layout.iter().all(|piece| match piece.item {
                Item::Node(node) => !g.removed.contains(&node),
                Item::Initializer(v) => !g.dropped.contains(&v) && !g.revalued.contains_key(&v),
                Item::Info(_) | Item::Other => true,
            });
            let nodes = s.nodes.iter().all(|id| {
                let node = g.node(*id);
                stack.extend(node.indexed_bodies().iter().map(|b| b.1));
                node.piece.is_some() && !self.is_edited(*id)
            });
            let mut ports = s.inputs.iter().chain(&s.outputs);
            if ports.any(|v| g.redeclared.contains(v)) {
                return false;
            }
            let read = |v: &ValueId| v.index() < g.read_values;
            let initials = s.initializers.iter().chain(&s.inputs).all(read);
            let read = s.layout.iter().filter_map(|piece| match piece.item {
                Item::Node(node) => Some(node),
                _ => None,
            });
            if !(pieces && nodes && initials && read.eq(s.nodes.iter().copied())) {
                return false;
            }
        }
        true
    }

    /// Whether the node itself has changed; its bodies are not looked at.
    fn is_edited(&self, id: NodeId) -> bool {
        self.graph.edited.contains(&id) || self.revalued_output(id).is_some()
    }

    fn revalued_output(&self, id: NodeId) -> Option<&Tensor> {
        let node = self.graph.node(id);
        let out = node.output(0).filter(|_| node.is("Constant"))?;
        self.graph.revalued.get(&out)
    }

    /// The message of a scope.
    pub(crate) fn scope(&self, scope: ScopeId) -> Result<Encoded> {
        let g = self.graph;
        let s = g.scope(scope);
        let is_function = matches!(s.kind, crate::ScopeKind::Function { .. });
        let node_field = if is_function {
            function::NODE
        } else {
            graph::NODE
        };
        let mut queue = s.nodes.iter().copied();
        let is_node = |p: &Piece| matches!(p.item, Item::Node(_));
        let is_initial = |p: &Piece| matches!(p.item, Item::Initializer(_));
        let last_node = s.layout.iter().rposition(is_node);
        let last_initial = s.layout.iter().rposition(is_initial).or(last_node);
        let mut out = Encoded::default();
        for (i, (span, item)) in s.pieces().enumerate() {
            match item {
                // At each old node: the new nodes before it, and the node.
                Item::Node(here) if g.removed.contains(&here) => {}
                Item::Node(_) => {
                    for id in queue.by_ref() {
                        self.node(node_field, id, &mut out)?;
                        if g.node(id).piece.is_some() {
                            break;
                        }
                    }
                }
                Item::Initializer(v) if g.dropped.contains(&v) => {}
                Item::Initializer(v) if g.revalued.contains_key(&v) => {
                    let at = wire::field(self.source, span)?.payload;
                    out.field(graph::INITIALIZER, self.tensor(at, &g.revalued[&v])?);
                }
                Item::Info(v) if self.is_stale(v) => {}
                Item::Other => self.other(scope, span, &mut out)?,
                _ => out.source(span),
            }
            if Some(i) == last_node {
                for id in queue.by_ref() {
                    self.node(node_field, id, &mut out)?;
                }
            }
            if Some(i) == last_initial {
                self.new_initializers(scope, &mut out);
            }
        }
        if last_node.is_none() {
            for id in queue {
                self.node(node_field, id, &mut out)?;
            }
        }
        if last_initial.is_none() {
            self.new_initializers(scope, &mut out);
        }
        self.new_inputs(scope, &mut out);
        Ok(out)
    }

    /// Whether the value of a declared type was removed, or got another type.
    fn is_stale(&self, value: ValueId) -> bool {
        let g = self.graph;
        g.is_removed_value(value) || g.value(value).ty.is_none()
    }

    fn new_initializers(&self, scope: ScopeId, out: &mut Encoded) {
        let g = self.graph;
        for id in &g.scope(scope).initializers {
            if id.index() < g.read_values || g.dropped.contains(id) {
                continue;
            }
            let Some(tensor) = g.constant(*id) else {
                continue;
            };
            let mut bytes = vec![];
            put_tensor(&tensor, Some(g.name(*id)), &mut bytes);
            let mut field = vec![];
            wire::put_bytes(graph::INITIALIZER, &bytes, &mut field);
            out.owned(&field);
        }
    }

    fn node(&self, number: u32, id: NodeId, out: &mut Encoded) -> Result<()> {
        let mut bodies = self.graph.node(id).indexed_bodies().iter();
        let mut touched = || self.is_edited(id) || !bodies.all(|b| self.is_untouched(b.1));
        match self.graph.source(id) {
            Some(span) if !touched() => out.source(span),
            _ => out.field(number, self.node_message(id)?),
        }
        Ok(())
    }

    fn new_node(&self, id: NodeId) -> Encoded {
        let node = self.graph.node(id);
        let names = |values: &[Option<ValueId>]| {
            let name = |v: &Option<ValueId>| v.map_or("", |v| self.graph.name(v)).to_owned();
            values.iter().map(name).collect()
        };
        let proto = NodeProto {
            input: names(&node.inputs),
            output: names(&node.outputs),
            name: Some(node.name.to_string()),
            op_type: Some(node.op().to_owned()),
            domain: (!node.domain().is_empty()).then(|| node.domain().to_owned()),
            attribute: node.attributes().to_vec(),
            ..Default::default()
        };
        let mut content = Encoded::default();
        content.owned(&proto.encode_to_vec());
        content
    }

    /// The message of a changed node: new names of inputs and outputs, bodies, or payload; other
    /// fields keep their bytes.
    fn edited_node(&self, id: NodeId, at: Range<usize>) -> Result<Encoded> {
        let node = self.graph.node(id);
        let mut out = Encoded::default();
        let (mut input, mut output, mut attribute) = (0, 0, 0);
        for f in wire::fields(self.source, at) {
            let f = f?;
            let edge = match f.number {
                node_field::INPUT => node.inputs.get(input).map(|v| (&mut input, *v)),
                node_field::OUTPUT => node.outputs.get(output).map(|v| (&mut output, *v)),
                _ => None,
            };
            if let Some((count, value)) = edge.filter(|_| f.delimited) {
                *count += 1;
                let name = value.map_or("", |v| self.graph.name(v)).as_bytes();
                if self.source[f.payload.clone()] == *name {
                    out.source(f.span);
                } else {
                    let mut bytes = vec![];
                    wire::put_bytes(f.number, name, &mut bytes);
                    out.owned(&bytes);
                }
            } else if f.number == node_field::ATTRIBUTE && f.delimited {
                let bodies: Vec<ScopeId> = node
                    .indexed_bodies()
                    .iter()
                    .filter(|(i, _)| *i == attribute)
                    .map(|(_, scope)| *scope)
                    .collect();
                let payload = self.revalued_output(id).filter(|_| attribute == 0);
                if let Some(tensor) = payload {
                    out.field(f.number, self.edited_payload(f.payload, tensor)?);
                } else if bodies.iter().all(|b| self.is_untouched(*b)) {
                    out.source(f.span);
                } else {
                    out.field(f.number, self.edited_bodies(f.payload, &bodies)?);
                }
                attribute += 1;
            } else if f.number != node_field::NAME || !node.name.is_empty() {
                out.source(f.span);
            }
        }
        Ok(out)
    }

    /// An attribute whose graphs may have changed.
    fn edited_bodies(&self, at: Range<usize>, bodies: &[ScopeId]) -> Result<Encoded> {
        let mut out = Encoded::default();
        let mut bodies = bodies.iter();
        for f in wire::fields(self.source, at) {
            let f = f?;
            match bodies.next_body(&f) {
                Some(body) if !self.is_untouched(body) => out.field(f.number, self.scope(body)?),
                _ => out.source(f.span),
            }
        }
        Ok(out)
    }

    /// The attribute of a `Constant` node with another payload.
    fn edited_payload(&self, at: Range<usize>, tensor: &Tensor) -> Result<Encoded> {
        let mut out = Encoded::default();
        let mut spliced = false;
        for f in wire::fields(self.source, at.clone()) {
            let f = f?;
            if f.number == attribute::TENSOR && f.delimited {
                out.field(f.number, self.tensor(f.payload, tensor)?);
                spliced = true;
            } else {
                out.source(f.span);
            }
        }
        if spliced {
            return Ok(out);
        }
        // `value_floats` and the like cannot store dimensions; fields other than the value are kept.
        let mut out = Encoded::default();
        for f in wire::fields(self.source, at) {
            let f = f?;
            if !attribute::CONTENT.contains(&f.number) {
                out.source(f.span);
            }
        }
        let mut t = vec![];
        put_tensor(tensor, None, &mut t);
        let mut message = AttributeProto {
            name: Some("value".to_owned()),
            t: Some(TensorProto::decode(t.as_slice()).map_err(|e| Error::decode(e.to_string()))?),
            ..Default::default()
        };
        message.set_type(crate::proto::attribute_proto::AttributeType::Tensor);
        out.owned(&message.encode_to_vec());
        Ok(out)
    }

    /// A tensor with other dimensions and values; the name and other fields are kept.
    fn tensor(&self, at: Range<usize>, tensor: &Tensor) -> Result<Encoded> {
        let mut out = Encoded::default();
        let mut payload = vec![];
        put_tensor(tensor, None, &mut payload);
        let mut payload = Some(payload);
        for f in wire::fields(self.source, at) {
            let f = f?;
            let replaced = matches!(
                f.number,
                tensor_field::DIMS
                    | tensor_field::DATA_TYPE
                    | tensor_field::RAW_DATA
                    | tensor_field::EXTERNAL_DATA
                    | tensor_field::DATA_LOCATION
            ) || tensor_field::TYPED.contains(&f.number);
            if !replaced {
                out.source(f.span);
            } else if let Some(payload) = payload.take() {
                out.owned(&payload);
            }
        }
        if let Some(payload) = payload {
            out.owned(&payload);
        }
        Ok(out)
    }
}

trait NextBody {
    /// The scope of field `f` when that is a graph.
    fn next_body(&mut self, f: &wire::Field) -> Option<ScopeId>;
}

impl<'a, I: Iterator<Item = &'a ScopeId>> NextBody for I {
    fn next_body(&mut self, f: &wire::Field) -> Option<ScopeId> {
        if f.delimited && matches!(f.number, attribute::GRAPH | attribute::GRAPHS) {
            self.next().copied()
        } else {
            None
        }
    }
}

/// The fields of a `TensorProto` with a raw payload.
fn put_tensor(tensor: &Tensor, name: Option<&str>, out: &mut Vec<u8>) {
    for d in tensor.dims() {
        wire::put_int(tensor_field::DIMS, *d as u64, out);
    }
    wire::put_int(tensor_field::DATA_TYPE, tensor.dtype().code() as u64, out);
    if let Some(name) = name {
        wire::put_bytes(tensor_field::NAME, name.as_bytes(), out);
    }
    wire::put_bytes(tensor_field::RAW_DATA, tensor.bytes(), out);
}

#[cfg(test)]
mod tests;
