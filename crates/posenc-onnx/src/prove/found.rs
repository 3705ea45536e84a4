//! What detection reads of a model, run against its formula: encodings that no record of a swap names.
//!
//! Detection fits families to the numbers of an evaluator, at a few lengths. Here runtimes compute the same parts of
//! the graph, at another length, and what they give is compared with the reference of the family. Learned numbers have
//! no formula: which of them each position or distance reads is compared.

mod added;
mod distances;
mod near;
mod pair;
mod row;
#[cfg(test)]
mod tests;
mod unread;

use posenc_ir::Model;
use posenc_runtime::Backend;

use super::inserted::{Inserted, bare, merge, plan, proof};
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
        let mut rest = vec![];
        for finding in findings {
            if !all.finding((&context, branch), finding, backends) {
                rest.push(finding);
            }
        }
        all.distances(&Distances::new(&context, rest), backends);
        for what in unread::names(model, &branch.found) {
            all.leave(what);
        }
    }
    all
}

impl Inserted {
    /// Compares what is added to the embeddings, and biases without learned numbers; false where only the scores of
    /// equal tokens can show an encoding.
    fn finding(
        &mut self,
        (context, branch): (&Context<'_>, &Branch),
        finding: &Finding,
        backends: &[&dyn Backend],
    ) -> bool {
        match &finding.encoding {
            Encoding::Learned(_) | Encoding::Sinusoidal(_) => {
                self.added(context, finding, backends);
            }
            Encoding::ScoreBias(kind, bias) if bias.tensors().is_empty() => {
                let near = near::slopes(context, finding, &**bias);
                self.held.differences.extend(near);
                return self.bias((context, branch), finding, (*kind, &**bias), backends);
            }
            Encoding::Conv(_) => self.miss(Kind::Conv, "its weights are learned"),
            Encoding::Axial(_) => self.miss(Kind::Rope, "it rotates by rows and columns"),
            Encoding::Unknown => {}
            _ => return false,
        }
        true
    }

    /// Compares a bias without learned numbers: it is taken out of a copy, and both graphs run; false where it cannot
    /// be taken out.
    fn bias(
        &mut self,
        (context, branch): (&Context<'_>, &Branch),
        finding: &Finding,
        (kind, bias): (Kind, &dyn ScoreBias),
        backends: &[&dyn Backend],
    ) -> bool {
        let new = EncodingSpec::ScoreBias(BiasSpec {
            bias: bias.boxed(),
            tensors: vec![],
        });
        let sites = finding.sites.clone();
        let group = Group {
            sites: sites.clone(),
            new,
        };
        let plan = plan(kind, sites, vec![group]);
        let bare = bare(context, &plan, branch);
        let is_bare = bare.is_ok();
        if let Ok(bare) = bare {
            self.run(kind, &proof(bare, context, plan), backends);
        }
        is_bare
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

    /// Compares the scores of equal tokens.
    fn distances(&mut self, distances: &Distances<'_>, backends: &[&dyn Backend]) {
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
            format!("{site}: {quantity} are not what was read of the graph's first positions")
        };
        self.held.differences.extend(failed.map(differ));
        self.held.checks.extend(checks);
    }
}
