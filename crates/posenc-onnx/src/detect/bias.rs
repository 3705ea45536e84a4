//! What is added to the scores whatever the content: linear, bucketed, clipped and window biases.
//!
//! Each site is read off the numbers that its softmax sees where queries and keys are zero. What
//! hides pairs is a mask, what is equal along the keys is nothing to a softmax; the rest is a bias,
//! and the families are asked in turn. Where a table is looked up by distance, its rows tell more
//! than the numbers do: rows that hold equal numbers, and distances beyond the trial run.

mod evidence;
mod factors;
mod lookup;

use std::collections::BTreeMap;
use std::sync::Arc;

use posenc_ir::eval::Trace;
use posenc_ir::{DType, Graph, Use, ValueId};
use rustc_hash::FxHashMap;

use super::results::Results;
use super::runs::Runs;
use crate::attention::Site;
use crate::attention::plane::Plane;
use crate::attention::planes::score_path;
use crate::attention::scores::{entries, plane};
use crate::detect::finding::{Encoding, Finding};
use crate::graph::region::Aspect;
use crate::graph::signature::Signatures;
use lookup::{Lookup, Origins, SwapPlan};
use posenc_encodings::families::alibi::Alibi;
use posenc_encodings::families::relative_bias::RelativeBias;
use posenc_encodings::families::t5_bias::T5Bias;
use posenc_encodings::kind::Stack;
use posenc_encodings::miss::Miss;
use posenc_encodings::samples::{Scores, most};

/// Elements of the scores in a longer run.
const LONGER: usize = 1 << 19;

/// Tokens of a longer run.
const LONGEST: usize = 256;

pub(crate) fn find(runs: &mut Runs<'_>, results: &mut Results) {
    let mut known = Known::default();
    let mut grouped: BTreeMap<(usize, Option<Stack>), Finding> = BTreeMap::new();
    let mut unread: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, site) in runs.found.attention.iter().enumerate() {
        results.findings.extend(factors::find(runs, at, site));
        let Some(alike) = known.alike(runs, site) else {
            continue;
        };
        let verdict = known.verdicts.entry(alike);
        let verdict = verdict.or_insert_with(|| read(runs, &mut known.asked, site));
        match verdict {
            Verdict::Nothing => {}
            Verdict::Unread(why) => *unread.entry(why).or_default() += 1,
            Verdict::Bias(bias) => {
                let group = grouped.entry((alike, site.place.stack));
                group
                    .or_insert_with(|| bias.finding(runs, site))
                    .sites
                    .push(at);
            }
        }
    }
    for (why, sites) in unread {
        results.warnings.push(format!(
            "could not evaluate the bias at {sites} attention sites: {why}"
        ));
    }
    results.findings.extend(grouped.into_values());
}

/// What was read already: sites that are alike are read once.
#[derive(Default)]
struct Known {
    signatures: Signatures,
    /// Whether a plane holds no bias, by its address.
    flat: FxHashMap<usize, bool>,
    numbers: FxHashMap<Alike, usize>,
    asked: SwapPlan,
    verdicts: FxHashMap<usize, Verdict>,
}

/// Sites with equal numbers in the trial run that are computed alike.
type Alike = (Option<usize>, Option<usize>, Vec<Option<ValueId>>);

impl Known {
    /// The number of the site's kind; `None` where nothing but masks enters.
    fn alike(&mut self, runs: &Runs<'_>, site: &Site) -> Option<usize> {
        let graph = runs.model.graph();
        let found = runs.found;
        let address = site.bias.as_ref().map(|p| Arc::as_ptr(p) as usize);
        if let (Some(address), Some(plane)) = (address, &site.bias) {
            let flat = || plane.is_flat();
            if *self.flat.entry(address).or_insert_with(flat) {
                return None;
            }
        }
        let (signature, entering) = match score_path(site) {
            Some(region) => {
                let counts = region.aspects(graph, &found.classes, Aspect::Origin);
                let signatures = &mut self.signatures;
                let signature = signatures.region(graph, &region, &found.trace, counts);
                (Some(signature), vec![])
            }
            None => {
                let entries = entries(graph, &found.classes, &found.trace, site);
                let entering = entries.iter().map(|u| graph.node(u.node).input(u.slot()));
                (None, entering.collect())
            }
        };
        let next = self.numbers.len();
        let alike = (address, signature, entering);
        Some(*self.numbers.entry(alike).or_insert(next))
    }
}

