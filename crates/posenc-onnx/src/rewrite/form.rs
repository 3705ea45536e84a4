//! Rotations in another form, after everything else has changed.

use posenc_ir::{Model, NodeId};
use rustc_hash::FxHashSet;
use serde_json::{Value, json};

use super::rewritten::{Rewritten, with_rotations};
use super::summary::{Changed, edits};
use crate::attention::Site;
use crate::detect::branches::other_branches;
use crate::detect::context::Context;
use crate::detect::finding::Finding;
use crate::detect::rotary::switch::noise;
use crate::detect::rotary::{projects_and_rotates, rotates};
use crate::detect::{Found, Options, RotarySite, detect};
use crate::edit::form::{Reformed, check_opset, reform};
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::graph::operators::is_rotary;
use crate::inspect::{entries, is_respelled};
use crate::plan::selection::chosen;
use crate::prove::invariants::check_same_sites;
use crate::prove::tolerance;
use crate::report::{Edit, Guarantee};
use crate::request::{Request, Target};
use posenc_encodings::families::rope::Rope;
use posenc_encodings::inferred::Inferred;
use posenc_encodings::kind::{Form, Layout};
use posenc_encodings::words::Word;

/// The first opset with `RotaryEmbedding`.
const STANDARD: i64 = 23;

/// A form that rotations are to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) form: Form,
    /// The runtime that wants it; `None` where the request names the form.
    pub(crate) target: Option<Target>,
}

impl Wanted {
    /// Whether the rotation of a site gets it. A runtime has to run all of them.
    pub(crate) fn covers(self, request: &Request, site: &Site) -> bool {
        self.target.is_some() || request.covers(site)
    }
}

/// Gives the rotations of a result a form. `branches` are the options of each branch.
///
/// # Errors
/// Where a rotation cannot have that form, and where the result is not read back as before.
pub(super) fn apply(
    done: Rewritten,
    branches: &[Options],
    request: &Request,
    wanted: Wanted,
) -> Result<Rewritten, RewriteError> {
    let advice = match wanted.target {
        // Nothing else is requested.
        _ if request.is_only_form() => "",
        Some(_) => "; leave out `target`",
        None => "; leave out `form`",
    };
    reformed(done, branches, request, wanted).map_err(|why| match why {
        RewriteError::Refused(why) if *why.kind() == RefusalKind::UnsupportedOption("form") => {
            why.with(advice).into()
        }
        other => other,
    })
}

/// Tells of rotations that operators of attention did themselves in the model that was read, where the edited model
/// has others: plain ones, unless they got the form of `done`.
pub(super) fn tell_unfolded(done: &mut Rewritten, read: &Model, is_plain: bool) {
    let (before, after) = (read.graph(), done.model.graph());
    let is_gone = |id: NodeId| after.is_removed(id);
    let mut nodes = before.nodes();
    if !nodes.any(|(id, node)| is_gone(id) && projects_and_rotates(node)) {
        return;
    }
    let own = |site: usize| is_respelled(read, &done.model, done.found.attention[site].node);
    let sites = done.found.rotary.iter().map(|at| at.site);
    let sites: Vec<usize> = sites.filter(|site| own(*site)).collect();
    let name_of = |site: usize| &done.found.attention[site].name;
    for edit in &mut done.report.edits {
        if sites.iter().any(|site| *name_of(*site) == edit.site) {
            name(&mut edit.from, Form::Contrib);
        }
    }
    if done.report.edits.is_empty() && !is_plain {
        return;
    }
    let told = |site: &usize| {
        done.report
            .edits
            .iter()
            .any(|edit| edit.site == *name_of(*site))
    };
    let rest: Vec<usize> = sites.into_iter().filter(|site| !told(site)).collect();
    let is_first = done.report.edits.is_empty();
    let count = |counted: usize| if is_first { counted } else { 0 };
    let is_new = |id: NodeId| id.index() >= before.node_count();
    let changed = Changed {
        sites: rest.into_iter().map(|site| (site, None)).collect(),
        nodes_added: count(after.nodes().filter(|(id, _)| is_new(*id)).count()),
        nodes_removed: count(before.nodes().filter(|(id, _)| is_gone(*id)).count()),
        constants: 0,
    };
    let all = entries(&done.model, &done.found);
    let mut more = edits(&done.found, &[changed], &all, &all, &|_| None);
    for edit in &mut more {
        name(&mut edit.from, Form::Contrib);
        name(&mut edit.to, Form::Ops);
    }
    if !more.is_empty() {
        done.report.guarantee = done.report.guarantee.max(Guarantee::Rounding);
    }
    done.report.edits.extend(more);
}

