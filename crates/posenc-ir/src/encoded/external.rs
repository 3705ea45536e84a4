//! The external tensors of an encoded model: listed, relocated, embedded.
//!
//! All messages are walked: initializers, attributes, bodies, functions, training graphs. Messages
//! that are malformed are skipped: no reader finds a tensor in them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use prost::Message as _;

use super::rope::Rope;
use super::{Encoded, Outside};
use crate::error::{Error, Result};
use crate::external::location::byte_range;
use crate::field::{entry, node, tensor as field};
use crate::file::map::{Mapped, map};
use crate::model::Model;
use crate::nesting::Message;
use crate::proto::TensorProto;
use crate::stored::{External, Payload, Stored};
use crate::wire;

/// The deepest nesting that is walked; a readable model has less.
const DEPTH: usize = 512;

impl Model {
    /// The external payloads of an encoded model, in the order of its tensors.
    ///
    /// # Errors
    /// When an external tensor has no valid location.
    pub(crate) fn external_in(&self, encoded: &Encoded) -> Result<Vec<External>> {
        let mut found = vec![];
        // Walking over large weights would load pages next to them into memory.
        if !self.graph.has_external_data {
            return Ok(found);
        }
        edits(&Rope::new(encoded, &self.source), |tensor| {
            found.push(tensor.external.clone());
            Ok(None)
        })?;
        Ok(found)
    }

    /// The external payloads of the model as it was read, in the order of its tensors.
    ///
    /// # Errors
    /// When an external tensor has no valid location.
    pub fn external_data(&self) -> Result<Vec<External>> {
        let mut whole = Encoded::default();
        whole.source(0..self.source.len());
        self.external_in(&whole)
    }

    /// The locations of external data whose files are absent, sorted. Constants that are stored
    /// there are unknown.
    ///
    /// # Errors
    /// As [`Model::external_data`].
    pub fn missing_external_data(&self) -> Result<Vec<String>> {
        let used = self.external_data()?;
        let used: BTreeMap<&str, &External> =
            used.iter().map(|e| (e.location.as_str(), e)).collect();
        let absent = used.into_iter().filter(|(_, external)| {
            let length = self.graph.external_dir.length(external);
            self.path().is_some() && length.is_err_and(|e| e.is_absent())
        });
        Ok(absent.map(|(location, _)| location.to_owned()).collect())
    }

    /// The encoded model with other locations of external payloads: each key of `places` is
    /// replaced by its value. Everything else keeps its bytes.
    ///
    /// # Errors
    /// As [`Model::external_in`].
    pub(crate) fn relocated(
        &self,
        encoded: &Encoded,
        places: &BTreeMap<String, String>,
    ) -> Result<Encoded> {
        let rope = Rope::new(encoded, &self.source);
        let edits = edits(&rope, |tensor| {
            let place = places.get(&tensor.external.location);
            place.map(|to| relocate(&rope, tensor, to)).transpose()
        })?;
        Ok(apply(&rope, edits))
    }

    /// The encoded model with its external payloads embedded as raw bytes. They are mapped, and read
    /// when the model is written.
    ///
    /// # Errors
    /// When a file is absent, too short, or outside of the model's folder; when a payload does not
    /// have the length of its type and dimensions.
    pub(crate) fn embedded(&self, encoded: &Encoded) -> Result<Encoded> {
        let rope = Rope::new(encoded, &self.source);
        let mut files: BTreeMap<String, Arc<Outside>> = BTreeMap::new();
        let edits = edits(&rope, |tensor| {
            let place = |e: Error| e.at(tensor.place.clone());
            let location = &tensor.external.location;
            let file = match files.get(location) {
                Some(file) => file.clone(),
                None => {
                    let path = self.external_file(&tensor.external).map_err(place)?;
                    let Mapped { bytes, file, .. } = map(&path).map_err(place)?;
                    let file = Arc::new(file);
                    let file = Arc::new(Outside { file, bytes });
                    files.insert(location.clone(), file.clone());
                    file
                }
            };
            embed(&rope, tensor, file).map_err(place).map(Some)
        })?;
        Ok(apply(&rope, edits))
    }
}

/// An external tensor.
struct ExternalTensor {
    external: External,
    stored: Stored,
    /// The range of its message.
    within: Range<usize>,
    /// Its name or, in an attribute, the name of the node.
    place: String,
}

/// A message that is being walked.
struct Open {
    message: Message,
    number: u32,
    span: Range<usize>,
    payload: Range<usize>,
    /// The next field.
    at: usize,
    /// The new length of its content, when something in it changed.
    changed: Option<usize>,
}

/// A range, and its replacement.
type Edit = (Range<usize>, Encoded);

