//! From encoded messages to a [`Graph`].

use std::ops::Range;

use bytes::Bytes;
use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};

use super::message::{payload_of, type_of};
use super::{Def, Graph, Item, Piece, Scope, ScopeKind, Type, Use, Value};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::id::{NodeId, ScopeId, ValueId};
use crate::node::Node;
use crate::proto::{AttributeProto, NodeProto, SparseTensorProto, TypeProto, ValueInfoProto};
use crate::stored::{Payload, Stored};
use crate::wire;

/// Bodies may be nested this deep; real models stay below 5.
const MAX_DEPTH: usize = 64;

/// Field numbers of `GraphProto` (and, after the colon, of `FunctionProto`).
mod field {
    pub(super) const NODE: u32 = 1;
    pub(super) const NAME: u32 = 2;
    pub(super) const INITIALIZER: u32 = 5;
    pub(super) const INPUT: u32 = 11;
    pub(super) const OUTPUT: u32 = 12;
    pub(super) const VALUE_INFO: u32 = 13;
    pub(super) const SPARSE: u32 = 15;
}

/// A scope whose message waits to be read.
struct Waiting {
    kind: ScopeKind,
    parent: Option<ScopeId>,
    span: Range<usize>,
    depth: usize,
    id: ScopeId,
}

pub(super) fn read(
    source: &Bytes,
    graph: Range<usize>,
    functions: &[Range<usize>],
) -> Result<Graph> {
    let mut reader = Reader {
        source,
        graph: Graph {
            values: vec![],
            nodes: vec![],
            scopes: vec![],
            removed: FxHashSet::default(),
            edited: FxHashSet::default(),
            revalued: FxHashMap::default(),
            dropped: FxHashSet::default(),
            names: FxHashSet::default(),
            other_types: FxHashMap::default(),
            overloads: FxHashMap::default(),
            revision: 0,
            read_values: 0,
        },
        waiting: vec![],
    };
    reader.open(ScopeKind::Main, None, graph, 0)?;
    for span in functions {
        let kind = ScopeKind::Function {
            domain: "".into(),
            overload: "".into(),
        };
        reader.open(kind, None, span.clone(), 0)?;
    }
    // First in, first out: a body is read when all that it may capture is known.
    let mut next = 0;
    while next < reader.waiting.len() {
        reader.scope(next)?;
        next += 1;
    }
    reader.graph.read_values = reader.graph.values.len();
    reader.graph.names = reader
        .graph
        .values
        .iter()
        .map(|v| v.name.clone())
        .chain(reader.graph.nodes.iter().map(|n| n.name.clone()))
        .collect();
    Ok(reader.graph)
}

struct Reader<'a> {
    source: &'a Bytes,
    graph: Graph,
    waiting: Vec<Waiting>,
}

