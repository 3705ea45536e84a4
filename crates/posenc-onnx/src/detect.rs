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
mod outside;
mod places;
mod results;
pub(crate) mod rotary;
pub(crate) mod rows;
mod runs;
mod terms;
#[cfg(test)]
mod tests;
mod unrecognized;

use std::collections::BTreeMap;

use posenc_encodings::family::Family;
use posenc_ir::eval::{Trace, trace};
use posenc_ir::{Graph, Model, NodeId};
use rustc_hash::FxHashSet;

use crate::attention::left_out::left_out;
use crate::attention::reads::reads;
use crate::attention::{Site, latents, number, order, sites};
use crate::graph::dataflow::{Class, Classes, is_fed};
use crate::graph::mixing::{self, Mixed, all_selected};
use crate::graph::ports::{Lengths, Ports, Role};

pub(crate) use bias::may_bias;
pub(crate) use found::{Found, Refused};
use results::Results;
pub(crate) use rotary::site::{RotaryOperand, RotarySite, Switch};
use runs::BUDGET;
pub(crate) use runs::{Runs, run_at, values_at};
pub(crate) use terms::joins;

/// Options of detection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    /// Roles of inputs by name, for inputs whose role cannot be inferred.
    pub roles: BTreeMap<String, Role>,
    /// Which of the branches of an `If` with attention is examined; those after the first are of
    /// a decoder without earlier keys.
    pub(crate) branch: usize,
    /// Families of score biases outside of the registry.
    pub(crate) custom: Vec<&'static Family>,
}

/// Tokens of the trial run: enough to see an angle grow, few enough to be quick.
const TRIAL: Lengths = Lengths {
    batch: 2,
    sequence: 14,
    past: 5,
};

/// Samples, frames or pixels to try where fewer make no more than a few tokens; fewer at last, for
/// tables that hold no more.
const LARGER: [usize; 6] = [256, 2048, 16384, 32, 64, 128];

/// Tokens that are too few.
const SHORT: usize = 8;

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
    let known: FxHashSet<NodeId> = before.attention.iter().map(|s| s.node).collect();
    attention.retain(|site| known.contains(&site.node));
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
    found.forget_late_masks();
    found
}

