//! What was found in a model. Data only.

use std::collections::BTreeSet;

use posenc_encodings::family::Family;
use posenc_encodings::kind::Stack;
use posenc_ir::eval::Trace;
use posenc_ir::{NodeId, ValueId};
use rustc_hash::FxHashSet;

use super::finding::Finding;
use super::met::Met;
use super::rotary::site::{AxialSite, QuantizedSite, RotarySite};
use super::rows::{Attended, Rows, Spread};
use crate::attention::Site;
use crate::attention::stream::MixedTokens;
use crate::graph::dataflow::{Class, Classes};
use crate::graph::mixing::Mixer;
use crate::graph::ports::{Lengths, Ports};
use crate::graph::region::Region;
use crate::report::Limit;

/// Attention sites, everything that encodes position at them, and what bounds the length.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// The inputs with their roles.
    pub ports: Ports,
    /// The lengths of the trial run.
    pub lengths: Lengths,
    /// What each value depends on.
    pub classes: Classes,
    /// The trial run: everything but content has numbers.
    pub trace: Trace,
    /// Attention sites, in order of computation. Sites are referred to by their index here.
    pub attention: Vec<Site>,
    /// Families of score biases outside of the registry, which biases are compared with too.
    pub(crate) custom: Vec<&'static Family>,
    /// Sites whose queries are others than the last of the tokens, as a part of them or the first.
    pub(crate) partial: Vec<usize>,
    /// Sites whose queries stand for no tokens: they are learned, or hold what learned queries gathered.
    pub(crate) latent: Vec<usize>,
    /// Content that learned queries gathered, and nothing else.
    pub(crate) gathered: FxHashSet<ValueId>,
    /// Attention that is not read, as that whose keys do not follow the order of the tokens, one
    /// sentence each. It is none of `attention`.
    pub(crate) misplaced: Vec<String>,
    /// Operators outside of the attention sites that mix tokens, in order of computation.
    pub(crate) mixers: Vec<Mixer>,
    /// What mixers read that are no attention, by the axis of tokens, in a model without attention that was
    /// read.
    pub mixed: Vec<MixedTokens>,
    /// What else than queries and keys has a row for each token.
    pub(crate) rows: Vec<Rows>,
    /// What mixes tokens and is no attention, with the tokens that it reads.
    pub(crate) spread: Vec<Spread>,
    /// What values are weighted to, by site.
    pub(crate) attended: Vec<Attended>,
    /// Every `Pad` that adds to a sequence of tokens, or cuts it.
    pub(crate) filled: FxHashSet<NodeId>,
    /// Where numbers that change from token to token meet content outside of scores.
    pub(crate) met: Vec<Met>,
    /// Where numbers meet content that are equal for the first tokens, and follow positions later.
    pub(crate) later: Vec<Met>,
    /// Sites whose mask hides other keys in longer sequences, so that it is not known whether it is causal.
    pub(crate) late_masks: Vec<usize>,
    /// Rotations of queries and keys, by site.
    pub rotary: Vec<RotarySite>,
    /// Rotations by the rows and columns of a grid; their findings are the first of `findings`.
    pub axial: Vec<AxialSite>,
    /// Sites at which position acts on queries or keys and is no rotation that is known, with the
    /// reason. A model that has any is not rescaled.
    pub not_rotary: Vec<Refused>,
    /// Of the sites of `not_rotary`, those whose queries and keys rotate alike, by no known formula:
    /// the regions of both, which can be removed.
    pub(crate) unfitted_rotations: Vec<(usize, [Region; 2])>,
    /// Of the sites of `not_rotary`, those at which a rotation was meant that quantization changes.
    pub(crate) quantized: Vec<QuantizedSite>,
    /// Every encoding but rotations by one position: rotations on a grid, then absolute ones,
    /// biases, terms and convolutions.
    pub findings: Vec<Finding>,
    /// Candidates other than rotations that were examined and are no encoding, with the reason.
    /// They only explain a report.
    pub no_encodings: Vec<Refused>,
    /// Everything that bounds the length, but for tables that are added whole
    /// ([`limits::all`](super::limits::all) includes them).
    pub limits: Vec<Limit>,
    /// Softmaxes that were not recognized as attention, one sentence each. Whatever encodes position
    /// there was not looked for.
    pub no_attention: Vec<String>,
    /// What at the sites could not be evaluated or examined, one sentence each. It may be an encoding.
    pub not_evaluated: Vec<String>,
}

impl Found {
    /// Whether nothing was found that encodes positions, or may do so.
    pub(crate) fn has_no_encoding(&self) -> bool {
        self.rotary.is_empty()
            && self.axial.is_empty()
            && self.not_rotary.is_empty()
            && self.quantized.is_empty()
            && self.findings.is_empty()
            && self.met.is_empty()
            && self.later.is_empty()
            && self.late_masks.is_empty()
    }

    /// Leaves open whether masks are causal that hide other keys in longer sequences.
    pub(super) fn forget_late_masks(&mut self) {
        for site in &mut self.attention {
            if self.late_masks.contains(&site.index) {
                site.mask.causal = None;
            }
        }
    }

    /// Whether a value depends on content.
    pub(crate) fn is_content(&self, value: ValueId) -> bool {
        self.classes.of_value(value).has(Class::CONTENT)
    }

    /// Whether each token to which the rows of a finding are added is one element of the inputs, and not made of
    /// several frames: a site has as many keys.
    pub(crate) fn are_elements(&self, finding: &Finding) -> bool {
        let elements = self.lengths.past + self.lengths.sequence + finding.lead;
        let mut sites = finding.sites.iter().map(|site| &self.attention[*site]);
        sites.any(|site| site.keys(&self.trace) == Some(elements))
    }

    /// The inputs as the model is run: with the width of caches that do not declare it.
    pub(crate) fn ports_with_width(&self) -> Ports {
        let cached = self.attention.iter().filter(|site| site.past);
        let mut widths = cached.map(|site| site.head_dim);
        let first = widths.next().flatten();
        let mut ports = self.ports.clone();
        ports.set_width(first.filter(|width| widths.all(|other| other == Some(*width))));
        ports
    }

    /// Whether a site is of learned queries, and nothing encodes positions there.
    pub(crate) fn has_no_positions(&self, site: usize) -> bool {
        self.latent.contains(&site) && !self.has_positions(site)
    }

    /// Whether positions were seen to act on a site.
    pub(crate) fn has_positions(&self, site: usize) -> bool {
        self.rotary.iter().any(|r| r.site == site)
            || self.not_rotary.iter().any(|r| r.site == site)
            || self.findings.iter().any(|f| f.sites.contains(&site))
    }

    /// The stacks in which tokens attend to each other.
    pub(crate) fn self_attending(&self) -> BTreeSet<Option<Stack>> {
        let own = self.attention.iter().filter(|site| !site.cross);
        own.map(|site| site.place.stack).collect()
    }
}

/// A candidate that was examined and refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    /// The index of the attention site.
    pub site: usize,
    /// The node at which position enters.
    pub node: NodeId,
    /// The reason, as a fact about the graph.
    pub why: String,
}
