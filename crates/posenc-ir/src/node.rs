//! Nodes and their attributes.

use std::sync::Arc;

use ecow::EcoString;

use crate::id::{PieceId, ScopeId, ValueId};
use crate::list::List;
use crate::proto::{AttributeProto, TensorProto, attribute_proto::AttributeType};

/// One application of an operator or a model-local function.
#[derive(Clone, Debug)]
pub struct Node {
    pub(crate) scope: ScopeId,
    /// The field of the source that contains the message; `None` for new nodes.
    pub(crate) piece: Option<PieceId>,
    pub(crate) name: EcoString,
    pub(crate) operator: Arc<Operator>,
    pub(crate) inputs: List<Option<ValueId>, 3>,
    pub(crate) outputs: List<Option<ValueId>, 3>,
    pub(crate) extra: Option<Arc<Extra>>,
}

/// An operator, which its nodes share.
#[derive(Debug, Default)]
pub(crate) struct Operator {
    pub(crate) domain: Box<str>,
    pub(crate) op: Box<str>,
}

/// Attributes and bodies, which most nodes do not have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    pub(crate) attributes: Box<[AttributeProto]>,
    /// Bodies of control flow: index into `attributes`, and scope.
    pub(crate) bodies: Vec<(usize, ScopeId)>,
}

/// An attribute of another type than the operator defines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("attribute {name} must be {expected}")]
pub struct WrongAttribute {
    /// The attribute.
    pub name: String,
    /// The type that it should have.
    pub expected: &'static str,
}

impl Node {
    /// The scope of the node.
    pub fn scope(&self) -> ScopeId {
        self.scope
    }

    /// The node's own name; may be empty and need not be unique.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The operator, without its domain.
    pub fn op(&self) -> &str {
        &self.operator.op
    }

    /// The domain; empty for ai.onnx.
    pub fn domain(&self) -> &str {
        &self.operator.domain
    }

    /// Whether this is the operator `op` of ai.onnx.
    pub fn is(&self, op: &str) -> bool {
        self.domain().is_empty() && self.op() == op
    }

    /// The inputs in order; `None` for omitted ones.
    pub fn inputs(&self) -> &[Option<ValueId>] {
        &self.inputs
    }

    /// Input `i`; `None` where it is omitted or there are fewer.
    pub fn input(&self, i: usize) -> Option<ValueId> {
        self.inputs.get(i).copied().flatten()
    }

    /// The outputs in order; `None` for omitted ones.
    pub fn outputs(&self) -> &[Option<ValueId>] {
        &self.outputs
    }

    /// Output `i`; `None` where it is omitted or there are fewer.
    pub fn output(&self, i: usize) -> Option<ValueId> {
        self.outputs.get(i).copied().flatten()
    }

    /// The attributes in the order of the file.
    pub fn attributes(&self) -> &[AttributeProto] {
        self.extra.as_ref().map_or(&[], |e| &e.attributes)
    }

    /// The bodies of a control-flow node: attribute name and scope.
    pub fn bodies(&self) -> impl Iterator<Item = (&str, ScopeId)> {
        let bodies = self.indexed_bodies().iter();
        bodies.map(|(i, scope)| (self.attributes()[*i].name(), *scope))
    }

    /// The bodies of a control-flow node: index of the attribute, and scope.
    pub(crate) fn indexed_bodies(&self) -> &[(usize, ScopeId)] {
        self.extra.as_ref().map_or(&[], |e| &e.bodies)
    }

    /// The attribute with this name.
    pub fn attribute(&self, name: &str) -> Option<&AttributeProto> {
        self.attributes().iter().find(|a| a.name() == name)
    }

    /// An integer attribute; `Ok(None)` where absent.
    pub fn int(&self, name: &str) -> Result<Option<i64>, WrongAttribute> {
        self.typed(name, AttributeType::Int, "an integer", |a| a.i)
    }

    /// A float attribute; `Ok(None)` where absent.
    pub fn float(&self, name: &str) -> Result<Option<f64>, WrongAttribute> {
        self.typed(name, AttributeType::Float, "a float", |a| {
            a.f.map(f64::from)
        })
    }

    /// A list of integers; `Ok(None)` where absent.
    pub fn ints(&self, name: &str) -> Result<Option<&[i64]>, WrongAttribute> {
        self.typed(name, AttributeType::Ints, "a list of integers", |a| {
            Some(a.ints.as_slice())
        })
    }

    /// A list of floats; `Ok(None)` where absent.
    pub fn floats(&self, name: &str) -> Result<Option<&[f32]>, WrongAttribute> {
        self.typed(name, AttributeType::Floats, "a list of floats", |a| {
            Some(a.floats.as_slice())
        })
    }

    /// A string in UTF-8; `Ok(None)` where absent.
    pub fn string(&self, name: &str) -> Result<Option<&str>, WrongAttribute> {
        self.typed(name, AttributeType::String, "a string", |a| {
            a.s.as_ref().and_then(|s| std::str::from_utf8(s).ok())
        })
    }

    /// A tensor; `Ok(None)` where absent.
    pub fn tensor(&self, name: &str) -> Result<Option<&TensorProto>, WrongAttribute> {
        self.typed(name, AttributeType::Tensor, "a tensor", |a| a.t.as_ref())
    }

    pub(crate) fn extra_mut(&mut self) -> &mut Extra {
        Arc::make_mut(self.extra.get_or_insert_default())
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        kind: AttributeType,
        expected: &'static str,
        get: impl Fn(&'a AttributeProto) -> Option<T>,
    ) -> Result<Option<T>, WrongAttribute> {
        let Some(attribute) = self.attribute(name) else {
            return Ok(None);
        };
        // Files of IR version 1 have no types.
        let fits = attribute.r#type.is_none() || attribute.r#type() == kind;
        match get(attribute).filter(|_| fits) {
            Some(value) => Ok(Some(value)),
            None => Err(WrongAttribute {
                name: name.to_owned(),
                expected,
            }),
        }
    }
}
