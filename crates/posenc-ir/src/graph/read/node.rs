//! Reading nodes, their attributes, and initializers.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use super::Reader;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::field::{attribute, node};
use crate::graph::Def;
use crate::graph::message::{is_external, is_sparse_external, payload_of};
use crate::graph::pending::{Edges, Pending};
use crate::id::{NodeId, PieceId, ScopeId, ValueId};
use crate::list::List;
use crate::node::{Extra, Node, Operator};
use crate::proto::{AttributeProto, SparseTensorProto};
use crate::stored::{Payload, Stored, sizes};
use crate::wire;

impl<'a> Reader<'a> {
    pub(super) fn node(
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
                node::INPUT => {
                    pending.inputs_of_nodes.push(self.text(&f.payload)?);
                    edges.inputs += 1;
                }
                node::OUTPUT => {
                    pending.outputs_of_nodes.push(self.text(&f.payload)?);
                    edges.outputs += 1;
                }
                node::NAME => name = self.text(&f.payload)?,
                node::OP => op = self.text(&f.payload)?,
                node::ATTRIBUTE => {
                    let at = attributes.len();
                    attributes.push(self.attribute(&f.payload, at, id, pending)?);
                }
                node::DOMAIN => domain = self.text(&f.payload)?,
                node::OVERLOAD if !f.payload.is_empty() => {
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

    /// An attribute without its graphs, which are read as bodies later, without recursion.
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
            if f.delimited && matches!(f.number, attribute::GRAPH | attribute::GRAPHS) {
                graphs.push((f.span, f.payload));
            }
        }
        if graphs.is_empty() {
            let whole = decode(self.source.slice(payload.clone()))?;
            self.graph.has_external_data |= is_external(&whole);
            return Ok(whole);
        }
        let mut rest = vec![];
        let mut from = payload.start;
        for (span, _) in &graphs {
            rest.extend_from_slice(&self.source[from..span.start]);
            from = span.end;
        }
        rest.extend_from_slice(&self.source[from..payload.end]);
        let rest = decode(rest.into())?;
        self.graph.has_external_data |= is_external(&rest);
        let name = rest.name();
        let bodies = graphs
            .into_iter()
            .map(|(_, graph)| (node, at, name.into(), graph));
        pending.bodies.extend(bodies);
        Ok(rest)
    }

    /// Sets the payload of the output of a `Constant` node.
    pub(super) fn constant(&mut self, id: NodeId) -> Result<()> {
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

    pub(super) fn initializer(
        &mut self,
        scope: ScopeId,
        payload: &Range<usize>,
    ) -> Result<ValueId> {
        let (name, stored) = Stored::read(self.source, payload.clone())?;
        self.graph.has_external_data |= matches!(stored.payload, Payload::External(_));
        self.initial(scope, name, stored)
    }

    pub(super) fn sparse(&mut self, scope: ScopeId, payload: &Range<usize>) -> Result<ValueId> {
        let proto = SparseTensorProto::decode(self.source.slice(payload.clone()))
            .map_err(|e| Error::decode(e.to_string()))?;
        self.graph.has_external_data |= is_sparse_external(&proto);
        let values = proto.values.unwrap_or_default();
        let stored = Stored {
            dtype: DType::from_code(values.data_type()),
            dims: sizes(&proto.dims, "a dimension of the sparse tensor is")?,
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
}
