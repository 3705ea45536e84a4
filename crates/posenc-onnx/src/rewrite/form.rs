//! Rotations in another form, after everything else has changed.

use serde_json::{Value, json};

use super::rewritten::Rewritten;
use super::summary::{Changed, edits};
use crate::detect::branches::Branch;
use crate::detect::context::Context;
use crate::detect::{Found, RotarySite, detect};
use crate::edit::form::reform;
use crate::error::{Refusal, RefusalKind, RewriteError};
use crate::inspect::entries;
use crate::prove::invariants::check_same_sites;
use crate::prove::tolerance;
use crate::report::Guarantee;
use crate::request::Request;
use posenc_encodings::families::rope::Rope;
use posenc_encodings::kind::Form;

/// Gives the rotations of a result the form that is asked for. `branches` are those of the model that was read.
///
/// # Errors
/// Where a rotation cannot have that form, and where the result is not read back as before.
pub(super) fn apply(
    mut done: Rewritten,
    branches: &[Branch],
    request: &Request,
) -> Result<Rewritten, RewriteError> {
    let Some(form) = request.form else {
        return Ok(done);
    };
    let option = RefusalKind::UnsupportedOption("form");
    let before = done.found.clone();
    if branches.len() > 1 && before.rotary.iter().any(|site| site.form != form) {
        let why = "rotations in the branches of a model keep their form; leave out `form`";
        return Err(Refusal::new(option, why).into());
    }
    // Whatever is inserted consists of plain operators.
    let is_plain = form == Form::Ops;
    if before.rotary.is_empty() && !is_plain {
        let why = "only rotations have another form than plain operators, and none was found; leave out `form`";
        return Err(Refusal::new(option, why).into());
    }
    let is_chosen = |site: usize| request.names(&before.attention[site]);
    let context = Context {
        model: &done.model,
        found: &before,
    };
    let Some(made) = reform(&context, form, is_chosen)? else {
        return Ok(done);
    };
    let options = &branches[0].options;
    let after = detect(&made.model, options);
    let result = Context {
        model: &made.model,
        found: &after,
    };
    check_same_sites(&result, &before, "with rotations in another form")?;
    for at in &made.sites {
        check(&result, &before, &before.rotary[*at], form)?;
    }
    let (from, to) = (entries(&done.model, &before), entries(&made.model, &after));
    let changed: Vec<usize> = made
        .sites
        .iter()
        .map(|at| before.rotary[*at].site)
        .collect();
    let forms: Vec<(String, Form)> = made
        .sites
        .iter()
        .map(|at| &before.rotary[*at])
        .map(|site| (before.attention[site.site].name.clone(), site.form))
        .collect();
    let own = Changed::of(changed, &made.applied);
    let mut own = edits(&before, &[own], &from, &to, &|_| None);
    for edit in &mut own {
        let Some((_, old)) = forms.iter().find(|(name, _)| *name == edit.site) else {
            continue;
        };
        name(&mut edit.from, *old);
        name(&mut edit.to, form);
        // What was changed before is told once.
        let mut all = done.report.edits.iter_mut();
        if let Some(known) = all.find(|known| known.site == edit.site) {
            name(&mut known.to, form);
            known.nodes_added += edit.nodes_added;
            known.nodes_removed += edit.nodes_removed;
            known.initializers_changed += edit.initializers_changed;
        }
    }
    if done.report.edits.is_empty() {
        done.report.edits = own;
        done.report.guarantee = Guarantee::Rounding;
    } else {
        let told: Vec<String> = done.report.edits.iter().map(|e| e.site.clone()).collect();
        own.retain(|edit| !told.contains(&edit.site));
        done.report.edits.extend(own);
        done.report.guarantee = done.report.guarantee.max(Guarantee::Rounding);
    }
    done.report.limits.after.clone_from(&after.limits);
    done.model = made.model;
    done.found = after;
    Ok(done)
}

/// Names the form of the rotation in a description.
pub(crate) fn name(described: &mut Value, form: Form) {
    match described {
        Value::Array(all) => {
            for one in all.iter_mut().filter(|one| one["kind"] == "rope") {
                one["form"] = json!(form);
            }
        }
        Value::Object(_) => described["form"] = json!(form),
        _ => {}
    }
}

/// Compares a rotation with that of the model before.
fn check(
    context: &Context<'_>,
    before: &Found,
    old: &RotarySite,
    form: Form,
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
    let is_same = sides
        .iter()
        .all(|(old, new)| is_close(&old.rotation.rope, &new.rotation.rope, allowed));
    let switches = match (&old.switch, &new.switch) {
        (None, None) => true,
        (Some(old), Some(new)) => {
            old.original_length == new.original_length
                && old
                    .beyond
                    .iter()
                    .zip(&new.beyond)
                    .all(|(old, new)| old.0 == new.0 && is_close(&old.1, &new.1, allowed))
        }
        _ => false,
    };
    if !is_same || !switches || old.streams != new.streams {
        return refuse("its rotation is another one in the other form");
    }
    Ok(())
}

/// Whether two rotations are the same.
fn is_close(old: &Rope, new: &Rope, allowed: f64) -> bool {
    let near = |a: f64, b: f64| (a - b).abs() <= allowed * a.abs().max(b.abs());
    let mut pairs = old.inv_freq.iter().zip(&new.inv_freq);
    old.pairs == new.pairs
        && old.inv_freq.len() == new.inv_freq.len()
        && near(old.attention_factor, new.attention_factor)
        && pairs.all(|(a, b)| near(*a, *b))
}
