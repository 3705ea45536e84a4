//! Finds what the text of a model omits, by field numbers: every field that is not known to be written
//! is noted, also unknown ones.

use std::ops::Range;

use bytes::Bytes;
use prost::Message;

use super::attribute::kind;
use super::controls::Discard;
use super::graph::{Detail, Pass, Printer};
use super::notes::Notes;
use super::{Weights, name, type_text};
use crate::dtype::DType;
use crate::graph::scope::Item;
use crate::graph::{Def, Graph, ScopeKind};
use crate::id::{NodeId, ScopeId};
use crate::model::{Model, PartKind};
use crate::proto::{AttributeProto, ValueInfoProto, attribute_proto::AttributeType};
use crate::stored::{Payload, Stored};
use crate::wire;

/// Messages whose fields are checked.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Model,
    Graph,
    Function,
    Node,
    Attribute,
    Tensor,
    External,
    Entry,
    Opset,
    Value,
    Type,
    Dense,
    Sequence,
    Map,
    Opaque,
    Shape,
    Dimension,
}

/// How a field is written.
enum Rule {
    /// It is written, or checked separately.
    Written,
    /// It is a message; its fields are checked.
    Inside(Kind),
    /// It is omitted.
    Omitted(&'static str),
    Unknown,
}

fn rule(kind: Kind, number: u32) -> Rule {
    use Rule::{Inside, Omitted, Unknown, Written};
    match (kind, number) {
        (Kind::Model, 8) | (Kind::Function, 9) => Inside(Kind::Opset),
        (Kind::Model, 14) => Inside(Kind::Entry),
        (Kind::Model, 20) => Omitted("training information is omitted"),
        (Kind::Model, 26) => Omitted("device configurations are omitted"),
        (Kind::Model, 1..=7 | 25) => Written,
        (Kind::Graph, 10) => Omitted("documentation of graphs is omitted"),
        (Kind::Graph, 14) => Omitted("quantization annotations are omitted"),
        (Kind::Graph, 15) => Written,
        (Kind::Graph, 16) => Omitted("metadata of graphs is omitted"),
        (Kind::Graph, 5) => Inside(Kind::Tensor),
        (Kind::Graph, 11..=13) | (Kind::Function, 12) => Inside(Kind::Value),
        (Kind::Graph, 1) | (Kind::Function, 7) => Inside(Kind::Node),
        (Kind::Graph, 2) | (Kind::Function, 1 | 4..=6 | 8 | 10 | 13) => Written,
        (Kind::Function, 11) => Inside(Kind::Attribute),
        (Kind::Function, 14) => Omitted("metadata of functions is omitted"),
        (Kind::Node, 5) => Inside(Kind::Attribute),
        (Kind::Node, 6) => Omitted("documentation of nodes is omitted"),
        (Kind::Node, 9) => Omitted("metadata of nodes is omitted"),
        (Kind::Node, 10) => Omitted("device configurations of nodes are omitted"),
        (Kind::Node, 1..=4 | 7 | 8) => Written,
        (Kind::Attribute, 5 | 10) => Inside(Kind::Tensor),
        (Kind::Attribute, 13) => Omitted("documentation of attributes is omitted"),
        (Kind::Attribute, 14 | 15) => Inside(Kind::Type),
        (Kind::Attribute, 22 | 23) => Omitted("sparse tensors in attributes are omitted"),
        // Bodies are scopes of their own.
        (Kind::Attribute, 1..=4 | 6..=9 | 11 | 20 | 21) => Written,
        (Kind::Tensor, 3) => Omitted("segments of tensors are omitted"),
        (Kind::Tensor, 12) => Omitted("documentation of tensors is omitted"),
        (Kind::Tensor, 13) => Inside(Kind::External),
        (Kind::Tensor, 16) => Omitted("metadata of tensors is omitted"),
        (Kind::Tensor, 1 | 2 | 4..=11 | 14) => Written,
        (Kind::Value, 2) | (Kind::Sequence, 1) | (Kind::Map, 2) => Inside(Kind::Type),
        (Kind::Value, 3) => Omitted("documentation of values is omitted"),
        (Kind::Value, 4) => Omitted("metadata of values is omitted"),
        (Kind::Type, 1 | 8) => Inside(Kind::Dense),
        (Kind::Type, 4 | 9) => Inside(Kind::Sequence),
        (Kind::Type, 5) => Inside(Kind::Map),
        (Kind::Type, 6) => Omitted("denotations of types are omitted"),
        (Kind::Type, 7) => Inside(Kind::Opaque),
        (Kind::Dense, 2) => Inside(Kind::Shape),
        (Kind::Shape, 1) => Inside(Kind::Dimension),
        (Kind::Dimension, 3) => Omitted("denotations of dimensions are omitted"),
        (Kind::Dimension | Kind::Opaque | Kind::External | Kind::Entry | Kind::Opset, 1 | 2)
        | (Kind::Value | Kind::Dense | Kind::Map, 1) => Written,
        _ => Unknown,
    }
}

/// Notes what the text of the model omits.
pub(super) fn scan(model: &Model, weights: Weights, notes: &mut Notes) {
    let mut scan = Scan {
        source: &model.source,
        graph: model.graph(),
        weights,
        notes,
    };
    for part in &model.layout {
        if !matches!(part.kind, PartKind::Graph | PartKind::Function(_)) {
            scan.fields(Kind::Model, part.span.clone(), &|| "model".to_owned());
        }
    }
    for scope in model.graph().scopes() {
        scan.scope(scope);
    }
}

struct Scan<'a> {
    source: &'a Bytes,
    graph: &'a Graph,
    weights: Weights,
    notes: &'a mut Notes,
}

