//! What detection reads of a model, run against its formula: encodings that no record of a swap names.
//!
//! Detection fits families to the numbers of an evaluator, at a few lengths. Here runtimes compute the same parts of
//! the graph, at another length, and what they give is compared with the reference of the family. Learned numbers have
//! no formula: which of them each position or distance reads is compared.

mod added;
mod distances;
mod near;
mod row;
#[cfg(test)]
mod tests;
mod unread;

use posenc_ir::Model;
use posenc_runtime::Backend;

use super::inserted::{Inserted, Miss, bare, merge, plan, proof};
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::plan::swap::Group;
use crate::plan::swap::spec::{BiasSpec, EncodingSpec};
use crate::record::swap::SwapRecord;
use crate::report::SiteCheck;
use added::Added;
use distances::Distances;
use posenc_encodings::bias::ScoreBias;
use posenc_encodings::kind::Kind;

/// Holds a model to the encodings that are read from it, and names what cannot be compared.
pub(super) fn hold(
    model: &Model,
    swap: Option<&SwapRecord>,
    branches: &[Branch],
    backends: &[&dyn Backend],
) -> Inserted {
    let mut all = Inserted::default();
    for branch in branches {
        let recorded = swap.into_iter().flat_map(|swap| &swap.branches);
        let mut recorded = recorded.filter(|own| own.branch == branch.options.branch);
        let recorded = recorded.next().map_or(&[][..], |own| &own.sites[..]);
        let is_recorded = |f: &Finding| f.sites.iter().all(|site| recorded.contains(site));
        let findings = branch.found.findings.iter();
        let findings: Vec<&Finding> = findings.filter(|f| !is_recorded(f)).collect();
        let context = Context {
            model,
            found: &branch.found,
        };
        for finding in &findings {
            all.finding((&context, branch), finding, backends);
        }
        all.distances(Distances::of(&context, &findings), backends);
        for what in unread::names(model, &branch.found) {
            all.leave(what);
        }
    }
    all
}

impl Inserted {
    /// Compares what is not compared by distance.
    fn finding(
        &mut self,
        (context, branch): (&Context<'_>, &Branch),
        finding: &Finding,
        backends: &[&dyn Backend],
    ) {
        match &finding.encoding {
            Encoding::Learned(_) | Encoding::Sinusoidal(_) => {
                self.added(context, finding, backends);
            }
            Encoding::ScoreBias(kind, bias) if bias.tensors().is_empty() => {
                self.held
                    .differences
                    .extend(near::slopes(context, finding, &**bias));
                self.bias((context, branch), finding, (*kind, bias), backends);
            }
            Encoding::Conv(_) => self.miss(Kind::Conv, "its weights are learned"),
            Encoding::Axial(_) => self.miss(Kind::Rope, "it rotates by rows and columns"),
            _ => {}
        }
    }

    /// Compares a bias without learned numbers: it is taken out of a copy, and both graphs run.
    fn bias(
        &mut self,
        (context, branch): (&Context<'_>, &Branch),
        finding: &Finding,
        (kind, bias): (Kind, &Box<dyn ScoreBias>),
        backends: &[&dyn Backend],
    ) {
        let new = EncodingSpec::ScoreBias(BiasSpec {
            bias: bias.clone(),
            tensors: vec![],
        });
        let sites = finding.sites.clone();
        let group = Group {
            sites: sites.clone(),
            new,
        };
        let plan = plan(kind, sites, vec![group]);
        match bare(context, &plan, branch) {
            Ok(bare) => self.run(kind, &proof(bare, context, plan), backends),
            Err(Miss::Differs(_, why) | Miss::Unchecked(why)) => self.miss(kind, &why),
        }
    }

    /// Compares the rows that are added to the embeddings.
    fn added(&mut self, context: &Context<'_>, finding: &Finding, backends: &[&dyn Backend]) {
        let kind = finding.encoding.kind();
        for added in Added::all(context, finding) {
            let ran = backends.iter().map(|backend| added.check(*backend));
            self.compared(ran, &format!("{kind} that {} adds", added.place()));
            self.held.differences.extend(near::sinusoid(&added));
        }
    }

    /// Compares numbers that depend on the distance.
    fn distances(&mut self, distances: Distances<'_>, backends: &[&dyn Backend]) {
        for site in distances.sites() {
            let ran = backends
                .iter()
                .map(|backend| distances.check(site, *backend).map(|check| vec![check]));
            self.compared(ran, &distances.what(site));
        }
    }

    /// Adds the comparisons of the runtimes that made one; where none did, `what` is not compared.
    fn compared(&mut self, ran: impl Iterator<Item = Result<Vec<SiteCheck>, String>>, what: &str) {
        let (mut checks, mut misses) = (vec![], vec![]);
        for ran in ran {
            match ran {
                Ok(more) => merge(&mut checks, more),
                Err(why) => misses.push(why),
            }
        }
        if let Some(why) = misses.first().filter(|_| checks.is_empty()) {
            self.leave(format!("{what}, because {why}"));
        }
        let failed = checks.iter().filter(|check| !check.ok);
        let differ = |check: &SiteCheck| {
            let SiteCheck { site, quantity, .. } = check;
            format!("{site}: the {quantity} are not those of its formula")
        };
        self.held.differences.extend(failed.map(differ));
        self.held.checks.extend(checks);
    }
}
