//! Rewriting a model: detect, plan, patch, commit, check.
//!
//! [`plan`] detects what every branch of the model does and decides what changes; nothing is
//! edited. [`Planned::apply`] edits a copy, branch after branch, and compares what is read from
//! the result with the plan.

pub(crate) mod again;
pub(crate) mod buckets;
mod earlier;
mod exact;
pub(crate) mod form;
mod layout;
mod open;
mod open_length;
mod rescale;
mod resize;
mod revealed;
mod rewritten;
mod sequences;
mod stretch;
mod summary;
pub(crate) use summary::describe;
pub(crate) mod swap;
mod target;
mod tensors;
#[cfg(test)]
pub(crate) mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use posenc_encodings::family::Family;
use posenc_encodings::kind::Kind;
use posenc_ir::{Model, NodeId};

use crate::config::Told;
use crate::detect::branches::{Branch, branches as branches_of};
use crate::detect::{Found, Options, detect};
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::graph::ports::{Ports, Role, given};
use crate::inspect::entries;
use crate::plan::change::{Change, change};
use crate::plan::rescale::recorded_original;
use crate::plan::selection::chosen;
use crate::plan::unread::{self, beside};
use crate::record::{self, asked, written};
use crate::report::{Endpoint, Guarantee, Rewrite};
use crate::request::{InputRole, Request, roles};
use crate::spelling;
use exact::LeftOut;
use open_length::Opened;
pub(crate) use rewritten::Rewritten;
use rewritten::{Respelled, with_rotations};

/// What a request changes in a model, before anything has changed.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    /// The model as it was read.
    model: Cow<'a, Model>,
    /// The model without calls of functions, where it had some: layers that share a function get a
    /// copy each. Its rotations are not computed from quantized numbers either.
    flat: Option<Model>,
    /// What quantized them, where that was left out.
    left_out: Option<LeftOut>,
    /// That model in the spelling that is read, where some of its operators have another.
    plain: Option<Model>,
    /// That model for sequences of any length, where it was of one and another is asked for.
    opened: Option<Opened>,
    pub(crate) request: Request,
    /// What was found in each branch; there is at least one.
    pub(crate) branches: Vec<Branch>,
    /// What of the model was not read, one sentence each.
    unread: Vec<String>,
    /// What changes.
    pub(crate) change: Change,
}

/// Decides what a request changes in a model. `custom` are families of score biases that are
/// recognized besides those of the registry.
///
/// # Errors
/// When the request is not supported or does not fit the model, or a needed value is unknown.
pub(crate) fn plan<'a>(
    model: &'a Model,
    request: Request,
    custom: &[&'static Family],
) -> Result<Planned<'a>, RewriteError> {
    let given = request.input_roles.clone();
    planned(model, request, custom).map_err(|error| match error {
        RewriteError::Refused(refusal) => with_given(model, &given, refusal).into(),
        other => other,
    })
}

fn planned<'a>(
    model: &'a Model,
    request: Request,
    custom: &[&'static Family],
) -> Result<Planned<'a>, RewriteError> {
    request.check_supported()?;
    given::check(model.graph(), &roles(&request.input_roles))?;
    let request = with_roles(model, request);
    let options = options(&request, custom);
    if request.allowances.sort {
        // Fails before anything has changed, if at all.
        model.clone().sort()?;
    }
    if request.is_only_sort() {
        let found = detect(model, &options);
        return Ok(Planned {
            model: Cow::Borrowed(model),
            flat: None,
            left_out: None,
            plain: None,
            opened: None,
            request,
            branches: vec![Branch { options, found }],
            unread: vec![],
            change: Change::Sort,
        });
    }
    let mut flat = model.inlined()?;
    let mut plain = spelling::plain(flat.as_ref().unwrap_or(model), &options.roles);
    let mut branches = branches_of(plain.as_ref().or(flat.as_ref()).unwrap_or(model), &options);
    let mut left_out = None;
    let read = flat.as_ref().unwrap_or(model);
    if let Some(exact) = exact::exact(read, &branches, &options, &request) {
        left_out = Some(exact.left_out);
        (flat, plain, branches) = (Some(exact.model), exact.plain, exact.branches);
    }
    let read = plain.as_ref().or(flat.as_ref()).unwrap_or(model);
    if let Some((made, own)) = buckets::in_plain_operators(read, &branches, &options, &request)? {
        (plain, branches) = (Some(made), own);
    }
    let input = plain.as_ref().or(flat.as_ref()).unwrap_or(model);
    let mut unread = unread::unread(input, &branches);
    if !request.allowances.allow_unread {
        unread::refuse(&unread)?;
    }
    let opened = open_length::open(input, &branches, &request)?;
    let (input, branches) = match &opened {
        Some(own) => (&own.model, branches_of(&own.model, &options)),
        None => (input, branches),
    };
    let change = change(input, &branches, &request)?;
    unread.extend(beside::left(input, &branches, &change, &request));
    if !request.allowances.allow_unread {
        unread::refuse(&unread)?;
    }
    Ok(Planned {
        model: Cow::Borrowed(model),
        flat,
        left_out,
        plain,
        opened,
        request,
        branches,
        unread,
        change,
    })
}

