//! The lengths at which encodings change, as far as records and graphs tell.

use std::collections::BTreeSet;

use posenc_ir::Model;

use crate::detect::Found;
use crate::record::record;
use crate::record::stretch;

/// Around the lengths at which rotations become others or were trained to end, twice these, and the new ends.
pub(super) fn of_rotations(models: &[(&Model, &Found)]) -> BTreeSet<usize> {
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
        all.extend(ends.iter().map(|end| end.saturating_mul(2)));
        all.extend(ends.into_iter().flat_map(around));
    }
    all.remove(&0);
    all
}

/// Around the old end of tables that were stretched, and the new end.
pub(super) fn of_tables(models: &[(&Model, &Found)]) -> BTreeSet<usize> {
    let stretched = models.iter().find_map(|(model, _)| stretch::read(model));
    let ends = stretched.and_then(|stretched| stretched.before.zip(stretched.after));
    let all = ends.map(|(before, after)| around(before).into_iter().chain([after]));
    let mut all: BTreeSet<usize> = all.into_iter().flatten().collect();
    all.remove(&0);
    all
}

fn around(end: usize) -> [usize; 3] {
    [end.saturating_sub(1), end, end.saturating_add(1)]
}
