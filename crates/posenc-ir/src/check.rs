//! The check of what the passes rely on, and of what the standard asks for.
//!
//! Reading already refuses names that are defined twice or nowhere. The structure comes first:
//! nodes do not depend on themselves, functions do not call themselves or unfold without bound,
//! payloads have the length of their type and dimensions and stand where a model may have them.
//! Then every node is held against the facts about its operator. What the table of operators does
//! not know is a warning.

mod attribute;
mod body;
mod external;
mod function;
mod imports;
mod operator;
mod payload;
mod warnings;

pub use warnings::Warning;

use rustc_hash::FxHashSet;

use crate::error::{Error, Result};
use crate::graph::scope::Item;
use crate::graph::{Graph, ScopeKind};
use crate::model::Model;
use crate::sort::Late;
use crate::stored::Payload;
use crate::wire;
use external::Files;
use function::Functions;
use imports::Imports;
use warnings::{Cause, Warnings};

impl Model {
    /// Checks the model, and says what is unusual about it.
    ///
    /// # Errors
    /// The first thing found wrong, with its place.
    pub fn check(&self) -> Result<Vec<Warning>> {
        let graph = self.graph();
        let mut warnings = Warnings::default();
        order(graph, &mut warnings)?;
        let mut named = FxHashSet::default();
        for output in graph.scope(graph.main()).outputs() {
            if !named.insert(*output) {
                return Err(Error::invalid("the output is listed twice").at(graph.name(*output)));
            }
        }
        let functions = Functions::of(graph)?;
        functions.check_size()?;
        let imports = Imports::of(self, &mut warnings)?;
        let is_call = |id| functions.callee(id).is_some();
        operator::check(graph, &imports, is_call, &mut warnings)?;
        functions.check_calls(&imports)?;
        shadows(graph, &mut warnings);
        let mut files = Files::default();
        payloads(self, &mut files)?;
        if files.lack() {
            payloads(self, &mut files)?;
        }
        Ok(warnings.finish())
    }
}

/// Nodes may stand in any order that one of computation can be made of.
fn order<'g>(graph: &'g Graph, warnings: &mut Warnings<'g>) -> Result<()> {
    let late = Late::of(graph);
    for scope in graph.scopes() {
        let Some((first, count)) = late.within(graph, scope) else {
            continue;
        };
        graph.order(scope)?;
        let more = match count - 1 {
            0 => String::new(),
            n => format!(", and {n} more of its graph do"),
        };
        let text = format!("the node stands before what it reads{more}; --sort writes the order");
        warnings.at(graph.place(first), text);
    }
    Ok(())
}

/// Names of a body hide equal ones around it, which the standard does not allow.
fn shadows<'g>(graph: &'g Graph, warnings: &mut Warnings<'g>) {
    for id in graph.scopes() {
        let scope = graph.scope(id);
        let (ScopeKind::Body(holder, _), Some(parent)) = (scope.kind(), scope.parent()) else {
            continue;
        };
        let computed = scope.nodes().iter();
        let computed = computed.flat_map(|n| graph.node(*n).outputs()).flatten();
        let own = scope.inputs().iter().chain(scope.initializers());
        for value in own.chain(computed) {
            let name = graph.name(*value);
            if graph.find(parent, name).is_some() {
                warnings.of(Cause::Shadow, || {
                    let text = format!("a body defines {name}, which is defined around it too");
                    (graph.place(*holder), text)
                });
            }
        }
    }
}

fn payloads(model: &Model, files: &mut Files) -> Result<()> {
    initializers(model, files)?;
    attributes(model, files)
}

fn initializers(model: &Model, files: &mut Files) -> Result<()> {
    let graph = model.graph();
    for id in graph.scopes() {
        for value in graph.scope(id).initializers() {
            if let Some(stored) = graph
                .stored(*value)
                .filter(|_| !graph.is_removed_value(*value))
            {
                payload::check(model, stored, files).map_err(|e| e.at(graph.name(*value)))?;
            }
        }
        for (span, item) in graph.scope(id).pieces() {
            if let Item::Initializer(value) = item
                && let Some(Payload::Sparse) = graph.stored(value).map(|s| &s.payload)
            {
                let message = wire::field(model.source(), span)?.payload;
                let message = model.source().slice(message);
                let sparse = payload::sparse(message);
                let checked = sparse.and_then(|s| payload::check_sparse(model, &s, files));
                checked.map_err(|e| e.at(graph.name(value)))?;
            }
        }
    }
    Ok(())
}

/// Tensors that stand in attributes. That of a `Constant` counts with its value, which may have
/// got another payload.
fn attributes(model: &Model, files: &mut Files) -> Result<()> {
    let graph = model.graph();
    for (id, node) in graph.nodes() {
        let value = node.output(0).filter(|_| node.is("Constant"));
        let stored = value.and_then(|v| graph.stored(v));
        for a in node.attributes() {
            let mut checked = match stored {
                Some(stored) => payload::check(model, stored, files),
                None => {
                    let mut dense = a.t.iter().chain(&a.tensors);
                    dense.try_for_each(|t| payload::check_tensor(model, t, files))
                }
            };
            let sparse = a.sparse_tensor.as_deref().into_iter();
            for sparse in sparse.chain(&a.sparse_tensors) {
                checked = checked.and_then(|()| payload::check_sparse(model, sparse, files));
            }
            checked.map_err(|e| e.at(format!("{}.{}", graph.place(id), a.name())))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
