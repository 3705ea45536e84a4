//! Rewriting: plan, patch, commit, and look again.

pub mod branches;
pub mod rescale;
pub mod swap;

use posenc_ir::Model;
use serde_json::{Value, json};

use crate::detect::{Found, Options, detect};
use crate::graph::ports::Role;
use crate::inspect::inspect_encodings;
use crate::plan::rescale::{Plan, Target};
use crate::report::{Edit, Encoding, Endpoint, Guarantee, Rewrite};
use crate::request::{InputRole, Request};
use crate::rewrite::branches::others as other_branches;

use crate::edit::rescale::Group;
use crate::error::{Refusal, RewriteError};
use crate::prove::swap::Proof;
use crate::prove::tolerance;
use crate::record;

use rescale::stretch;

/// What a rewrite did to the model in memory.
#[derive(Clone, Debug)]
pub struct Rewritten {
    /// The report, without output and check.
    pub report: Rewrite,
    /// What each rotary site of `found` is to compute now; sites left alone are absent.
    pub targets: Vec<(usize, Target)>,
    /// The rewritten graph, detected anew.
    pub found: Found,
    /// The same for other branches of a decoder that was merged from several, where they turn.
    pub beside: Vec<Found>,
    /// The length that was made room for, where it is known.
    pub max_length: Option<usize>,
    /// What shows that an encoding that was put in computes its formula; `None` where none was.
    pub proof: Option<Proof>,
}

/// Rewrites a model in memory as asked. On an error the model is as it was.
///
/// # Errors
/// When the request does not fit the model, a needed value is nowhere to be found, or the form is
/// not supported.
pub fn rewrite(model: &mut Model, request: &Request) -> Result<Rewritten, RewriteError> {
    request.check_law().map_err(Refusal::from)?;
    let input = Endpoint {
        path: path_of(model),
        fingerprint: model.fingerprint(),
    };
    if request.is_only_sort() {
        return only_sort(model, input, request);
    }
    if request.allowances.sort {
        // Fails before anything has changed, if at all.
        model.clone().sort()?;
    }
    // A function that several layers call serves them all: each gets a copy of its own.
    let mut done = match model.inlined()? {
        None => rewrite_flat(model, input, request)?,
        Some(mut flat) => {
            let done = rewrite_flat(&mut flat, input, request)?;
            if !done.report.edits.is_empty() {
                *model = flat;
            }
            done
        }
    };
    if request.allowances.sort {
        done.report.sorted = model.sort()?;
    }
    Ok(done)
}

/// An order of computation is all that is asked for, which needs no attention.
fn only_sort(
    model: &mut Model,
    input: Endpoint,
    request: &Request,
) -> Result<Rewritten, RewriteError> {
    let found = detect(model, &options(request));
    let mut report = Rewrite::new(input);
    report.limits.before = found.limits.clone();
    report.limits.after = found.limits.clone();
    report.sorted = model.sort()?;
    Ok(Rewritten {
        report,
        targets: vec![],
        found,
        beside: vec![],
        max_length: None,
        proof: None,
    })
}

/// The same for a model without calls of functions.
fn rewrite_flat(
    model: &mut Model,
    input: Endpoint,
    request: &Request,
) -> Result<Rewritten, RewriteError> {
    let options = options(request);
    let before = detect(model, &options);
    let mut report = Rewrite::new(input);
    report.limits.before = before.limits.clone();
    report.limits.after = before.limits.clone();
    let kind = request.to.filter(|_| swap::is_asked(&before, request));
    if let Some(flag) = request.ineffective(kind) {
        let done = kind.map_or("this rewrite".to_owned(), |kind| format!("--to {kind}"));
        let why = format!("{flag} has no effect on {done}; remove it");
        return Err(Refusal::Unsupported(why).into());
    }
    if kind.is_some() {
        return swap::rewrite(model, report, &before, request, &options);
    }
    let (plan, done) = stretch(model, &before, &before.limits, request, &options)?;
    report.inferred = plan.inferred.clone();
    let Some((mut next, groups)) = done else {
        report.warnings = warnings(&before, &plan);
        return Ok(Rewritten {
            report,
            targets: plan.targets,
            beside: beside(model, &before, &options),
            found: before,
            max_length: plan.max_length,
            proof: None,
        });
    };
    let fingerprint = &report.input.fingerprint;
    record::write(
        &mut next,
        fingerprint,
        plan.max_length,
        plan.records(&before),
    );
    let after = detect(&next, &options);
    agrees(&next, &before, &after, &plan)?;
    let (from, to) = (
        inspect_encodings(model, &before),
        inspect_encodings(&next, &after),
    );
    report.edits = groups
        .iter()
        .flat_map(|group| edits(&before, &plan, group, &from, &to))
        .collect();
    report.guarantee = Guarantee::NewFunction;
    report.limits.after = after.limits.clone();
    report.warnings = warnings(&after, &plan);
    *model = next;
    Ok(Rewritten {
        report,
        targets: plan.targets,
        beside: beside(model, &after, &options),
        found: after,
        max_length: plan.max_length,
        proof: None,
    })
}