/// Calls `change` for every external tensor; it returns the new message, or `None` for no change.
/// Returns these edits, with those of the lengths of the messages around, in the order of the file.
fn edits(
    rope: &Rope<'_>,
    mut change: impl FnMut(&ExternalTensor) -> Result<Option<Encoded>>,
) -> Result<Vec<Edit>> {
    let mut edits: Vec<Edit> = vec![];
    let mut open = vec![Open {
        message: Message::Model,
        number: 0,
        span: 0..0,
        payload: 0..rope.len(),
        at: 0,
        changed: None,
    }];
    while let Some(top) = open.last_mut() {
        if top.at >= top.payload.end {
            let done = open.pop();
            if let Some((done, parent)) = done.zip(open.last_mut())
                && let Some(len) = done.changed
            {
                let mut header = vec![];
                wire::put_header(done.number, len, &mut header);
                parent.replace(done.span.len(), header.len() + len);
                let mut content = Encoded::default();
                content.owned(&header);
                edits.push((done.span.start..done.payload.start, content));
            }
            continue;
        }
        let Ok(field) = rope.field(top.at, top.payload.end) else {
            top.at = top.payload.end;
            continue;
        };
        top.at = field.span.end;
        match top.message.child(field.number).filter(|_| field.delimited) {
            Some(Message::Tensor) => {
                let Some(found) = read(rope, field.payload, &open)? else {
                    continue;
                };
                if let (Some(content), Some(top)) = (change(&found)?, open.last_mut()) {
                    let mut whole = Encoded::default();
                    whole.field(field.number, content);
                    top.replace(field.span.len(), whole.len());
                    edits.push((field.span, whole));
                }
            }
            Some(message) if open.len() < DEPTH => open.push(Open {
                message,
                number: field.number,
                at: field.payload.start,
                payload: field.payload,
                span: field.span,
                changed: None,
            }),
            _ => {}
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    Ok(edits)
}

impl Open {
    /// Adds the change of a field of `old` bytes to one of `new` bytes.
    fn replace(&mut self, old: usize, new: usize) {
        let len = self.changed.unwrap_or(self.payload.len());
        self.changed = Some(len - old + new);
    }
}

fn apply(rope: &Rope<'_>, edits: Vec<Edit>) -> Encoded {
    let mut out = Encoded::default();
    let mut at = 0;
    for (range, content) in edits {
        rope.slice(at..range.start, &mut out);
        out.append(content);
        at = range.end;
    }
    rope.slice(at..rope.len(), &mut out);
    out
}

/// The tensor at `within`, when it is external.
fn read(rope: &Rope<'_>, within: Range<usize>, around: &[Open]) -> Result<Option<ExternalTensor>> {
    let mut is_external = false;
    for f in rope.fields(within.clone()).map_while(Result::ok) {
        if f.number == field::DATA_LOCATION && !f.delimited {
            let value = wire::varint(rope.rest(f.payload.start));
            is_external = value.is_some_and(|(value, _)| value == 1);
        }
    }
    if !is_external {
        return Ok(None);
    }
    let mut head = vec![];
    for f in rope.fields(within.clone()) {
        let f = f?;
        if !is_payload(f.number) {
            head.extend(rope.bytes(f.span));
        }
    }
    let proto = TensorProto::decode(head.as_slice()).map_err(|e| Error::decode(e.to_string()))?;
    let node = around.iter().rfind(|open| open.message == Message::Node);
    let named = || {
        let fields = rope.fields(node?.payload.clone());
        let name = fields.flatten().find(|f| f.number == node::NAME)?;
        let name = rope.bytes(name.payload);
        Some(String::from_utf8_lossy(&name).into_owned())
    };
    let place = match around.last().map(|open| open.message) {
        Some(Message::Graph) => proto.name().to_owned(),
        _ => named().unwrap_or_else(|| proto.name().to_owned()),
    };
    let stored = Stored::from_proto(&proto).map_err(|e| e.at(place.clone()))?;
    let Payload::External(external) = stored.payload.clone() else {
        return Ok(None);
    };
    Ok(Some(ExternalTensor {
        external,
        stored,
        within,
        place,
    }))
}

fn is_payload(number: u32) -> bool {
    number == field::RAW_DATA || field::TYPED.contains(&number)
}

/// The tensor's message with the location `to`.
fn relocate(rope: &Rope<'_>, tensor: &ExternalTensor, to: &str) -> Result<Encoded> {
    let mut out = Encoded::default();
    for f in rope.fields(tensor.within.clone()) {
        let f = f?;
        let is_entry = f.number == field::EXTERNAL_DATA && f.delimited;
        if !(is_entry && is_location(rope, f.payload.clone())?) {
            rope.slice(f.span, &mut out);
            continue;
        }
        let mut entry = Encoded::default();
        for part in rope.fields(f.payload) {
            let part = part?;
            if part.number != entry::VALUE {
                rope.slice(part.span, &mut entry);
            }
        }
        let mut value = vec![];
        wire::put_bytes(entry::VALUE, to.as_bytes(), &mut value);
        entry.owned(&value);
        out.field(f.number, entry);
    }
    Ok(out)
}

/// Whether the key of an entry is `location`.
fn is_location(rope: &Rope<'_>, entry: Range<usize>) -> Result<bool> {
    let mut key = None;
    for part in rope.fields(entry) {
        let part = part?;
        if part.number == entry::KEY && part.delimited {
            key = Some(rope.bytes(part.payload));
        }
    }
    Ok(key.as_deref() == Some(b"location"))
}

/// The tensor's message with its payload embedded.
fn embed(rope: &Rope<'_>, tensor: &ExternalTensor, file: Arc<Outside>) -> Result<Encoded> {
    let len = tensor.external.expected_length(&tensor.stored)?;
    let range = byte_range(&tensor.external, len, file.bytes.len())?;
    let mut payload = Encoded::default();
    payload.outside(file, range);
    let mut payload = Some(payload);
    let mut out = Encoded::default();
    for f in rope.fields(tensor.within.clone()) {
        let f = f?;
        let is_replaced = matches!(f.number, field::EXTERNAL_DATA | field::DATA_LOCATION);
        if !(is_replaced || is_payload(f.number)) {
            rope.slice(f.span, &mut out);
        } else if let Some(payload) = payload.take() {
            out.field(field::RAW_DATA, payload);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests;
