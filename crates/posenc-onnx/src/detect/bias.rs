//! What is added to the scores whatever the content: linear, bucketed, clipped and window biases.
//!
//! Each site is read off the numbers that its softmax sees where queries and keys are zero. What
//! hides pairs is a mask, what is equal along the keys is nothing to a softmax; the rest is a bias,
//! which belongs to the family that fits best. Where a table is looked up by distance, its rows
//! show more than the numbers do: rows of equal numbers, and distances beyond the trial run.

mod factors;
mod lookup;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;

use posenc_ir::{Use, ValueId};
use rustc_hash::FxHashMap;

use super::results::Results;
use super::runs::Runs;
use crate::attention::Site;
use crate::attention::plane::Plane;
use crate::attention::planes::score_path;
use crate::attention::scores::{entries, plane};
use crate::detect::Found;
use crate::detect::finding::Finding;
use crate::graph::region::Aspect;
use crate::graph::signature::Signatures;
use lookup::{KnownRows, Lookup, Origins};
use posenc_encodings::bias::{At, Profile, ReadFrom, Rows, Run, Samples};
use posenc_encodings::families;
use posenc_encodings::family::{Entry, Family};
use posenc_encodings::kind::{Kind, Stack};
use posenc_encodings::samples::{Scores, equal, most};
pub(crate) use verdict::may_bias;
use verdict::{Best, Bias, Verdict, unknown};

/// Elements of the scores in a longer run.
const LONGER: usize = 1 << 19;

/// Tokens of a longer run.
const LONGEST: usize = 256;

/// The share of the largest number by which those of two runs may differ beyond the residual of a formula.
const NEAR: f64 = 5e-5;

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
        let verdict = verdict.or_insert_with(|| read(runs, &mut known.rows, site));
        match verdict {
            Verdict::Nothing => {}
            Verdict::Unread(why) => *unread.entry(why).or_default() += 1,
            Verdict::Bias(bias) => {
                if let Some(why) = bias.unread {
                    *unread.entry(why).or_default() += 1;
                }
                let group = grouped.entry((alike, site.place.stack));
                group
                    .or_insert_with(|| bias.finding(runs, site))
                    .sites
                    .push(at);
            }
        }
    }
    for (why, sites) in unread {
        results.not_evaluated.push(format!(
            "could not evaluate the bias at {sites} attention sites: {why}"
        ));
    }
    results.findings.extend(grouped.into_values());
}

