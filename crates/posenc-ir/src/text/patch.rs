//! Patches: what a commit would change, line by line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write};

use super::graph::{Detail, Pass, Printer, values};
use super::notes::Notes;
use super::signs::shown;
use super::{Weights, name, shape_text};
use crate::graph::Graph;
use crate::graph::message::shape_proto;
use crate::id::{NodeId, ValueId};
use crate::patch::Patch;
use crate::proto::AttributeProto;
use crate::stored::{Payload, Stored};
use crate::tensor::Tensor;

impl Patch {
    /// The patch as text, before anything changes: new inputs, constants and nodes (`+`), constants with
    /// another payload, nodes that read other values and outputs that are computed elsewhere
    /// (`-` before, `+` after), and the nodes that nothing needs any more (`-`). Nodes below the
    /// main graph carry their place.
    pub fn text(&self, graph: &Graph) -> String {
        let mut out = String::new();
        self.write(graph, &mut out)
            .expect("writing into a string does not fail");
        shown(&out)
    }

    fn write(&self, graph: &Graph, out: &mut String) -> fmt::Result {
        let label = |v: ValueId| name(self.name(graph, v));
        if !self.inputs.is_empty() {
            out.push_str("@@ inputs\n");
        }
        for input in &self.inputs {
            let shape = shape_text(Some(&shape_proto(&input.dims)));
            writeln!(out, "+ {}{shape} {}", input.dtype, label(input.value))?;
        }
        if !self.initializers.is_empty() || !self.revalued.is_empty() {
            out.push_str("@@ constants\n");
        }
        for (value, tensor) in &self.revalued {
            if let Some(old) = graph.stored(*value) {
                writeln!(out, "- {}", constant(graph, &label(*value), old)?)?;
            }
            let new = stored(tensor);
            writeln!(out, "+ {}", constant(graph, &label(*value), &new)?)?;
        }
        for init in &self.initializers {
            let new = stored(&init.tensor);
            writeln!(out, "+ {}", constant(graph, &label(init.value), &new)?)?;
        }
        if !self.nodes.is_empty() {
            out.push_str("@@ new nodes\n");
        }
        for node in &self.nodes {
            let outputs = values(&node.outputs, label);
            let domain = match node.domain.as_str() {
                "" => String::new(),
                domain => format!("{domain}."),
            };
            let attributes = attributes(graph, &node.attributes)?;
            let inputs = values(&node.inputs, label);
            write!(out, "+ {outputs} = {domain}{}", node.op)?;
            write!(out, "{attributes}({inputs})")?;
            let scope = graph.scope(node.scope);
            let place = (node.scope != graph.main()).then(|| scope.name());
            out.push_str(&place.map_or("\n".to_owned(), |p| format!(" # in {p}\n")));
        }
        let mut moved: BTreeMap<NodeId, BTreeMap<usize, ValueId>> = BTreeMap::new();
        for (at, new) in &self.redirects {
            moved.entry(at.node).or_default().insert(at.slot(), *new);
        }
        if !moved.is_empty() {
            out.push_str("@@ moved uses\n");
        }
        for (id, slots) in &moved {
            let old = graph.node(*id).inputs().to_vec();
            let mut new = old.clone();
            for (slot, value) in slots {
                if let Some(place) = new.get_mut(*slot) {
                    *place = Some(*value);
                }
            }
            writeln!(out, "- {}", line(graph, *id, &values(&old, label)))?;
            writeln!(out, "+ {}", line(graph, *id, &values(&new, label)))?;
        }
        if !self.outputs.is_empty() {
            out.push_str("@@ outputs\n");
        }
        let outputs: BTreeMap<ValueId, ValueId> = self.outputs.iter().copied().collect();
        for (old, new) in outputs.iter().filter(|(old, new)| old != new) {
            let name = label(*old);
            let from = graph.producer(*old);
            let from = from.map_or("an input or constant".to_owned(), |(n, _)| graph.place(n));
            writeln!(out, "- {name} # of {from}")?;
            writeln!(out, "+ {name} # what is {} here", label(*new))?;
        }
        // What would be swept is best known by sweeping it.
        if let Ok(applied) = graph.clone().commit(self.clone()) {
            if !applied.removed.is_empty() {
                out.push_str("@@ nodes without a reader\n");
            }
            let removed: BTreeSet<NodeId> = applied.removed.into_iter().collect();
            for id in removed {
                let inputs = values(graph.node(id).inputs(), label);
                writeln!(out, "- {}", line(graph, id, &inputs))?;
            }
        }
        Ok(())
    }
}

/// A node of the graph with other inputs; bodies are not shown.
fn line(graph: &Graph, id: NodeId, inputs: &str) -> String {
    let node = graph.node(id);
    let domain = match node.domain() {
        "" => String::new(),
        domain => format!("{domain}."),
    };
    let outputs = values(node.outputs(), |v| name(graph.name(v)));
    let place = match node.scope() == graph.main() {
        true => String::new(),
        false => format!(" # {}", graph.place(id)),
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
