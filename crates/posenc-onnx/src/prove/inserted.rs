//! What a swap inserted, run against its formula: the kind and the parameters are those of the
//! record, learned numbers those of the model.
//!
//! What was inserted into scores is taken out of a copy, and both graphs are compared as a rewrite
//! compares them. Tables of zeros get random numbers in both, so that they show where they act.

mod bare;
mod miss;
mod numbers;
mod spec;
#[cfg(test)]
mod tests;

use posenc_encodings::kind::Kind;
use posenc_ir::Model;
use posenc_runtime::Backend;

use super::VerifyError;
use super::recorded::Held;
use super::swap::Proof;
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::{Found, detect};
use crate::plan::swap::spec::EncodingSpec;
use crate::plan::swap::{Group, SwapPlan};
use crate::record::read_unread;
use crate::record::swap::{BranchRecord, GroupRecord, SwapRecord};
use crate::report::SiteCheck;
pub(super) use bare::bare;
pub(super) use miss::Miss;
pub(crate) use miss::found_kinds;
use miss::{difference, kinds};
use numbers::Numbered;

/// What comparing inserted encodings with their formulas found.
#[derive(Debug, Default)]
pub(crate) struct Inserted {
    pub(crate) held: Held,
    /// What was not compared, with the reason.
    pub(crate) unchecked: Vec<String>,
    /// Runtimes that do not run it.
    pub(crate) refused: Vec<VerifyError>,
}

/// Holds the sites of a swapped model to the record of the swap.
pub(crate) fn hold(
    model: &Model,
    record: &SwapRecord,
    branches: &[Branch],
    backends: &[&dyn Backend],
) -> Inserted {
    let mut all = Inserted::default();
    if record.branches.is_empty() {
        all.no_sites(record.to);
    }
    for own in &record.branches {
        let Some(branch) = branches.iter().find(|b| b.options.branch == own.branch) else {
            let why = format!("branch {} is recorded and not there", own.branch);
            all.held.failure("attention", "branch", why);
            continue;
        };
        all.readings(record.to, own, &branch.found);
        all.whole(record.to, own, &branch.found);
        if record.to == Kind::None {
            all.positions(model, &own.sites, &branch.found, backends);
        }
        // Rotations are run with those of other models.
        if own.groups.is_empty() || record.to == Kind::Rope {
            continue;
        }
        match all.recorded(model, record, own, branch) {
            Ok(Some(proof)) => all.run(record.to, &proof, backends),
            Ok(None) => {}
            Err(Miss::Differs(name, why)) => all.differs(&name, why),
            Err(Miss::Unchecked(why)) => all.miss(record.to, &why),
        }
    }
    all
}

impl Inserted {
    pub(super) fn miss(&mut self, kind: Kind, why: &str) {
        self.leave(format!("{kind} against its formula, because {why}"));
    }

    /// Names what is not compared, once.
    pub(super) fn leave(&mut self, what: String) {
        if !self.unchecked.contains(&what) {
            self.unchecked.push(what);
        }
    }

    /// Nothing is compared where no site is named; what takes encodings out may leave none.
    fn no_sites(&mut self, to: Kind) {
        let why = "the record of the swap names no sites";
        if to == Kind::None {
            self.miss(to, why);
        } else {
            self.held.failure("attention", "record", why.to_owned());
        }
    }

    /// The record of what was inserted names sites, and parameters for each of them.
    fn whole(&mut self, to: Kind, record: &BranchRecord, found: &Found) {
        if record.sites.is_empty() || record.groups.iter().any(|g| g.sites.is_empty()) {
            self.no_sites(to);
        }
        if to == Kind::None {
            return;
        }
        let is_bare = |site: &&usize| record.groups.iter().all(|g| !g.sites.contains(site));
        for site in record.sites.iter().filter(is_bare) {
            let why = "the record of the swap names no parameters";
            let name = name(found, *site);
            self.held.failure(&name, "record", why.to_owned());
        }
    }

    /// A site that reads otherwise, once.
    fn differs(&mut self, name: &str, why: String) {
        let known = |c: &SiteCheck| !c.ok && c.site == name && c.quantity == "encoding";
        if !self.held.checks.iter().any(known) {
            self.held.failure(name, "encoding", why);
        }
    }

