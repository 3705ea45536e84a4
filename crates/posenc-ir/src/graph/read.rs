//! From encoded messages to a [`Graph`].

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};

use super::message::{is_sparse_split, is_split, payload_of, says_more, type_of};
use super::names::Names;
use super::pending::{Edges, Pending, Waiting};
use super::{Def, Graph, Item, Piece, Scope, ScopeKind, Use, Value};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::id::{NodeId, PieceId, ScopeId, ValueId, narrow};
use crate::list::List;
use crate::node::{Extra, Node, Operator};
use crate::proto::{AttributeProto, SparseTensorProto, TypeProto, ValueInfoProto};
use crate::stored::{Payload, Stored};
use crate::wire;

/// Bodies may be nested this deep; real models stay below 5.
pub(crate) const MAX_DEPTH: usize = 64;

/// Fields of at least this many bytes hold weights.
const LONG: usize = 1 << 18;

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

pub(super) fn read(
    source: &Bytes,
    graph: Range<usize>,
    functions: &[Range<usize>],
    passed: &dyn Fn(&Range<usize>),
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
            other_types: FxHashMap::default(),
            overloads: FxHashMap::default(),
            revision: 0,
            read_values: 0,
            home: Arc::default(),
            is_split: false,
        },
        waiting: vec![],
        operators: FxHashMap::default(),
        passed,
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
    Ok(reader.graph)
}

struct Reader<'a> {
    source: &'a Bytes,
    graph: Graph,
    waiting: Vec<Waiting>,
    /// By domain and name.
    operators: FxHashMap<(&'a str, &'a str), Arc<Operator>>,
    passed: &'a dyn Fn(&Range<usize>),
}

