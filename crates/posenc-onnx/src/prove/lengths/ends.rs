//! The lengths around which rotations change.

use std::collections::BTreeSet;

use posenc_ir::Model;

use crate::detect::Found;
use crate::record::record;

/// The lengths around those at which the rotations of models become others or were trained to end, and the new ends,
/// by their records and by what chooses frequencies in the graph.
pub(super) fn rotated(models: &[(&Model, &Found)]) -> BTreeSet<usize> {
    let mut all = BTreeSet::new();
    for (model, found) in models {
        let switches = found.rotary.iter().filter_map(|site| site.switch.as_ref());
        let mut ends: Vec<usize> = switches.map(|switch| switch.original_length).collect();
        if let Some(record) = record(model) {
            let sites = record.sites();
            let read = sites.iter().filter_map(|site| record.site(*site)?.ok());
            ends.extend(read.filter_map(|site| site.scaling.original_length()));
            all.extend(record.max_length);
        }
        for end in ends {
            all.extend([end.saturating_sub(1), end, end.saturating_add(1)]);
        }
    }
    all.remove(&0);
    all
}