    /// Every recorded site has the kind, and none that it replaced.
    fn readings(&mut self, to: Kind, record: &BranchRecord, found: &Found) {
        for site in &record.sites {
            let name = name(found, *site);
            if found.attention.get(*site).is_none() {
                self.gone(&name);
                continue;
            }
            let group = record.groups.iter().find(|g| g.sites.contains(site));
            let kinds = kinds(found, *site);
            // Tables of zeros are not read.
            let shown = group.filter(|g| g.tensors.is_empty());
            let missing = shown
                .and_then(|g| g.read)
                .is_some_and(|read| !kinds.contains(&read));
            let why = difference(to, group.and_then(|g| g.read), &kinds, missing);
            if to == Kind::None {
                self.held.line(&name, "encoding", why);
            } else {
                self.held.failure(&name, "encoding", why);
            }
        }
    }

    /// A site that is not there, once.
    fn gone(&mut self, name: &str) {
        let known = |c: &SiteCheck| c.site == name && c.quantity == "attention";
        if !self.held.checks.iter().any(known) {
            let why = "no longer reads as attention".to_owned();
            self.held.failure(name, "attention", why);
        }
    }

    /// Shows that sites without an encoding have no position, in every runtime.
    fn positions(
        &mut self,
        model: &Model,
        sites: &[usize],
        found: &Found,
        backends: &[&dyn Backend],
    ) {
        let there = |site: &usize| found.attention.get(*site).is_some();
        let sites: Vec<usize> = sites.iter().copied().filter(there).collect();
        let what = "that no position is left";
        if !read_unread(model).is_empty() {
            let why =
                format!("{what}, because something was not read when the model was rewritten");
            self.unchecked.push(why);
            return;
        }
        // What each runtime did: the bytes of weights that small ones stood in for, or why not.
        let (mut checks, mut runs) = (vec![], vec![]);
        let mut left_out = vec![];
        for backend in backends {
            let ran = super::bare::check((model, found), &sites, *backend);
            runs.push(ran.map(|bare| {
                merge(&mut checks, bare.checks);
                left_out.push(bare.left_out);
                bare.stood_in
            }));
        }
        let why = match runs.iter().filter_map(|ran| ran.as_ref().ok()).min() {
            None => runs
                .into_iter()
                .find_map(Result::err)
                .map(|error| format!("because {error}")),
            Some(_) if checks.is_empty() => Some("because no tokens could be compared".to_owned()),
            Some(0) => None,
            Some(bytes) => Some(format!(
                "with the weights of the model: small ones ran in place of {bytes} bytes"
            )),
        };
        if let Some(Some(why)) = left_out
            .iter()
            .find(|_| left_out.iter().all(Option::is_some))
        {
            let why = format!("{what} in two orders behind causal attention, because {why}");
            self.unchecked.push(why);
        }
        for check in checks.iter().filter(|c| !c.ok) {
            let why = format!("{} differ, so a position is in the model", check.quantity);
            self.held.differences.push(format!("{}: {why}", check.site));
        }
        self.held.checks.extend(checks);
        self.unchecked
            .extend(why.map(|why| format!("{what}, {why}")));
    }

    /// Compares what every runtime computes with the formula.
    pub(super) fn run(&mut self, kind: Kind, proof: &Proof, backends: &[&dyn Backend]) {
        let mut checks: Vec<SiteCheck> = vec![];
        let mut is_said = false;
        for backend in backends {
            match proof.check(*backend) {
                Ok(more) => merge(&mut checks, more),
                Err(error @ VerifyError::Runtime { .. }) => self.refused.push(error),
                Err(error) => {
                    self.miss(kind, &error.to_string());
                    is_said = true;
                }
            }
        }
        if checks.is_empty() && !is_said {
            self.miss(kind, "no runtime compared anything");
        }
        for check in checks.iter().filter(|c| !c.ok) {
            let why = format!("{} differ from the formula of {kind}", check.quantity);
            self.held.differences.push(format!("{}: {why}", check.site));
        }
        self.held.checks.extend(checks);
    }
}

/// The name of a recorded site.
fn name(found: &Found, site: usize) -> String {
    let known = found.attention.get(site).map(|s| s.name.clone());
    known.unwrap_or_else(|| format!("attention site {site}"))
}

