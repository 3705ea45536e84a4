//! Masks that biases are added to.

use posenc_ir::ValueId;

use super::Scores;
use crate::attention::Site;
use crate::lane::Lane;
use crate::region::Region;
use crate::signature::Count;

/// Numbers of half precision below this cannot take a bias.
const NEAR_LOWEST: f64 = -6e4;

impl Scores<'_> {
    /// The number of a mask by how it is computed: layers that cut the same mask to the same
    /// length have equal ones.
    pub(super) fn computed(&mut self, site: &Site, mask: ValueId) -> usize {
        let found = self.ground.found;
        let lane = Lane::of_sequence(0);
        let region = Region {
            // Nothing that masks are made of.
            input: site.product.unwrap_or(site.query.value),
            input_lane: lane,
            output: mask,
            output_lane: lane,
            entries: vec![],
            inside: None,
        };
        let count = |v: ValueId| match self.ground.is_content(v) {
            true => Count::Shape,
            false => Count::Origin,
        };
        let graph = self.ground.graph();
        self.signatures.region(graph, &region, &found.trace, count)
    }

    /// Whether a mask hides pairs with a number so low that a bias on it could overflow half
    /// precision. Where the trial run hides nothing, it may.
    pub(super) fn hides_with_lowest(&self, mask: ValueId) -> bool {
        let numbers = self.ground.found.trace.get(mask).to_f64();
        let lowest = numbers.map(|n| n.iter().copied().fold(0.0, f64::min));
        lowest.is_none_or(|n| n == 0.0 || n < NEAR_LOWEST && n.is_finite())
    }
}
