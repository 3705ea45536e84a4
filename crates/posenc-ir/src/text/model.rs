//! Whole models: the head, the graph, the functions.

use std::fmt::{self, Display, Formatter, Write};

use prost::Message;

use super::attribute::is_sparse;
use super::controls::{Controls, Discard, Symbols};
use super::graph::{Detail, Pass, Printer};
use super::notes::Notes;
use super::{ModelText, Omission, Weights, name, omitted, quote};
use crate::field::model as field;
use crate::graph::ScopeKind;
use crate::id::ScopeId;
use crate::model::{Model, PartKind};
use crate::proto::{AttributeProto, FunctionProto, ModelProto, OperatorSetIdProto};
use crate::wire;

impl ModelText<'_> {
    /// What the text omits or writes differently because the syntax cannot express it, such as the
    /// documentation of nodes. Elided weights are not listed.
    pub fn omissions(&self) -> Vec<Omission> {
        let mut notes = self.differences();
        omitted::scan(self.model, self.weights, &mut notes);
        notes.into_list()
    }

    /// What is written differently.
    fn differences(&self) -> Notes {
        let mut symbols = Symbols::new(Discard, self.controls);
        let mut notes = Notes::default();
        // Writing to it does not fail.
        let _ = head(self.model, &mut symbols);
        let _ = graphs(
            self.model,
            self.weights,
            Pass::Note,
            &mut symbols,
            &mut notes,
        );
        if symbols.replaced {
            let what = match self.controls {
                Controls::Keep => "NUL characters are shown as symbols",
                Controls::Show => "control characters are shown as symbols",
            };
            notes.note(what, String::new);
        }
        notes
    }
}

impl Display for ModelText<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let notes = match self.weights {
            Weights::Full => self.omissions(),
            // For display: omissions are not listed.
            Weights::Hash | Weights::None => self.differences().into_list(),
        };
        for note in notes {
            write!(Symbols::new(&mut *f, Controls::Show), "# {note}")?;
            f.write_str("\n")?;
        }
        let mut out = Symbols::new(f, self.controls);
        head(self.model, &mut out)?;
        let notes = &mut Notes::default();
        graphs(self.model, self.weights, Pass::Write, &mut out, notes)
    }
}

fn graphs(
    model: &Model,
    weights: Weights,
    pass: Pass,
    out: &mut dyn Write,
    notes: &mut Notes,
) -> fmt::Result {
    let graph = model.graph();
    let mut printer = Printer {
        graph,
        weights,
        detail: Detail::All,
        pass,
        out,
        notes: std::mem::take(notes),
    };
    body(model, &mut printer)?;
    *notes = printer.notes;
    Ok(())
}

/// The graph and the functions.
pub(super) fn body(model: &Model, printer: &mut Printer<'_>) -> fmt::Result {
    let graph = model.graph();
    printer.scope(graph.main(), 0)?;
    printer.out.write_str("\n")?;
    for scope in graph.scopes() {
        if let ScopeKind::Function { .. } = graph.scope(scope).kind() {
            function(model, scope, printer)?;
        }
    }
    Ok(())
}

pub(super) fn head(model: &Model, out: &mut dyn Write) -> fmt::Result {
    let head = head_message(model);
    let version = model.raised.or(head.ir_version);
    let version = version.map(|v| format!("ir_version: {v}"));
    let mut entries: Vec<String> = version.into_iter().collect();
    let mut imports = head.opset_import.clone();
    for (domain, version) in &model.imported {
        let mut own = imports.iter_mut();
        match own.find(|import| crate::model::domain(import.domain()) == *domain) {
            Some(import) => import.version = Some(*version),
            None => imports.push(OperatorSetIdProto {
                domain: Some(domain.clone()),
                version: Some(*version),
            }),
        }
    }
    entries.push(format!("opset_import: [{}]", opsets(&imports)));
    for (key, value) in [
        ("producer_name", &head.producer_name),
        ("producer_version", &head.producer_version),
        ("domain", &head.domain),
    ] {
        entries.extend(value.as_ref().map(|v| format!("{key}: {}", quote(v))));
    }
    let version = head.model_version;
    entries.extend(version.map(|v| format!("model_version: {v}")));
    let doc = head.doc_string.as_ref();
    entries.extend(doc.map(|v| format!("doc_string: {}", quote(v))));
    let metadata: Vec<String> = metadata(model)
        .iter()
        .map(|(key, value)| format!("{}: {}", quote(key), quote(value)))
        .collect();
    if !metadata.is_empty() {
        entries.push(format!("metadata_props: [{}]", metadata.join(", ")));
    }
    writeln!(out, "<\n  {}\n>", entries.join(",\n  "))
}

