//! Detection: attention sites, rotations of queries and keys, then every other encoding.

pub(crate) mod absolute;
mod bias;
pub(crate) mod branches;
pub(crate) mod context;
mod convolution;
pub(crate) mod distances;
pub(crate) mod finding;
pub(crate) mod found;
pub(crate) mod identified;
pub(crate) mod later;
mod lengths;
pub(crate) mod limits;
pub(crate) mod masks;
pub(crate) mod met;
pub(crate) mod negated;
mod options;
mod outside;
mod places;
mod results;
pub(crate) mod rotary;
pub(crate) mod rows;
mod runs;
pub(crate) mod scaled;
mod single;
mod terms;
#[cfg(test)]
mod tests;
mod trial;
mod unrecognized;

use posenc_ir::{Model, NodeId};
use rustc_hash::FxHashMap;

use crate::attention::{Site, latents, number, order, sites};
use crate::graph::dataflow::Classes;
use crate::graph::mixing::Mixed;

pub(crate) use bias::may_bias;
pub(crate) use found::{Found, Refused};
pub(crate) use options::Options;
use results::Results;
pub(crate) use rotary::site::{RotaryOperand, RotarySite, Switch};
pub(crate) use runs::{Runs, run_at, values_at};
pub(crate) use terms::joins;
use trial::{Trial, trial};

/// Finds attention and everything that encodes position.
pub(crate) fn detect(model: &Model, options: &Options) -> Found {
    let mut found = detect_as_is(model, options);
    let others = negated::unread(model, &found, |model| detect_as_is(model, options));
    found.not_evaluated.extend(others);
    found
}

/// The same in those branches of each `If` that the trial run takes.
fn detect_as_is(model: &Model, options: &Options) -> Found {
    let Trial {
        ports,
        lengths,
        classes,
        trace,
        attention,
        mixed: Mixed { mixers, tokens },
        misplaced,
    } = Trial::of(model, options);
    let graph = model.graph();
    let no_attention = [
        unrecognized::without_sizes(graph, &classes, &trace),
        unrecognized::not_attention(graph, &classes, &trace, &attention),
        unrecognized::in_operators(graph, &trace),
    ];
    let of_tokens = |site: &&Site| order::is_part(&tokens, &trace, site);
    let partial = attention.iter().filter(of_tokens).map(|s| s.index);
    let partial = partial.collect();
    let gathered = latents::gathered(graph, &classes, &attention);
    let latent = latents::sites(&classes, &gathered, &attention);
    let known = (graph, &trace, &classes);
    let mixed = match attention[..] {
        [] => rows::mixed(known, &tokens, &mixers),
        _ => vec![],
    };
    let rows = rows::rows(known, (&tokens, &mixers), &attention);
    let filled = rows::filled(graph, &trace, &tokens);
    let attended = rows::attended(known, &tokens, &attention);
    let spread = rows::spread((graph, &classes), (&tokens, &mixers), (&trace, &filled));
    let gathered_by_place = latents::meets_tokens(known, &tokens, &attention);
    let meetings = met::Meetings::of(known, &tokens, &attention);
    let (met, equal) = (met::met(&meetings), later::equal(&meetings));
    drop(meetings);
    drop(tokens);
    let mut found = Found {
        partial,
        latent,
        gathered,
        mixed,
        rows,
        spread,
        attended,
        filled,
        met,
        later: vec![],
        late_masks: vec![],
        ports,
        lengths,
        classes,
        trace,
        attention,
        custom: options.custom.clone(),
        mixers,
        misplaced,
        rotary: vec![],
        axial: vec![],
        not_rotary: vec![],
        unfitted_rotations: vec![],
        quantized: vec![],
        findings: vec![],
        no_encodings: vec![],
        limits: vec![],
        no_attention: no_attention.into_iter().flatten().collect(),
        not_evaluated: vec![],
    };
    found.later = later::later(model, &found, &equal);
    rotary::find(model, &mut found);
    let run =
        |found: &Found, model: &Model| trial(model, (&found.ports, &found.classes), found.lengths);
    rotary::quantized::find(model, &mut found, run);
    found.limits = limits::limits(&Runs::new(model, &found));
    let Results {
        findings,
        no_encodings,
        mut not_evaluated,
    } = other_encodings(model, &found);
    not_evaluated.extend(places::unread(
        &Runs::new(model, &found),
        &gathered_by_place,
    ));
    not_evaluated.extend(outside::unread(graph, &found));
    let mut found = Found {
        findings,
        no_encodings,
        not_evaluated,
        ..found
    };
    limits::end_where_rows_do(graph, &mut found);
    found.not_evaluated.extend(single::unread(graph, &found));
    let on_scores = later::on_scores(model, &found);
    found.later.extend(on_scores);
    found.late_masks = masks::later(model, &found);
    found.forget_late_masks();
    found
}

/// Reads the rotations of a rescaled model anew. Its other encodings, and what else mixes tokens, are
/// those of the model before, which a rescale leaves alone: it changes frequencies. Attention that was
/// left out before is left out again.
pub(crate) fn rescaled(model: &Model, options: &Options, before: &Found) -> Found {
    let graph = model.graph();
    let classes = Classes::of(graph, &before.ports);
    let trace = trial(model, (&before.ports, &classes), before.lengths);
    let mut attention = sites(model, &classes, &trace, &before.ports, options.branch);
    let known: FxHashMap<NodeId, bool> =
        before.attention.iter().map(|s| (s.node, s.cross)).collect();
    attention.retain(|site| known.contains_key(&site.node));
    for site in &mut attention {
        site.cross = known[&site.node];
    }
    number(graph, &mut attention);
    let mut found = Found {
        classes,
        trace,
        attention,
        rotary: vec![],
        axial: vec![],
        not_rotary: vec![],
        unfitted_rotations: vec![],
        quantized: vec![],
        limits: vec![],
        ports: before.ports.clone(),
        custom: before.custom.clone(),
        partial: before.partial.clone(),
        latent: before.latent.clone(),
        gathered: before.gathered.clone(),
        mixed: before.mixed.clone(),
        misplaced: before.misplaced.clone(),
        mixers: before.mixers.clone(),
        rows: before.rows.clone(),
        spread: before.spread.clone(),
        attended: before.attended.clone(),
        filled: before.filled.clone(),
        met: before.met.clone(),
        later: before.later.clone(),
        late_masks: before.late_masks.clone(),
        findings: before.findings.clone(),
        no_encodings: before.no_encodings.clone(),
        no_attention: before.no_attention.clone(),
        not_evaluated: before.not_evaluated.clone(),
        lengths: before.lengths,
    };
    rotary::find(model, &mut found);
    let run =
        |found: &Found, model: &Model| trial(model, (&found.ports, &found.classes), found.lengths);
    rotary::quantized::find(model, &mut found, run);
    found.limits = limits::limits(&Runs::new(model, &found));
    limits::end_where_rows_do(graph, &mut found);
    found.forget_late_masks();
    found
}

/// The attention sites alone, which is cheaper.
pub(crate) fn attention(model: &Model, options: &Options) -> Vec<Site> {
    Trial::of(model, options).attention
}

/// Every encoding but rotations by one position.
fn other_encodings(model: &Model, found: &Found) -> Results {
    let mut results = Results {
        findings: found.axial.iter().map(|a| a.finding.clone()).collect(),
        ..Results::default()
    };
    let mut runs = Runs::new(model, found);
    absolute::find(&mut runs, &mut results);
    bias::find(&mut runs, &mut results);
    terms::find(&mut runs, &mut results);
    convolution::find(&mut runs, &mut results);
    results
}