/// The trial run: everything but content gets numbers.
fn trial(model: &Model, (ports, classes): (&Ports, &Classes), lengths: Lengths) -> Trace {
    let graph = model.graph();
    let seeds = ports.seeds(graph, lengths);
    let opaque = |v| classes.of_value(v).has(Class::CONTENT) && !is_fed(graph, v);
    trace(model, &seeds, &opaque, &BUDGET)
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

/// The trial run and the sites that it shows.
struct Trial {
    ports: Ports,
    lengths: Lengths,
    classes: Classes,
    trace: Trace,
    attention: Vec<Site>,
    mixed: Mixed,
    /// Attention that was left out, one sentence each.
    misplaced: Vec<String>,
}

impl Trial {
    fn of(model: &Model, options: &Options) -> Self {
        let graph = model.graph();
        let ports = Ports::of(graph, &options.roles);
        let classes = Classes::of(graph, &ports);
        let mut trial = Self::run(model, options, (ports, classes), TRIAL.sequence);
        // Of the readings of open dimensions, the one with the most sites.
        if trial.leaves_out(graph) {
            for ports in trial.ports.others() {
                let inputs = (ports, trial.classes.clone());
                let other = Self::run(model, options, inputs, TRIAL.sequence);
                if other.attention.len() > trial.attention.len() {
                    trial = other;
                }
            }
        }
        trial = trial.of_places(model, options);
        trial = trial.of_first_axis(model, options);
        trial = trial.of_written_batch(model, options);
        trial = trial.of_written_length(model, options);
        trial = trial.of_cut_length(model, options);
        // The model determines how much sound, or how large a picture, makes a few tokens, and a table of
        // positions how many at most.
        for sequence in LARGER {
            if !trial.ports.has_free_content() || !trial.is_short() {
                break;
            }
            let inputs = (trial.ports.clone(), trial.classes.clone());
            let other = Self::run(model, options, inputs, sequence);
            let keeps = other.attention.len() >= trial.attention.len();
            if keeps && (trial.leaves_out(graph) || !other.leaves_out(graph)) {
                trial = other;
            }
        }
        trial
    }

    fn run(
        model: &Model,
        options: &Options,
        (ports, classes): (Ports, Classes),
        sequence: usize,
    ) -> Self {
        let graph = model.graph();
        let lengths = ports.fit(Lengths {
            sequence,
            past: if options.branch == 0 { TRIAL.past } else { 0 },
            ..TRIAL
        });
        let trace = trial(model, (&ports, &classes), lengths);
        let mut attention = sites(model, &classes, &trace, &ports, options.branch);
        let inputs = (&ports, lengths);
        let again = |model: &Model| {
            let classes = Classes::of(model.graph(), &ports);
            self::trial(model, (&ports, &classes), lengths)
        };
        let selected = all_selected(model, &trace, &classes, again).map(|selected| {
            let classes = Classes::of(selected.model.graph(), &ports);
            let trace = again(&selected.model);
            (selected, trace, classes)
        });
        let follow = |attention: &[Site]| {
            let known = reads(graph, &classes, attention);
            let Some((selected, trace, classes)) = &selected else {
                return mixing::follow(model, &trace, &classes, inputs, &known);
            };
            let mut mixed = mixing::follow(&selected.model, trace, classes, inputs, &known);
            for mixer in &mut mixed.mixers {
                mixer.node = selected.own(mixer.node);
            }
            mixed
        };
        let mut mixed = follow(&attention);
        let reasons = left_out(graph, &classes, &trace, &mixed.tokens, &attention);
        let misplaced = leave_out(graph, &mut attention, &reasons);
        if !misplaced.is_empty() {
            mixed = follow(&attention);
        }
        Self {
            ports,
            lengths,
            classes,
            trace,
            attention,
            mixed,
            misplaced,
        }
    }

    /// The same with one sequence in a batch, or as many as shapes name, where that leaves less that is not
    /// read: shapes may have been written for one, whatever the inputs are declared to be.
    fn of_written_batch(mut self, model: &Model, options: &Options) -> Self {
        let graph = model.graph();
        let named = lengths::batch(graph, &self.classes, &self.trace);
        for batch in [Some(1), named].into_iter().flatten() {
            let unread = self.unread(graph);
            let Some(ports) = self.ports.of_batch(batch).filter(|_| unread > 0) else {
                continue;
            };
            let inputs = (ports, self.classes.clone());
            let other = Self::run(model, options, inputs, self.lengths.sequence);
            let keeps = other.attention.len() >= self.attention.len();
            if keeps && other.unread(graph) < unread {
                self = other;
            }
        }
        self
    }

    /// The same with tokens along the first axis of inputs, where attention is over tokens then, and not
    /// else: over the sequences of a batch, for one.
    fn of_first_axis(self, model: &Model, options: &Options) -> Self {
        let is_elsewhere = !self.misplaced.is_empty() || !self.is_over_tokens();
        let Some(ports) = self.ports.turned().filter(|_| is_elsewhere) else {
            return self;
        };
        let classes = Classes::of(model.graph(), &ports);
        let other = Self::run(model, options, (ports, classes), self.lengths.sequence);
        let sites = |of: &Self| of.attention.len() + of.misplaced.len();
        let fits = other.misplaced.is_empty() && other.is_over_tokens();
        match fits && !other.attention.is_empty() && sites(&other) >= sites(&self) {
            true => other,
            false => self,
        }
    }

    /// The same with positions of new tokens where numbers for each sequence do not fit.
    fn of_places(self, model: &Model, options: &Options) -> Self {
        let graph = model.graph();
        let Some(ports) = self.ports.of_places().filter(|_| self.leaves_out(graph)) else {
            return self;
        };
        let classes = Classes::of(graph, &ports);
        let other = Self::run(model, options, (ports, classes), self.lengths.sequence);
        match !other.leaves_out(graph) && other.attention.len() >= self.attention.len() {
            true => other,
            false => self,
        }
    }

    /// Whether the keys of every site stand for tokens.
    fn is_over_tokens(&self) -> bool {
        let mut sites = self.attention.iter();
        sites.all(|site| order::is_over_tokens(&self.mixed.tokens, &self.trace, site))
    }

    /// The same at the only length that a table of rows by position fits, or a shape that a trace wrote
    /// down, where there is one and more is read at it than at another.
    fn of_written_length(self, model: &Model, options: &Options) -> Self {
        let graph = model.graph();
        let unread = |of: &Self| (of.attention.is_empty(), of.unread(graph));
        let is_open = self.ports.fixed_sequence().is_none() && unread(&self) != (false, 0);
        let sequence = self.lengths.sequence;
        let written = |of: &Self| lengths::written(graph, &of.classes, &of.trace, sequence);
        let Some(length) = is_open.then(|| written(&self)).flatten() else {
            return self;
        };
        let run =
            |ports: Ports, length| Self::run(model, options, (ports, self.classes.clone()), length);
        // A trace of one sequence writes that down too, and then another length fits two.
        let single = self.ports.of_batch(1).and_then(|ports| {
            let length = written(&run(ports.clone(), sequence)).filter(|n| *n != length)?;
            Some((ports, length))
        });
        let (ports, length) = single.unwrap_or((self.ports.clone(), length));
        let other = run(ports.of_length(length), length);
        let keeps = other.attention.len() >= self.attention.len().max(1);
        match keeps && unread(&other) < unread(&self) {
            true => other,
            false => self,
        }
    }

    /// The same with fewer tokens than constants have rows that are cut to their number, where these are too
    /// few and more is read then.
    fn of_cut_length(self, model: &Model, options: &Options) -> Self {
        let graph = model.graph();
        let unread = self.unread(graph);
        let sequence = self.lengths.sequence;
        let rows = lengths::cut(graph, &self.classes, &self.trace, sequence);
        let rows = rows.filter(|rows| *rows > 2 && (unread > 0 || self.attention.is_empty()));
        let Some(rows) = rows else { return self };
        let inputs = (self.ports.clone(), self.classes.clone());
        let other = Self::run(model, options, inputs, rows - 1);
        let keeps = other.attention.len() >= self.attention.len().max(1);
        match keeps && other.unread(graph) <= unread {
            true => other,
            false => self,
        }
    }

    /// What mixes tokens and is not read, and whether attention may be left out.
    fn unread(&self, graph: &Graph) -> usize {
        let others = self.mixed.mixers.iter();
        let others = others.filter(|m| m.mixing == mixing::Mixing::Other);
        others.count() + self.misplaced.len() + usize::from(self.leaves_out(graph))
    }

    /// Whether some attention may not be recognized, as where lengths do not fit each other.
    fn leaves_out(&self, graph: &Graph) -> bool {
        let Self {
            classes,
            trace,
            attention,
            ..
        } = self;
        unrecognized::has_unknown_sizes(graph, classes, trace)
            || unrecognized::not_attention(graph, classes, trace, attention).is_some()
    }

    /// Whether there is no attention, or some over a few keys only.
    fn is_short(&self) -> bool {
        let keys = |site: &Site| site.keys(&self.trace).unwrap_or(0);
        self.attention.iter().map(keys).min().unwrap_or(0) < SHORT
    }
}

/// Leaves out sites, by index, for these reasons; one sentence each.
fn leave_out(graph: &Graph, sites: &mut Vec<Site>, reasons: &[(usize, String)]) -> Vec<String> {
    let sentence = |(site, why): &(usize, String)| {
        let place = graph.place(sites[*site].node);
        format!("{place}: this attention is not read: {why}")
    };
    let mut sentences: Vec<String> = reasons.iter().map(sentence).collect();
    sentences.dedup();
    if !reasons.is_empty() {
        sites.retain(|site| reasons.iter().all(|(left, _)| *left != site.index));
        number(graph, sites);
    }
    sentences
}
