//! Learned numbers of a swapped model as the file that they came from.

use std::collections::BTreeMap;

use posenc_ir::Model;
use safetensors::serialize;
use safetensors::tensor::{Dtype, TensorView};
use serde_json::Value;

use crate::detect::Options;
use crate::detect::branches::{Branch, branches};
use crate::record::swap::{GroupRecord, SwapRecord};
use crate::request::Tensors;

/// The dimensions and numbers of each tensor, by its name in the file.
type Named = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

/// A file with the learned numbers of every site; `None` where one is not there.
pub(super) fn of(model: &Model, swapped: &SwapRecord) -> Option<Tensors> {
    let family = swapped.to.family()?;
    let branches = branches(model, &Options::default());
    let mut named = Named::new();
    for own in &swapped.branches {
        let branch = branches.iter().find(|b| b.options.branch == own.branch)?;
        for group in &own.groups {
            for learned in family.tensors {
                let Some(tensor) = tensor(model, group, learned.name)? else {
                    continue;
                };
                let own = group.tensors.iter().find(|t| t.name == learned.name);
                // One name for several groups is one tensor.
                if let Some(given) = own.and_then(|t| t.given.clone()) {
                    named.insert(given, tensor);
                    continue;
                }
                for site in &group.sites {
                    let name = format!("{}{}", place(branch, *site)?, learned.name);
                    named.insert(name, tensor.clone());
                }
            }
        }
    }
    let views = named.iter().map(|(name, (dims, bytes))| {
        let view = TensorView::new(Dtype::F32, dims.clone(), bytes).ok()?;
        Some((name.clone(), view))
    });
    let views: Vec<(String, TensorView<'_>)> = views.collect::<Option<_>>()?;
    let bytes = serialize(views, None).ok()?;
    Some(Tensors::from_bytes("the model", bytes))
}

/// The place of a site as names of a file begin.
fn place(branch: &Branch, site: usize) -> Option<String> {
    let place = branch.found.attention.get(site)?.place;
    let stack = place.stack.map_or(String::new(), |s| format!("{s}."));
    Some(format!("{stack}layers.{}.", place.layer))
}

/// A tensor of a group, from its constant or, where it is a parameter, from the record; the inner
/// `None` where it has neither.
#[expect(
    clippy::option_option,
    reason = "a constant that is gone is no tensor that is unused"
)]
fn tensor(model: &Model, group: &GroupRecord, name: &str) -> Option<Option<(Vec<usize>, Vec<u8>)>> {
    let bytes = |numbers: &[f64]| -> Vec<u8> {
        let singles = numbers.iter().map(|n| (*n as f32).to_le_bytes());
        singles.flatten().collect()
    };
    if let Some(learned) = group.tensors.iter().find(|t| t.name == name) {
        let graph = model.graph();
        let value = graph
            .values()
            .find(|v| graph.name(*v) == learned.constant)?;
        let numbers = learned.numbers(&graph.constant(value)?.to_f64s()?)?;
        return Some(Some((learned.dims.clone(), bytes(&numbers))));
    }
    let list = group.params.get(name).and_then(Value::as_array);
    let list: Option<Vec<f64>> = list.and_then(|l| l.iter().map(Value::as_f64).collect());
    Some(list.map(|list| (vec![list.len()], bytes(&list))))
}