/// Entries in the order in which they are written to a file.
fn metadata(model: &Model) -> Vec<(String, String)> {
    let read = model.metadata.iter();
    let mut out: Vec<(String, String)> = read
        .map(|(key, value)| (key.clone(), model.set.get(key).unwrap_or(value).clone()))
        .collect();
    let set = model.set.iter();
    let added = set.filter(|(key, _)| !model.metadata.iter().any(|(k, _)| k == *key));
    out.extend(added.map(|(key, value)| (key.clone(), value.clone())));
    out
}

/// The fields of the model other than the graph and the functions.
fn head_message(model: &Model) -> ModelProto {
    let mut bytes = vec![];
    for part in &model.layout {
        let number = wire::fields(&model.source, part.span.clone())
            .next()
            .and_then(|f| f.ok())
            .map(|f| f.number);
        let large = matches!(part.kind, PartKind::Graph | PartKind::Function(_));
        if !large && number != Some(field::TRAINING) {
            bytes.extend_from_slice(&model.source[part.span.clone()]);
        }
    }
    // Reading has decoded these fields.
    ModelProto::decode(bytes.as_slice()).unwrap_or_default()
}

fn opsets(imports: &[OperatorSetIdProto]) -> String {
    let import = |o: &OperatorSetIdProto| format!("{} : {}", quote(o.domain()), o.version());
    imports.iter().map(import).collect::<Vec<_>>().join(", ")
}

fn function(model: &Model, scope: ScopeId, printer: &mut Printer<'_>) -> fmt::Result {
    function_head_text(model, scope, printer)?;
    let s = model.graph().scope(scope);
    for (before, values) in [(" (", s.inputs()), (") => (", s.outputs())] {
        printer.out.write_str(before)?;
        for (i, value) in values.iter().enumerate() {
            printer.out.write_str(if i > 0 { ", " } else { "" })?;
            printer.typed(*value)?;
        }
    }
    printer.out.write_str(")")?;
    printer.values(scope, 0)?;
    printer.body(scope, 0)?;
    printer.out.write_str("\n")
}

/// The fields of a function, its name and its attributes.
pub(super) fn function_head_text(
    model: &Model,
    scope: ScopeId,
    printer: &mut Printer<'_>,
) -> fmt::Result {
    let s = model.graph().scope(scope);
    let head = function_head(model, scope);
    let mut entries = vec![
        format!("domain: {}", quote(head.domain())),
        format!("opset_import: [{}]", opsets(&head.opset_import)),
    ];
    if !head.overload().is_empty() {
        entries.push(format!("overload: {}", quote(head.overload())));
    }
    let doc = head.doc_string.as_ref();
    entries.extend(doc.map(|v| format!("doc_string: {}", quote(v))));
    write!(printer.out, "<\n  {}\n>\n", entries.join(",\n  "))?;
    let title = name(s.name());
    printer.out.write_str(&title)?;
    let defaults = head.attribute_proto.iter().filter(|a| !is_sparse(a));
    let defaults: Vec<&AttributeProto> = defaults.collect();
    if !head.attribute.is_empty() || !defaults.is_empty() {
        printer.out.write_str(" <")?;
        for (i, attribute) in head.attribute.iter().enumerate() {
            printer.out.write_str(if i > 0 { ", " } else { "" })?;
            let attribute = name(attribute);
            printer.out.write_str(&attribute)?;
        }
        for (i, attribute) in defaults.iter().enumerate() {
            let first = i == 0 && head.attribute.is_empty();
            printer.out.write_str(if first { "" } else { ", " })?;
            printer.attribute(attribute, &[], 0)?;
        }
        printer.out.write_str(">")?;
    }
    Ok(())
}

/// The fields of a function without its nodes.
fn function_head(model: &Model, scope: ScopeId) -> FunctionProto {
    let span = model.graph().scope(scope).span.clone();
    let mut bytes = vec![];
    for field in wire::fields(&model.source, span).flatten() {
        if field.number != 7 {
            bytes.extend_from_slice(&model.source[field.span]);
        }
    }
    // Reading has walked these fields.
    FunctionProto::decode(bytes.as_slice()).unwrap_or_default()
}
