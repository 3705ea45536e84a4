//! What a rewrite reports of its changes.

use std::collections::BTreeSet;

use posenc_ir::Applied;
use serde_json::{Value, json};

use crate::attention::Site;
use crate::detect::finding::{self, Finding};
use crate::detect::{Found, RotarySite};
use crate::plan::rescale::{Plan, Target};
use crate::plan::stretch;
use crate::report::{Edit, Encoding};
use posenc_encodings::kind::Kind;
use posenc_encodings::words::Word;

/// Attention sites that were changed together, and how much was changed for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Changed<'a> {
    /// Places in [`Found::attention`], each with the frequencies that it has now where these
    /// are known.
    pub(super) sites: Vec<(usize, Option<&'a Target>)>,
    pub(super) nodes_added: usize,
    pub(super) nodes_removed: usize,
    /// Constants with another payload or shape.
    pub(super) constants: usize,
}

impl Changed<'_> {
    /// Sites that one commit changed.
    pub(super) fn of(sites: impl IntoIterator<Item = usize>, applied: &Applied) -> Self {
        Self {
            sites: sites.into_iter().map(|site| (site, None)).collect(),
            nodes_added: applied.added.len(),
            nodes_removed: applied.removed.len(),
            constants: applied.revalued.len() + applied.constants.len(),
        }
    }
}

/// The sites of findings; all, where these have none.
pub(super) fn sites_of(
    found: &Found,
    findings: impl IntoIterator<Item = usize>,
) -> BTreeSet<usize> {
    let findings = findings.into_iter();
    let sites = findings.flat_map(|at| found.findings[at].sites.iter().copied());
    let sites: BTreeSet<usize> = sites.collect();
    match sites.is_empty() {
        true => (0..found.attention.len()).collect(),
        false => sites,
    }
}

