//! Which version of its domain each node uses.

use std::collections::BTreeMap;

use prost::Message;

use super::warnings::Warnings;
use crate::error::{Error, Result};
use crate::field::function;
use crate::graph::ScopeKind;
use crate::id::ScopeId;
use crate::model::{Model, PartKind};
use crate::proto::OperatorSetIdProto;
use crate::wire;

/// The newest version of the file format that this crate knows.
const IR_VERSION: i64 = 13;

/// From this version of the file format on, models import operator sets.
const IR_IMPORTS: i64 = 3;

/// Versions of operator sets by domain; the empty domain is ai.onnx.
pub(super) type Opsets = BTreeMap<String, i64>;

/// The operator sets of each scope.
pub(super) struct Imports {
    /// Those of the model, then those of each function.
    sets: Vec<Opsets>,
    /// By scope: an index into `sets`.
    of: Vec<usize>,
}

impl Imports {
    /// The imports of the model and its functions.
    pub(super) fn of(model: &Model, warnings: &mut Warnings<'_>) -> Result<Self> {
        let graph = model.graph();
        let mut main = model.opsets();
        match model.ir_version() {
            ..=0 => return Err(Error::invalid("the model has no IR version")),
            v if v < IR_IMPORTS && main.is_empty() => {
                main.insert(String::new(), 1);
            }
            v if v > IR_VERSION => warnings.model(format!(
                "IR version {v} is unknown; the model is read as version {IR_VERSION}"
            )),
            _ => {}
        }
        let own = model.layout.iter().filter(|p| p.kind == PartKind::Opset);
        imports(own.map(|p| p.payload.clone()), model, warnings, None)?;
        let mut this = Self {
            sets: vec![main],
            of: vec![0; graph.scopes.len()],
        };
        for (i, scope) in graph.scopes.iter().enumerate() {
            match (&scope.kind, scope.parent) {
                (ScopeKind::Main, _) => {}
                // The scope around a body has a lower index.
                (ScopeKind::Body(..), Some(parent)) => this.of[i] = this.of[parent.index()],
                (ScopeKind::Body(..), None) => {}
                (ScopeKind::Function { .. }, _) => {
                    let fields = wire::fields(model.source(), scope.span.clone());
                    let fields: Result<Vec<_>> = fields.collect();
                    let own = fields?.into_iter();
                    let own = own.filter(|f| f.number == function::OPSET && f.delimited);
                    let name = Some(&*scope.name);
                    let set = imports(own.map(|f| f.payload), model, warnings, name)?;
                    this.of[i] = this.sets.len();
                    this.sets.push(set);
                }
            }
        }
        Ok(this)
    }

    /// The operator sets of a scope, with their index.
    pub(super) fn at(&self, scope: ScopeId) -> (usize, &Opsets) {
        let set = self.of[scope.index()];
        (set, &self.sets[set])
    }
}

/// The imports at these ranges, with a warning where a domain has two versions.
fn imports(
    places: impl Iterator<Item = std::ops::Range<usize>>,
    model: &Model,
    warnings: &mut Warnings<'_>,
    function: Option<&str>,
) -> Result<Opsets> {
    let mut set = Opsets::new();
    for at in places {
        let import = OperatorSetIdProto::decode(model.source().slice(at))
            .map_err(|e| Error::decode(e.to_string()))?;
        let domain = match import.domain() {
            "ai.onnx" => "",
            name => name,
        };
        let before = set.insert(domain.to_owned(), import.version());
        if let Some(before) = before.filter(|b| *b != import.version()) {
            let (domain, after) = (domain_name(domain), import.version());
            let text = format!(
                "{domain} is imported as version {before} and {after}; the last one is used"
            );
            match function {
                Some(name) => warnings.at(name, text),
                None => warnings.model(text),
            }
        }
    }
    Ok(set)
}

/// The name of a domain in messages.
pub(super) fn domain_name(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}