impl Scan<'_> {
    fn scope(&mut self, id: ScopeId) {
        let graph = self.graph;
        let scope = graph.scope(id);
        let kind = match scope.kind() {
            ScopeKind::Function { .. } => Kind::Function,
            ScopeKind::Main | ScopeKind::Body(..) => Kind::Graph,
        };
        for (span, item) in scope.pieces() {
            match item {
                Item::Node(node) if graph.is_removed(node) => continue,
                Item::Initializer(value) if graph.dropped.contains(&value) => continue,
                _ => {}
            }
            let place = || match item {
                Item::Node(node) => graph.place(node),
                Item::Initializer(value) | Item::Info(value) => name(graph.name(value)),
                Item::Other => name(scope.name()),
            };
            self.fields(kind, span.clone(), &place);
            match item {
                Item::Node(node) => self.node(node),
                Item::Initializer(value) => {
                    if let Some(stored) = graph.stored(value) {
                        self.numbers(stored, &place);
                    }
                }
                Item::Info(_) | Item::Other => self.value(id, span),
            }
        }
    }

    /// Checks the fields in a range of the source, and the messages in them.
    fn fields(&mut self, kind: Kind, span: Range<usize>, place: &dyn Fn() -> String) {
        let mut open = vec![(kind, span)];
        while let Some((kind, span)) = open.pop() {
            let mut seen = 0u32;
            for field in wire::fields(self.source, span).flatten() {
                seen |= 1u32.checked_shl(field.number).unwrap_or(0);
                match rule(kind, field.number) {
                    Rule::Written => {}
                    Rule::Inside(kind) => open.push((kind, field.payload)),
                    Rule::Omitted(_) if field.payload.is_empty() => {}
                    Rule::Omitted(what) => self.notes.note(what, place),
                    Rule::Unknown => {
                        let what = format!("unknown field {} is omitted", field.number);
                        self.notes.note(&what, place);
                    }
                }
            }
            self.payloads(kind, seen, place);
        }
    }

    /// Notes tensors with several payloads, of which one counts.
    fn payloads(&mut self, kind: Kind, seen: u32, place: &dyn Fn() -> String) {
        const TYPED: u32 = 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 10 | 1 << 11;
        let Kind::Tensor = kind else { return };
        let kinds = [1 << 13, 1 << 9, TYPED];
        if kinds.iter().filter(|k| seen & **k != 0).count() > 1 {
            let what = "further payloads of a tensor are omitted";
            self.notes.note(what, place);
        }
    }

    fn node(&mut self, id: NodeId) {
        let graph = self.graph;
        let node = graph.node(id);
        for (index, attribute) in node.attributes().iter().enumerate() {
            let bodies = node
                .indexed_bodies()
                .iter()
                .filter(|(i, _)| *i == index)
                .count();
            if has_other_values(attribute) || bodies > written_bodies(attribute) {
                let what = "values of attributes that do not have their type are omitted";
                self.notes.note(what, || graph.place(id));
            }
            let tensors = attribute.t.iter().chain(&attribute.tensors);
            for stored in tensors.filter_map(|t| Stored::from_proto(t).ok()) {
                self.numbers(&stored, &|| graph.place(id));
            }
            let floats = attribute.f.iter().chain(&attribute.floats);
            if self.weights == Weights::Full && floats.into_iter().any(|v| has_payload(*v)) {
                self.note_nan(&|| graph.place(id));
            }
        }
    }

    /// Notes not-a-number values with bits that a text cannot express.
    fn numbers(&mut self, stored: &Stored, place: &dyn Fn() -> String) {
        if self.weights != Weights::Full || matches!(stored.payload, Payload::External(_)) {
            return;
        }
        let Ok(tensor) = stored.tensor() else { return };
        let bytes = tensor.bytes();
        let found = match tensor.dtype() {
            DType::F32 | DType::Complex64 => bytes
                .chunks_exact(4)
                .filter_map(|b| b.try_into().ok())
                .any(|b| has_payload(f32::from_le_bytes(b))),
            DType::F64 | DType::Complex128 => bytes
                .chunks_exact(8)
                .filter_map(|b| b.try_into().ok())
                .any(|b| has_payload_f64(f64::from_le_bytes(b))),
            _ => false,
        };
        if found {
            self.note_nan(place);
        }
    }

    fn note_nan(&mut self, place: &dyn Fn() -> String) {
        let what = "bits of not-a-number values are omitted";
        self.notes.note(what, place);
    }

    /// Notes the type of a value where another one or none is written.
    fn value(&mut self, scope: ScopeId, span: Range<usize>) {
        let Ok(field) = wire::field(self.source, span) else {
            return;
        };
        let kind = self.graph.scope(scope).kind();
        let is_value = match kind {
            ScopeKind::Function { .. } => field.number == 12,
            ScopeKind::Main | ScopeKind::Body(..) => (11..=13).contains(&field.number),
        };
        let info =
            is_value.then(|| ValueInfoProto::decode(self.source.slice(field.payload.clone())));
        let Some(Ok(info)) = info else { return };
        let Some(ty) = info.r#type.as_ref().filter(|t| t.value.is_some()) else {
            return;
        };
        let Some(text) = type_text(ty) else {
            let what = "types that the syntax cannot express are omitted";
            return self.notes.note(what, || name(info.name()));
        };
        if self.written(scope, info.name()).as_deref() != Some(text.as_str()) {
            let what = "types of values that do not exist or have another type are omitted";
            self.notes.note(what, || name(info.name()));
        }
    }

    /// The type that is written for the value with this name.
    fn written(&self, scope: ScopeId, own: &str) -> Option<String> {
        let graph = self.graph;
        let value = graph.find(scope, own)?;
        let mut out = Discard;
        let mut text = String::new();
        let mut printer = Printer {
            graph,
            weights: Weights::None,
            detail: Detail::All,
            pass: Pass::Note,
            out: &mut out,
            notes: Notes::default(),
        };
        match graph.stored(value) {
            Some(stored) if graph.value(value).def() == Def::Initializer => {
                printer.out = &mut text;
                printer.tensor_type(stored).ok()?;
                Some(text)
            }
            _ => printer.type_of(value),
        }
    }
}