fn reformed(
    mut done: Rewritten,
    branches: &[Options],
    request: &Request,
    wanted: Wanted,
) -> Result<Rewritten, RewriteError> {
    let form = wanted.form;
    if request.layers.is_some() || request.stack.is_some() {
        // Layers and stacks that the model lacks are refused.
        chosen(&done.found, request)?;
    }
    let all = || std::iter::once(&done.found).chain(&done.other_branches);
    let sides = all().flat_map(|found| &found.rotary);
    let sides = sides.flat_map(|site| [&site.query, &site.key]);
    let read: FxHashSet<NodeId> = sides.map(|side| side.region.entries[0].node).collect();
    let mut is_other = false;
    for found in all() {
        let context = Context {
            model: &done.model,
            found,
        };
        let covers = |site: usize| wanted.covers(request, &found.attention[site]);
        check_read(&context, form, &read, covers)?;
        is_other |= found
            .rotary
            .iter()
            .any(|own| own.form != form && covers(own.site));
    }
    let Some((first, others)) = branches.split_first().filter(|_| is_other) else {
        return Ok(done);
    };
    if form == Form::Onnx && done.model.opset() < STANDARD {
        let context = Context {
            model: &done.model,
            found: &done.found,
        };
        if let Some(site) = done.found.rotary.first() {
            check_opset(&context, site.node, "form")?;
        }
        raise_opset(&mut done, first)?;
    }
    if let Some((made, after)) = step((&done.model, &done.found), first, request, wanted)? {
        if let Some(target) = wanted.target {
            let told = Inferred::new("form", form.name(), format!("target {target}"));
            done.report.inferred.push(told);
        }
        tell(&mut done, made, after, |described, at| {
            name(described, at.form)
        });
    }
    for options in others {
        let found = detect(&done.model, options);
        let Some((made, after)) = step((&done.model, &found), options, request, wanted)? else {
            continue;
        };
        match done.report.edits.first_mut() {
            Some(edit) => add(edit, &Changed::of([], &made.applied)),
            // The branch before it has that form already.
            None => {
                let named = |described: &mut Value, at: &RotarySite| name(described, at.form);
                let own = own_edits((&done.model, &found), (&made, &after), named);
                done.report.edits = own.into_iter().map(|(edit, _)| edit).collect();
            }
        }
        done.report.guarantee = done.report.guarantee.max(Guarantee::Rounding);
        done.model = made.model;
    }
    if !others.is_empty() {
        done.found = detect(&done.model, first);
        done.other_branches = with_rotations(other_branches(&done.model, first, &done.found));
    }
    Ok(done)
}

/// Gives the rotations of one branch a form, and says what is found in it then; `None` where all have it.
fn step(
    (model, found): (&Model, &Found),
    options: &Options,
    request: &Request,
    wanted: Wanted,
) -> Result<Option<(Reformed, Found)>, RewriteError> {
    let context = Context { model, found };
    let covers = |site: usize| wanted.covers(request, &found.attention[site]);
    let Some(made) = reform(&context, wanted.form, covers)? else {
        return Ok(None);
    };
    let meant = |old: &RotarySite| (wanted.form, old.query.rotation.rope.layout);
    let after = read_back(&made, found, (options, "form"), meant)?;
    Ok(Some((made, after)))
}

/// What is found in a model whose rotations have another `form` or `layout`: `meant` says which, of a rotation before.
///
/// # Errors
/// Where it is not the same but for that.
pub(super) fn read_back(
    made: &Reformed,
    before: &Found,
    (options, what): (&Options, &str),
    meant: impl Fn(&RotarySite) -> (Form, Option<Layout>),
) -> Result<Found, RewriteError> {
    let after = detect(&made.model, options);
    let result = Context {
        model: &made.model,
        found: &after,
    };
    check_same_sites(
        &result,
        before,
        &format!("with rotations in another {what}"),
    )?;
    for at in &made.sites {
        let old = &before.rotary[*at];
        check(&result, before, old, meant(old))?;
    }
    Ok(after)
}

