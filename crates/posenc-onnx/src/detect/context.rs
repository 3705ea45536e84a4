//! A model with what was found in it.

use posenc_ir::{DType, Graph, Model, NodeId, ScopeId, ValueId};

use crate::attention::Site;
use crate::detect::finding::Finding;
use crate::detect::found::Found;
use crate::error::{Refusal, RewriteError};
use crate::graph::dataflow::Class;
use posenc_encodings::opset::Opset;

/// A model and what was found in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) model: &'a Model,
    pub(crate) found: &'a Found,
}

impl<'a> Context<'a> {
    pub(crate) fn graph(&self) -> &'a Graph {
        self.model.graph()
    }

    pub(crate) fn site(&self, site: usize) -> &'a Site {
        &self.found.attention[site]
    }

    /// The dimensions of a value in the trial run.
    pub(crate) fn dims(&self, value: ValueId) -> Option<&'a [usize]> {
        self.found.trace.get(value).dims.as_deref()
    }

    /// Whether a value depends on content.
    pub(crate) fn is_content(&self, value: ValueId) -> bool {
        self.found.classes.of_value(value).has(Class::CONTENT)
    }

    /// The element type of a value.
    pub(crate) fn dtype(&self, value: ValueId) -> DType {
        let declared = self.graph().dtype(value);
        declared
            .or(self.found.trace.get(value).dtype)
            .unwrap_or(DType::F32)
    }

    /// The innermost of nested scopes.
    pub(crate) fn inner<const N: usize>(&self, scopes: [ScopeId; N]) -> ScopeId {
        let depth = |scope: &ScopeId| {
            let up = |s: &ScopeId| self.graph().scope(*s).parent();
            std::iter::successors(Some(*scope), up).count()
        };
        let all = scopes.into_iter();
        all.max_by_key(depth).unwrap_or(self.graph().main())
    }

    /// The version of ai.onnx.
    pub(crate) fn opset(&self) -> Opset {
        Opset(self.model.opset())
    }

    /// The refusal to change an encoding, at the node where it enters first, with the reason.
    pub(crate) fn refuse_finding(
        &self,
        finding: Option<&Finding>,
        why: impl std::fmt::Display,
    ) -> RewriteError {
        match finding.and_then(Finding::node) {
            Some(node) => self.refuse(node, why),
            None => Refusal::unsupported(why.to_string()).into(),
        }
    }

    /// The refusal to change a node, with the reason.
    pub(crate) fn refuse(&self, node: NodeId, why: impl std::fmt::Display) -> RewriteError {
        let mut refusal = Refusal::unsupported(why.to_string()).at(self.graph().place(node));
        if let Some(site) = self.found.attention.iter().find(|site| site.node == node) {
            refusal = refusal.in_site(&site.name);
        }
        refusal.into()
    }
}
