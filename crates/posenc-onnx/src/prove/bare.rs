//! That no position is left where encodings were removed, by numbers.
//!
//! The model runs from its inputs to the queries, keys, values and scores of its sites and to its
//! outputs, with the same content at every token. Whatever still tells tokens apart is a position:
//! without one, queries are equal, keys and values are equal, all scores of a query that no mask
//! hides, and the rows of every output. Nothing here depends on how encodings are found.
//!
//! Then tokens of different content run in two orders: everything must move with them where no mask
//! makes order matter.
//!
//! Tokens of several kinds are compared with those of their kind: rows that do not depend on
//! content, such as class tokens, and as many kinds of content as the model has inputs.

mod alone;
mod coarse;
mod compared;
mod kinds;
mod limits;
mod met;
mod reordered;
mod roundings;
mod runs;
mod stand_ins;
#[cfg(test)]
mod tests;
mod uneven;

use posenc_ir::{Graph, Model, ScopeId, Tensor, ValueId};
use posenc_runtime::Backend;

use super::VerifyError;
use super::feeds::{different_tokens, equal_tokens, with_id};
use super::subject::coarsest;
use super::tolerance::Tolerance;
use crate::attention::Site;
use crate::detect::Found;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::negated::{Negated, negated};
use crate::detect::rows::{Rows, What};
use crate::graph::bodies::holder;
use crate::graph::mixing::token_axes;
use crate::graph::ports::exchanged::told_apart;
use crate::graph::ports::{Lengths, Port, Ports, Role};
use crate::report::SiteCheck;
use alone::Alone;
use coarse::coarse;
use compared::Compared;
use kinds::Kinds;
use limits::Limits;
use met::met;
use reordered::{Reordered, behind, turned};
use roundings::Depths;
use runs::{Numbers, Runs};
use uneven::uneven;

/// How much more tokens of a longer sequence may differ for the same reason.
const LONGER_COARSE: f64 = 5.0;

/// Tokens of a longer sequence: odd, as those of the trial run are not.
const LONGER: usize = 95;

/// Sequences of such a run: more than in the trial run.
const SEQUENCES: usize = 3;

/// How many lengths are tried, each three quarters of the one before.
const TRIES: usize = 6;

/// The fewest tokens that show a difference.
const FEWEST: usize = 3;

/// What a comparison of tokens found.
#[derive(Debug, Default)]
pub(crate) struct Bare {
    pub(crate) checks: Vec<SiteCheck>,
    /// The bytes of weights in whose place small ones ran.
    pub(crate) stood_in: usize,
    /// Why the runtime does not take the model without causal attention: what is behind that was not
    /// compared in two orders.
    pub(crate) left_out: Option<String>,
}

/// Compares the tokens of these sites, and those of what the model computes from them. A site is
/// left out where tokens of equal content differ for another reason than position, as behind a
/// convolution whose borders are filled up.
///
/// # Errors
/// When the runtime does not run the model, or it has too many nodes, or weights without a stand-in
/// are too large.
pub(crate) fn check(
    read: (&Model, &Found),
    sites: &[usize],
    backend: &dyn Backend,
) -> Result<Bare, VerifyError> {
    match met(read, sites) {
        left if left.is_empty() => check_within(read, sites, backend, Limits::USUAL),
        left => Ok(Bare {
            checks: left,
            ..Bare::default()
        }),
    }
}

