//! What the proof of a swap compares: a graph without encodings, and the same with the inserted one.

use posenc_ir::{Model, ValueId};

use crate::detect::Found;
use crate::detect::finding::Finding;
use crate::graph::ports::Lengths;
use crate::plan::swap::spec::EncodingSpec;
use crate::plan::swap::{Group, SwapPlan};
use crate::prove::compute::BUDGET;
use posenc_encodings::score_term::Vectors;

/// Tokens of the longer of the two runs: enough for the last bucket of T5.
const LONG: usize = 200;

/// The most multiplications to spend on vectors of distances in it.
const WORK: usize = 1 << 29;

/// A graph without encodings at the sites, and the same with the inserted encoding.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    /// The graph without encodings.
    pub(crate) bare: (Model, Found),
    /// The graph with the inserted encoding.
    pub(crate) swapped: (Model, Found),
    /// What was inserted.
    pub(crate) plan: SwapPlan,
    /// The proofs of other branches of the model.
    pub(crate) other_branches: Vec<Self>,
}

impl Proof {
    /// Whether nothing was inserted that this compares.
    pub(crate) fn is_empty(&self) -> bool {
        let rotation = |g: &Group| matches!(g.new, EncodingSpec::Rotation(_));
        self.plan.groups.iter().all(rotation) && self.other_branches.iter().all(Self::is_empty)
    }

    /// The most numbers per pair of tokens: one for each head, or a vector; twice as many where
    /// they are computed per distance first.
    fn numbers_per_pair(&self) -> usize {
        let of = |group: &Group| {
            let sites = group
                .sites
                .iter()
                .filter_map(|i| self.swapped.1.attention.get(*i));
            let vectors = match &group.new {
                EncodingSpec::ScoreTerm(spec) => {
                    matches!(spec.term.vectors(), Vectors::Clipped { .. })
                }
                _ => false,
            };
            sites
                .map(|site| {
                    site.heads
                        .max(site.head_dim.filter(|_| vectors))
                        .unwrap_or(1)
                })
                .max()
        };
        2 * self
            .plan
            .groups
            .iter()
            .filter_map(of)
            .max()
            .unwrap_or(1)
            .max(1)
    }

    /// The most tokens of the longer run.
    pub(super) fn longest(&self) -> usize {
        let work = |group: &Group| {
            let EncodingSpec::ScoreTerm(spec) = &group.new else {
                return 0;
            };
            match spec.term.vectors() {
                Vectors::Projected {
                    heads,
                    head_dim,
                    dim,
                } => heads.saturating_mul(head_dim).saturating_mul(2 * dim),
                Vectors::Clipped { .. } => 0,
            }
        };
        let work = self.plan.groups.iter().map(work);
        let work = work.fold(0, usize::saturating_add);
        let pairs = (BUDGET.elements / self.numbers_per_pair()).isqrt();
        LONG.min(pairs).min(WORK / work.max(1))
    }

    /// The content that a site's absolute encoding is added to, and the sum.
    pub(crate) fn added(&self, site: usize) -> Option<(ValueId, ValueId)> {
        let own = |f: &&Finding| f.sites.contains(&site) && f.encoding.is_absolute();
        let entry = self
            .swapped
            .1
            .findings
            .iter()
            .find(own)?
            .entries
            .first()
            .copied()?;
        let node = self.swapped.0.graph().node(entry.node);
        let content = node.input(1usize.checked_sub(entry.slot())?)?;
        Some((content, node.output(0).filter(|_| node.is("Add"))?))
    }

    /// The lengths of the runs: that of detection, and a longer one where the model supports it.
    pub(super) fn lengths(&self) -> Vec<Lengths> {
        let (bare, swapped) = (&self.bare.1, &self.swapped.1);
        let wanted = Lengths {
            batch: 1,
            sequence: self.longest(),
            ..swapped.lengths
        };
        let longer = swapped.ports.fit(wanted);
        let shortest = swapped.limits.iter().map(|l| l.length).min();
        let fits = longer == wanted
            && wanted.sequence > swapped.lengths.sequence
            && bare.ports.fit(wanted) == wanted
            && shortest.is_none_or(|most| longer.past + longer.sequence <= most)
            && !swapped.ports.has_free_content();
        let mut all = vec![swapped.lengths];
        all.extend(fits.then_some(longer));
        all
    }
}
