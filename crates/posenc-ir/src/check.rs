//! Checks a model against the standard.
//!
//! Reading refuses names that are defined twice or not at all. The check adds: nodes do not depend
//! on their own outputs; functions do not call themselves, and expand to a bounded size; payloads
//! have the length of their type and dimensions, and are within the model's folder; nodes have the
//! inputs, outputs and attributes of their operators. Unknown operators are warnings.

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
use crate::sort::Misplaced;
use crate::stored::Payload;
use crate::wire;
use external::Files;
use function::Functions;
use imports::Imports;
use warnings::{Cause, Warnings};

impl Model {
    /// Checks the model; returns warnings of what is unusual or cannot be checked.
    ///
    /// # Errors
    /// The first problem, with its place.
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
        if files.find_needed() {
            payloads(self, &mut files)?;
        }
        Ok(warnings.finish())
    }
}

/// Nodes in any order are accepted, unless they depend on each other in a cycle.
fn order<'g>(graph: &'g Graph, warnings: &mut Warnings<'g>) -> Result<()> {
    let misplaced = Misplaced::of(graph);
    for scope in graph.scopes() {
        let Some((first, count)) = misplaced.within(graph, scope) else {
            continue;
        };
        graph.order(scope)?;
        let text = match count {
            1 => "the node is before a node that it reads".to_owned(),
            n => format!("{n} nodes of the graph are before nodes that they read"),
        };
        let text = format!("{text}: nodes are not topologically sorted");
        warnings.at(graph.place(first), text);
    }
    Ok(())
}

/// Warns of names of a body that shadow names around it, which the standard does not allow.
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
                    let text =
                        format!("a body defines {name}, which is also defined outside of it");
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

/// Checks tensors of attributes. The tensor of a `Constant` is checked as its output, which may have
/// another payload.
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