impl<'a> Reader<'a> {
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
            by_name: Names::default(),
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
                    let piece = self.graph.scope(id).layout.len();
                    pending.infos.push((self.info(&f.payload)?, piece));
                    Item::Other
                }
                (false, field::NAME) | (true, 1) => {
                    self.graph.scope_mut(id).name = self.text(&f.payload)?.into();
                    Item::Other
                }
                (true, 4) => {
                    pending
                        .inputs
                        .push((self.text(&f.payload)?.to_owned(), None));
                    Item::Other
                }
                (true, 5) => {
                    pending
                        .outputs
                        .push((self.text(&f.payload)?.to_owned(), None));
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
            if f.payload.len() >= LONG {
                (self.passed)(&f.span);
            }
            let start = f.span.start;
            self.graph.scope_mut(id).layout.push(Piece { start, item });
        }
        self.resolve(id, depth, pending)
    }

    /// Defines inputs and node outputs, then looks up what nodes and outputs read.
    fn resolve(&mut self, id: ScopeId, depth: usize, mut pending: Pending<'_>) -> Result<()> {
        for (i, (name, ty)) in std::mem::take(&mut pending.inputs).into_iter().enumerate() {
            let old = self.own(id, &name);
            let value = match old {
                // Older files list initializers among the inputs too.
                Some(v) if self.graph.value(v).def == Def::Initializer => {
                    self.graph.value_mut(v).def = Def::Input(narrow(i));
                    self.set_type(v, ty);
                    v
                }
                Some(_) => return Err(self.twice(id, &name)),
                None => {
                    let v = self.define(id, &name, Def::Input(narrow(i)))?;
                    self.set_type(v, ty);
                    v
                }
            };
            self.graph.scope_mut(id).inputs.push(value);
        }
        self.outputs(id, &pending)?;
        for ((name, ty), piece) in pending.infos {
            if let Some(value) = self.own(id, &name) {
                self.set_type(value, ty);
                self.graph.scope_mut(id).layout[piece].item = Item::Info(value);
            }
        }
        self.inputs(id, &pending.nodes, &pending.inputs_of_nodes)?;
        for (node, attribute, name, span) in pending.bodies {
            let body = self.open(ScopeKind::Body(node, name), Some(id), span, depth + 1)?;
            let extra = self.graph.node_mut(node).extra_mut();
            extra.bodies.push((attribute, body));
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

    /// Defines what the nodes of a scope compute. What a node reads of the nodes before it is
    /// looked up on the way: it is mostly near, and so at hand.
    fn outputs(&mut self, id: ScopeId, pending: &Pending<'_>) -> Result<()> {
        let Graph { values, scopes, .. } = &mut self.graph;
        let more = pending.outputs_of_nodes.len();
        values.reserve(more);
        scopes[id.index()].by_name.reserve(more, values);
        let mut read = pending.inputs_of_nodes.iter();
        let mut made = pending.outputs_of_nodes.iter();
        for (at, edges) in pending.nodes.iter().enumerate() {
            let node = self.graph.scope(id).nodes[at];
            let names = read.by_ref().take(edges.inputs as usize);
            let inputs = names.map(|name| match *name {
                "" => None,
                name => self.own(id, name),
            });
            let inputs = inputs.collect();
            let names = made.by_ref().take(edges.outputs as usize).enumerate();
            let define = |(i, name): (usize, &&str)| match *name {
                "" => Ok(None),
                name => self.define(id, name, Def::Node(node, narrow(i))).map(Some),
            };
            let outputs = names.map(define).collect::<Result<_>>()?;
            let node = self.graph.node_mut(node);
            (node.inputs, node.outputs) = (inputs, outputs);
        }
        Ok(())
    }

    /// Looks up what else the nodes of a scope read, and notes every use.
    fn inputs(&mut self, id: ScopeId, nodes: &[Edges], names: &[&str]) -> Result<()> {
        let mut names = names.iter();
        for (at, edges) in nodes.iter().enumerate() {
            let node = self.graph.scope(id).nodes[at];
            let names = names.by_ref().take(edges.inputs as usize).enumerate();
            for (slot, name) in names.filter(|(_, name)| !name.is_empty()) {
                let known = self.graph.node(node).inputs[slot];
                let found = known.or_else(|| self.graph.find(id, name));
                let value = found.ok_or_else(|| {
                    let why = format!("input {name} is not defined anywhere");
                    Error::invalid(why).at(self.graph.place(node))
                })?;
                self.graph.node_mut(node).inputs[slot] = Some(value);
                let uses = &mut self.graph.value_mut(value).uses;
                uses.push(Use::new(node, slot));
            }
            self.constant(node)?;
        }
        Ok(())
    }

    fn node(
        &mut self,
        scope: ScopeId,
        payload: &Range<usize>,
        pending: &mut Pending<'a>,
    ) -> Result<NodeId> {
        let id = NodeId::from_index(self.graph.nodes.len());
        let (mut name, mut op, mut domain) = ("", "", "");
        let mut attributes = vec![];
        let mut edges = Edges::default();
        for f in wire::fields(self.source, payload.clone()) {
            let f = f?;
            if !f.delimited {
                continue;
            }
            match f.number {
                1 => {
                    pending.inputs_of_nodes.push(self.text(&f.payload)?);
                    edges.inputs += 1;
                }
                2 => {
                    pending.outputs_of_nodes.push(self.text(&f.payload)?);
                    edges.outputs += 1;
                }
                3 => name = self.text(&f.payload)?,
                4 => op = self.text(&f.payload)?,
                5 => {
                    let at = attributes.len();
                    attributes.push(self.attribute(&f.payload, at, id, pending)?);
                }
                7 => domain = self.text(&f.payload)?,
                8 if !f.payload.is_empty() => {
                    let overload = self.text(&f.payload)?.into();
                    self.graph.overloads.insert(id, overload);
                }
                _ => {}
            }
        }
        if domain == "ai.onnx" {
            domain = "";
        }
        let operator = self.operators.entry((domain, op)).or_insert_with(|| {
            let (domain, op) = (domain.into(), op.into());
            Arc::new(Operator { domain, op })
        });
        let extra = (!attributes.is_empty()).then(|| {
            let attributes = attributes.into();
            Arc::new(Extra {
                attributes,
                bodies: vec![],
            })
        });
        let s = &mut self.graph.scopes[scope.index()];
        self.graph.nodes.push(Node {
            scope,
            piece: Some(PieceId::from_index(s.layout.len())),
            name: name.into(),
            operator: operator.clone(),
            inputs: List::default(),
            outputs: List::default(),
            extra,
        });
        s.nodes.push(id);
        pending.nodes.push(edges);
        Ok(id)
    }

    /// An attribute without its graphs, which wait to be read as bodies: however deep they are
    /// nested, none is decoded inside of another.
    fn attribute(
        &mut self,
        payload: &Range<usize>,
        at: usize,
        node: NodeId,
        pending: &mut Pending<'_>,
    ) -> Result<AttributeProto> {
        let decode =
            |bytes: Bytes| AttributeProto::decode(bytes).map_err(|e| Error::decode(e.to_string()));
        let mut graphs = vec![];
        for f in wire::fields(self.source, payload.clone()) {
            let f = f?;
            if f.delimited && matches!(f.number, 6 | 11) {
                graphs.push((f.span, f.payload));
            }
        }
        if graphs.is_empty() {
            let attribute = decode(self.source.slice(payload.clone()))?;
            self.graph.is_split |= is_split(&attribute);
            return Ok(attribute);
        }
        let mut rest = vec![];
        let mut from = payload.start;
        for (span, _) in &graphs {
            rest.extend_from_slice(&self.source[from..span.start]);
            from = span.end;
        }
        rest.extend_from_slice(&self.source[from..payload.end]);
        let attribute = decode(rest.into())?;
        self.graph.is_split |= is_split(&attribute);
        let name = attribute.name();
        let bodies = graphs
            .into_iter()
            .map(|(_, graph)| (node, at, name.into(), graph));
        pending.bodies.extend(bodies);
        Ok(attribute)
    }

    /// Gives the output of a `Constant` node its payload.
    fn constant(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        if !node.is("Constant") {
            return Ok(());
        }
        let (Some(out), Some(attribute)) = (node.output(0), node.attributes().first()) else {
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
        self.graph.is_split |= matches!(stored.payload, Payload::External(_));
        self.initial(scope, name, stored)
    }

    fn sparse(&mut self, scope: ScopeId, payload: &Range<usize>) -> Result<ValueId> {
        let proto = SparseTensorProto::decode(self.source.slice(payload.clone()))
            .map_err(|e| Error::decode(e.to_string()))?;
        self.graph.is_split |= is_sparse_split(&proto);
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
        let value = self.define(scope, &name, Def::Initializer)?;
        self.graph.value_mut(value).stored = Some(Box::new(stored));
        self.graph.scope_mut(scope).initializers.push(value);
        Ok(value)
    }

    fn set_type(&mut self, value: ValueId, proto: Option<TypeProto>) {
        let ty = proto.as_ref().map(|proto| Box::new(type_of(proto)));
        if let Some(proto) = proto.filter(says_more) {
            self.graph.other_types.insert(value, proto);
        }
        self.graph.value_mut(value).ty = ty;
    }

    fn define(&mut self, scope: ScopeId, name: &str, def: Def) -> Result<ValueId> {
        let Graph { values, scopes, .. } = &mut self.graph;
        let id = ValueId::from_index(values.len());
        if !scopes[scope.index()].by_name.insert(name, id, values) {
            return Err(self.twice(scope, name));
        }
        values.push(Value::new(name.into(), scope, def));
        Ok(id)
    }

    /// The value of this name that the scope itself defines.
    fn own(&self, scope: ScopeId, name: &str) -> Option<ValueId> {
        let names = &self.graph.scope(scope).by_name;
        names.get(name, &self.graph.values)
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

    fn text(&self, payload: &Range<usize>) -> Result<&'a str> {
        std::str::from_utf8(&self.source[payload.clone()])
            .map_err(|_| Error::decode(format!("the name at byte {} is not UTF-8", payload.start)))
    }
}