impl Planned<'_> {
    /// The same with a copy of the model.
    pub(crate) fn into_owned(self) -> Planned<'static> {
        Planned {
            model: Cow::Owned(self.model.into_owned()),
            flat: self.flat,
            left_out: self.left_out,
            plain: self.plain,
            opened: self.opened,
            request: self.request,
            branches: self.branches,
            unread: self.unread,
            change: self.change,
        }
    }

    /// The model that is edited.
    pub(crate) fn input(&self) -> &Model {
        match &self.opened {
            Some(opened) => &opened.model,
            None => self.read(),
        }
    }

    /// The model in which everything was found first.
    fn read(&self) -> &Model {
        let own = self.plain.as_ref().or(self.flat.as_ref());
        own.unwrap_or(&self.model)
    }

    /// How many operators of the model were in another spelling than that which is read.
    fn respelled(&self) -> usize {
        let before = self.flat.as_ref().unwrap_or(&self.model).graph();
        let Some(after) = self.plain.as_ref().map(Model::graph) else {
            return 0;
        };
        let gone = |id: &NodeId| after.is_removed(*id);
        before.nodes().filter(|(id, _)| gone(id)).count()
    }

    /// Whether rotations keep their frequencies, and only their tables may become longer.
    pub(crate) fn keeps_frequencies(&self) -> bool {
        self.request.keeps_frequencies()
    }

    /// The sites, of those that were found, whose bias the model has as one operator and what is edited as plain ones.
    pub(crate) fn unfolded_biases(&self, found: &Found) -> Vec<usize> {
        let read = self.flat.as_ref().unwrap_or(&self.model);
        buckets::unfolded_sites([read, self.input()], &self.request, found)
    }

    /// The form that rotations get, as far as the model before its edits tells; `None` where they keep theirs.
    pub(crate) fn form(&self) -> Option<form::Wanted> {
        let found = self.branches.iter().map(|branch| &branch.found);
        target::wanted(&self.request, self.input(), found)
    }

    /// Rewrites a copy of the model.
    ///
    /// # Errors
    /// When an edit is not supported, or the result does not match the plan.
    pub(crate) fn apply(self) -> Result<Rewritten, RewriteError> {
        let model = self.model.clone();
        let is_sorted = self.request.allowances.sort;
        let is_other = self.flat.is_some() || self.plain.is_some();
        let respelled = self.respelled();
        let left_out = self.left_out.clone();
        let unread = self.unread.clone();
        let flat = self.flat.clone();
        let request = self.request.clone();
        let spellings = self.spellings();
        let branches = self.branches.iter().map(|branch| branch.options.clone());
        let branches: Vec<Options> = branches.collect();
        let options = branches.first().filter(|_| branches.len() == 1).cloned();
        let recorded = recorded_original(self.input());
        let recorded = recorded.map(|(length, _)| length);
        let earlier = self.earlier();
        let told = Told::of(&self.change, &self.branches, &self.request, recorded);
        let mut done = self.edit().map_err(RewriteError::of_edit)?;
        let mut relaid = None;
        if let Some(layout) = request.layout() {
            (done, relaid) = layout::apply(done, options.as_ref(), &request, layout)
                .map_err(RewriteError::of_edit)?;
        }
        let found = std::iter::once(&done.found).chain(&done.other_branches);
        if let Some(wanted) = target::wanted(&request, &done.model, found) {
            done = form::apply(done, &branches, &request, wanted).map_err(RewriteError::of_edit)?;
        }
        // A request that keeps rotations leaves no model that runs for one sequence alone.
        let is_kept = request.form.is_some() || request.target.is_some() || relaid.is_some();
        if let Some(own) = options.as_ref().filter(|_| is_kept) {
            done = sequences::repeat(done, own).map_err(RewriteError::of_edit)?;
        }
        let is_plain = request.wants_plain_operators();
        if is_plain || request.form.is_some() {
            form::tell_unfolded(&mut done, flat.as_ref().unwrap_or(&model), is_plain);
        }
        buckets::tell(&mut done, &request, flat.as_ref().unwrap_or(&model));
        done.told = told;
        if let Some(left_out) = left_out {
            left_out.tell(&mut done);
        }
        let is_changed = !done.report.edits.is_empty();
        done.respelled = spellings
            .into_iter()
            .filter(|_| is_changed)
            .chain(relaid)
            .collect();
        if done.report.edits.is_empty() {
            let read = std::mem::replace(&mut done.model, Model::clone(&model));
            done.flat = is_other.then_some(read);
        }
        if let Some(target) = request.target {
            target::check(&done, target)?;
        }
        if !done.report.edits.is_empty() && !unread.is_empty() {
            record::write_unread(&mut done.model, &unread);
            done.report.warnings.extend(unread);
        }
        if !done.report.edits.is_empty() {
            done.report.warnings.extend(earlier);
        }
        if !done.report.edits.is_empty() && respelled > 0 {
            done.report.warnings.push(summary::replaced(respelled));
        }
        if !done.report.edits.is_empty() {
            let again = again(&done, &options);
            let found: Vec<&Found> = match &again {
                Some(branches) => branches.iter().map(|branch| &branch.found).collect(),
                None => vec![&done.found],
            };
            let fingerprint = done.report.input.fingerprint.clone();
            let source = flat.as_ref().unwrap_or(&model);
            asked::write(&mut done.model, &request, &done.report.inferred);
            written::write(&mut done.model, (source, &fingerprint), &found);
        }
        if is_sorted {
            done.report.sorted = done.model.sort()?;
        }
        Ok(done)
    }

    /// What was changed after an earlier rewrite.
    fn earlier(&self) -> Option<String> {
        let is_own = self.flat.is_none() && self.plain.is_none() && self.opened.is_none();
        let is_own = is_own && self.branches.iter().all(|branch| is_usual(&branch.options));
        earlier::difference(&self.model, is_own.then_some(&self.branches))
    }

    /// The model as it was read, and as it is edited, where these differ and compute the same.
    fn spellings(&self) -> Option<Respelled> {
        let input = self.plain.as_ref().filter(|_| self.opened.is_none());
        let edited = self.opened.as_ref().map(|own| &own.model).or(input)?;
        let (of, found) = match &self.opened {
            // They are compared at the length that both take.
            Some(opened) => (self.read(), &opened.before),
            None => (edited, &self.branches[0].found),
        };
        let read = self.flat.as_ref().unwrap_or(&self.model);
        Some(Respelled {
            models: [read.clone(), edited.clone()],
            of: of.clone(),
            found: found.clone(),
            moved: vec![],
        })
    }

    fn edit(self) -> Result<Rewritten, RewriteError> {
        let Some(opened) = &self.opened else {
            let fixed = open_length::left(&self.branches[0].found, &self.request);
            let mut done = self.edit_input()?;
            let is_changed = !done.report.edits.is_empty();
            done.report.warnings.extend(fixed.filter(|_| is_changed));
            return Ok(done);
        };
        let (original, opened) = (self.read().clone(), opened.clone());
        let wanted = self.request.parameters.max_length;
        let mut done = self.edit_input()?;
        done.report.warnings.extend(opened.check(&done, wanted)?);
        if done.report.edits.is_empty() {
            done.report.edits = opened.edits(&original, &done.found);
            done.report.guarantee = Guarantee::NewFunction;
        } else {
            opened.count(&mut done.report.edits[0]);
        }
        done.report.limits.before.clone_from(&opened.limits);
        done.report.warnings.insert(0, opened.note());
        Ok(done)
    }

    fn edit_input(self) -> Result<Rewritten, RewriteError> {
        let Self {
            model,
            flat,
            left_out: _,
            plain,
            opened,
            request,
            mut branches,
            unread: _,
            change,
        } = self;
        let path = model.path().map(|path| path.display().to_string());
        let mut report = Rewrite::new(Endpoint {
            path: path.unwrap_or_default(),
            fingerprint: model.fingerprint(),
        });
        let limits = &branches[0].found.limits;
        report.limits.before.clone_from(limits);
        report.limits.after.clone_from(limits);
        let opened = opened.map(|own| own.model);
        let own = opened.as_ref().or(plain.as_ref()).or(flat.as_ref());
        let input = own.unwrap_or(&model);
        match change {
            Change::Rescale(plans) => rescale::apply(input, branches, &plans, &request, report),
            Change::Stretch(plans) => stretch::apply(input, branches, &plans, &request, report),
            Change::Resize(plan) => resize::apply(input, first(branches), &plan, &request, report),
            Change::Open(plan) => open::apply(input, first(branches), &plan, report),
            Change::Swap(plans) => swap::apply(input, &branches, plans, &request, report),
            Change::Sort => Ok(unchanged(input, branches, report)),
            Change::Form => {
                let others = branches.split_off(1);
                Ok(Rewritten {
                    other_branches: with_rotations(others),
                    ..unchanged(input, branches, report)
                })
            }
            Change::Nothing { warnings } => {
                report.warnings = warnings;
                if request.to.is_some() {
                    let found = &branches[0].found;
                    let kept = summary::kept_at_cross(found, &entries(input, found));
                    report.warnings.extend(kept);
                }
                let is_bare = request.to == Some(Kind::None);
                let sites = is_bare.then(|| chosen(&branches[0].found, &request));
                let bare = sites.transpose()?.unwrap_or_default();
                Ok(Rewritten {
                    bare,
                    ..unchanged(input, branches, report)
                })
            }
        }
    }
}