/// The number of bodies of an attribute that are written.
fn written_bodies(a: &AttributeProto) -> usize {
    let is_reference = a.ref_attr_name.as_deref().is_some_and(|r| !r.is_empty());
    match kind(a) {
        AttributeType::Graph if !is_reference => 1,
        AttributeType::Graphs if !is_reference => usize::MAX,
        _ => 0,
    }
}

/// Whether the attribute has values of another type than its own.
fn has_other_values(a: &AttributeProto) -> bool {
    use AttributeType as T;
    let kind = kind(a);
    let fields = [
        (a.f.is_some(), T::Float),
        (a.i.is_some(), T::Int),
        (a.s.is_some(), T::String),
        (a.t.is_some(), T::Tensor),
        (!a.floats.is_empty(), T::Floats),
        (!a.ints.is_empty(), T::Ints),
        (!a.strings.is_empty(), T::Strings),
        (!a.tensors.is_empty(), T::Tensors),
        (a.tp.is_some(), T::TypeProto),
        (!a.type_protos.is_empty(), T::TypeProtos),
    ];
    let is_reference = a.ref_attr_name.as_deref().is_some_and(|r| !r.is_empty());
    let unknown = a
        .r#type
        .is_some_and(|t| AttributeType::try_from(t).is_err());
    // Empty values of another type do not count.
    let counts = |ty: T| match ty {
        T::Float => a.f() != 0.0,
        T::Int => a.i() != 0,
        T::String => !a.s().is_empty(),
        _ => true,
    };
    let more = |(there, ty): &(bool, T)| *there && (*ty != kind || is_reference) && counts(*ty);
    unknown || fields.iter().any(more)
}

fn has_payload(v: f32) -> bool {
    v.is_nan() && v.to_bits() << 1 != f32::NAN.to_bits() << 1
}

fn has_payload_f64(v: f64) -> bool {
    v.is_nan() && v.to_bits() << 1 != f64::NAN.to_bits() << 1
}
