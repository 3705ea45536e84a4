//! The structural check of what the passes rely on.
//!
//! Reading already refuses names that are defined twice or nowhere; this adds that nodes do not
//! depend on themselves, that functions do not call themselves, that payloads have the length of
//! their type and dimensions and stand where a model may have them, and that what a graph needs is
//! said at all.

mod external;
mod function;

use std::collections::BTreeSet;

use prost::Message;

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::proto::TensorProto;
use crate::stored::{Payload, Stored};

impl Model {
    /// Checks what the passes rely on.
    ///
    /// # Errors
    /// The first thing found wrong, with its place.
    pub fn check(&self) -> Result<()> {
        let graph = self.graph();
        for scope in graph.scopes() {
            graph.order(scope)?;
        }
        let mut named = BTreeSet::new();
        for output in graph.scope(graph.main()).outputs() {
            if !named.insert(*output) {
                return Err(Error::invalid("the output is listed twice").at(graph.name(*output)));
            }
        }
        function::check(graph)?;
        for (id, node) in graph.nodes() {
            if node.op().is_empty() {
                return Err(Error::invalid("the node names no operator").at(graph.place(id)));
            }
        }
        let mut files = external::Files::default();
        files.check_attributes(self)?;
        for value in graph.values() {
            if graph.is_gone(value) {
                continue;
            }
            if let Some(stored) = graph.stored(value) {
                let checked = match &stored.payload {
                    Payload::External(external) => files.check(self, stored, external),
                    _ => check_payload(stored),
                };
                checked.map_err(|e| e.at(graph.name(value)))?;
            }
        }
        Ok(())
    }
}

/// A raw payload must have the length of its type and dimensions; typed ones are counted when
/// they are small enough to be decoded for the purpose.
fn check_payload(stored: &Stored) -> Result<()> {
    match &stored.payload {
        Payload::Raw(bytes) => {
            let (Some(dtype), Some(elements)) = (stored.dtype, stored.elements()) else {
                let why = "the tensor's type is not known or its dimensions overflow";
                return Err(Error::invalid(why));
            };
            let empty_string = dtype.bits().is_none() && elements == 0;
            if dtype.payload(elements) != Some(bytes.len()) && !empty_string {
                let got = bytes.len();
                let dims = &stored.dims;
                let why = format!("the payload of {got} bytes does not fit {dtype}{dims:?}");
                return Err(Error::invalid(why));
            }
            Ok(())
        }
        Payload::Typed(bytes) if stored.dtype == Some(DType::String) => {
            let tensor = TensorProto::decode(bytes.clone());
            let got = tensor.map_err(|e| Error::decode(e.to_string()))?;
            let got = got.string_data.len();
            match stored.elements() == Some(got) {
                true => Ok(()),
                false => {
                    let dims = &stored.dims;
                    let why = format!("its {got} strings do not fit string{dims:?}");
                    Err(Error::invalid(why))
                }
            }
        }
        Payload::Typed(bytes) if bytes.len() < 1 << 20 => stored.tensor().map(drop),
        Payload::Typed(_) | Payload::External(_) | Payload::Sparse => Ok(()),
    }
}

#[cfg(test)]
mod tests;