/// What a verification will detect in a rewritten model, where that is not what was found in it.
/// `options` are those of the only branch.
fn again(done: &Rewritten, options: &Option<Options>) -> Option<Vec<Branch>> {
    let is_found = options.as_ref().is_some_and(is_usual);
    (!is_found).then(|| branches_of(&done.model, &Options::default()))
}

/// Whether a verification detects with the same options: it knows neither the roles nor the families of a request.
fn is_usual(options: &Options) -> bool {
    options.roles.is_empty() && options.custom.is_empty()
}

/// The model as it is.
fn unchanged(model: &Model, branches: Vec<Branch>, report: Rewrite) -> Rewritten {
    Rewritten::new(model.clone(), first(branches).found, report)
}

/// The branch that is read first: every model has one.
fn first(branches: Vec<Branch>) -> Branch {
    let mut branches = branches.into_iter();
    branches.next().expect("there is a first branch")
}

/// The request with the roles of inputs that what reads them tells: an edit may leave nothing that does.
fn with_roles(model: &Model, mut request: Request) -> Request {
    let graph = model.graph();
    let ports = Ports::of(graph, &roles(&request.input_roles));
    for port in ports.told_by_use(graph) {
        let role = match port.role {
            Role::Positions => InputRole::Position,
            Role::Padding => InputRole::Padding,
            _ => continue,
        };
        let own = request.input_roles.entry(graph.name(port.value).to_owned());
        own.or_insert(role);
    }
    request
}

