//! The difference between two encoded models, field by field.

use std::collections::{BTreeMap, BTreeSet};

use crate::wire::{self, Field, graph, model, node, tensor};

/// The difference between two encoded models, in terms of the edits of a rescale.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Edit {
    /// Constants of which only the payload changed.
    pub revalued: Vec<Constant>,
    /// Nodes of which only an input changed.
    pub rewired: Vec<Rewired>,
    /// Nodes that were added.
    pub added: Vec<Added>,
    /// Initializers that were added.
    pub constants: Vec<Constant>,
    /// Metadata that was added.
    pub metadata: BTreeMap<String, String>,
    /// Everything else, one sentence each: nodes and constants that were removed or changed in
    /// another form, fields that moved.
    pub other: Vec<String>,
}

/// A constant that is new or has a new payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// The initializer, or the output of the `Constant` node.
    pub name: String,
    /// How many elements it has.
    pub elements: usize,
}

/// An input that changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Rewired {
    /// The operator of the node that reads it.
    pub op: String,
    /// The value that it read before.
    pub from: String,
    /// The value that it reads now.
    pub to: String,
}

/// A new node.
#[derive(Clone, Debug, PartialEq)]
pub struct Added {
    /// The operator.
    pub op: String,
    /// What it reads.
    pub inputs: Vec<String>,
    /// What it computes.
    pub outputs: Vec<String>,
}

impl Edit {
    /// The edit that leads from one model to the other.
    pub fn between(before: &[u8], after: &[u8]) -> Self {
        let mut edit = Self::default();
        let (old, new) = (wire::fields(before), wire::fields(after));
        let kept: BTreeSet<Vec<u8>> = of(&old, model::METADATA).map(|f| f.whole.into()).collect();
        let mut rest = vec![];
        for field in &new {
            if field.number == model::METADATA && !kept.contains(field.whole) {
                let [key, value] = [1, 2].map(|n| wire::texts(field.payload, n).concat());
                edit.metadata.insert(key, value);
            } else {
                rest.push(field);
            }
        }
        if old.len() != rest.len() {
            edit.note(format!(
                "{} fields of the model became {}",
                old.len(),
                rest.len()
            ));
        }
        for (old, new) in old.iter().zip(rest) {
            if old.number == model::GRAPH && new.number == model::GRAPH {
                edit.graph(old.payload, new.payload);
            } else if old != new {
                edit.note(format!("field {} of the model changed", old.number));
            }
        }
        edit
    }

    fn note(&mut self, what: String) {
        self.other.push(what);
    }

    fn graph(&mut self, before: &[u8], after: &[u8]) {
        let (old, new) = (wire::fields(before), wire::fields(after));
        let known: BTreeSet<String> = old.iter().map(key).collect();
        let mut rest = vec![];
        for field in &new {
            if known.contains(&key(field)) {
                rest.push(field);
            } else {
                self.addition(field);
            }
        }
        // The remaining fields must be in the order of the source.
        let same = old.len() == rest.len();
        for (old, new) in old.iter().zip(rest) {
            if key(old) != key(new) {
                self.note(format!("{} is in the place of {}", key(new), key(old)));
                return;
            }
            if old != new {
                self.change(old, new);
            }
        }
        if !same {
            self.note("fields of the graph were removed".into());
        }
    }

    fn addition(&mut self, field: &Field<'_>) {
        match field.number {
            graph::NODE => self.added.push(Added {
                op: wire::texts(field.payload, node::OP).concat(),
                inputs: wire::texts(field.payload, node::INPUT),
                outputs: wire::texts(field.payload, node::OUTPUT),
            }),
            graph::INITIALIZER => self.constants.push(Constant {
                name: wire::texts(field.payload, tensor::NAME).concat(),
                elements: elements(field.payload),
            }),
            number => self.note(format!("field {number} of the graph is new or changed")),
        }
    }

    fn change(&mut self, old: &Field<'_>, new: &Field<'_>) {
        let name = key(old);
        let found = match old.number {
            graph::INITIALIZER => self.payload(&name, old.payload, new.payload),
            _ => self.node(&name, old.payload, new.payload),
        };
        if !found {
            self.note(format!("{name} changed"));
        }
    }

    /// Whether two nodes differ only in the payload of a tensor or in the names of inputs.
    fn node(&mut self, name: &str, old: &[u8], new: &[u8]) -> bool {
        let op = wire::texts(old, node::OP).concat();
        let (old, new) = (wire::fields(old), wire::fields(new));
        let pairs = old.iter().zip(&new);
        let mut found = old.len() == new.len();
        for (old, new) in pairs.filter(|(a, b)| a != b) {
            found &= old.number == new.number
                && match old.number {
                    node::INPUT => {
                        let (from, to) = (old.text(), new.text());
                        let op = op.clone();
                        self.rewired.push(Rewired { op, from, to });
                        true
                    }
                    node::ATTRIBUTE => self.attribute(name, old.payload, new.payload),
                    _ => false,
                };
        }
        found
    }

    fn attribute(&mut self, name: &str, old: &[u8], new: &[u8]) -> bool {
        let (old, new) = (wire::fields(old), wire::fields(new));
        let mut found = old.len() == new.len();
        for (old, new) in old.iter().zip(&new).filter(|(a, b)| a != b) {
            found &= old.number == new.number
                && old.number == wire::ATTRIBUTE_TENSOR
                && self.payload(name, old.payload, new.payload);
        }
        found
    }

    /// Whether two tensors differ only in their payload, which has the same number of bytes.
    fn payload(&mut self, name: &str, old: &[u8], new: &[u8]) -> bool {
        let is_payload = |f: &Field<'_>| matches!(f.number, tensor::RAW | tensor::FLOATS);
        let around = |bytes| -> Vec<Vec<u8>> {
            let fields: Vec<Field<'_>> = wire::fields(bytes);
            let kept = fields.iter().filter(|f| !is_payload(f));
            kept.map(|f| f.whole.to_vec()).collect()
        };
        let length = |bytes| -> usize {
            let fields: Vec<Field<'_>> = wire::fields(bytes);
            fields
                .iter()
                .filter(|f| is_payload(f))
                .map(|f| f.payload.len())
                .sum()
        };
        if around(old) != around(new) || length(old) != length(new) {
            return false;
        }
        self.revalued.push(Constant {
            name: name.to_owned(),
            elements: elements(old),
        });
        true
    }
}

/// How many elements a tensor has.
fn elements(bytes: &[u8]) -> usize {
    wire::all(bytes, tensor::DIMS)
        .map(|f| wire::number(f.payload))
        .product()
}

fn of<'a, 'b>(fields: &'b [Field<'a>], number: u64) -> impl Iterator<Item = &'b Field<'a>> {
    fields.iter().filter(move |f| f.number == number)
}

/// Identifies a field of a graph: the outputs of a node, the name of an initializer, the bytes of
/// everything else.
fn key(field: &Field<'_>) -> String {
    match field.number {
        graph::NODE => wire::texts(field.payload, node::OUTPUT).join(" "),
        graph::INITIALIZER => wire::texts(field.payload, tensor::NAME).concat(),
        number => format!("field {number} {:?}", field.whole),
    }
}
