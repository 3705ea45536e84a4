//! From what was detected to the report of `inspect`.

mod apart;
pub(crate) mod consult;
mod entries;
pub(crate) mod figures;
pub(crate) mod positionless;
mod shared;
mod windows;

use posenc_ir::{Model, NodeId};
use serde_json::{Map, Value, json};

use crate::attention::Site;
use crate::detect::identified::KnownLaws;
use crate::detect::rotary::projected::projected_layout;
use crate::detect::rotary::projects_and_rotates;
use crate::detect::{Found, Options, RotarySite, detect, limits};
use crate::detect::{later, masks};
use crate::plan::unread::{beside, of_branch};
use crate::record::read_unread;
use crate::report::{
    Attention, AttentionKind, Encoding, Inspect, Limit, LimitCause, ModelSummary, Refusal,
};
use crate::spelling;
pub(crate) use apart::apart;
use posenc_encodings::kind::{Form, Kind};
use posenc_encodings::laws::Identified;
use posenc_encodings::round::to_digits;
use windows::windows;

/// Names every encoding and attention site of a model.
///
/// Local functions are looked into by unfolding their calls.
pub(crate) fn inspect(model: &Model, options: &Options) -> Inspect {
    let (read, error) = spelling::as_read(model, &options.roles);
    let read = read.as_ref().unwrap_or(model);
    let mut found = detect(read, options);
    rotated_within(model, read, &mut found);
    let mut report = report(read, &found);
    report.model = ModelSummary::of(model);
    if let Some(error) = error {
        let warning = format!("{error}; its functions are not looked into");
        report.warnings.push(warning);
    }
    report
}

/// Gives rotations that operators of attention do themselves their form; the model is read without these operators.
fn rotated_within(model: &Model, read: &Model, found: &mut Found) {
    let mut nodes = model.graph().nodes();
    if !nodes.any(|(_, node)| projects_and_rotates(node)) {
        return;
    }
    for site in &mut found.rotary {
        if is_respelled(model, read, found.attention[site.site].node) {
            site.form = Form::Contrib;
        }
    }
}

/// Whether an operator of attention is in place of one that rotates queries and keys itself.
pub(crate) fn is_respelled(model: &Model, read: &Model, id: NodeId) -> bool {
    // No other rule makes one.
    id.index() >= model.graph().node_count() && read.graph().node(id).op() == "MultiHeadAttention"
}

/// The report of a detection.
pub(crate) fn report(model: &Model, found: &Found) -> Inspect {
    let mut report = Inspect::new(ModelSummary::of(model));
    report.encodings = entries(model, found);
    let sites = found.attention.iter().zip(windows(model, found));
    report.attention = sites.map(attention).collect();
    // Nodes may be in any order that the graph allows.
    report.attention.sort_by_key(|a| (a.stack, a.layer));
    report.limits = limits::all(model.graph(), found);
    report.warnings = of_branch(model, found);
    if let Some(quantized) = found.quantized.first() {
        let (place, change) = (model.graph().place(quantized.node), quantized.change);
        report.warnings.push(format!(
            "{place}: numbers that the rotation is computed from are quantized here, and change by up to \
             {change:.1e}; the rotation is shown that would be computed without that"
        ));
    }
    // The numbers of a quantized rotation are told above.
    let met = beside::met(model, found).filter(|_| found.quantized.is_empty());
    report.warnings.extend(met);
    report.warnings.extend(later::warning(model, found));
    report.warnings.extend(masks::warning(found));
    for why in read_unread(model) {
        if !report.warnings.contains(&why) {
            let why = format!("not read when the model was rewritten: {why}");
            report.warnings.push(why);
        }
    }
    let refusal = |r: &crate::detect::Refused| Refusal {
        at: model.graph().place(r.node),
        why: r.why.clone(),
    };
    report.refused = Some(
        found
            .not_rotary
            .iter()
            .chain(&found.no_encodings)
            .map(refusal)
            .collect(),
    );
    report
}

/// Everything that was found, as entries of the report.
pub(crate) fn entries(model: &Model, found: &Found) -> Vec<Encoding> {
    let mut all = inspect_encodings(model, found);
    all.extend(entries::of(model, found, &found.findings));
    let quantized = found.quantized.iter().map(|quantized| &quantized.site);
    let meant = rotations(model, found, quantized);
    // The numbers of the model are others.
    all.extend(meant.into_iter().map(|entry| Encoding {
        fit_error: None,
        ..entry
    }));
    all.extend(unknown(model, found));
    all
}

/// RoPE: an entry for each set of parameters.
pub(crate) fn inspect_encodings(model: &Model, found: &Found) -> Vec<Encoding> {
    rotations(model, found, found.rotary.iter())
}