/// Puts rotations that compute the same into a result. `name` tells them apart in a description.
pub(super) fn tell(
    done: &mut Rewritten,
    made: Reformed,
    after: Found,
    name: impl Fn(&mut Value, &RotarySite),
) {
    let own = own_edits((&done.model, &done.found), (&made, &after), &name);
    for (edit, new) in own {
        let mut all = done.report.edits.iter_mut();
        // What was changed before is told once.
        match all.find(|known| known.site == edit.site) {
            Some(known) => {
                name(&mut known.to, new);
                known.nodes_added += edit.nodes_added;
                known.nodes_removed += edit.nodes_removed;
                known.initializers_changed += edit.initializers_changed;
            }
            None => done.report.edits.push(edit),
        }
    }
    done.report.guarantee = done.report.guarantee.max(Guarantee::Rounding);
    done.report.limits.after.clone_from(&after.limits);
    done.model = made.model;
    done.found = after;
}

/// The edits that rotations got, each with the rotation that is there now.
fn own_edits<'a>(
    (model, before): (&Model, &Found),
    (made, after): (&Reformed, &'a Found),
    name: impl Fn(&mut Value, &RotarySite),
) -> Vec<(Edit, &'a RotarySite)> {
    let (from, to) = (entries(model, before), entries(&made.model, after));
    let sites = made.sites.iter().map(|at| before.rotary[*at].site);
    let changed = Changed::of(sites, &made.applied);
    let all = edits(before, &[changed], &from, &to, &|_| None).into_iter();
    let named = all.zip(&made.sites).filter_map(|(mut edit, at)| {
        let old = &before.rotary[*at];
        let new = after.rotary.iter().find(|site| site.site == old.site)?;
        name(&mut edit.from, old);
        name(&mut edit.to, new);
        Some((edit, new))
    });
    named.collect()
}

/// Counts what else changed with an edit.
fn add(edit: &mut Edit, more: &Changed<'_>) {
    edit.nodes_added += more.nodes_added;
    edit.nodes_removed += more.nodes_removed;
    edit.initializers_changed += more.constants;
}

/// Converts the model to the first opset with `RotaryEmbedding`.
fn raise_opset(done: &mut Rewritten, options: &Options) -> Result<(), RewriteError> {
    let from = done.model.opset();
    let trace = &done.found.trace;
    let rank = |value| trace.get(value).dims.as_ref().map(Vec::len);
    let model = done.model.upgraded(STANDARD, rank).map_err(|why| {
        Refusal::unsupported(format!(
            "RotaryEmbedding needs opset {STANDARD}, and the model cannot be converted to it: {why}; \
             give `form` contrib"
        ))
    })?;
    let found = detect(&model, options);
    let converted = Context {
        model: &model,
        found: &found,
    };
    check_same_sites(&converted, &done.found, "in the later opset")?;
    done.report.warnings.push(format!(
        "the result has opset {STANDARD} instead of {from}, as RotaryEmbedding needs it"
    ));
    done.model = model;
    done.found = found;
    Ok(())
}

fn refusal(why: impl Into<String>) -> Refusal {
    Refusal::new(RefusalKind::UnsupportedOption("form"), why)
}

/// Refuses rotations that were not read, or not as those of positions on one axis: they would keep their form. `read`
/// are the nodes at which those of all branches start.
fn check_read(
    context: &Context<'_>,
    form: Form,
    read: &FxHashSet<NodeId>,
    is_chosen: impl Fn(usize) -> bool,
) -> Result<(), RewriteError> {
    let (graph, found) = (context.graph(), context.found);
    let at = |node: NodeId, why: &str| Err(refusal(why).at(graph.place(node)).into());
    let is_fused = |node: NodeId| is_rotary(graph.node(node));
    let is_other = |id: NodeId| form != Form::Ops || is_fused(id) || rotates(graph.node(id));
    let mut unread = found.not_rotary.iter().filter(|r| is_chosen(r.site));
    if let Some(unread) = unread.find(|unread| is_other(unread.node)) {
        let why = format!(
            "this was not read as a rotation, and would keep its form: {}",
            unread.why
        );
        return at(unread.node, &why);
    }
    let mut axial = found.axial.iter().map(|axial| &axial.finding);
    let own = |f: &&Finding| f.form != form && f.sites.iter().any(|site| is_chosen(*site));
    if let Some(node) = axial.find(own).and_then(Finding::node) {
        let why = "rotations by rows and columns keep their form";
        return at(node, why);
    }
    if found.rotary.is_empty() && form != Form::Ops {
        let why = "only rotations have another form than plain operators, and the result has none";
        return Err(refusal(why).into());
    }
    // What no attention reads may be an output, or the values of attention.
    let mut nodes = graph.nodes().map(|(id, _)| id);
    match nodes.find(|id| form == Form::Ops && is_fused(*id) && !read.contains(id)) {
        Some(id) => at(
            id,
            "this rotates no queries or keys of attention that was read, and would keep its form",
        ),
        None => Ok(()),
    }
}

