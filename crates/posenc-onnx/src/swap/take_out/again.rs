//! An operator once more, on other inputs.

use posenc_ir::proto::AttributeProto;
use posenc_ir::proto::attribute_proto::AttributeType;
use posenc_ir::{Attr, Emitter, NodeId, ValueId};

use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// Adds the operator of `id` with its attributes on these inputs, where `id` stands; one value for
/// each output.
///
/// # Errors
/// Where an attribute is a tensor, a list of floats or a body.
pub(super) fn again(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    id: NodeId,
    inputs: &[Option<ValueId>],
) -> Result<Vec<ValueId>, RewriteError> {
    let node = ground.graph().node(id);
    let attrs: Option<Vec<(&str, Attr)>> = node.attributes().iter().map(attr).collect();
    let Some(attrs) = attrs else {
        let why = "an attribute of it cannot be written anew";
        return Err(ground.refuse(id, why));
    };
    out.set_scope(node.scope());
    let outputs = node.outputs().len();
    Ok(out.node(node.domain(), node.op(), inputs, &attrs, outputs))
}

fn attr(proto: &AttributeProto) -> Option<(&str, Attr)> {
    let attr = match proto.r#type() {
        AttributeType::Int => Attr::Int(proto.i?),
        AttributeType::Float => Attr::Float(proto.f?),
        AttributeType::Ints => Attr::Ints(proto.ints.clone()),
        AttributeType::String => Attr::Str(String::from_utf8(proto.s.as_ref()?.to_vec()).ok()?),
        _ => return None,
    };
    Some((proto.name.as_deref()?, attr))
}