/// An entry for each set of parameters of these sites.
fn rotations<'a>(
    model: &Model,
    found: &'a Found,
    sites: impl Iterator<Item = &'a RotarySite>,
) -> Vec<Encoding> {
    let mut entries: Vec<Encoding> = vec![];
    let mut laws = KnownLaws::of(found);
    for site in sites {
        let mut params = params(site, laws.law(site));
        let layout = |half| projected_layout(model, found, half);
        let query = layout(&site.query);
        if let Some(layout) = query.filter(|_| layout(&site.key) == query) {
            let rotated = params.insert("layout".into(), json!(layout));
            params.insert("rotated_layout".into(), json!(rotated));
        }
        let stack = found.attention[site.site].place.stack;
        let same =
            |e: &&mut Encoding| e.params == params && e.form == site.form && e.stack == stack;
        let entry = match entries.iter_mut().find(same) {
            Some(entry) => entry,
            None => {
                entries.push(Encoding::new(Kind::Rope, stack, site.form, params));
                entries.last_mut().expect("just pushed")
            }
        };
        let fit = site
            .query
            .rotation
            .fit_error
            .max(site.key.rotation.fit_error);
        entry.fit_error = Some(entry.fit_error.unwrap_or(0.0).max(fit));
        let at = &found.attention[site.site];
        entry.layers.push(at.place.layer);
        entry.places.push((at.place.layer, at.cross));
        entry.sites += 1;
        entry.nodes.push(model.graph().place(site.node));
        entry.max_length = rows(&found.limits);
    }
    entries
}

/// The shortest table of cos and sin.
fn rows(limits: &[Limit]) -> Option<usize> {
    let table = |l: &&Limit| matches!(l.cause, LimitCause::Table | LimitCause::Cache);
    limits.iter().filter(table).map(|l| l.length).min()
}

fn params(site: &RotarySite, identified: &Identified) -> Map<String, Value> {
    let rope = &site.query.rotation.rope;
    let mut params = Map::new();
    params.insert(
        "theta".into(),
        json!(identified.theta.map(|t| to_digits(t, 7))),
    );
    params.insert("head_dim".into(), json!(rope.head_dim));
    params.insert("rotary_dim".into(), json!(rope.rotary_dim));
    params.insert("layout".into(), json!(rope.layout));
    if rope.layout.is_none() {
        params.insert("pairs".into(), json!(rope.pairs));
    }
    let factor = to_digits(rope.attention_factor, 7);
    params.insert("attention_factor".into(), json!(factor));
    if let Some(streams) = &site.streams {
        params.insert("mrope_section".into(), json!(streams.sections));
        params.insert("mrope_interleaved".into(), json!(streams.interleaved));
    }
    let first = rope.pairs.iter().map(|p| p.0.min(p.1)).min().unwrap_or(0);
    if first > 0 {
        params.insert("first_feature".into(), json!(first));
    }
    let scaling = identified.scaling.as_ref();
    let scaling = scaling.and_then(|s| serde_json::to_value(s).ok());
    params.insert("scaling".into(), tidy(scaling.unwrap_or(Value::Null)));
    params
}

/// Numbers to seven digits, so that equal encodings read equal.
fn tidy(value: Value) -> Value {
    match value {
        Value::Number(n) if n.is_f64() => json!(to_digits(n.as_f64().unwrap_or(0.0), 7)),
        Value::Array(list) => list.into_iter().map(tidy).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, tidy(v))).collect(),
        other => other,
    }
}

/// Position that acts on queries or keys by no known formula.
fn unknown(model: &Model, found: &Found) -> Vec<Encoding> {
    let mut entries: Vec<Encoding> = vec![];
    let quantized = || found.quantized.iter().map(|quantized| &quantized.site);
    let is_read = |site: usize| {
        found
            .rotary
            .iter()
            .chain(quantized())
            .any(|r| r.site == site)
    };
    for refused in found.not_rotary.iter().filter(|r| !is_read(r.site)) {
        let entry = match entries
            .iter_mut()
            .find(|e| e.evidence.contains(&refused.why))
        {
            Some(entry) => entry,
            None => {
                let mut entry = Encoding::new(Kind::Unknown, None, Form::Ops, Map::new());
                entry.evidence.push(refused.why.clone());
                entries.push(entry);
                entries.last_mut().expect("just pushed")
            }
        };
        let layer = found.attention[refused.site].place.layer;
        let is_cross = found.attention[refused.site].cross;
        entry.places.push((layer, is_cross));
        if !entry.layers.contains(&layer) {
            entry.layers.push(layer);
            entry.sites += 1;
        }
        entry.nodes.push(model.graph().place(refused.node));
    }
    entries
}

fn attention((site, window): (&Site, Option<usize>)) -> Attention {
    Attention {
        name: site.name.clone(),
        stack: site.place.stack,
        layer: Some(site.place.layer),
        kind: if site.cross {
            AttentionKind::Cross
        } else {
            AttentionKind::SelfAttention
        },
        heads: site.heads,
        kv_heads: site.kv_heads,
        head_dim: site.head_dim,
        causal: site.mask.causal,
        window,
        padding_mask: site.mask.padding,
        past: site.past,
        form: site.form,
    }
}
