//! Patches as text: what a commit would change, line by line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use super::controls::visible;
use super::graph::{Detail, Pass, Printer, values};
use super::notes::Notes;
use super::{Weights, name, shape_text};
use crate::graph::Graph;
use crate::graph::message::shape_proto;
use crate::id::{NodeId, ValueId};
use crate::patch::Patch;
use crate::proto::AttributeProto;
use crate::stored::{Payload, Stored};
use crate::tensor::Tensor;

impl Patch {
    /// What a commit would change, as text: new inputs, constants and nodes (`+`), constants with
    /// new values, nodes with other inputs and outputs computed by other nodes (`-` before, `+`
    /// after), and nodes that nothing uses any more (`-`). Nodes outside of the main graph are
    /// shown with their place.
    pub fn text(&self, graph: &Graph) -> String {
        let mut out = String::new();
        self.write(graph, &mut out)
            .expect("writing into a string does not fail");
        visible(&out)
    }

    fn write(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        self.write_inputs(graph, out)?;
        self.write_redeclared(graph, out)?;
        self.write_constants(graph, out)?;
        self.write_new_nodes(graph, out)?;
        self.write_redirects(graph, out)?;
        self.write_outputs(graph, out)?;
        self.write_unused_nodes(graph, out)
    }

    fn label(&self, graph: &Graph, value: ValueId) -> String {
        name(self.name(graph, value))
    }

    fn write_inputs(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        if !self.inputs.is_empty() {
            out.push_str("@@ inputs\n");
        }
        for input in &self.inputs {
            let shape = shape_text(Some(&shape_proto(&input.dims)));
            let label = self.label(graph, input.value);
            writeln!(out, "+ {}{shape} {label}", input.dtype)?;
        }
        Ok(())
    }

    fn write_redeclared(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        if !self.redeclared.is_empty() {
            out.push_str("@@ dimensions\n");
        }
        for (value, dims) in &self.redeclared {
            let shape = shape_text(Some(&shape_proto(dims)));
            writeln!(out, "! {shape} {}", self.label(graph, *value))?;
        }
        Ok(())
    }

    fn write_constants(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        if !self.initializers.is_empty() || !self.revalued.is_empty() {
            out.push_str("@@ constants\n");
        }
        for (value, tensor) in &self.revalued {
            let label = self.label(graph, *value);
            if let Some(old) = graph.stored(*value) {
                writeln!(out, "- {}", constant(graph, &label, old)?)?;
            }
            writeln!(out, "+ {}", constant(graph, &label, &stored(tensor))?)?;
        }
        for init in &self.initializers {
            let label = self.label(graph, init.value);
            writeln!(out, "+ {}", constant(graph, &label, &stored(&init.tensor))?)?;
        }
        Ok(())
    }

    fn write_new_nodes(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        if !self.nodes.is_empty() {
            out.push_str("@@ new nodes\n");
        }
        for node in &self.nodes {
            let outputs = values(&node.outputs, |v| self.label(graph, v));
            let domain = match node.domain.as_str() {
                "" => String::new(),
                domain => format!("{domain}."),
            };
            let attributes = attributes(graph, &node.attributes)?;
            let inputs = values(&node.inputs, |v| self.label(graph, v));
            write!(out, "+ {outputs} = {domain}{}", node.op)?;
            write!(out, "{attributes}({inputs})")?;
            let scope = graph.scope(node.scope);
            if node.scope != graph.main() {
                write!(out, " # in {}", scope.name())?;
            }
            out.push('\n');
        }
        Ok(())
    }

    /// Nodes that read other values.
    fn write_redirects(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        let mut redirected: BTreeMap<NodeId, BTreeMap<usize, ValueId>> = BTreeMap::new();
        for (at, new) in &self.redirects {
            let slots = redirected.entry(at.node).or_default();
            slots.insert(at.slot(), *new);
        }
        if !redirected.is_empty() {
            out.push_str("@@ moved uses\n");
        }
        let label = |v| self.label(graph, v);
        for (id, slots) in &redirected {
            let old = graph.node(*id).inputs().to_vec();
            let mut new = old.clone();
            for (slot, value) in slots {
                if let Some(input) = new.get_mut(*slot) {
                    *input = Some(*value);
                }
            }
            writeln!(out, "- {}", line(graph, *id, &values(&old, label)))?;
            writeln!(out, "+ {}", line(graph, *id, &values(&new, label)))?;
        }
        Ok(())
    }

    fn write_outputs(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        if !self.outputs.is_empty() {
            out.push_str("@@ outputs\n");
        }
        let outputs: BTreeMap<ValueId, ValueId> = self.outputs.iter().copied().collect();
        for (old, new) in outputs.iter().filter(|(old, new)| old != new) {
            let name = self.label(graph, *old);
            let from = match graph.producer(*old) {
                Some((node, _)) => graph.place(node),
                None => "an input or constant".to_owned(),
            };
            writeln!(out, "- {name} # of {from}")?;
            writeln!(
                out,
                "+ {name} # computed as {} in this patch",
                self.label(graph, *new)
            )?;
        }
        Ok(())
    }

    /// Nodes that a commit would remove, found by committing to a copy.
    fn write_unused_nodes(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        let Ok(applied) = graph.clone().commit(self.clone()) else {
            return Ok(());
        };
        if !applied.removed.is_empty() {
            out.push_str("@@ nodes without a reader\n");
        }
        let removed: BTreeSet<NodeId> = applied.removed.into_iter().collect();
        for id in removed {
            let inputs = values(graph.node(id).inputs(), |v| self.label(graph, v));
            writeln!(out, "- {}", line(graph, id, &inputs))?;
        }
        Ok(())
    }
}

/// A node of the graph with other inputs; bodies are not written.
fn line(graph: &Graph, id: NodeId, inputs: &str) -> String {
    let node = graph.node(id);
    let domain = match node.domain() {
        "" => String::new(),
        domain => format!("{domain}."),
    };
    let outputs = values(node.outputs(), |v| name(graph.name(v)));
    let place = if node.scope() == graph.main() {
        String::new()
    } else {
        format!(" # {}", graph.place(id))
    };
    format!("{outputs} = {domain}{}({inputs}){place}", node.op())
}

fn constant(graph: &Graph, label: &str, stored: &Stored) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let mut printer = printer(graph, &mut out);
    printer.tensor_type(stored)?;
    write!(printer.out, " {label} = ")?;
    if let Some(comment) = printer.tensor_payload(stored, || label.to_owned())? {
        write!(printer.out, " # {comment}")?;
    }
    Ok(out)
}

fn attributes(graph: &Graph, attributes: &[AttributeProto]) -> Result<String, fmt::Error> {
    let mut out = String::new();
    let mut printer = printer(graph, &mut out);
    for (i, attribute) in attributes.iter().enumerate() {
        printer.out.write_str(if i == 0 { " <" } else { ", " })?;
        printer.attribute(attribute, &[], 0)?;
    }
    if !attributes.is_empty() {
        out.push('>');
    }
    Ok(out)
}

fn printer<'a>(graph: &'a Graph, out: &'a mut String) -> Printer<'a> {
    Printer {
        graph,
        weights: Weights::Hash,
        detail: Detail::Computation,
        pass: Pass::Write,
        out,
        notes: Notes::default(),
    }
}

fn stored(tensor: &Tensor) -> Stored {
    Stored {
        dtype: Some(tensor.dtype()),
        dims: tensor.dims().to_vec(),
        payload: Payload::Raw(tensor.bytes().clone()),
    }
}
