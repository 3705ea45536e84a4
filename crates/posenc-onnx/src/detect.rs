//! Detection: attention first, then what enters between projections and scores, then numbers.

mod absolute;
mod bias;
pub mod context;
mod convolution;
pub mod finding;
pub mod limits;
pub mod rotary;
mod streams;
mod survey;
mod switch;
mod terms;
#[cfg(test)]
mod tests;
pub mod unrecognized;

use std::collections::BTreeMap;

use posenc_ir::eval::{Budget, Trace, trace};
use posenc_ir::{Model, NodeId};

use crate::attention::{Site, sites};
use crate::detect::finding::Finding;
use crate::graph::dataflow::{Class, Classes, is_fed_ids};
use crate::graph::ports::{Lengths, Ports, Role};
use crate::graph::region::Region;
use crate::report::Limit;

pub use rotary::{Half, RotarySite};
pub use streams::Streams;
pub(crate) use survey::Runs;
pub use survey::{Survey, survey};
pub use switch::Switch;
pub(crate) use terms::joins;

/// What is asked of detection.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Roles of inputs, by name, where names and uses do not tell.
    pub roles: BTreeMap<String, Role>,
    /// Which of the branches of an `If` count that hold attention; others than the first are
    /// those of a decoder without earlier keys.
    pub(crate) branch: usize,
}

/// What was found in a model.
#[derive(Clone, Debug)]
pub struct Detection {
    /// The inputs.
    pub ports: Ports,
    /// The lengths of the trial run.
    pub lengths: Lengths,
    /// What each value depends on.
    pub classes: Classes,
    /// The trial run: everything but content has numbers.
    pub trace: Trace,
    /// Attention, in order of computation.
    pub attention: Vec<Site>,
    /// Rotations of queries and keys, by site.
    pub rotary: Vec<RotarySite>,
    /// Rotations by the rows and columns of a grid.
    pub axial: Vec<Finding>,
    /// Where each of `axial` turns queries and keys.
    pub(crate) grids: Vec<[Region; 2]>,
    /// Position that acts on queries or keys but is no rotation, with the reason.
    pub unknown: Vec<Refused>,
    /// Where queries and keys of a site turn, though by no rotation that is known: each of them
    /// is among `unknown`.
    pub(crate) odd: Vec<(usize, Vec<Region>)>,
    /// Everything that limits the length.
    pub limits: Vec<Limit>,
    /// What a user should know.
    pub warnings: Vec<String>,
}

/// A candidate that was looked at and refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The attention site.
    pub site: usize,
    /// Where.
    pub node: NodeId,
    /// Why.
    pub why: String,
}

/// Tokens of the trial run: enough to see an angle grow, few enough to be quick.
const TRIAL: Lengths = Lengths {
    batch: 2,
    sequence: 14,
    past: 5,
};

/// Samples or pixels to try where fewer make no more than a few tokens.
const LARGER: [usize; 3] = [256, 2048, 16384];

/// Tokens that are too few.
const SHORT: usize = 8;

/// Elements that a value of the trial run may have.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// Finds attention and what encodes position in it.
pub fn detect(model: &Model, options: &Options) -> Detection {
    let graph = model.graph();
    let mut ports = Ports::of(graph, &options.roles);
    let classes = Classes::of(graph, &ports);
    let opaque = |v| classes.of_value(v).has(Class::CONTENT) && !is_fed_ids(graph, v);
    let run = |ports: &Ports, sequence: usize| {
        let past = if options.branch == 0 { TRIAL.past } else { 0 };
        let lengths = ports.fit(Lengths {
            sequence,
            past,
            ..TRIAL
        });
        let seeds = ports.seeds(graph, lengths);
        let trace = trace(model, &seeds, &opaque, &BUDGET);
        let attention = sites(model, &classes, &trace, ports, options.branch);
        (lengths, trace, attention)
    };
    let (mut lengths, mut trace, mut attention) = run(&ports, TRIAL.sequence);
    // What the declared shapes leave open is read in the way that makes the most of the graph.
    let lost = !unrecognized::softmaxes(graph, &classes, &trace).is_empty();
    for other in ports.others().into_iter().filter(|_| lost) {
        let again = run(&other, TRIAL.sequence);
        if again.2.len() > attention.len() {
            (lengths, trace, attention) = again;
            ports = other;
        }
    }
    // How much sound or how large a picture makes a few tokens is for the model to say.
    for sequence in LARGER {
        if !ports.has_free_content() || !is_short(&trace, &attention) {
            break;
        }
        (lengths, trace, attention) = run(&ports, sequence);
    }
    let warnings = [
        unrecognized::warning(graph, &classes, &trace),
        unrecognized::unread(graph, &classes, &trace, &attention),
    ];
    let mut found = Detection {
        limits: vec![],
        ports,
        lengths,
        classes,
        trace,
        attention,
        rotary: vec![],
        axial: vec![],
        grids: vec![],
        unknown: vec![],
        odd: vec![],
        warnings: warnings.into_iter().flatten().collect(),
    };
    rotary::find(model, &mut found);
    found.limits = crate::detect::limits::limits(&Runs::new(model, &found));
    found
}

/// Whether there is no attention, or some over a few keys only.
fn is_short(trace: &Trace, sites: &[Site]) -> bool {
    let keys = |site: &Site| {
        let dims = trace.get(site.key.value).dims.as_deref();
        dims.and_then(|d| d.get(site.key.lane.sequence))
            .copied()
            .unwrap_or(0)
    };
    sites.iter().map(keys).min().unwrap_or(0) < SHORT
}
