//! Every row of the tables of cosines and sines, also those at positions that no run reads.

use std::collections::BTreeSet;

use posenc_ir::{Model, ValueId};

use super::bound::Worst;
use crate::detect::Found;
use crate::detect::rotary::rows::stray;
use crate::detect::rotary::source::{RotarySource, Sources};
use crate::report::SiteCheck;

/// A failed check for each table with a row that is not what the frequencies of its first rows give. Tables whose
/// frequencies depend on the length have rows of several, and are left out.
pub(super) fn rows(model: &Model, found: &Found) -> Vec<SiteCheck> {
    let graph = model.graph();
    let sources = Sources::of(model, found);
    let mut seen: BTreeSet<Vec<ValueId>> = BTreeSet::new();
    let mut checks = vec![];
    for site in found.rotary.iter().filter(|site| site.switch.is_none()) {
        for half in [&site.query, &site.key] {
            let entries = half.region.entries.iter();
            let read = entries.filter_map(|at| graph.node(at.node).input(at.slot()));
            if !seen.insert(read.collect()) {
                continue;
            }
            let Ok(RotarySource::Tables(tables)) = sources.find(half) else {
                continue;
            };
            for table in &tables {
                let rope = &half.rotation.rope;
                if let Some(row) = stray(graph, &found.trace, table, rope) {
                    let quantity = format!("row {row} of {}", graph.name(table.root));
                    let name = &found.attention[site.site].name;
                    checks.push(Worst::default().check(name, quantity));
                }
            }
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use posenc_ir::Tensor;

    use super::*;
    use crate::detect::rotary::source::Table;
    use crate::detect::{Options, detect};
    use crate::prove::testing::fixture;

    #[test]
    fn a_row_that_no_run_reads_is_compared_too() {
        let model = fixture("gptj/torchscript");
        let found = detect(&model, &Options::default());
        assert!(rows(&model, &found).is_empty());
        let sources = Sources::of(&model, &found);
        let Ok(RotarySource::Tables(tables)) = sources.find(&found.rotary[0].query) else {
            panic!("its cosines and sines are stored");
        };
        let Table { root, dims, .. } = &tables[0];
        let (row, columns) = (dims[0] - 2, dims[1]);
        let graph = model.graph();
        let old = graph.constant(*root).unwrap();
        let mut numbers = old.to_f64s().unwrap();
        numbers[row * columns] += 0.1;
        let changed = Tensor::from_f64(old.dtype(), dims, &numbers);
        let mut out = graph.emitter(graph.main(), "test");
        out.replace_constant(*root, graph.uses(*root), changed)
            .unwrap();
        let (changed, _) = model.clone().with_patch(out.finish()).unwrap();
        let found = detect(&changed, &Options::default());
        let checks = rows(&changed, &found);
        let quantity = format!("row {row} of {}", graph.name(*root));
        assert_eq!(checks[0].quantity, quantity);
        assert!(checks.iter().all(|check| !check.ok));
    }
}