fn check_within(
    (model, found): (&Model, &Found),
    asked: &[usize],
    backend: &dyn Backend,
    limits: Limits,
) -> Result<Bare, VerifyError> {
    limits.check(model)?;
    let graph = model.graph();
    let ports = found.ports_with_width();
    let at = ports.fit(Lengths {
        batch: 1,
        past: 0,
        ..found.lengths
    });
    let alone = Alone::of(graph, found);
    let uneven = uneven(graph, found, &alone.even);
    let is_own = |site: &&Site| site.scope == graph.main();
    let is_even = |site: &&Site| is_own(site) && read(site).all(|v| !uneven.contains(&v));
    let all = || asked.iter().map(|i| &found.attention[*i]);
    let sites: Vec<&Site> = all().filter(is_even).collect();
    // Of attention in loops, what the model computes from it is compared.
    let are_looped = all().any(|site| !is_own(&site) && is_looped(graph, site.scope));
    if sites.is_empty() && !are_looped || at.sequence < FEWEST {
        return Ok(Bare::default());
    }
    let ordered = Alone::with_ordered(alone.clone(), graph, found);
    let rows = |alone: &Alone| -> Vec<Rows> {
        let is_whole = !tells_apart((model, found), asked, true, alone);
        let shows = |rows: &&Rows| match rows.what {
            _ if uneven.contains(&rows.value) => false,
            What::Values(of) => sites.iter().any(|site| site.index == of),
            What::Output | What::Last => is_whole,
        };
        found.rows.iter().filter(shows).copied().collect()
    };
    let (rows, all_rows) = (rows(&alone), rows(&ordered));
    let wanted = sites.iter().flat_map(|site| read(site));
    let mut wanted: Vec<ValueId> = wanted.chain(all_rows.iter().map(|r| r.value)).collect();
    wanted.sort_unstable();
    wanted.dedup();
    let mut runs = Runs::load((model, found), &wanted, &alone, backend, limits)?;
    let examined = Examined {
        model,
        found,
        ports: &ports,
        at,
        asked,
        sites: &sites,
        rows: &rows,
        alone: &alone,
        coarse: coarse(graph),
    };
    let equal = examined.equal_runs(&mut runs)?;
    let (mut checks, kinds) = examined.equal(equal.each_other(), &equal);
    checks.extend(examined.other_ids(&equal, &mut runs)?);
    let mut left_out = None;
    let each = match sites.iter().any(|site| site.is_ordered()) {
        true => {
            let behind = Examined {
                rows: &all_rows,
                alone: &ordered,
                ..examined
            };
            let is_hidden = all_rows.len() > rows.len() || kinds.are_several();
            let load = Runs::load((model, found), &wanted, &ordered, backend, limits);
            let moved = |mut runs: Runs| {
                let equal = behind.equal_runs(&mut runs)?;
                let (mut checks, kinds) = behind.equal(equal.each_other(), &equal);
                // The rest was compared with attention as it is.
                checks.retain(|_| is_hidden);
                checks.extend(behind.reordered(&equal.runs[0], &kinds, &mut runs)?);
                Ok(checks)
            };
            let each = load.and_then(moved);
            each.map_err(|error: VerifyError| left_out = Some(error.to_string()))
                .ok()
        }
        false => None,
    };
    checks.extend(match each {
        Some(checks) => checks,
        None => examined.reordered(&equal.runs[0], &kinds, &mut runs)?,
    });
    checks.extend(examined.longer(&wanted, backend));
    checks.extend(examined.other_branches(&wanted, backend));
    Ok(Bare {
        checks,
        stood_in: runs.stood_in,
        left_out,
    })
}

/// What is compared of a model.
struct Examined<'a> {
    model: &'a Model,
    found: &'a Found,
    ports: &'a Ports,
    at: Lengths,
    asked: &'a [usize],
    sites: &'a [&'a Site],
    rows: &'a [Rows],
    /// What is replaced by something that acts on each token alone.
    alone: &'a Alone,
    /// By which share of the largest number tokens may differ because of integers.
    coarse: f64,
}

/// Runs of equal tokens.
struct EqualRuns {
    /// The inputs of the first run.
    feeds: Vec<(String, Tensor)>,
    /// Of two contents.
    runs: [Numbers; 2],
    /// The first content with the second in one input after another; none for a single input.
    inputs: Vec<Numbers>,
}

impl EqualRuns {
    fn each_other(&self) -> [&Numbers; 2] {
        let [first, second] = &self.runs;
        [first, second]
    }
}