impl Reader<'_> {
    fn open(
        &mut self,
        kind: ScopeKind,
        parent: Option<ScopeId>,
        span: Range<usize>,
        depth: usize,
    ) -> Result<ScopeId> {
        if depth > MAX_DEPTH {
            return Err(Error::invalid(format!(
                "bodies are nested more than {MAX_DEPTH} deep"
            )));
        }
        let id = ScopeId::from_index(self.graph.scopes.len());
        self.graph.scopes.push(Scope {
            kind: kind.clone(),
            parent,
            name: "".into(),
            by_name: FxHashMap::default(),
            inputs: vec![],
            outputs: vec![],
            initializers: vec![],
            nodes: vec![],
            layout: vec![],
            span: span.clone(),
        });
        self.waiting.push(Waiting {
            kind,
            parent,
            span,
            depth,
            id,
        });
        Ok(id)
    }

    fn scope(&mut self, at: usize) -> Result<()> {
        let Waiting {
            id, span, depth, ..
        } = &self.waiting[at];
        let (id, span, depth) = (*id, span.clone(), *depth);
        let is_function = matches!(self.waiting[at].kind, ScopeKind::Function { .. });
        debug_assert_eq!(self.waiting[at].parent, self.graph.scope(id).parent);
        let mut pending = Pending::default();
        for f in wire::fields(self.source, span) {
            let f = f?;
            let item = match (is_function, f.number) {
                _ if !f.delimited => Item::Other,
                (false, field::NODE) | (true, 7) => {
                    Item::Node(self.node(id, &f.payload, &mut pending)?)
                }
                (false, field::INITIALIZER) => Item::Initializer(self.initializer(id, &f.payload)?),
                (false, field::SPARSE) => Item::Initializer(self.sparse(id, &f.payload)?),
                (false, field::INPUT) => {
                    let (name, ty) = self.info(&f.payload)?;
                    pending.inputs.push((name, ty));
                    Item::Other
                }
                (false, field::OUTPUT) => {
                    pending.outputs.push(self.info(&f.payload)?);
                    Item::Other
                }
                (false, field::VALUE_INFO) | (true, 12) => {
                    pending
                        .infos
                        .push((self.info(&f.payload)?, self.graph.scope(id).layout.len()));
                    Item::Other
                }
                (false, field::NAME) | (true, 1) => {
                    self.graph.scope_mut(id).name = self.text(&f.payload)?.into();
                    Item::Other
                }
                (true, 4) => {
                    pending.inputs.push((self.text(&f.payload)?, None));
                    Item::Other
                }
                (true, 5) => {
                    pending.outputs.push((self.text(&f.payload)?, None));
                    Item::Other
                }
                (true, 10 | 13) => {
                    let text: Box<str> = self.text(&f.payload)?.into();
                    if let ScopeKind::Function { domain, overload } =
                        &mut self.graph.scope_mut(id).kind
                    {
                        *if f.number == 10 { domain } else { overload } = text;
                    }
                    Item::Other
                }
                _ => Item::Other,
            };
            self.graph.scope_mut(id).layout.push(Piece {
                span: f.span,
                payload: f.payload,
                item,
            });
        }
        self.resolve(id, depth, pending)
    }

    /// Defines inputs and node outputs, then looks up what nodes and outputs read.
    fn resolve(&mut self, id: ScopeId, depth: usize, pending: Pending) -> Result<()> {
        for (i, (name, ty)) in pending.inputs.into_iter().enumerate() {
            let old = self.graph.scope(id).by_name.get(name.as_str()).copied();
            let value = match old {
                // Older files list initializers among the inputs too.
                Some(v) if self.graph.value(v).def == Def::Initializer => {
                    self.graph.value_mut(v).def = Def::Input(i);
                    self.set_type(v, ty);
                    v
                }
                Some(_) => return Err(self.twice(id, &name)),
                None => {
                    let v = self.define(id, name, Def::Input(i))?;
                    self.set_type(v, ty);
                    v
                }
            };
            self.graph.scope_mut(id).inputs.push(value);
        }
        for Unresolved { node, outputs, .. } in &pending.nodes {
            for (i, name) in outputs.iter().enumerate() {
                let value = match name.is_empty() {
                    true => None,
                    false => Some(self.define(id, name.clone(), Def::Node(*node, i))?),
                };
                self.graph.node_mut(*node).outputs.push(value);
            }
        }
        for ((name, ty), piece) in pending.infos {
            if let Some(value) = self.graph.scope(id).by_name.get(name.as_str()).copied() {
                self.set_type(value, ty);
                self.graph.scope_mut(id).layout[piece].item = Item::Info(value);
            }
        }
        for unresolved in pending.nodes {
            let Unresolved {
                node,
                inputs,
                bodies,
                ..
            } = unresolved;
            for (slot, name) in inputs.into_iter().enumerate() {
                let value = match name.is_empty() {
                    true => None,
                    false => Some(self.graph.find(id, &name).ok_or_else(|| {
                        let why = format!("input {name} is not defined anywhere");
                        Error::invalid(why).at(self.graph.place(node))
                    })?),
                };
                self.graph.node_mut(node).inputs.push(value);
                if let Some(value) = value {
                    self.graph.value_mut(value).uses.push(Use { node, slot });
                }
            }
            self.constant(node)?;
            for (attribute, name, span) in bodies {
                let kind = ScopeKind::Body(node, name.into());
                let body = self.open(kind, Some(id), span, depth + 1)?;
                self.graph.node_mut(node).bodies.push((attribute, body));
            }
        }
        for (name, ty) in pending.outputs {
            let value = self.graph.find(id, &name).ok_or_else(|| {
                Error::invalid(format!("output {name} is not defined anywhere")).at(self
                    .graph
                    .scope(id)
                    .name
                    .to_string())
            })?;
            let v = self.graph.value_mut(value);
            v.is_output = true;
            if v.scope == id && v.ty.is_none() {
                self.set_type(value, ty);
            }
            self.graph.scope_mut(id).outputs.push(value);
        }
        Ok(())
    }

    fn node(
        &mut self,
        scope: ScopeId,
        payload: &Range<usize>,
        pending: &mut Pending,
    ) -> Result<NodeId> {
        let bytes = self.source.slice(payload.clone());
        let mut proto =
            NodeProto::decode(bytes.clone()).map_err(|e| Error::decode(e.to_string()))?;
        let mut bodies = vec![];
        if proto.attribute.iter().any(has_body) {
            bodies = self.bodies(payload)?;
            for attribute in &mut proto.attribute {
                attribute.g = None;
                attribute.graphs.clear();
            }
        }
        let id = NodeId::from_index(self.graph.nodes.len());
        let domain = proto.domain.take().unwrap_or_default();
        if let Some(overload) = proto.overload.take().filter(|o| !o.is_empty()) {
            self.graph.overloads.insert(id, overload.into());
        }
        self.graph.nodes.push(Node {
            scope,
            name: proto.name.take().unwrap_or_default().into(),
            op: proto.op_type.take().unwrap_or_default().into(),
            domain: if domain == "ai.onnx" {
                "".into()
            } else {
                domain.into()
            },
            inputs: Vec::with_capacity(proto.input.len()),
            outputs: Vec::with_capacity(proto.output.len()),
            attributes: proto.attribute,
            bodies: vec![],
            source: Some(payload.clone()),
        });
        self.graph.scope_mut(scope).nodes.push(id);
        pending.nodes.push(Unresolved {
            node: id,
            inputs: proto.input,
            outputs: proto.output,
            bodies,
        });
        Ok(id)
    }

    /// The encoded graphs among the attributes of a node: index of the attribute, its name, place.
    fn bodies(&self, node: &Range<usize>) -> Result<Vec<Body>> {
        let mut found = vec![];
        let mut index = 0;
        for f in wire::fields(self.source, node.clone()) {
            let f = f?;
            if f.number != 5 || !f.delimited {
                continue;
            }
            let mut name = String::new();
            let mut graphs = vec![];
            for inner in wire::fields(self.source, f.payload) {
                let inner = inner?;
                match inner.number {
                    1 if inner.delimited => name = self.text(&inner.payload)?,
                    6 | 11 if inner.delimited => graphs.push(inner.payload),
                    _ => {}
                }
            }
            found.extend(graphs.into_iter().map(|g| (index, name.clone(), g)));
            index += 1;
        }
        Ok(found)
    }

    /// Gives the output of a `Constant` node its payload.
    fn constant(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        if !node.is("Constant") {
            return Ok(());
        }
        let (Some(out), Some(attribute)) = (node.output(0), node.attributes.first()) else {
            return Ok(());
        };
        let place = |e: Error| e.at(self.graph.place(id));
        if let Some(stored) = payload_of(attribute).map_err(place)? {
            self.graph.value_mut(out).stored = Some(Box::new(stored));
        }
        Ok(())
    }

    fn initializer(&mut self, scope: ScopeId, payload: &Range<usize>) -> Result<ValueId> {
        let (name, stored) = Stored::read(self.source, payload.clone())?;
        self.initial(scope, name, stored)
    }

    fn sparse(&mut self, scope: ScopeId, payload: &Range<usize>) -> Result<ValueId> {
        let proto = SparseTensorProto::decode(self.source.slice(payload.clone()))
            .map_err(|e| Error::decode(e.to_string()))?;
        let values = proto.values.unwrap_or_default();
        let dims: Option<Vec<usize>> = proto.dims.iter().map(|d| (*d).try_into().ok()).collect();
        let stored = Stored {
            dtype: DType::from_code(values.data_type()),
            dims: dims.ok_or_else(|| Error::invalid("a sparse tensor has a negative dimension"))?,
            payload: Payload::Sparse,
        };
        self.initial(scope, values.name().to_owned(), stored)
    }

    fn initial(&mut self, scope: ScopeId, name: String, stored: Stored) -> Result<ValueId> {
        if name.is_empty() {
            return Err(Error::invalid("an initializer has no name"));
        }
        let value = self.define(scope, name, Def::Initializer)?;
        self.graph.value_mut(value).stored = Some(Box::new(stored));
        self.graph.scope_mut(scope).initializers.push(value);
        Ok(value)
    }

    fn set_type(&mut self, value: ValueId, proto: Option<TypeProto>) {
        let ty = proto.as_ref().map(type_of);
        if let (Some(Type::Other), Some(proto)) = (&ty, proto) {
            self.graph.other_types.insert(value, proto);
        }
        self.graph.value_mut(value).ty = ty;
    }

    fn define(&mut self, scope: ScopeId, name: String, def: Def) -> Result<ValueId> {
        let name: Box<str> = name.into();
        let id = ValueId::from_index(self.graph.values.len());
        if self
            .graph
            .scope_mut(scope)
            .by_name
            .insert(name.clone(), id)
            .is_some()
        {
            return Err(self.twice(scope, &name));
        }
        self.graph.values.push(Value {
            name,
            scope,
            def,
            ty: None,
            stored: None,
            uses: vec![],
            is_output: false,
        });
        Ok(id)
    }

    fn twice(&self, scope: ScopeId, name: &str) -> Error {
        Error::invalid(format!("{name} is defined twice")).at(self
            .graph
            .scope(scope)
            .name
            .to_string())
    }

    fn info(&self, payload: &Range<usize>) -> Result<(String, Option<TypeProto>)> {
        let proto = ValueInfoProto::decode(self.source.slice(payload.clone()))
            .map_err(|e| Error::decode(e.to_string()))?;
        Ok((proto.name.unwrap_or_default(), proto.r#type))
    }

    fn text(&self, payload: &Range<usize>) -> Result<String> {
        String::from_utf8(self.source[payload.clone()].to_vec())
            .map_err(|_| Error::decode(format!("the name at byte {} is not UTF-8", payload.start)))
    }
}

/// Attribute index, attribute name, and where the graph stands.
type Body = (usize, String, Range<usize>);

/// What a scope says before its names are resolved.
#[derive(Default)]
struct Pending {
    inputs: Vec<(String, Option<TypeProto>)>,
    outputs: Vec<(String, Option<TypeProto>)>,
    infos: Vec<((String, Option<TypeProto>), usize)>,
    nodes: Vec<Unresolved>,
}

/// A node that knows its edges by name.
struct Unresolved {
    node: NodeId,
    inputs: Vec<String>,
    outputs: Vec<String>,
    bodies: Vec<Body>,
}

fn has_body(attribute: &AttributeProto) -> bool {
    attribute.g.is_some() || !attribute.graphs.is_empty()
}
