//! How far half precision alone tells equal tokens apart.
//!
//! What a token attends to is a sum of as many weights as there are keys that it sees, each of them rounded, so that
//! attention adds a difference of a few roundings. The next layer passes that on and adds its own, which has nothing
//! to do with it: behind n layers they are apart by the root of n + 1 times as much.

use posenc_ir::{DType, Graph, NodeId, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::attention::Site;
use crate::detect::Found;
use crate::graph::bodies::holder;
use crate::graph::region::reads;

/// Weights of more equal tokens are each rounded alike, and so is what they sum to: by one rounding more than in
/// shorter sequences, so twice as far.
const FEW: usize = 32;

/// How many layers of attention are before each value, one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Depths(FxHashMap<ValueId, usize>);

impl Depths {
    /// Attention that is `alone` mixes nothing.
    pub(super) fn of(graph: &Graph, found: &Found, alone: &FxHashSet<NodeId>) -> Self {
        let mut layers: FxHashMap<NodeId, usize> = FxHashMap::default();
        let mixing = found.attention.iter().filter(|s| !alone.contains(&s.node));
        for id in mixing.filter_map(|site| in_main(graph, site)) {
            *layers.entry(id).or_default() += 1;
        }
        let mut depths = FxHashMap::default();
        for id in graph.order(graph.main()).unwrap_or_default() {
            let inputs = reads(graph, id);
            let before = inputs.iter().filter_map(|v| depths.get(v)).max();
            let own = before.copied().unwrap_or(0) + layers.get(&id).copied().unwrap_or(0);
            if own > 0 {
                let outputs = graph.node(id).outputs().iter().flatten();
                depths.extend(outputs.map(|out| (*out, own)));
            }
        }
        Self(depths)
    }

    /// By how much more than one rounding equal tokens of a type may differ at a value, in sequences of so many
    /// tokens.
    pub(super) fn more(&self, dtype: DType, value: ValueId, sequence: usize) -> f64 {
        if !matches!(dtype, DType::F16 | DType::BF16) {
            return 1.0;
        }
        let depth = self.0.get(&value).copied().unwrap_or(0);
        let longer = if sequence > FEW { 2.0 } else { 1.0 };
        longer * (1.0 + depth as f64).sqrt()
    }
}

/// The node of the main graph that computes a site, or has it in a body.
fn in_main(graph: &Graph, site: &Site) -> Option<NodeId> {
    let mut id = site.node;
    while graph.node(id).scope() != graph.main() {
        id = holder(graph, graph.node(id).scope())?;
    }
    Some(id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::rows::What;
    use crate::detect::{Options, detect};
    use crate::graph::sketch::Sketch;
    use crate::prove::bare::check_within;
    use crate::prove::bare::limits::Limits;
    use crate::prove::subject::coarsest;
    use crate::prove::testing::{Evaluator, fixture};

    #[test]
    fn half_precision_may_differ_by_more_behind_layers_and_in_longer_sequences() {
        let model = fixture("mini/none");
        let found = detect(&model, &Options::default());
        let graph = model.graph();
        let depths = Depths::of(graph, &found, &FxHashSet::default());
        let keys = |site: usize| found.attention[site].key.value;
        let output = found.rows.iter().find(|rows| rows.what == What::Output);
        let output = output.unwrap().value;
        for dtype in [DType::F16, DType::BF16] {
            let more = |value, sequence| depths.more(dtype, value, sequence);
            assert_eq!(more(keys(0), FEW), 1.0);
            assert_eq!(more(keys(1), FEW), 2f64.sqrt());
            assert_eq!(more(output, FEW), 3f64.sqrt());
            assert_eq!(more(output, FEW + 1), 2.0 * 3f64.sqrt());
        }
        // Single precision rounds by far less than tokens may differ.
        for dtype in [DType::F32, DType::F64] {
            assert_eq!(depths.more(dtype, output, FEW + 1), 1.0);
        }
        let all = found.attention.iter().map(|site| site.node).collect();
        let alone = Depths::of(graph, &found, &all);
        assert_eq!(alone.more(DType::F16, output, FEW), 1.0);
    }

    /// What fails in a model in half precision, to whose second layer a multiple of the position is added.
    fn failed(step: f64) -> Vec<String> {
        let mut s = Sketch::default();
        let x = s.embedded();
        let x = s.attends(&x, &x);
        let x = s.cast(&x, DType::F16);
        let x = s.cast(&x, DType::F32);
        let at = s.range();
        let at = s.cast(&at, DType::F32);
        let at = s.unsqueeze(&at, &[0, 2]);
        let step = s.float(step);
        let added = s.op("Mul", &[&at, &step]);
        let x = s.op("Add", &[&x, &added]);
        let y = s.attends(&x, &x);
        let model = s.model(17, &[&y]);
        let found = detect(&model, &Options::default());
        assert_eq!(coarsest(&model, &found), DType::F16);
        let backend = Evaluator::default();
        let bare = check_within((&model, &found), &[0, 1], &backend, Limits::USUAL);
        let checks = bare.unwrap().checks.into_iter();
        let failed = checks.filter(|check| !check.ok);
        failed.map(|check| check.quantity).collect()
    }

    #[test]
    fn a_position_behind_a_layer_in_half_precision_is_seen() {
        let values = "values of equal tokens".to_owned();
        assert!(failed(0.01).contains(&values));
        assert_eq!(failed(0.0), [""; 0], "control");
    }
}