impl Examined<'_> {
    /// Runs tokens of equal content.
    fn equal_runs(&self, runs: &mut Runs) -> Result<EqualRuns, VerifyError> {
        let (graph, ports) = (self.model.graph(), self.ports);
        let feeds = equal_tokens(graph, ports, self.at, 0)?;
        let other = equal_tokens(graph, ports, self.at, 1)?;
        let has_tokens = |port: &Port| {
            let is_content = matches!(port.role, Role::Tokens | Role::Content);
            let axes = token_axes((graph, ports), port, &ports.dims(port, self.at), self.at);
            is_content && axes.is_some_and(|axes| !axes.is_empty())
        };
        let of_tokens: Vec<usize> = (ports.iter().enumerate())
            .filter_map(|(i, port)| has_tokens(port).then_some(i))
            .collect();
        let mut inputs = vec![];
        if of_tokens.len() > 1 {
            for i in of_tokens {
                let mut feeds = feeds.clone();
                feeds[i] = other[i].clone();
                inputs.push(runs.of(&feeds)?);
            }
        }
        Ok(EqualRuns {
            runs: [runs.of(&feeds)?, runs.of(&other)?],
            feeds,
            inputs,
        })
    }

    /// Compares tokens of equal content; returns their kinds too, by the inputs that they follow.
    fn equal<'r>(
        &'r self,
        runs: [&'r Numbers; 2],
        equal: &'r EqualRuns,
    ) -> (Vec<SiteCheck>, Kinds<'r>) {
        let Self { model, found, .. } = *self;
        let graph = model.graph();
        let mut compared = Compared {
            runs,
            kinds: Kinds::new(&equal.runs[0], &equal.inputs, self.coarse),
            alone: &self.alone.each,
            share: self.coarse,
            sequence: self.at.sequence,
            depths: Depths::of(graph, found, &self.alone.each),
            coarsest: coarsest(model, found),
            checks: vec![],
        };
        for site in self.sites {
            compared.site(site, model, found, self.rows);
        }
        let is_ordered = |site: &Site| site.is_ordered() && !self.alone.each.contains(&site.node);
        let has_order = found.attention.iter().any(is_ordered);
        for rows in self.rows_of_no_site() {
            compared.rows(rows, graph.name(rows.value), has_order);
        }
        (compared.checks, compared.kinds)
    }

    /// Compares tokens that are all of an id, or of a type, that the graph tells from others: a position
    /// may act on those alone. Nothing where that does not run, as where no token counts.
    fn other_ids(&self, equal: &EqualRuns, runs: &mut Runs) -> Result<Vec<SiteCheck>, VerifyError> {
        let Self {
            model,
            found,
            ports,
            ..
        } = *self;
        let graph = model.graph();
        let mut checks = vec![];
        for port in ports.iter() {
            let what = match port.role {
                Role::Tokens => "id",
                Role::TokenTypes => "type",
                _ => continue,
            };
            for id in told_apart(graph, &found.trace, port) {
                let feeds = with_id(graph, &equal.feeds, port, id);
                let Some(numbers) = feeds.and_then(|feeds| runs.of(&feeds).ok()) else {
                    continue;
                };
                let (compared, _) = self.equal([&numbers, &equal.runs[0]], equal);
                checks.extend(compared.into_iter().map(|mut check| {
                    check.quantity += &format!(" of {what} {id}");
                    check
                }));
            }
        }
        Ok(checks)
    }

    /// Compares the tokens of a longer sequence: a position may begin to act behind the first ones.
    /// Nothing where none runs.
    fn longer(&self, wanted: &[ValueId], backend: &dyn Backend) -> Vec<SiteCheck> {
        let Self { model, found, .. } = *self;
        let shortest = found.limits.iter().map(|l| l.length).min();
        let longest = LONGER.min(shortest.unwrap_or(LONGER));
        let at = |sequence| {
            let fitting = Lengths {
                batch: SEQUENCES,
                sequence,
                ..self.at
            };
            self.ports.fit(fitting)
        };
        // A limit that was not found may allow fewer.
        let lengths = std::iter::successors(Some(longest), |n| Some(n / 4 * 3));
        let lengths = lengths.take(TRIES).map(at);
        let is_longer = |at: &Lengths| (self.at.sequence + 1..=LONGER).contains(&at.sequence);
        let mut lengths = lengths.filter(is_longer).peekable();
        if lengths.peek().is_none() {
            return vec![];
        }
        let Ok(mut runs) = Runs::load((model, found), wanted, self.alone, backend, Limits::LONGER)
        else {
            return vec![];
        };
        let mut run = |at| self.equal_at(&mut runs, at).ok();
        let Some((at, mut checks)) = lengths.find_map(|at| Some((at, run(at)?))) else {
            return vec![];
        };
        for check in &mut checks {
            check.quantity += &format!(" in a sequence of {}", at.sequence);
        }
        checks
    }

    /// Compares tokens where an `If` without attention takes its other branch. Nothing where that does
    /// not run, as a branch for inputs of another shape.
    fn other_branches(&self, wanted: &[ValueId], backend: &dyn Backend) -> Vec<SiteCheck> {
        let mut all = vec![];
        for Negated { node, model } in negated(self.model, self.found) {
            let runs = Runs::load(
                (&model, self.found),
                wanted,
                self.alone,
                backend,
                Limits::LONGER,
            );
            let checks = runs.and_then(|mut runs| self.equal_at(&mut runs, self.at));
            let place = self.model.graph().place(node);
            all.extend(checks.into_iter().flatten().map(|mut check| {
                check.quantity += &format!(" in the other branch of {place}");
                check
            }));
        }
        all
    }

    /// Compares tokens of equal content at these lengths.
    fn equal_at(&self, runs: &mut Runs, at: Lengths) -> Result<Vec<SiteCheck>, VerifyError> {
        let examined = Self {
            at,
            coarse: match at.sequence > self.at.sequence {
                true => LONGER_COARSE * self.coarse,
                false => self.coarse,
            },
            ..*self
        };
        let equal = examined.equal_runs(runs)?;
        Ok(examined.equal(equal.each_other(), &equal).0)
    }

    fn rows_of_no_site(&self) -> impl Iterator<Item = &Rows> {
        let rows = self.rows.iter();
        rows.filter(|r| !matches!(r.what, What::Values(_)))
    }

    /// Compares tokens of different content in two orders. Encodings that were to stay would differ.
    fn reordered(
        &self,
        equal: &Numbers,
        kinds: &Kinds<'_>,
        runs: &mut Runs,
    ) -> Result<Vec<SiteCheck>, VerifyError> {
        let Self {
            model,
            found,
            ports,
            alone,
            ..
        } = *self;
        let graph = model.graph();
        let stays = tells_apart((model, found), self.asked, false, alone);
        let feeds = |is_moved| different_tokens(graph, ports, self.at, is_moved);
        let (false, Some(feeds), Some(moved)) = (stays, feeds(false)?, feeds(true)?) else {
            return Ok(vec![]);
        };
        let is_content = |(port, _): &(&Port, _)| matches!(port.role, Role::Tokens | Role::Content);
        let fed = ports.iter().zip(&feeds).filter(is_content);
        let axis = |(port, (_, tensor)): (&Port, &(String, Tensor))| {
            let axes = token_axes((graph, ports), port, tensor.dims(), self.at)?;
            tensor.dims().get(*axes.first()?).copied()
        };
        let lengths: Vec<usize> = fed.filter_map(axis).collect();
        let turned = turned(found, kinds, &lengths);
        let behind = behind((graph, found), self.sites, &alone.each, equal);
        let [first, second] = [runs.of(&feeds)?, runs.of(&moved)?];
        let reordered = Reordered {
            runs: [equal, &first, &second],
            kinds,
            lengths: &lengths,
            behind: &behind,
            turned: &turned,
            share: self.coarse.max(Tolerance::of(coarsest(model, found)).rtol),
        };
        let sites = self.sites.iter();
        let mut checks: Vec<SiteCheck> = sites
            .flat_map(|site| reordered.site(site, self.rows))
            .collect();
        let rest = self.rows_of_no_site();
        checks.extend(rest.filter_map(|r| reordered.rows(r, graph.name(r.value))));
        Ok(checks)
    }
}