/// What a site was found to be given.
enum Verdict {
    /// No more than masks.
    Nothing,
    /// Something that could not be evaluated, for this reason.
    Unread(&'static str),
    Bias(Bias),
}

/// A bias without its place.
struct Bias {
    encoding: Encoding,
    fit_error: Option<f64>,
    max_length: Option<usize>,
    evidence: Vec<String>,
}

impl Bias {
    fn of(encoding: Encoding) -> Self {
        Self {
            encoding,
            fit_error: None,
            max_length: None,
            evidence: vec![],
        }
    }

    fn finding(&self, runs: &Runs<'_>, site: &Site) -> Finding {
        let found = runs.found;
        let entries = entries(runs.model.graph(), &found.classes, &found.trace, site);
        let biases: Vec<Use> = entries
            .iter()
            .copied()
            .filter(|u| may_bias(runs.model.graph(), &found.trace, *u))
            .collect();
        Finding {
            encoding: self.encoding.clone(),
            sites: vec![],
            entries: if biases.is_empty() { entries } else { biases },
            form: site.form,
            fit_error: self.fit_error,
            max_length: self.max_length,
            evidence: self.evidence.clone(),
        }
    }
}

/// Whether a value that enters holds more than two numbers, as masks do not.
fn may_bias(graph: &Graph, trace: &Trace, at: Use) -> bool {
    let value = graph.node(at.node).input(at.slot()).map(|v| trace.get(v));
    let Some(value) = value.filter(|v| v.dtype != Some(DType::Bool)) else {
        return false;
    };
    let Some(data) = value.to_f64() else {
        return true;
    };
    let mut few: Vec<f64> = vec![];
    data.iter().any(|v| {
        if !few.contains(v) {
            few.push(*v);
        }
        few.len() > 2
    })
}

fn read(runs: &mut Runs<'_>, asked: &mut SwapPlan, site: &Site) -> Verdict {
    let found = runs.found;
    let graph = runs.model.graph();
    let entries = entries(graph, &found.classes, &found.trace, site);
    let origins = Origins::of(graph, &found.classes, &found.trace, &entries);
    let Some(plane) = &site.bias else {
        return unseen(runs, asked, site, &entries, &origins);
    };
    let Some(scores) = scores(plane, site, origins.tolerance()) else {
        let why = "the bias differs between sequences or windows, and not as a mask does";
        return Verdict::Bias(unknown(plane, vec![why.to_owned()]));
    };
    if scores.is_flat() {
        return Verdict::Nothing;
    }
    match named(runs, asked, site, &scores, &origins) {
        Ok(bias) => Verdict::Bias(bias),
        Err(misses) => Verdict::Bias(unknown(plane, misses)),
    }
}

/// A bias whose numbers are absent: the rows that distances pick may still tell.
fn unseen(
    runs: &Runs<'_>,
    asked: &mut SwapPlan,
    site: &Site,
    entries: &[Use],
    origins: &Origins,
) -> Verdict {
    let (graph, trace) = (runs.model.graph(), &runs.found.trace);
    for lookup in &origins.lookups {
        let Some(rows) = asked.rows(runs.model, trace, lookup) else {
            continue;
        };
        let heads = site.heads.or(lookup.width).unwrap_or(1);
        if let Some(mut bias) = by_rows(rows, lookup, heads) {
            let why = "the data of the table is absent; its rows were inferred from the distances";
            bias.evidence.push(why.to_owned());
            return Verdict::Bias(bias);
        }
    }
    let absent = |u: &Use| {
        let value = graph.node(u.node).input(u.slot());
        value.is_some_and(|v| trace.get(v).data.is_none())
    };
    match (entries.iter().any(absent), origins.absent) {
        (false, _) => Verdict::Nothing,
        (true, true) => Verdict::Unread("its data is absent"),
        (true, false) => Verdict::Unread("it depends on unknown values"),
    }
}

/// The first family that the numbers fit, or why none does.
fn named(
    runs: &mut Runs<'_>,
    asked: &mut SwapPlan,
    site: &Site,
    scores: &Scores,
    origins: &Origins,
) -> Result<Bias, Vec<String>> {
    let heads = site.heads.unwrap_or(scores.heads());
    let line = Alibi::identify(scores);
    if line.is_err()
        && let Ok(profile) = profile(scores)
        && let Some(found) = by_lookup(runs, asked, scores, &profile, origins, heads)
    {
        return found;
    }
    // What the trial run is too short to tell.
    let longer = longer(runs, site, origins);
    let far = longer.as_ref().unwrap_or(scores);
    let mut misses = vec![];
    let mut miss = |family: &str, miss: Miss| misses.push(format!("no {family}: {miss}"));
    match line.and_then(|_| Alibi::identify(far)) {
        Ok((mut alibi, error)) => {
            // One head stands for all that it is broadcast to.
            if let (1, Some(heads)) = (alibi.heads, site.heads) {
                alibi.slopes = vec![alibi.slopes[0]; heads];
                alibi.heads = heads;
            }
            return Ok(Bias {
                fit_error: Some(error),
                ..Bias::of(Encoding::Alibi(alibi))
            });
        }
        Err(why) => miss("alibi", why),
    }
    match profile(far) {
        Ok(profile) => match by_numbers(runs, far, profile, origins, heads) {
            Ok(bias) => return Ok(bias),
            Err(whys) => misses.extend(whys),
        },
        Err(why) => {
            miss("t5-bias", why);
            match RelativeBias::of_window(scores) {
                Ok(window) => {
                    let window = RelativeBias { heads, ..window };
                    return Ok(Bias::of(Encoding::RelativeBias(window)));
                }
                Err(why) => miss("relative-bias", why),
            }
        }
    }
    Err(misses)
}

/// The numbers by distance, up to a constant for each query.
fn profile(scores: &Scores) -> Result<BTreeMap<i64, Vec<f64>>, Miss> {
    let anchored = || scores.anchored()?.by_distance().ok();
    scores.by_distance().or_else(|why| anchored().ok_or(why))
}

/// A function of the distance by the rows of a table, where one is looked up.
fn by_lookup(
    runs: &Runs<'_>,
    asked: &mut SwapPlan,
    scores: &Scores,
    profile: &BTreeMap<i64, Vec<f64>>,
    origins: &Origins,
    heads: usize,
) -> Option<Result<Bias, Vec<String>>> {
    let mut table = false;
    // Only where nothing came before can queries stand elsewhere than behind all keys.
    let mut places = places_of_queries(scores);
    places.truncate(if runs.found.lengths.past > 0 { 1 } else { 3 });
    for lookup in &origins.lookups {
        let rows = asked.rows(runs.model, &runs.found.trace, lookup);
        let Some(rows) = rows.filter(|rows| follows(profile, rows)) else {
            continue;
        };
        table = true;
        for shift in places.iter().map(|origin| scores.origin - origin) {
            let rows = rows.iter().map(|(d, row)| (d + shift, *row)).collect();
            if let Some(bias) = by_rows(&rows, lookup, heads) {
                return Some(Ok(bias));
            }
        }
    }
    let why = "a table is looked up by distance, but not as T5 or a clip would";
    table.then(|| Err(vec![why.to_owned()]))
}

/// A function of the distance by its numbers alone.
fn by_numbers(
    runs: &Runs<'_>,
    scores: &Scores,
    profile: BTreeMap<i64, Vec<f64>>,
    origins: &Origins,
    heads: usize,
) -> Result<Bias, Vec<String>> {
    let mut misses = vec![];
    for origin in places_of_queries(scores) {
        let shift = scores.origin - origin;
        let labels = labels(&profile, shift);
        let clip = RelativeBias::of_labels(&labels, heads);
        match clip {
            Ok(clip) => return Ok(Bias::of(Encoding::RelativeBias(clip))),
            Err(why) => misses.push(format!("no relative-bias: {why}")),
        }
        match T5Bias::of_labels(&labels, heads) {
            Ok(t5) => return Ok(Bias::of(Encoding::T5Bias(t5))),
            Err(why) => misses.push(format!("no t5-bias: {why}")),
        }
    }
    if let Some(kernel) = evidence::kernel(&profile) {
        return Err(vec![kernel]);
    }
    let numbers = profile.values().flatten().copied();
    let numbers: Vec<f64> = numbers.filter(|v| v.is_finite()).collect();
    if origins.hold(&runs.found.trace, &numbers) {
        return Ok(Bias::of(Encoding::RelativeBias(RelativeBias {
            max_distance: None,
            window: None,
            heads,
        })));
    }
    misses.push("a function of the distance that no table holds".to_owned());
    misses.dedup();
    Err(misses)
}

fn by_rows(rows: &BTreeMap<i64, i64>, lookup: &Lookup, heads: usize) -> Option<Bias> {
    let buckets = T5Bias::of_rows(rows, lookup.table, heads);
    if let Ok(t5) = buckets {
        return Some(Bias::of(Encoding::T5Bias(t5)));
    }
    let (clip, clipped) = RelativeBias::of_rows(rows, lookup.table, heads).ok()?;
    let max_length = clip.max_distance.filter(|_| !clipped).map(|k| k + 1);
    Some(Bias {
        max_length,
        ..Bias::of(Encoding::RelativeBias(clip))
    })
}

/// Whether distances that pick the same row have the same numbers.
fn follows(profile: &BTreeMap<i64, Vec<f64>>, rows: &BTreeMap<i64, i64>) -> bool {
    let near = 1e-9 * most(profile.values().flatten());
    let mut of_row: BTreeMap<i64, &Vec<f64>> = BTreeMap::new();
    profile.iter().all(|(d, numbers)| {
        let Some(row) = rows.get(d) else { return false };
        let known = of_row.entry(*row).or_insert(numbers);
        equal(known, numbers, near)
    })
}

/// Distances by which numbers they have: those with the same share a label.
fn labels(profile: &BTreeMap<i64, Vec<f64>>, shift: i64) -> BTreeMap<i64, usize> {
    let near = 1e-9 * most(profile.values().flatten());
    let mut distinct: Vec<&Vec<f64>> = vec![];
    let mut labels = BTreeMap::new();
    for (d, numbers) in profile {
        let known = distinct.iter().rposition(|n| equal(n, numbers, near));
        let label = known.unwrap_or_else(|| {
            distinct.push(numbers);
            distinct.len() - 1
        });
        labels.insert(d + shift, label);
    }
    labels
}

fn equal(a: &[f64], b: &[f64], near: f64) -> bool {
    let same = |(a, b): (&f64, &f64)| (a - b).abs() <= near || a.is_nan() && b.is_nan();
    a.iter().zip(b).all(same)
}

/// Where the first query may stand among the keys: behind those of the past, or, where sequences
/// are cut into blocks, in the middle block or at the start.
fn places_of_queries(scores: &Scores) -> Vec<i64> {
    let (_, queries, keys) = scores.values.dim();
    let extra = keys.saturating_sub(queries) as i64;
    let mut places = vec![scores.origin, extra / 2, 0];
    places.dedup();
    places
}

fn scores(plane: &Plane, site: &Site, tolerance: f64) -> Option<Scores> {
    let past = i64::try_from(plane.past).ok()?;
    Some(Scores {
        values: plane.shared()?,
        // Of cross-attention the lengths tell nothing.
        origin: if site.cross { 0 } else { past },
        tolerance,
    })
}

/// The scores of a longer run, as far as the model's limits and the budget allow.
fn longer(runs: &mut Runs<'_>, site: &Site, origins: &Origins) -> Option<Scores> {
    let found = runs.found;
    let heads = site.heads.unwrap_or(1).max(1);
    let longest = (LONGER / heads).isqrt().min(LONGEST);
    let limit = found.limits.iter().map(|l| l.length).min();
    let length = limit.unwrap_or(longest).min(longest);
    let length = length.checked_sub(found.lengths.past)?;
    if length <= found.lengths.sequence {
        return None;
    }
    let model = runs.model;
    let trace = runs.at(length)?;
    let plane = plane(model, &found.classes, trace, site)?;
    scores(&plane, site, origins.tolerance()).filter(|s| s.queries() >= length.min(2))
}

/// A bias that no family fits.
fn unknown(plane: &Plane, misses: Vec<String>) -> Bias {
    let [_, heads, queries, keys] = plane.bias.dim().into();
    let mut evidence = vec![format!(
        "a bias of {heads} heads is added to the scores whatever the content ({queries} queries, {keys} keys in the trial run)"
    )];
    evidence.extend(misses);
    Bias {
        evidence,
        ..Bias::of(Encoding::Unknown)
    }
}
