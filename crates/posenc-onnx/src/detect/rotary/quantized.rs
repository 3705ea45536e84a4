//! Rotations that are computed from quantized numbers, as positions and frequencies: another function than
//! the rotation that was meant, which is read from the numbers before that.

use std::collections::BTreeSet;

use posenc_ir::eval::Trace;
use posenc_ir::{Model, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use super::cache::RotationCache;
use super::unrounded::{Rounding, roundings, without};
use super::{SideReading, difference, read_sides};
use crate::attention::Site;
use crate::detect::found::Found;
use crate::detect::rotary::site::{QuantizedSite, RotarySite};
use crate::graph::region::reads;

/// The model without the quantization of what the rotations of some sites are computed from, and how many
/// quantizations were left out; `None` where there is none, or one that other sites read too. `found` is what was
/// found in the model.
pub(crate) fn exact(
    model: &Model,
    found: &Found,
    is_meant: impl Fn(&Site) -> bool,
) -> Option<(Model, usize)> {
    let sites = found.quantized.iter().map(|own| &own.site);
    let sites = sites.chain(&found.rotary);
    let (meant, others): (Vec<_>, Vec<_>) =
        sites.partition(|own| is_meant(&found.attention[own.site]));
    let [meant, others] = [meant, others].map(|sites| computed_from(model, found, &sites));
    let mut all = roundings(model.graph());
    all.retain(|pair| meant.contains(&pair.after));
    if all.iter().any(|pair| others.contains(&pair.after)) {
        return None;
    }
    Some((without(model, &all)?, all.len()))
}

/// Every value without content that rotations are computed from.
fn computed_from(model: &Model, found: &Found, sites: &[&RotarySite]) -> FxHashSet<ValueId> {
    let graph = model.graph();
    let sides = sites.iter().flat_map(|site| [&site.query, &site.key]);
    let entries = sides.flat_map(|side| &side.region.entries);
    let mut stack: Vec<ValueId> = entries
        .filter_map(|at| graph.node(at.node).input(at.slot()))
        .collect();
    let mut all = FxHashSet::default();
    while let Some(value) = stack.pop() {
        if found.is_content(value) || !all.insert(value) {
            continue;
        }
        if let Some((id, _)) = graph.producer(value) {
            stack.extend(reads(graph, id));
        }
    }
    all
}

/// Reads the sites that are no rotations once more, as they would be without quantization. `run` is a
/// trial run of another model with the same values.
pub(crate) fn find(model: &Model, found: &mut Found, run: impl FnOnce(&Found, &Model) -> Trace) {
    let read: FxHashSet<usize> = found.rotary.iter().map(|site| site.site).collect();
    let refused = found.not_rotary.iter().map(|refused| refused.site);
    let open: BTreeSet<usize> = refused.filter(|site| !read.contains(site)).collect();
    if open.is_empty() {
        return;
    }
    let all = roundings(model.graph());
    let places = all.iter().filter(|pair| !found.is_content(pair.before));
    let changes = places.filter_map(|pair| Some((pair, pair.change(&found.trace)?)));
    let largest = changes.max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((Rounding { after, .. }, change)) = largest else {
        return;
    };
    let (Some((node, _)), Some(exact)) = (model.graph().producer(*after), without(model, &all))
    else {
        return;
    };
    let trace = run(found, &exact);
    let quantized = std::mem::replace(&mut found.trace, trace);
    let before: FxHashMap<ValueId, ValueId> =
        all.iter().map(|pair| (pair.after, pair.before)).collect();
    let mut known = RotationCache::default();
    let mut meant = FxHashSet::default();
    for index in open {
        let mut site = found.attention[index].clone();
        for operand in [&mut site.query, &mut site.key] {
            operand.value = *before.get(&operand.value).unwrap_or(&operand.value);
        }
        let sides = read_sides(&exact, found, &mut known, &site);
        let [SideReading::Rotation(query), SideReading::Rotation(key)] = sides else {
            continue;
        };
        if difference(&query, &key).is_some() {
            continue;
        }
        let site = known.site(&exact, found, index, *query, *key);
        if known.departs(&exact, found, &site.query).is_none() {
            found.quantized.push(QuantizedSite { site, node, change });
            meant.insert(index);
        }
    }
    found.trace = quantized;
    for refused in &mut found.not_rotary {
        if meant.contains(&refused.site) {
            refused.why = format!(
                "numbers that the rotation is computed from are quantized, and change by up to {change:.1e}; \
                 work on the model before it was quantized"
            );
        }
    }
}
