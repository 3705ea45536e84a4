//! Inputs and outputs of a graph, which may be declared with other dimensions, or be new.

use std::ops::Range;

use prost::Message;

use super::Splice;
use crate::encoded::Encoded;
use crate::error::{Error, Result};
use crate::field::graph;
use crate::graph::Type;
use crate::graph::message::tensor_type;
use crate::id::ScopeId;
use crate::proto::ValueInfoProto;
use crate::wire;

impl Splice<'_> {
    /// A field that is no node, constant or inner value: an input or output may have other dimensions.
    pub(super) fn other(
        &self,
        scope: ScopeId,
        span: Range<usize>,
        out: &mut Encoded,
    ) -> Result<()> {
        let g = self.graph;
        let is_function = matches!(g.scope(scope).kind, crate::ScopeKind::Function { .. });
        if g.redeclared.is_empty() || is_function {
            out.source(span);
            return Ok(());
        }
        let field = wire::field(self.source, span.clone())?;
        if !matches!(field.number, graph::INPUT | graph::OUTPUT) {
            out.source(span);
            return Ok(());
        }
        let mut proto = ValueInfoProto::decode(&self.source[field.payload])
            .map_err(|e| Error::decode(e.to_string()))?;
        let s = g.scope(scope);
        let mut ports = s.inputs.iter().chain(&s.outputs).copied();
        let own = ports.find(|v| Some(g.name(*v)) == proto.name.as_deref());
        match own.filter(|v| g.redeclared.contains(v)) {
            Some(value) => {
                if let Some(Type::Tensor { dtype, shape }) = g.value(value).ty() {
                    proto.r#type = Some(tensor_type(*dtype, shape.as_deref()));
                }
                let mut bytes = vec![];
                wire::put_bytes(field.number, &proto.encode_to_vec(), &mut bytes);
                out.owned(&bytes);
            }
            None => out.source(span),
        }
        Ok(())
    }

    /// Inputs that were added to the main graph, after those of the source.
    pub(super) fn new_inputs(&self, scope: ScopeId, out: &mut Encoded) {
        let g = self.graph;
        let inputs = g.scope(scope).inputs.iter();
        for id in inputs.filter(|v| v.index() >= g.read_values) {
            let ty = match g.value(*id).ty() {
                Some(Type::Tensor { dtype, shape }) => Some(tensor_type(*dtype, shape.as_deref())),
                Some(Type::Other) | None => None,
            };
            let proto = ValueInfoProto {
                name: Some(g.name(*id).to_owned()),
                r#type: ty,
                ..Default::default()
            };
            let mut field = vec![];
            wire::put_bytes(graph::INPUT, &proto.encode_to_vec(), &mut field);
            out.owned(&field);
        }
    }
}
