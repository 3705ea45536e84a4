//! The run that detection reads: a few tokens, of which everything but the content has numbers.

use posenc_ir::eval::{Trace, trace};
use posenc_ir::{Graph, Model};

use super::options::Options;
use super::runs::BUDGET;
use super::{lengths, unrecognized};
use crate::attention::left_out::left_out;
use crate::attention::reads::reads;
use crate::attention::{Site, mark_crossed, number, order, sites};
use crate::graph::dataflow::{Class, Classes, is_fed};
use crate::graph::mixing::{self, Mixed, all_selected};
use crate::graph::ports::{Lengths, Ports};

/// Tokens of the trial run: enough to see an angle grow, few enough to be quick.
pub(super) const TRIAL: Lengths = Lengths {
    batch: 2,
    sequence: 14,
    past: 5,
};

/// Samples, frames or pixels to try where fewer make no more than a few tokens; fewer at last, for
/// tables that hold no more.
const LARGER: [usize; 6] = [256, 2048, 16384, 32, 64, 128];

/// Samples of sound that are tried beside ids.
const SAMPLES: [usize; 2] = [16384, 2048];

/// How often fewer tokens are tried for tables of few rows.
const SHORTER: usize = 4;

/// Tokens that are too few.
const SHORT: usize = 8;

/// The trial run: everything but content gets numbers.
pub(super) fn trial(
    model: &Model,
    (ports, classes): (&Ports, &Classes),
    lengths: Lengths,
) -> Trace {
    let graph = model.graph();
    let seeds = ports.seeds(graph, lengths);
    let opaque = |v| classes.of_value(v).has(Class::CONTENT) && !is_fed(graph, v);
    trace(model, &seeds, &opaque, &BUDGET)
}

/// The trial run and the sites that it shows.
pub(super) struct Trial {
    pub(super) ports: Ports,
    pub(super) lengths: Lengths,
    pub(super) classes: Classes,
    pub(super) trace: Trace,
    pub(super) attention: Vec<Site>,
    pub(super) mixed: Mixed,
    /// Attention that was left out, one sentence each.
    pub(super) misplaced: Vec<String>,
}

impl Trial {
    pub(super) fn of(model: &Model, options: &Options) -> Self {
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
        trial = trial.of_samples(model, options);
        trial = trial.of_spare_rows(model, options);
        // The model determines how much sound, or how large a picture, makes a few tokens, and a table of
        // positions how many at most.
        let mut most = usize::MAX;
        for sequence in LARGER {
            if !trial.ports.has_free_content() || !trial.is_short() {
                break;
            }
            if sequence > most {
                continue;
            }
            let inputs = (trial.ports.clone(), trial.classes.clone());
            let other = Self::run(model, options, inputs, sequence).of_spare_rows(model, options);
            // Frames may be more than a table has rows for.
            if !trial.attention.is_empty() && other.unread(graph) > trial.unread(graph) {
                most = sequence;
                continue;
            }
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
        if mark_crossed((graph, &classes, &trace), &mixed.tokens, &mut attention) {
            mixed = follow(&attention);
        }
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
            let ports = self.ports.of_batch(batch);
            self = self.or_of(model, options, ports);
        }
        self
    }

    /// The same with another reading of the inputs, where that leaves less that is not read.
    fn or_of(self, model: &Model, options: &Options, ports: Option<Ports>) -> Self {
        let graph = model.graph();
        let unread = self.unread(graph);
        let Some(ports) = ports.filter(|_| unread > 0) else {
            return self;
        };
        let inputs = (ports, self.classes.clone());
        let other = Self::run(model, options, inputs, self.lengths.sequence);
        let keeps = other.attention.len() >= self.attention.len();
        match keeps && other.unread(graph) < unread {
            true => other,
            false => self,
        }
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

    /// The same with more sound beside ids, where that leaves less that is not read: the first convolutions need more
    /// samples than there are tokens.
    fn of_samples(mut self, model: &Model, options: &Options) -> Self {
        for samples in SAMPLES {
            let ports = self.ports.of_samples(samples);
            self = self.or_of(model, options, ports);
        }
        self
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

    /// The same with fewer tokens where tables have no row to spare, so that all rows that are read are there,
    /// and the end of a table shows.
    fn of_spare_rows(mut self, model: &Model, options: &Options) -> Self {
        let graph = model.graph();
        let exhausted =
            |of: &Self| lengths::exhausted(graph, &of.classes, &of.trace, of.lengths.sequence);
        let is_open = self.ports.fixed_sequence().is_none();
        let mut tables = exhausted(&self);
        let mut before = tables.len();
        for _ in 0..SHORTER {
            let fewest = tables.iter().copied().min();
            let Some(tokens) = fewest.filter(|tokens| is_open && *tokens > 1) else {
                break;
            };
            let inputs = (self.ports.clone(), self.classes.clone());
            let other = Self::run(model, options, inputs, tokens);
            let keeps = other.attention.len() >= self.attention.len();
            if !keeps || other.unread(graph) > self.unread(graph) {
                break;
            }
            tables = exhausted(&other);
            if tables.len() < before {
                before = tables.len();
                self = other;
            }
        }
        self
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