/// A refusal of what was not read, which says of which input the request gives another role than its own.
fn with_given(model: &Model, given: &BTreeMap<String, InputRole>, refusal: Refusal) -> Refusal {
    let of_reading = [
        RefusalKind::Unread,
        RefusalKind::Unsupported,
        RefusalKind::NoSite,
    ];
    if given.is_empty() || !of_reading.contains(refusal.kind()) {
        return refusal;
    }
    let graph = model.graph();
    let given = roles(given);
    let own = Ports::of(graph, &BTreeMap::new());
    let other = own.iter().find_map(|port| {
        let name = graph.name(port.value);
        let role = given.get(name).filter(|role| **role != port.role)?;
        // Ids are content too.
        let is_kept = *role == Role::Content && port.role == Role::Tokens;
        (!is_kept).then_some((name, *role, port.role))
    });
    let Some((name, role, own)) = other else {
        return refusal;
    };
    let [role, own] = [role, own].map(given::words);
    refusal.with(&format!(
        "; `input-role` makes {name} {role}, which without it is {own}: is that right?"
    ))
}

/// How a request wants a model to be detected.
fn options(request: &Request, custom: &[&'static Family]) -> Options {
    let mut custom = custom.to_vec();
    if let Some(kind @ Kind::Custom(_)) = request.to {
        custom.extend(kind.family());
    }
    Options {
        roles: roles(&request.input_roles),
        custom,
        ..Options::default()
    }
}

/// Plans and applies a request at once.
#[cfg(test)]
pub(crate) fn rewrite(model: &mut Model, request: &Request) -> Result<Rewritten, RewriteError> {
    let done = plan(model, request.clone(), &[])?.apply()?;
    *model = done.model.clone();
    Ok(done)
}
