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
    use posenc_ir::DType;

    use super::*;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::{SIZE, Sketch};

    /// Rows of the tables.
    const ROWS: usize = 200;

    /// The checks of a layer whose cosine of row 100 is off by this.
    fn checks(off: f64) -> Vec<SiteCheck> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let positions = s.input("position_ids", DType::I64, &["batch", "sequence"]);
        let half = SIZE / 2;
        let [cos, sin] = [f64::cos, f64::sin].map(|wave: fn(f64) -> f64| {
            let angle =
                |i: usize| (i / half) as f64 * 100f64.powf(-((i % half) as f64) / half as f64);
            let mut numbers: Vec<f64> = (0..ROWS * half).map(|i| wave(angle(i))).collect();
            if wave(0.0) == 1.0 {
                numbers[100 * half] += off;
            }
            s.floats(&[ROWS, half], numbers)
        });
        let [q, k] = [(); 2].map(|()| {
            let x = s.headed(&x);
            s.op("ms.RotaryEmbedding", &[&x, &positions, &cos, &sin])
        });
        let v = s.headed(&x);
        let y = s.weighted(&q, &k, &v);
        let model = s.model(17, &[&y]);
        let found = detect(&model, &Options::default());
        assert_eq!(found.rotary.len(), 1, "no trial run reads the row");
        rows(&model, &found)
    }

    #[test]
    fn a_row_that_no_run_reads_is_compared_too() {
        assert!(checks(0.0).is_empty());
        let [check] = &checks(0.1)[..] else {
            panic!("one table is wrong");
        };
        assert!(!check.ok);
        assert!(check.quantity.starts_with("row 100 of "), "{check:?}");
    }
}