/// What was read already: sites that are alike are read once.
#[derive(Default)]
struct Known {
    signatures: Signatures,
    /// Whether a plane contains no bias, by its address.
    flat: FxHashMap<usize, bool>,
    numbers: FxHashMap<Alike, usize>,
    rows: KnownRows,
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
        // Beside a sink, a number for each query counts.
        let has_sink = site.has_sink(graph, &found.trace) == Some(true);
        if let (Some(address), Some(plane), false) = (address, &site.bias, has_sink) {
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

fn read(runs: &mut Runs<'_>, known: &mut KnownRows, site: &Site) -> Verdict {
    let found = runs.found;
    let graph = runs.model.graph();
    let entries = entries(graph, &found.classes, &found.trace, site);
    let origins = Origins::of(graph, &found.classes, &found.trace, &entries);
    let Some(plane) = &site.bias else {
        return unseen(runs, known, site, &entries, &origins);
    };
    let Some(scores) = scores(runs, plane, site, &origins) else {
        let why = "it differs between sequences or windows, and not as a mask does";
        let mut bias = unknown(plane, vec![why.to_owned()]);
        // A mask may be in it, which has to stay.
        bias.unread = Some(why);
        return Verdict::Bias(bias);
    };
    if scores.is_flat() {
        return Verdict::Nothing;
    }
    match named(runs, known, site, &Run::of(scores), &origins) {
        Ok(fit) => Verdict::Bias(Bias::of(fit)),
        Err(misses) => Verdict::Bias(unknown(plane, misses)),
    }
}

/// A bias whose numbers are absent: the rows that distances select may still identify it.
fn unseen(
    runs: &Runs<'_>,
    known: &mut KnownRows,
    site: &Site,
    entries: &[Use],
    origins: &Origins,
) -> Verdict {
    let (graph, trace) = (runs.model.graph(), &runs.found.trace);
    for lookup in &origins.lookups {
        let Some(rows) = known.rows(runs.model, trace, lookup) else {
            continue;
        };
        let heads = site.heads.or(lookup.width).unwrap_or(1);
        let absent = Run::of(Scores::absent());
        let samples = Samples {
            heads: Some(heads),
            ..Samples::of(&absent)
        };
        if let Some(fit) = by_rows(runs.found, rows, lookup, &samples) {
            let why = "the data of the table is absent; its rows were inferred from the distances";
            let mut bias = Bias::of(fit);
            bias.evidence.push(why.to_owned());
            return Verdict::Bias(bias);
        }
    }
    let absent = |u: &Use| {
        let value = graph.node(u.node).input(u.slot());
        value.is_some_and(|v| trace.get(v).data.is_none())
    };
    let counts = |u: &Use| may_bias(graph, trace, *u);
    match (entries.iter().any(absent), origins.absent) {
        (false, _) if entries.iter().any(counts) => {
            Verdict::Unread("the scores cannot be computed without queries and keys")
        }
        (false, _) => Verdict::Nothing,
        (true, true) => Verdict::Unread("its data is absent"),
        (true, false) => Verdict::Unread("it depends on unknown values"),
    }
}

/// The family that fits best, or why none does.
fn named(
    runs: &mut Runs<'_>,
    known: &mut KnownRows,
    site: &Site,
    trial: &Run,
    origins: &Origins,
) -> Result<Best, Vec<String>> {
    let samples = Samples {
        heads: site.heads,
        ..Samples::of(trial)
    };
    let mut misses = Misses::default();
    if best(runs.found, &samples, &mut misses, |_, read_from| {
        read_from == ReadFrom::FewTokens
    })
    .is_none()
        && let Ok(profile) = trial.profile()
        && let Some(found) = by_lookup(runs, known, &samples, profile, origins)
    {
        return found;
    }
    // What the trial run is too short to show.
    let longer = longer(runs, site, origins).map(Run::of);
    let samples = Samples {
        run: longer.as_ref().unwrap_or(trial),
        ..samples
    };
    let best = by_numbers(runs, &samples, origins, misses)?;
    match holds(&trial.scores, &best, samples.run.tolerance()) {
        true => Ok(best),
        false => Err(vec![format!(
            "no {}: its numbers change with the length of the sequence",
            best.kind
        )]),
    }
}

/// Whether a formula that was read in one run has the numbers of another, as far as a softmax sees them.
fn holds(scores: &Scores, best: &Best, tolerance: f64) -> bool {
    let (fit, keys) = (&best.fit, scores.values.dim().2);
    let Some(residual) = fit.residual.filter(|_| fit.bias.tensors().is_empty()) else {
        return true;
    };
    let off = scores.residual(|head, query, key| {
        let at = At { query, key, keys };
        fit.bias.reference(&[], head, at).value
    });
    off <= 2.0 * residual.max(tolerance) + NEAR * most(scores.values.iter())
}

/// Why families do not fit, by their words.
#[derive(Default)]
struct Misses(Vec<(&'static str, String)>);

impl Misses {
    /// Each reason once.
    fn evidence(self) -> Vec<String> {
        let mut all: Vec<String> = vec![];
        for (word, why) in self.0 {
            let line = format!("no {word}: {why}");
            if !all.contains(&line) {
                all.push(line);
            }
        }
        all
    }
}

/// The best fit of the families that `tried` names.
fn best(
    found: &Found,
    samples: &Samples<'_>,
    misses: &mut Misses,
    tried: impl Fn(&Family, ReadFrom) -> bool,
) -> Option<Best> {
    let mut best: Option<Best> = None;
    for family in families::all().chain(found.custom.iter().copied()) {
        let Entry::ScoreBias(bias) = &family.entry else {
            continue;
        };
        if !tried(family, bias.read_from) {
            continue;
        }
        match (bias.identify)(samples) {
            Ok(fit) => {
                let tolerance = samples.run.tolerance();
                if best
                    .as_ref()
                    .is_none_or(|b| fit.is_better_than(&b.fit, tolerance))
                {
                    best = Some(Best {
                        kind: Kind::of_family(family),
                        fit,
                    });
                }
            }
            Err(miss) => misses.0.push((family.word, miss.to_string())),
        }
    }
    best
}

/// A function of the distance by the rows of a table, where one is looked up.
fn by_lookup(
    runs: &Runs<'_>,
    known: &mut KnownRows,
    samples: &Samples<'_>,
    profile: &Profile,
    origins: &Origins,
) -> Option<Result<Best, Vec<String>>> {
    let mut table = false;
    let scores = &samples.run.scores;
    // Only where nothing came before can queries be elsewhere than after all keys.
    let mut places = places_of_queries(scores);
    places.truncate(if runs.found.lengths.past > 0 { 1 } else { 3 });
    for lookup in &origins.lookups {
        let rows = known.rows(runs.model, &runs.found.trace, lookup);
        let Some(rows) = rows.filter(|rows| follows(profile, rows)) else {
            continue;
        };
        table = true;
        for shift in places.iter().map(|origin| scores.origin - origin) {
            let rows = rows.iter().map(|(d, row)| (d + shift, *row)).collect();
            if let Some(fit) = by_rows(runs.found, &rows, lookup, samples) {
                return Some(Ok(fit));
            }
        }
    }
    let why = "a table is looked up by distance, but not as T5 or a clip would";
    table.then(|| Err(vec![why.to_owned()]))
}

/// The family that the rows of a table show.
fn by_rows(
    found: &Found,
    rows: &BTreeMap<i64, i64>,
    lookup: &Lookup,
    samples: &Samples<'_>,
) -> Option<Best> {
    let rows = Rows {
        by_distance: rows,
        count: lookup.table,
    };
    let samples = Samples {
        rows: Some(rows),
        ..*samples
    };
    let mut misses = Misses::default();
    best(found, &samples, &mut misses, |_, read_from| {
        read_from == ReadFrom::Rows
    })
}

/// The family that the numbers alone show. Families that missed are not tried again.
fn by_numbers(
    runs: &Runs<'_>,
    samples: &Samples<'_>,
    origins: &Origins,
    mut misses: Misses,
) -> Result<Best, Vec<String>> {
    let refuted: Vec<&str> = misses.0.iter().map(|(word, _)| *word).collect();
    let scores = &samples.run.scores;
    let profile = samples.run.profile();
    let places = places_of_queries(scores);
    for (i, origin) in places.iter().enumerate() {
        let samples = Samples {
            shift: scores.origin - origin,
            ..*samples
        };
        // The queries of a formula are where the run has them.
        let tried = |family: &Family, read_from: ReadFrom| {
            read_from == ReadFrom::Rows || i == 0 && !refuted.contains(&family.word)
        };
        if let Some(fit) = best(runs.found, &samples, &mut misses, tried) {
            return Ok(fit);
        }
        if profile.is_err() {
            break;
        }
    }
    let Ok(profile) = profile else {
        return Err(misses.evidence());
    };
    let numbers = profile.values().flatten().copied();
    let numbers: Vec<f64> = numbers.filter(|v| v.is_finite()).collect();
    if origins.contain(&runs.found.trace, &numbers) {
        let samples = Samples {
            held: true,
            ..*samples
        };
        let again = &mut Misses::default();
        if let Some(fit) = best(runs.found, &samples, again, |_, read_from| {
            read_from == ReadFrom::Rows
        }) {
            return Ok(fit);
        }
    }
    let mut evidence = misses.evidence();
    evidence.push("a function of the distance that no table contains".to_owned());
    Err(evidence)
}

/// Whether distances that pick the same row have the same numbers.
fn follows(profile: &Profile, rows: &BTreeMap<i64, i64>) -> bool {
    let near = 1e-9 * most(profile.values().flatten());
    let mut of_row: BTreeMap<i64, &Vec<f64>> = BTreeMap::new();
    profile.iter().all(|(d, numbers)| {
        let Some(row) = rows.get(d) else { return false };
        let known = of_row.entry(*row).or_insert(numbers);
        equal(known, numbers, near)
    })
}

/// The places of the first query among the keys: after those of the past, or, where sequences are
/// cut into blocks, in the middle block or at the start.
fn places_of_queries(scores: &Scores) -> Vec<i64> {
    let (_, queries, keys) = scores.values.dim();
    let extra = keys.saturating_sub(queries) as i64;
    let mut places = vec![scores.origin, extra / 2, 0];
    places.dedup();
    places
}

fn scores(runs: &Runs<'_>, plane: &Plane, site: &Site, origins: &Origins) -> Option<Scores> {
    let past = i64::try_from(plane.past).ok()?;
    Some(Scores {
        values: plane.shared()?,
        // In cross-attention the lengths determine nothing.
        origin: if site.cross { 0 } else { past },
        tolerance: origins.tolerance(),
        has_sink: site.has_sink(runs.model.graph(), &runs.found.trace) == Some(true),
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
    scores(runs, &plane, site, origins).filter(|s| s.queries() >= length.min(2))
}
