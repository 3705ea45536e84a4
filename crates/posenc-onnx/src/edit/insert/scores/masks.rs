//! Masks that biases are added to.

use posenc_ir::ValueId;

use super::cache::{MaskOrigin, ScoreCache};
use crate::attention::Site;
use crate::graph::dataflow::is_fed_ids;
use crate::graph::lane::Lane;
use crate::graph::region::{Aspect, Region};

/// A bias on a number of half precision below this may overflow.
const NEAR_LOWEST: f64 = -6e4;

impl ScoreCache<'_> {
    /// What a mask is computed from.
    pub(crate) fn origin(&mut self, site: &Site, mask: ValueId) -> MaskOrigin {
        if self.context.is_content(mask) {
            return MaskOrigin::Content(mask);
        }
        let found = self.context.found;
        let lane = Lane::of_sequence(0);
        let region = Region {
            // A value that masks are not computed from.
            input: site.product.unwrap_or(site.query.value),
            input_lane: lane,
            output: mask,
            output_lane: lane,
            entries: vec![],
            inside: None,
        };
        let graph = self.context.graph();
        // A mask reads from content its dimensions, or the ids of the input to find padding.
        let count = |v: ValueId| {
            if self.context.is_content(v) && !is_fed_ids(graph, v) {
                Aspect::Shape
            } else {
                Aspect::Origin
            }
        };
        let computed = self.signatures.region(graph, &region, &found.trace, count);
        MaskOrigin::Computed(computed)
    }

    /// Whether a mask may hide pairs with a number so low that a bias on it could overflow half
    /// precision.
    pub(crate) fn hides_with_lowest(&self, mask: ValueId) -> bool {
        let numbers = self.context.found.trace.get(mask).to_f64();
        let lowest = numbers.map(|n| n.iter().copied().fold(0.0, f64::min));
        lowest.is_none_or(|n| n == 0.0 || n < NEAR_LOWEST && n.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use posenc_ir::{DType, Model};

    use super::super::tests::{low, model, plain, scaled, swapped};
    use crate::graph::sketch::{A, HEADS, HIDDEN, Sketch};
    use posenc_encodings::kind::Kind;

    /// How many masks got the bias in a swap.
    fn merged(model: &Model) -> usize {
        let done = swapped(model, Kind::Alibi).unwrap().unwrap();
        let graph = done.model.graph();
        let new = graph
            .nodes()
            .filter(|(_, n)| n.name().starts_with("posenc"));
        new.filter(|(_, n)| n.is("Add")).count()
    }

    /// Two layers of one operator, with a mask that is made for each.
    fn fused(mask: fn(&mut Sketch, &str) -> String) -> Model {
        model(|s, x| {
            let [q, k, v] = [0; 3].map(|_| {
                let w = s.weights(&[HIDDEN, HIDDEN]);
                s.op("MatMul", &[x, &w])
            });
            let mask = mask(s, x);
            let heads = [("num_heads", A::Int(HEADS as i64))];
            let inputs = [&*q, &k, &v, "", "", &mask];
            let y = s.with("ms.MultiHeadAttention", &inputs, &heads);
            s.op("Add", &[x, &y])
        })
    }

    #[test]
    fn masks_of_content_are_not_shared() {
        let content = |s: &mut Sketch, x: &str| {
            let y = s.transpose(x, &[0, 2, 1]);
            let y = s.op("MatMul", &[x, &y]);
            s.unsqueeze(&y, &[1])
        };
        assert_eq!(merged(&fused(content)), 2);
        let plain = |s: &mut Sketch, _: &str| {
            let mask = low(s, -1e9);
            s.unsqueeze(&mask, &[0, 1])
        };
        assert_eq!(merged(&fused(plain)), 1);
    }

    /// Two layers in plain operators that hide what these ids say is padding.
    fn padded(ids: [&str; 2]) -> Model {
        let layer = Cell::new(0);
        model(|s, x| {
            let at = layer.replace(layer.get() + 1);
            if at == 0 && ids != ["input_ids"; 2] {
                s.input("other_ids", DType::I64, &["batch", "sequence"]);
            }
            plain(s, x, |s, scores| {
                let scores = scaled(s, scores);
                let none = s.int(0);
                let padding = s.op("Equal", &[ids[at], &none]);
                let (low, zero) = (s.float(-1e9), s.float(0.0));
                let mask = s.op("Where", &[&padding, &low, &zero]);
                let mask = s.unsqueeze(&mask, &[1, 2]);
                s.op("Add", &[&scores, &mask])
            })
        })
    }

    #[test]
    fn masks_of_the_padding_of_different_ids_are_not_shared() {
        assert_eq!(merged(&padded(["input_ids", "input_ids"])), 1);
        assert_eq!(merged(&padded(["input_ids", "other_ids"])), 2);
    }
}
