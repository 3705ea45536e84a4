//! From encoded messages to a [`Graph`].

mod node;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use prost::Message;
use rustc_hash::{FxHashMap, FxHashSet};

use super::message::{is_not_kept, type_of};
use super::names::Names;
use super::pending::{Edges, Pending, Waiting};
use super::scope::{Item, Piece};
use super::{Def, Graph, Scope, ScopeKind, Use, Value};
use crate::error::{Error, Result};
use crate::field::{function, graph};
use crate::id::{ScopeId, ValueId, narrow};
use crate::node::Operator;
use crate::proto::{TypeProto, ValueInfoProto};
use crate::wire::{self, Field};

/// The deepest nesting of bodies; real models have less than 5.
pub(crate) const MAX_DEPTH: usize = 64;

/// Fields of at least this many bytes are weights.
const LONG: usize = 1 << 18;

/// Reads the main graph and the functions, whose messages are at these ranges of `source`;
/// `passed` is called with the range of each long field that was walked over.
pub(crate) fn read(
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
            redeclared: FxHashSet::default(),
            dropped: FxHashSet::default(),
            other_types: FxHashMap::default(),
            overloads: FxHashMap::default(),
            revision: 0,
            read_values: 0,
            external_dir: Arc::default(),
            has_external_data: false,
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
    // First in, first out: a body is read when everything that it may capture is known.
    let mut next = 0;
    while next < reader.waiting.len() {
        reader.scope(next)?;
        next += 1;
    }
    reader.graph.read_values = reader.graph.values.len();
    Ok(reader.graph)
}

pub(super) struct Reader<'a> {
    pub(super) source: &'a Bytes,
    pub(super) graph: Graph,
    /// Scopes to read, in order.
    waiting: Vec<Waiting>,
    /// By domain and name.
    pub(super) operators: FxHashMap<(&'a str, &'a str), Arc<Operator>>,
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
            in_order: OnceLock::new(),
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
            let item = if !f.delimited {
                Item::Other
            } else if is_function {
                self.function_field(id, &f, &mut pending)?
            } else {
                self.graph_field(id, &f, &mut pending)?
            };
            if f.payload.len() >= LONG {
                (self.passed)(&f.span);
            }
            let start = f.span.start;
            self.graph.scope_mut(id).layout.push(Piece { start, item });
        }
        self.resolve(id, depth, pending)
    }

    /// Reads a field of a `GraphProto`.
    fn graph_field(&mut self, id: ScopeId, f: &Field, pending: &mut Pending<'a>) -> Result<Item> {
        match f.number {
            graph::NODE => return Ok(Item::Node(self.node(id, &f.payload, pending)?)),
            graph::INITIALIZER => {
                return Ok(Item::Initializer(self.initializer(id, &f.payload)?));
            }
            graph::SPARSE_INITIALIZER => {
                return Ok(Item::Initializer(self.sparse(id, &f.payload)?));
            }
            graph::INPUT => pending.inputs.push(self.info(&f.payload)?),
            graph::OUTPUT => pending.outputs.push(self.info(&f.payload)?),
            graph::VALUE_INFO => self.value_info(id, &f.payload, pending)?,
            graph::NAME => self.graph.scope_mut(id).name = self.text(&f.payload)?.into(),
            _ => {}
        }
        Ok(Item::Other)
    }

    /// Reads a field of a `FunctionProto`.
    fn function_field(
        &mut self,
        id: ScopeId,
        f: &Field,
        pending: &mut Pending<'a>,
    ) -> Result<Item> {
        match f.number {
            function::NODE => return Ok(Item::Node(self.node(id, &f.payload, pending)?)),
            function::INPUT => {
                let name = self.text(&f.payload)?.to_owned();
                pending.inputs.push((name, None));
            }
            function::OUTPUT => {
                let name = self.text(&f.payload)?.to_owned();
                pending.outputs.push((name, None));
            }
            function::VALUE_INFO => self.value_info(id, &f.payload, pending)?,
            function::NAME => self.graph.scope_mut(id).name = self.text(&f.payload)?.into(),
            function::DOMAIN | function::OVERLOAD => {
                let text: Box<str> = self.text(&f.payload)?.into();
                if let ScopeKind::Function { domain, overload } = &mut self.graph.scope_mut(id).kind
                {
                    *if f.number == function::DOMAIN {
                        domain
                    } else {
                        overload
                    } = text;
                }
            }
            _ => {}
        }
        Ok(Item::Other)
    }

    fn value_info(
        &mut self,
        id: ScopeId,
        payload: &Range<usize>,
        pending: &mut Pending<'a>,
    ) -> Result<()> {
        let piece = self.graph.scope(id).layout.len();
        pending.infos.push((self.info(payload)?, piece));
        Ok(())
    }

    /// Defines inputs and node outputs, then resolves the names that nodes and outputs read.
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
                Error::invalid(format!("output {name} is not defined")).at(self
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

    /// Defines the outputs of nodes. Inputs that are outputs of earlier nodes are resolved at the
    /// same time, while those are in the cache.
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

    /// Resolves the other inputs of nodes, and records every use.
    fn inputs(&mut self, id: ScopeId, nodes: &[Edges], names: &[&str]) -> Result<()> {
        let mut names = names.iter();
        for (at, edges) in nodes.iter().enumerate() {
            let node = self.graph.scope(id).nodes[at];
            let names = names.by_ref().take(edges.inputs as usize).enumerate();
            for (slot, name) in names.filter(|(_, name)| !name.is_empty()) {
                let known = self.graph.node(node).inputs[slot];
                let found = known.or_else(|| self.graph.find(id, name));
                let value = found.ok_or_else(|| {
                    let why = format!("input {name} is not defined");
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

    fn set_type(&mut self, value: ValueId, proto: Option<TypeProto>) {
        let ty = proto.as_ref().map(|proto| Box::new(type_of(proto)));
        if let Some(proto) = proto.filter(is_not_kept) {
            self.graph.other_types.insert(value, proto);
        }
        self.graph.value_mut(value).ty = ty;
    }

    pub(super) fn define(&mut self, scope: ScopeId, name: &str, def: Def) -> Result<ValueId> {
        let Graph { values, scopes, .. } = &mut self.graph;
        let id = ValueId::from_index(values.len());
        if !scopes[scope.index()].by_name.insert(name, id, values) {
            return Err(self.twice(scope, name));
        }
        values.push(Value::new(name.into(), scope, def));
        Ok(id)
    }

    /// The value with this name that the scope itself defines.
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

    pub(super) fn text(&self, payload: &Range<usize>) -> Result<&'a str> {
        std::str::from_utf8(&self.source[payload.clone()])
            .map_err(|_| Error::decode(format!("the name at byte {} is not UTF-8", payload.start)))
    }
}