/// An edit for each site but those that have no encoding before and after; what sites share is
/// counted with the first of them. `planned` says what a site is to have where that cannot be read
/// back.
pub(super) fn edits(
    before: &Found,
    changed: &[Changed<'_>],
    from: &[Encoding],
    to: &[Encoding],
    planned: &dyn Fn(usize) -> Option<Value>,
) -> Vec<Edit> {
    let mut edits = vec![];
    for group in changed {
        let mut is_first = true;
        for (site, target) in &group.sites {
            let (old, mut after) = (describe(before, from, *site), describe(before, to, *site));
            if after.is_null() {
                after = planned(*site).unwrap_or_default();
            }
            if old.is_null() && after.is_null() {
                continue;
            }
            let counts = std::mem::replace(&mut is_first, false);
            let count = |shared: usize| if counts { shared } else { 0 };
            // What the numbers of one length cannot show is known here.
            if let (Some(target), Some(params)) = (target, after.get_mut("params")) {
                params["theta"] = json!(target.rope.theta);
                params["scaling"] = target.scaling.to_json();
            }
            edits.push(Edit {
                site: before.attention[*site].name.clone(),
                from: old,
                to: after,
                nodes_added: count(group.nodes_added),
                nodes_removed: count(group.nodes_removed),
                initializers_changed: count(group.constants),
            });
        }
    }
    edits
}

/// These edits. Where no site has any encoding, what changed is told of the first.
pub(super) fn or_of_first(edits: Vec<Edit>, before: &Found, changed: &Changed<'_>) -> Vec<Edit> {
    let first = before.attention.first().filter(|_| edits.is_empty());
    let bare = first.map(|site| Edit {
        site: site.name.clone(),
        from: Value::Null,
        to: Value::Null,
        nodes_added: changed.nodes_added,
        nodes_removed: changed.nodes_removed,
        initializers_changed: changed.constants,
    });
    edits.into_iter().chain(bare).collect()
}

/// The encodings that a site has: `null` for none, a list for several. Layers of an entry count
/// within its stack.
pub(crate) fn describe(found: &Found, entries: &[Encoding], site: usize) -> Value {
    let Site { place, cross, .. } = &found.attention[site];
    let here = entries
        .iter()
        .filter(|e| e.stack == place.stack && e.places.contains(&(place.layer, *cross)));
    let mut here: Vec<Value> = here
        .map(|e| json!({"kind": e.kind, "params": e.params}))
        .collect();
    match here.len() {
        0 => Value::Null,
        1 => here.remove(0),
        _ => Value::Array(here),
    }
}

/// So many operators were written in other ones.
pub(super) fn replaced(count: usize) -> String {
    match count {
        1 => "one operator was replaced by others that compute the same, or left out because no output depends \
              on it"
            .to_owned(),
        n => format!(
            "{n} operators were replaced by others that compute the same, or left out because no output \
             depends on them"
        ),
    }
}

/// What another encoding means for the weights.
pub(super) fn meaning(edits: &[Edit], to: Kind) -> String {
    let mut kinds: Vec<&str> = vec![];
    for from in edits.iter().map(|e| &e.from) {
        let all = from
            .as_array()
            .map_or(std::slice::from_ref(from), |list| list);
        for kind in all.iter().filter_map(|f| f["kind"].as_str()) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
    }
    let with = |kinds: &[&str]| match kinds.is_empty() {
        true => "without a positional encoding".to_owned(),
        false => format!("with {}", kinds.join(" and ")),
    };
    let to_kinds = [to.name()];
    let to_kinds = if to == Kind::None { &[][..] } else { &to_kinds };
    let (from, to) = match kinds == to_kinds {
        true => of_parameters(edits, to),
        false => (with(&kinds), with(to_kinds)),
    };
    format!("the weights were trained {from}: fine-tune the model {to}, or expect worse results")
}

/// With what weights were trained and what they get, where the kind is the same: the parameters that differ.
fn of_parameters(edits: &[Edit], kind: Kind) -> (String, String) {
    let (mut old, mut new) = (vec![], vec![]);
    let params = |encoding: &Value| encoding["params"].as_object().cloned().unwrap_or_default();
    let first = edits.iter().find(|edit| edit.from != edit.to);
    let [before, after] = [first.map(|e| params(&e.from)), first.map(|e| params(&e.to))];
    let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
    for (name, was) in &before {
        let is = after.get(name).unwrap_or(&Value::Null);
        if was != is && was.is_number() && is.is_number() {
            old.push(format!("{name} {was}"));
            new.push(format!("{name} {is}"));
        }
    }
    match old.is_empty() {
        true => (
            format!("with other parameters of {kind}"),
            "with the new ones".to_owned(),
        ),
        false => (
            format!("with {kind} of {}", old.join(", ")),
            format!("with {}", new.join(", ")),
        ),
    }
}

/// What the user should know of the result: how a cache can be used, and what ends below
/// `max_length`.
pub(super) fn warnings(
    after: &Found,
    cache: Option<&str>,
    max_length: Option<usize>,
) -> Vec<String> {
    let mut warnings: Vec<String> = cache.into_iter().map(str::to_owned).collect();
    if let Some(wanted) = max_length {
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

/// What encodes positions beside rotations, which a scaling of rotations keeps.
pub(super) fn kept_beside(after: &Found) -> Option<String> {
    let rotates = |site: &usize| after.rotary.iter().any(|rotary| rotary.site == *site);
    let beside = after
        .findings
        .iter()
        .filter(|f| f.sites.iter().any(rotates));
    let names = scalable(beside)?;
    Some(format!(
        "{names} stays as it is: this scaling changes rotations alone"
    ))
}

/// What encodes positions beside what a scaling of tables and biases changes.
pub(super) fn kept_by_stretch(before: &Found, plan: &stretch::Plan) -> Vec<String> {
    let changed: Vec<usize> = plan.findings().collect();
    let others = before.findings.iter().enumerate();
    let others = others.filter(|(at, _)| !changed.contains(at));
    let others = others.map(|(_, finding)| finding);
    let (patches, others): (Vec<_>, Vec<_>) =
        others.partition(|finding| finding.encoding.is_of_patches());
    let others = scalable(others.into_iter());
    let others =
        others.map(|names| format!("{names} stays as it is: this scaling changes other encodings"));
    let patches = (!patches.is_empty()).then(|| {
        "the positions of patches stay as they are: they depend on the size of images, and not on a length"
            .to_owned()
    });
    others.into_iter().chain(patches).collect()
}

/// The names of the kinds of which there is a scaling, where there are any.
fn scalable<'a>(findings: impl Iterator<Item = &'a Finding>) -> Option<String> {
    let mut kinds: Vec<Kind> = vec![];
    for finding in findings {
        let has_no_scaling = matches!(
            finding.encoding,
            finding::Encoding::Conv(_) | finding::Encoding::Axial(_) | finding::Encoding::Unknown
        );
        let kind = finding.encoding.kind();
        if !has_no_scaling && !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
    (!kinds.is_empty()).then(|| names.join(" and "))
}

/// What cross-attention keeps, where only self-attention is changed. What is added to the
/// embeddings is not its own, unless no other site sees it.
pub(super) fn kept_at_cross(after: &Found, entries: &[Encoding]) -> Option<String> {
    let own = |e: &&Encoding| {
        let is_at_cross = e.places.iter().all(|(_, cross)| *cross);
        !e.kind.is_absolute() || is_at_cross && !e.places.is_empty()
    };
    let own: Vec<Encoding> = entries.iter().filter(own).cloned().collect();
    let mut kinds: Vec<String> = vec![];
    let mut sites = 0;
    for (at, _) in after.attention.iter().enumerate().filter(|(_, s)| s.cross) {
        let here = match describe(after, &own, at) {
            Value::Array(list) => list,
            Value::Null => vec![],
            one => vec![one],
        };
        let unread = after.not_rotary.iter().any(|refused| refused.site == at);
        let unread = unread.then_some(Kind::Unknown.name());
        let here = here.iter().filter_map(|one| one["kind"].as_str());
        let here: Vec<&str> = here.chain(unread).collect();
        sites += usize::from(!here.is_empty());
        for kind in here {
            if !kinds.iter().any(|known| known == kind) {
                kinds.push(kind.to_owned());
            }
        }
    }
    (sites > 0).then(|| {
        let kinds = kinds.join(" and ");
        format!(
            "cross-attention keeps its {kinds} at {sites} sites: only self-attention is changed"
        )
    })
}

/// That attention between learned queries stays as it is.
pub(super) fn kept_at_learned(before: &Found) -> Option<String> {
    let sites = before.attention.iter();
    let kept = sites.filter(|s| !s.cross && before.has_no_positions(s.index));
    match kept.count() {
        0 => None,
        n => Some(format!(
            "attention between learned queries stays as it is at {n} sites: they have no positions"
        )),
    }
}

/// How the cache of a rescaled model can be used.
pub(super) fn cache_of_rescaled(after: &Found, plan: &Plan) -> Option<&'static str> {
    let mut targets = plan.targets.iter();
    let switches = targets.any(|(_, t)| t.scaling.depends_on_length());
    (switches && after.ports.has_past()).then_some(
        "the frequencies depend on the length, so keys that were cached at a shorter length do \
         not match: empty the cache when the length crosses the original one",
    )
}

/// How a cache of the model before its encoding was replaced can be used.
pub(super) fn cache_of_swapped(
    before: &Found,
    after: &Found,
    sites: &[usize],
) -> Option<&'static str> {
    // Keys that are rotated together with those of the cache are cached before.
    let caches_rotated = |found: &Found| {
        let is_new = |r: &RotarySite| {
            let dims = found.trace.get(r.key.region.input).dims.as_ref();
            let keys = dims.and_then(|d| d.get(r.key.region.input_lane.sequence));
            keys.is_none_or(|n| *n <= found.lengths.sequence)
        };
        let mut own = found.rotary.iter().filter(|r| sites.contains(&r.site));
        found.ports.has_past() && own.any(is_new)
    };
    if caches_rotated(before) {
        Some("caches of the old model contain rotated keys: start with an empty cache")
    } else if caches_rotated(after) {
        Some("caches of the old model contain keys without rotation: start with an empty cache")
    } else {
        None
    }
}
