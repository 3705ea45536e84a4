//! Parts of models as text, for comparing them: without names of nodes, types of inner values, and
//! payloads of larger weights.

use std::fmt;

use super::graph::{Detail, Pass, Printer};
use super::notes::Notes;
use super::signs::shown;
use super::{Weights, model};
use crate::graph::Graph;
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;

/// The whole model, what it computes alone.
pub(crate) fn outline(model: &Model) -> String {
    let mut out = String::new();
    model::head(model, &mut out).expect("writing into a string does not fail");
    out + &of_graph(model.graph(), |printer| model::body(model, printer)) + "\n"
}

/// A node in a line, with lines for its bodies.
pub(crate) fn node(graph: &Graph, id: NodeId) -> String {
    of_graph(graph, |printer| printer.node(id, 0))
}

/// An initializer.
pub(crate) fn initializer(graph: &Graph, value: ValueId) -> String {
    of_graph(graph, |printer| printer.initializer(value).map(drop))
}

/// A value with its type.
pub(crate) fn value(graph: &Graph, value: ValueId) -> String {
    of_graph(graph, |printer| printer.typed(value))
}

/// The type of a value; empty where it is not known.
pub(crate) fn value_type(graph: &Graph, value: ValueId) -> String {
    of_graph(graph, |printer| {
        let ty = printer.type_of(value);
        printer.out.write_str(ty.as_deref().unwrap_or_default())
    })
}

/// The attributes and imports of a function.
pub(crate) fn function_head(model: &Model, scope: ScopeId) -> String {
    of_graph(model.graph(), |printer| {
        model::function_head_text(model, scope, printer)
    })
}

fn of_graph(graph: &Graph, write: impl FnOnce(&mut Printer<'_>) -> fmt::Result) -> String {
    let mut out = String::new();
    let mut printer = Printer {
        graph,
        weights: Weights::Hash,
        detail: Detail::Computation,
        pass: Pass::Write,
        out: &mut out,
        notes: Notes::default(),
    };
    write(&mut printer).expect("writing into a string does not fail");
    shown(out.trim_end())
}
