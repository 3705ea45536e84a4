//! Parts of models as text for comparison: without names of nodes and types of inner values, and with
//! hashes instead of larger weights.

use std::fmt;

use super::controls::visible;
use super::graph::{Detail, Pass, Printer};
use super::notes::Notes;
use super::{Weights, model};
use crate::graph::Graph;
use crate::id::{NodeId, ScopeId, ValueId};
use crate::model::Model;

/// The whole model, reduced to what it computes.
pub(crate) fn outline(model: &Model) -> String {
    let mut out = String::new();
    model::head(model, &mut out).expect("writing into a string does not fail");
    out + &of_graph(model.graph(), |printer| model::body(model, printer)) + "\n"
}

/// A node, with its bodies.
pub(crate) fn node(graph: &Graph, id: NodeId) -> String {
    of_graph(graph, |printer| printer.node(id, 0))
}

impl Graph {
    /// A node as ONNX text, with hashes instead of larger weights and without its name.
    ///
    /// ```
    /// # let text = r#"<ir_version: 8, opset_import: ["" : 17]>
    /// # g (float[2] x) => (float[2] y) { ["named"] y = Mul(x, x) }"#;
    /// # let model = posenc_ir::Model::parse(text)?;
    /// let graph = model.graph();
    /// let node = graph.scope(graph.main()).nodes()[0];
    /// assert_eq!(graph.node_text(node), "y = Mul(x, x)");
    /// # Ok::<(), posenc_ir::Error>(())
    /// ```
    pub fn node_text(&self, id: NodeId) -> String {
        node(self, id)
    }
}

/// An initializer.
pub(crate) fn initializer(graph: &Graph, value: ValueId) -> String {
    of_graph(graph, |printer| printer.initializer(value).map(drop))
}

/// A value and its type.
pub(crate) fn value(graph: &Graph, value: ValueId) -> String {
    of_graph(graph, |printer| printer.typed(value))
}

/// The type of a value; empty where it is unknown.
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
    visible(out.trim_end())
}
