//! Leaving out the quantization of positions and frequencies, before rotations are rewritten.
//!
//! A rotation that is computed from quantized numbers is another function than the one that was meant.

use posenc_ir::Model;
use serde_json::{Value, json};

use super::summary::{Changed, edits};
use crate::detect::branches::{Branch, branches as branches_of};
use crate::detect::rotary::quantized;
use crate::detect::{Found, Options, detect};
use crate::inspect::entries;
use crate::report::Edit;
use crate::spelling;

/// A model whose rotations are computed from exact numbers.
#[derive(Debug)]
pub(super) struct Exact {
    pub(super) model: Model,
    /// The same in the spelling that is read, where some of its operators have another.
    pub(super) plain: Option<Model>,
    /// What was found in it.
    pub(super) branches: Vec<Branch>,
    /// How many pairs of `QuantizeLinear` and `DequantizeLinear` were left out.
    pub(super) pairs: usize,
}

/// The model with exact rotations; `None` where none is computed from quantized numbers. `branches` are those of
/// its spelling that is read.
pub(super) fn exact(model: &Model, branches: &[Branch], options: &Options) -> Option<Exact> {
    branches
        .iter()
        .find(|own| !own.found.quantized.is_empty())?;
    let (model, pairs) = quantized::exact(model, &detect(model, options))?;
    let plain = spelling::plain(&model, &options.roles);
    let branches = branches_of(plain.as_ref().unwrap_or(&model), options);
    Some(Exact {
        model,
        plain,
        branches,
        pairs,
    })
}

/// What a user should know.
pub(super) fn note(pairs: usize) -> String {
    format!(
        "the rotations were computed from quantized positions or frequencies, and are not any more: pairs of \
         QuantizeLinear and DequantizeLinear that were left out: {pairs}"
    )
}

/// The edits where nothing else changes. `found` is what is found in the result.
pub(super) fn changes(result: &Model, found: &Found, pairs: usize) -> Vec<Edit> {
    let changed = Changed {
        sites: found.rotary.iter().map(|own| (own.site, None)).collect(),
        nodes_removed: 2 * pairs,
        ..Changed::default()
    };
    let to = entries(result, found);
    let mut all = edits(found, &[changed], &to, &to, &|_| None);
    for edit in &mut all {
        mark(&mut edit.from);
    }
    all
}

/// Says of the rotation in a description that it is computed from quantized numbers.
fn mark(described: &mut Value) {
    match described {
        Value::Array(all) => all.iter_mut().for_each(mark),
        Value::Object(_) if described["kind"] == "rope" => {
            described["params"]["quantized"] = json!(true);
        }
        _ => {}
    }
}