/// How often an encoding is added to the embeddings that a site sees, but for those of another stack that it reads.
pub(crate) fn entries(found: &Found, site: usize, kind: Kind) -> usize {
    let stack = |site: usize| found.attention.get(site).map(|site| site.place.stack);
    let is_own = |f: &&Finding| {
        let first = f.sites.first().copied();
        f.sites.contains(&site) && first.and_then(stack) == stack(site)
    };
    let own = found.findings.iter().filter(is_own);
    let of_kind = own.filter(|f| f.encoding.kind() == kind);
    of_kind.map(|f| f.entries.len()).sum()
}

/// Adds the comparisons of another runtime: of two of one quantity, the one that failed or is closer
/// to its bound stays.
pub(crate) fn merge(all: &mut Vec<SiteCheck>, more: Vec<SiteCheck>) {
    let share = |c: &SiteCheck| match c.max_error.filter(|_| c.ok) {
        Some(error) => error / c.bound.max(f64::MIN_POSITIVE),
        None => f64::INFINITY,
    };
    for check in more {
        let same = |c: &&mut SiteCheck| c.site == check.site && c.quantity == check.quantity;
        match all.iter_mut().find(same) {
            Some(known) if share(&check) > share(known) => *known = check,
            Some(_) => {}
            None => all.push(check),
        }
    }
}

pub(super) fn plan(kind: Kind, sites: Vec<usize>, groups: Vec<Group>) -> SwapPlan {
    SwapPlan {
        kind,
        sites,
        groups,
        add_position_ids: false,
        max_length: None,
        inferred: vec![],
    }
}

pub(super) fn proof(bare: (Model, Found), context: &Context<'_>, plan: SwapPlan) -> Proof {
    Proof {
        bare,
        swapped: (context.model.clone(), context.found.clone()),
        plan,
        other_branches: vec![],
    }
}

impl Inserted {
    /// The graphs to compare, and what the record says that their difference is; `None` where no site
    /// reads as it should.
    fn recorded(
        &mut self,
        model: &Model,
        record: &SwapRecord,
        own: &BranchRecord,
        branch: &Branch,
    ) -> Result<Option<Proof>, Miss> {
        let to = record.to;
        let numbered = Numbered::of(model, own)?;
        let detected = numbered.model.as_ref().map(|m| detect(m, &branch.options));
        let context = Context {
            model: numbered.model.as_ref().unwrap_or(model),
            found: detected.as_ref().unwrap_or(&branch.found),
        };
        let mut groups = vec![];
        for (group, tensors) in own.groups.iter().zip(&numbered.tensors) {
            let sites = self.reading(&context, to, group);
            if !sites.is_empty() {
                let new = spec::rebuilt(&context, record, (group, &sites), tensors)?;
                groups.push(Group { sites, new });
            }
        }
        let mut sites: Vec<usize> = groups.iter().flat_map(|g| g.sites.clone()).collect();
        sites.sort_unstable();
        if sites.is_empty() {
            return Ok(None);
        }
        let absolute = |g: &Group| matches!(g.new, EncodingSpec::InputTerm(_));
        // What is added to the embeddings is compared where it is added.
        let is_absolute = groups.iter().all(absolute);
        let plan = plan(to, sites, groups);
        let bare = if is_absolute {
            (context.model.clone(), context.found.clone())
        } else {
            let taken = |g: &GroupRecord| g.read.is_some() && g.removable;
            if !own.groups.iter().all(taken) {
                let why = "it could not be taken out again when it was written";
                return Err(Miss::Unchecked(why.to_owned()));
            }
            bare(&context, &plan, branch)?
        };
        Ok(Some(proof(bare, &context, plan)))
    }

    /// The sites of a group that read as they did when they were written, and nothing besides.
    fn reading(&mut self, context: &Context<'_>, to: Kind, group: &GroupRecord) -> Vec<usize> {
        let mut sites = vec![];
        for site in &group.sites {
            let name = name(context.found, *site);
            if context.found.attention.get(*site).is_none() {
                self.gone(&name);
                continue;
            }
            let kinds = kinds(context.found, *site);
            let expected = |kind: &Kind| *kind == to || Some(*kind) == group.read;
            let is_missing = group.read.is_some() && !kinds.iter().any(expected);
            let times = entries(context.found, *site, to);
            let why = if group.entries.is_some_and(|written| times > written) {
                format!("{to} is added {times} times")
            } else {
                difference(to, group.read, &kinds, is_missing)
            };
            if why.is_empty() {
                sites.push(*site);
            } else {
                self.differs(&name, why);
            }
        }
        sites
    }
}
