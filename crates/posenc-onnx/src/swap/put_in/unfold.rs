//! The operator of com.microsoft that projects by itself, in parts: a projection, and the operator
//! that takes queries, keys and values.

use posenc_ir::{Attr, Emitter, ValueId};

use crate::attention::Site;
use crate::rewrite::RewriteError;
use crate::swap::Ground;

/// Queries, keys and values `[batch, token, hidden]`, projected apart.
#[derive(Clone, Debug)]
pub(super) struct Parts {
    pub(super) query: ValueId,
    pub(super) key: ValueId,
    value: ValueId,
    /// The dimensions of queries and keys in the trial run.
    pub(super) dims: Vec<usize>,
}

/// Takes apart a site that projects by itself; `None` for any other.
///
/// # Errors
/// Where it does more than the operator without projections can.
pub(super) fn parts(
    out: &mut Emitter<'_>,
    ground: &Ground<'_>,
    site: &Site,
) -> Result<Option<Parts>, RewriteError> {
    let graph = ground.graph();
    let node = graph.node(site.node);
    if !(node.domain() == "com.microsoft" && node.op() == "Attention") {
        return Ok(None);
    }
    let refuse = |why: &str| Err(ground.refuse(site.node, why));
    if node.input(4).is_some() || node.output(1).is_some() {
        return refuse("an Attention that holds its projection and a cache is not taken apart yet");
    }
    let flag = |name: &str| matches!(node.int(name), Ok(Some(n)) if n != 0);
    if flag("do_rotary") {
        return refuse("an Attention that turns by itself is not taken apart yet");
    }
    // The mask: lengths, or ones where a token counts, by sequence or by query.
    let batch = ground.found.lengths.batch;
    let mask = node.input(3).map(|v| ground.dims(v));
    if !matches!(mask, None | Some(Some([_, _] | [_, _, _]))) && mask != Some(Some(&[batch])) {
        return refuse("its mask is of a form that only an Attention with its projection takes");
    }
    let (Some(x), Some(weight)) = (node.input(0), node.input(1)) else {
        return refuse("it has no input or no weights");
    };
    let (Some([b, s, _]), Some([_, all])) = (ground.dims(x), ground.dims(weight)) else {
        return refuse("the shapes of its input and its weights are not known");
    };
    let sizes: Vec<usize> = match node.ints("qkv_hidden_sizes") {
        Ok(Some(sizes)) => sizes
            .iter()
            .filter_map(|n| usize::try_from(*n).ok())
            .collect(),
        _ => vec![all / 3; 3],
    };
    if sizes.len() != 3 || sizes.iter().sum::<usize>() != *all || sizes[0] != sizes[1] {
        return refuse("its queries and keys are not of one width");
    }
    out.set_scope(site.scope);
    let mut projected = out.op("MatMul", &[x, weight]);
    if let Some(bias) = node.input(2) {
        projected = out.op("Add", &[projected, bias]);
    }
    let parts = ground.opset().split(out, projected, 2, &sizes);
    let [query, key, value] = parts[..] else {
        return refuse("it cannot be taken apart");
    };
    Ok(Some(Parts {
        query,
        key,
        value,
        dims: vec![*b, *s, sizes[0]],
    }))
}

impl Parts {
    /// Puts the operator that takes them in place of the site's.
    ///
    /// # Errors
    /// Where the operator gives out something else than the attended values.
    pub(super) fn join(
        self,
        out: &mut Emitter<'_>,
        ground: &Ground<'_>,
        site: &Site,
    ) -> Result<(), RewriteError> {
        let node = ground.graph().node(site.node);
        out.set_scope(site.scope);
        let inputs = [
            Some(self.query),
            Some(self.key),
            Some(self.value),
            None,
            node.input(3),
            node.input(5),
        ];
        let last = inputs.iter().rposition(Option::is_some).unwrap_or(0);
        let mut attrs = vec![];
        for name in ["num_heads", "unidirectional"] {
            if let Ok(Some(n)) = node.int(name) {
                attrs.push((name, Attr::Int(n)));
            }
        }
        for name in ["scale", "mask_filter_value"] {
            if let Ok(Some(x)) = node.float(name) {
                attrs.push((name, Attr::Float(x as f32)));
            }
        }
        let made = out.node(
            "com.microsoft",
            "MultiHeadAttention",
            &inputs[..=last],
            &attrs,
            1,
        );
        match (node.output(0), made.first()) {
            (Some(old), Some(new)) => Ok(out.redirect(old, *new)?),
            _ => Err(ground.refuse(site.node, "it gives nothing out")),
        }
    }
}