/// What turns in the other branches of a model.
fn beside(model: &Model, found: &Found, options: &Options) -> Vec<Found> {
    let others = other_branches(model, found, options).into_iter();
    let others = others.map(|(options, _)| detect(model, &options));
    others.filter(|found| !found.rotary.is_empty()).collect()
}

/// What detection is told.
fn options(request: &Request) -> Options {
    let roles = request.input_roles.iter().map(|(name, role)| {
        let role = match role {
            InputRole::Position => Role::Positions,
            InputRole::Padding => Role::Padding,
            InputRole::Content => Role::Content,
        };
        (name.clone(), role)
    });
    Options {
        roles: roles.collect(),
        ..Options::default()
    }
}

fn path_of(model: &Model) -> String {
    model
        .path()
        .map_or_else(String::new, |p| p.display().to_string())
}

/// The rewritten graph, read anew, must compute what was planned.
fn agrees(model: &Model, before: &Found, after: &Found, plan: &Plan) -> Result<(), RewriteError> {
    let length = before.lengths.past + before.lengths.sequence;
    for (i, target) in &plan.targets {
        let site = &before.rotary[*i];
        let place = model.graph().place(site.node);
        let now = after.rotary.iter().find(|s| s.site == site.site);
        let Some(now) = now else {
            let why = format!("{place}: the rewritten rotation cannot be read back");
            return Err(Refusal::Unsupported(why).into());
        };
        let mut read = vec![
            (length, &now.query.rotation.rope),
            (length, &now.key.rotation.rope),
        ];
        if let Some(switch) = &now.switch {
            read.extend(switch.beyond.iter().map(|(length, rope)| (*length, rope)));
        }
        // A graph for a single length has nothing to choose.
        let chooses = target.scaling.depends_on_length() && before.ports.fixed_sequence().is_none();
        if chooses && now.switch.is_none() {
            let why = "the choice by length cannot be read back";
            return Err(Refusal::Unsupported(format!("{place}: {why}")).into());
        }
        for (length, got) in read {
            let want = target.scaling.frequencies(&target.rope, length);
            let far = off(
                &got.inv_freq,
                &want.inv_freq,
                got.attention_factor,
                want.attention_factor,
            );
            let dtype = after.trace.get(now.query.region.output).dtype;
            let allowed = tolerance::of_frequencies(dtype);
            let near = far <= allowed; // NaN is not
            if !near {
                let why = format!(
                    "{place}: the rewritten rotation differs from its formula by {far:.1e}"
                );
                return Err(Refusal::Unsupported(why).into());
            }
        }
    }
    Ok(())
}

/// The largest relative difference; frequencies at rest must be at rest.
fn off(got: &[f64], want: &[f64], m: f64, want_m: f64) -> f64 {
    let turning: Vec<f64> = want.iter().copied().filter(|f| *f != 0.0).collect();
    if got.len() != turning.len() {
        return f64::INFINITY;
    }
    let share = |a: f64, b: f64| (a - b).abs() / b.abs();
    let worst = got.iter().zip(&turning).map(|(a, b)| share(*a, *b));
    worst.fold(share(m, want_m), f64::max)
}

/// An edit for each site of a group; what they share is counted with the first.
fn edits(
    before: &Found,
    plan: &Plan,
    group: &Group,
    from: &[Encoding],
    to: &[Encoding],
) -> Vec<Edit> {
    let describe = |all: &[Encoding], layer: usize| -> Value {
        let entry = all.iter().find(|e| e.layers.binary_search(&layer).is_ok());
        entry.map_or(Value::Null, |e| json!({"kind": e.kind, "params": e.params}))
    };
    let mut edits = vec![];
    for (n, i) in group.sites.iter().enumerate() {
        let layer = before.rotary[*i].site;
        let mut after = describe(to, layer);
        // What the numbers of one length cannot show is known here.
        if let Some((_, target)) = plan.targets.iter().find(|(at, _)| at == i)
            && let Some(params) = after.get_mut("params")
        {
            params["theta"] = json!(target.rope.theta);
            params["scaling"] = target.scaling.to_json();
        }
        let count = |shared: usize| if n == 0 { shared } else { 0 };
        edits.push(Edit {
            site: before.attention[layer].name.clone(),
            from: describe(from, layer),
            to: after,
            nodes_added: count(group.nodes_added),
            nodes_removed: count(group.nodes_removed),
            initializers_changed: count(group.constants_changed),
        });
    }
    edits
}

/// What a user should know of the result.
fn warnings(after: &Found, plan: &Plan) -> Vec<String> {
    let mut warnings = vec![];
    let switches = plan
        .targets
        .iter()
        .any(|(_, t)| t.scaling.depends_on_length());
    if switches && after.ports.has_past() {
        let warning = "the frequencies depend on the length, so keys that were cached at a shorter \
                       length do not match: empty the cache when the length crosses the original \
                       one";
        warnings.push(warning.to_owned());
    }
    if let Some(wanted) = plan.max_length {
        for limit in after.limits.iter().filter(|l| l.length < wanted) {
            let name = limit.value.as_deref().unwrap_or("a shape");
            warnings.push(format!(
                "{name} ({}) still ends at {}, below the new length {wanted}",
                limit.cause, limit.length
            ));
        }
    }
    warnings
}