/// Names the form of the rotation in a description.
pub(crate) fn name(described: &mut Value, form: Form) {
    each_rotation(described, &|one| one["form"] = json!(form));
}

/// Changes the rotation in a description, among other encodings or alone.
pub(crate) fn each_rotation(described: &mut Value, change: &dyn Fn(&mut Value)) {
    match described {
        Value::Array(all) => all.iter_mut().for_each(|one| each_rotation(one, change)),
        Value::Object(_) if described["kind"] == "rope" => change(described),
        _ => {}
    }
}

/// Compares a rotation, which is to have a form and a layout, with that of the model before.
fn check(
    context: &Context<'_>,
    before: &Found,
    old: &RotarySite,
    (form, layout): (Form, Option<Layout>),
) -> Result<(), RewriteError> {
    let found = context.found;
    let refuse = |why: &str| Err(context.refuse(context.site(old.site).node, why));
    let Some(new) = found.rotary.iter().find(|site| site.site == old.site) else {
        return refuse("its rotation cannot be read back in the other form");
    };
    if new.form != form {
        return refuse("its rotation has not got the form that was asked for");
    }
    let dtype = before.trace.get(old.query.region.output).dtype;
    let allowed = tolerance::of_frequencies(dtype);
    let sides = [(&old.query, &new.query), (&old.key, &new.key)];
    let is_same = sides.iter().all(|(old, new)| {
        let old = relaid(&old.rotation.rope, layout);
        is_close(&old, &new.rotation.rope, allowed)
    });
    let far = noise([&old.query.rotation, &new.query.rotation], allowed);
    let switches = match (&old.switch, &new.switch) {
        (None, None) => true,
        (Some(old), Some(new)) => {
            let mut beyond = old.beyond.iter().zip(&new.beyond);
            old.original_length == new.original_length
                && beyond
                    .all(|(old, new)| old.0 == new.0 && far.covers(&relaid(&old.1, layout), &new.1))
        }
        _ => false,
    };
    if !is_same || !switches || old.streams != new.streams {
        return refuse("its rotation is another one in the other form");
    }
    Ok(())
}

/// The rotation with the pairs of a layout.
fn relaid(rope: &Rope, layout: Option<Layout>) -> Rope {
    let mut rope = rope.clone();
    if let Some(other) = layout.filter(|_| rope.layout != layout) {
        rope.pairs = other.pairs(rope.pairs.len()).collect();
        rope.layout = layout;
    }
    rope
}

/// Whether two rotations are the same.
fn is_close(old: &Rope, new: &Rope, allowed: f64) -> bool {
    old.pairs == new.pairs && old.angles().matches(&new.angles(), allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::Switch;
    use crate::prove::testing::fixture;

    /// Whether a rotation passes as that of the model, of which something was another before.
    fn passes(change: impl FnOnce(&mut RotarySite), form: Form) -> bool {
        let layout = Some(Layout::Half);
        let model = fixture("llama/dynamo23");
        let found = detect(&model, &Options::default());
        let mut old = found.rotary[0].clone();
        change(&mut old);
        let context = Context {
            model: &model,
            found: &found,
        };
        check(&context, &found, &old, (form, layout)).is_ok()
    }

    #[test]
    fn another_rotation_does_not_pass() {
        assert!(passes(|_| {}, Form::Onnx));
        assert!(!passes(|_| {}, Form::Contrib));
        let rope = |change: fn(&mut Rope)| {
            passes(move |old| change(&mut old.key.rotation.rope), Form::Onnx)
        };
        assert!(!rope(|rope| rope.inv_freq[3] *= 1.001));
        assert!(!rope(|rope| rope.attention_factor = 1.1));
        assert!(!rope(|rope| rope.pairs[0] = (8, 0)));
        let switch = Switch {
            original_length: 64,
            beyond: vec![],
        };
        assert!(!passes(|old| old.switch = Some(switch), Form::Onnx));
    }
}
