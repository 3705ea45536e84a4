//! Leaving out the quantization of positions, frequencies, cosines and sines, before rotations are rewritten.
//!
//! Numbers of another scaling have another range, and a rotation that is computed from coarsely quantized ones is
//! another function than the one that was meant.

use posenc_ir::Model;
use serde_json::{Value, json};

use super::form::each_rotation;
use super::rewritten::Rewritten;
use super::summary::{Changed, edits};
use crate::detect::branches::{Branch, branches as branches_of};
use crate::detect::rotary::quantized;
use crate::detect::{Found, Options, detect};
use crate::inspect::entries;
use crate::report::{Edit, Guarantee};
use crate::request::Request;
use crate::spelling;

/// A model whose rotations are computed from exact numbers.
#[derive(Debug)]
pub(super) struct Exact {
    pub(super) model: Model,
    /// The same in the spelling that is read, where some of its operators have another.
    pub(super) plain: Option<Model>,
    /// What was found in it.
    pub(super) branches: Vec<Branch>,
    pub(super) left_out: LeftOut,
}

/// The pairs of `QuantizeLinear` and `DequantizeLinear` that were left out.
#[derive(Clone, Debug)]
pub(super) struct LeftOut {
    /// How many.
    pairs: usize,
    /// The sites whose rotation was another function with them.
    coarse: Vec<usize>,
}

/// The model with exact rotations at the sites of a request; `None` where none is computed from quantized numbers,
/// and where another form has to compute the same. `branches` are those of its spelling that is read.
pub(super) fn exact(
    model: &Model,
    branches: &[Branch],
    options: &Options,
    request: &Request,
) -> Option<Exact> {
    if request.is_only_form() {
        return None;
    }
    let quantized = |found: &Found| {
        let all = found.quantized.iter().map(|own| own.site.site);
        let chosen = all.filter(|site| request.covers(&found.attention[*site]));
        chosen.collect::<Vec<_>>()
    };
    let is_coarse = branches.iter().any(|own| !quantized(&own.found).is_empty());
    let is_rotated = branches.iter().any(|own| !own.found.rotary.is_empty());
    let mut nodes = model.graph().nodes();
    let mut is_rounded = || nodes.any(|(_, node)| node.is("QuantizeLinear"));
    let is_meant = is_coarse || is_rotated && is_rounded();
    if !is_meant {
        return None;
    }
    let found = detect(model, options);
    let coarse = quantized(&found);
    let (model, pairs) = quantized::exact(model, &found, |site| request.covers(site))?;
    let plain = spelling::plain(&model, &options.roles);
    let branches = branches_of(plain.as_ref().unwrap_or(&model), options);
    Some(Exact {
        model,
        plain,
        branches,
        left_out: LeftOut { pairs, coarse },
    })
}

impl LeftOut {
    /// Tells what was left out where a model is rewritten. A rotation that was another function is an edit of its own.
    pub(super) fn tell(&self, done: &mut Rewritten) {
        if done.report.edits.is_empty() && !self.coarse.is_empty() {
            done.report.edits = self.edits(&done.model, &done.found);
            done.report.guarantee = Guarantee::NewFunction;
        }
        if !done.report.edits.is_empty() {
            done.report.warnings.push(format!(
                "the rotations were computed from quantized numbers, and are not any more: pairs of \
                 QuantizeLinear and DequantizeLinear that were left out: {}",
                self.pairs
            ));
        }
    }

    fn edits(&self, result: &Model, found: &Found) -> Vec<Edit> {
        let changed = Changed {
            sites: self.coarse.iter().map(|site| (*site, None)).collect(),
            nodes_removed: 2 * self.pairs,
            ..Changed::default()
        };
        let to = entries(result, found);
        let mut all = edits(found, &[changed], &to, &to, &|_| None);
        for edit in &mut all {
            mark(&mut edit.from);
        }
        all
    }
}

/// Says of the rotation in a description that it is computed from quantized numbers.
fn mark(described: &mut Value) {
    each_rotation(described, &|one| one["params"]["quantized"] = json!(true));
}
