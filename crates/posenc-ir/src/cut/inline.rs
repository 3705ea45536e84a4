//! Embeds external tensors of nodes: a model in memory has no folder.

use bytes::Bytes;

use super::limit::ByteLimit;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::proto::{GraphProto, NodeProto, TensorProto};
use crate::stored::{External, Payload, Stored};

/// Embeds the external tensors of a node's attributes and bodies.
pub(super) fn node(model: &Model, node: &mut NodeProto, left: &mut ByteLimit) -> Result<()> {
    for attribute in &mut node.attribute {
        for t in attribute.t.iter_mut().chain(&mut attribute.tensors) {
            tensor(model, t, left)?;
        }
        // The depth is bounded by decoding.
        for g in attribute
            .g
            .as_deref_mut()
            .into_iter()
            .chain(&mut attribute.graphs)
        {
            graph(model, g, left)?;
        }
    }
    Ok(())
}

fn graph(model: &Model, graph: &mut GraphProto, left: &mut ByteLimit) -> Result<()> {
    for t in &mut graph.initializer {
        tensor(model, t, left)?;
    }
    for n in &mut graph.node {
        node(model, n, left)?;
    }
    Ok(())
}

fn tensor(model: &Model, tensor: &mut TensorProto, left: &mut ByteLimit) -> Result<()> {
    if tensor.data_location.is_none() && tensor.external_data.is_empty() {
        return Ok(());
    }
    let stored = Stored::from_proto(tensor)?;
    if let Payload::External(external) = &stored.payload {
        tensor.raw_data = Some(load(model, tensor.name(), &stored, external, left)?);
        tensor.external_data.clear();
        tensor.data_location = None;
    }
    Ok(())
}

/// Loads an external payload, which must fit the limit and its type.
pub(super) fn load(
    model: &Model,
    name: &str,
    stored: &Stored,
    external: &External,
    left: &mut ByteLimit,
) -> Result<Bytes> {
    let want = stored.elements().and_then(|n| stored.dtype?.payload(n));
    left.take(want.unwrap_or(usize::MAX), || name.to_owned())?;
    let mut bytes = model.load(external)?;
    if let Some(want) = want.filter(|_| external.length.is_none()) {
        bytes.truncate(want);
    }
    if want != Some(bytes.len()) {
        let why = format!(
            "{} bytes of {} do not match the type and the shape",
            bytes.len(),
            external.location
        );
        return Err(Error::invalid(why).at(name));
    }
    Ok(bytes)
}