/// Whether a body runs whenever the graph does; a branch may be another.
fn is_looped(graph: &Graph, mut scope: ScopeId) -> bool {
    while let Some(node) = holder(graph, scope).map(|id| graph.node(id)) {
        if node.is("If") {
            return false;
        }
        scope = node.scope();
    }
    scope == graph.main()
}

/// What a site compares, besides values.
fn read(site: &Site) -> impl Iterator<Item = ValueId> + use<> {
    let read = [Some(site.query.value), Some(site.key.value), site.scores];
    read.into_iter().flatten()
}

/// Whether the rows behind the sites may differ for a reason that is known: an encoding of a site
/// that was not asked for, or attention of which a sink takes a share by place. A bias of scores does
/// not show behind them where tokens are equal.
fn tells_apart(
    (model, found): (&Model, &Found),
    asked: &[usize],
    are_equal: bool,
    alone: &Alone,
) -> bool {
    let stays = |site: &usize| !asked.contains(site);
    let is_hidden = |f: &Finding| are_equal && matches!(f.encoding, Encoding::ScoreBias(..));
    let mut findings = found.findings.iter().filter(|f| !is_hidden(f));
    let by_place = |site: &Site| {
        let is_ordered = site.is_ordered() && !alone.each.contains(&site.node);
        is_ordered && site.has_sink(model.graph(), &found.trace) != Some(false)
    };
    found.rotary.iter().any(|rotary| stays(&rotary.site))
        || found.not_rotary.iter().any(|refused| stays(&refused.site))
        || findings.any(|finding| finding.sites.iter().any(stays))
        || found.attention.iter().any(by_place)
}
