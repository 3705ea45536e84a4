//! A verification in a few lines: one for each quantity, and one for each way to run.

use posenc_onnx::report::{Run, SiteCheck};

use crate::columns::{Align, Cell, Columns, or_dash};
use crate::number::{counted, fixed, rough};

const LEFT: Align = Align::Left;
const RIGHT: Align = Align::Right;

/// What the columns of checks mean.
pub(super) fn sites_legend(sites: &[SiteCheck]) -> String {
    let mut legend =
        "error, bound: of the element closest to its bound, from an error model".to_owned();
    if sites.len() > 1 {
        legend += "\nplaces: attention sites, or parts and outputs of the graph";
    }
    for line in records_legend(sites) {
        legend += &format!("\n{line}");
    }
    legend
}

/// Why a run without a bound and without an error has neither.
pub(super) const NOT_COMPARED: &str =
    "not compared: no other run, or the one that others are compared with";

/// Why a run with an error has no bound.
pub(super) const NOT_JUDGED: &str = "not judged: a rewrite may make this difference";

/// What the columns of runs mean.
pub(super) fn runs_legend(runs: &[Run]) -> String {
    let mut legend = "error, bound: of the run closest to its bound".to_owned();
    if runs
        .iter()
        .any(|run| run.is_comparison() && run.max_abs.is_none())
    {
        legend += "; –: not a number, or another shape";
    }
    let unbounded = |with_error: bool| {
        let is_such = |run: &Run| !run.is_comparison() && run.max_abs.is_some() == with_error;
        runs.iter().any(is_such)
    };
    if unbounded(false) {
        legend += &format!("\n{NOT_COMPARED}");
    }
    if unbounded(true) {
        legend += &format!("\n{NOT_JUDGED}");
    }
    if runs.iter().any(|run| run.top1.is_some()) {
        legend += "\ntop-1: the least share of tokens with the same likeliest next token";
    }
    legend
}

/// A line for each quantity that is no number but what a graph is compared with.
pub(super) fn records_legend(sites: &[SiteCheck]) -> impl Iterator<Item = &'static str> {
    let lines = [
        (
            "graph",
            "graph: what a site or an output is computed from, as the record of the rewrite has it",
        ),
        (
            "original",
            "original: what is outside of the edits, as the original has it",
        ),
    ];
    let is_there = |name: &str| sites.iter().any(|site| site.quantity == name);
    let lines = lines.into_iter().filter(move |(name, _)| is_there(name));
    lines.map(|(_, line)| line)
}

/// `ok` or `FAIL`; a run that has no bound says why.
pub(super) fn outcome(ok: bool, run: &Run) -> Cell {
    match (run.is_comparison(), run.max_abs) {
        (false, Some(_)) if ok => "not judged".to_owned().into(),
        (false, None) if ok => "not compared".to_owned().into(),
        _ => Cell::verdict(ok),
    }
}

/// A row for each quantity.
pub(super) fn sites(sites: &[SiteCheck]) -> Columns {
    let mut columns = Columns::new(&[
        ("quantity", LEFT),
        ("at", LEFT),
        ("error", RIGHT),
        ("bound", RIGHT),
        ("", LEFT),
    ]);
    for group in grouped(sites, |site| &site.quantity) {
        let share = |site: &&&SiteCheck| match site.max_error {
            Some(error) => share(error, site.bound),
            None => f64::INFINITY,
        };
        let closest = group.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
        let closest = closest.expect("a group has members");
        let at = match &group[..] {
            [one] => one.site.clone(),
            all => counted(all.len(), "place"),
        };
        columns.row([
            closest.quantity.clone().into(),
            at.into(),
            or_dash(closest.max_error, rough).into(),
            rough(closest.bound).into(),
            Cell::verdict(group.iter().all(|site| site.ok)),
        ]);
    }
    columns
}

/// A row for each runtime, provider and optimization.
pub(super) fn runs<'a>(runs: &'a [Run]) -> Columns {
    let mut columns = Columns::new(&[
        ("runtime", LEFT),
        ("provider", LEFT),
        ("optimization", LEFT),
        ("batch", LEFT),
        ("padding", LEFT),
        ("lengths", LEFT),
        ("outputs", RIGHT),
        ("error", RIGHT),
        ("bound", RIGHT),
        ("cosine", RIGHT),
        ("top-1", RIGHT),
        ("", LEFT),
    ]);
    let key = |run: &'a Run| {
        let place = (&run.runtime, &run.provider, &run.optimization);
        (place, run.is_comparison())
    };
    for group in grouped(runs, key) {
        let share = |run: &&&Run| match run.max_abs.zip(run.bound) {
            Some((error, bound)) => share(error, bound),
            None => f64::INFINITY,
        };
        let closest = group.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
        let closest = closest.expect("a group has members");
        let lengths = each(group.iter().map(|run| run.length.to_string()));
        let batches = each(group.iter().map(|run| run.batch.to_string()));
        let paddings = each(group.iter().map(|run| run.padding.clone()));
        let mut outputs: Vec<&str> = group.iter().map(|run| run.output.as_str()).collect();
        outputs.sort_unstable();
        outputs.dedup();
        let cosines = group.iter().filter_map(|run| run.cosine);
        let agreement = group
            .iter()
            .filter_map(|run| run.top1)
            .min_by(f64::total_cmp);
        columns.row([
            closest.runtime.clone().into(),
            closest.provider.clone().into(),
            closest.optimization.clone().into(),
            batches.into(),
            paddings.into(),
            lengths.into(),
            outputs.len().to_string().into(),
            or_dash(closest.max_abs, rough).into(),
            or_dash(closest.bound, rough).into(),
            or_dash(cosines.min_by(f64::total_cmp), |c| fixed(c, 6)).into(),
            agreement
                .map(|share| fixed(share, 3))
                .unwrap_or_default()
                .into(),
            outcome(group.iter().all(|run| run.ok), closest),
        ]);
    }
    columns
}

/// Each of the words once, in the order in which they come first.
fn each(words: impl Iterator<Item = String>) -> String {
    let mut all: Vec<String> = vec![];
    for word in words {
        if !all.contains(&word) {
            all.push(word);
        }
    }
    all.join(", ")
}

/// What has the same key, in the order in which keys come first.
fn grouped<'a, T, K: PartialEq>(all: &'a [T], key: impl Fn(&'a T) -> K) -> Vec<Vec<&'a T>> {
    let mut groups: Vec<Vec<&'a T>> = vec![];
    for one in all {
        match groups.iter_mut().find(|group| key(group[0]) == key(one)) {
            Some(group) => group.push(one),
            None => groups.push(vec![one]),
        }
    }
    groups
}

/// How much of a bound an error uses.
pub(super) fn share(error: f64, bound: f64) -> f64 {
    if error == 0.0 { 0.0 } else { error / bound }
}
