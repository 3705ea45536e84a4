//! Runs of longer sequences.

use ndarray::Axis;
use posenc_ir::ValueId;
use posenc_ir::eval::{Budget, Trace};
use rustc_hash::FxHashSet;

use crate::detect::runs::Runs;
use crate::graph::dataflow::Class;

/// Elements that a value of a longer run may have: indices of pairs, but no weights.
const LONG: Budget = Budget { elements: 1 << 18 };

/// Where each token has at least so many numbers of the input, these are samples.
const SAMPLES: usize = 4;

/// The most longer runs.
const RUNS: usize = 32;

/// How many of them are kept: for each of two tables, one where it ends, and one where a longer one would.
const KEPT: usize = 4;

/// What longer sequences read.
pub(super) struct Longer<'a> {
    pub(super) runs: &'a Runs<'a>,
    /// The last runs, by their tokens.
    last: Vec<(usize, Option<Trace>)>,
    /// Runs so far.
    made: usize,
    /// Values that grow with the position: nothing that they are computed from bends.
    straight: FxHashSet<ValueId>,
    /// Runs of one sequence, of the tokens of the trial run and of twice as many.
    doubled: Option<[Option<Trace>; 2]>,
}

impl<'a> Longer<'a> {
    pub(super) fn of(runs: &'a Runs<'a>) -> Self {
        Self {
            runs,
            last: vec![],
            made: 0,
            straight: FxHashSet::default(),
            doubled: None,
        }
    }

    /// Whether an operator between positions and an index may keep it from growing with them.
    pub(super) fn bends(&mut self, index: ValueId) -> bool {
        let graph = self.runs.model.graph();
        let classes = &self.runs.found.classes;
        let mut stack = vec![index];
        let mut seen = FxHashSet::default();
        while let Some(value) = stack.pop() {
            let class = classes.of_value(value);
            let known = self.straight.contains(&value);
            if known || !class.has(Class::POSITION) || !seen.insert(value) {
                continue;
            }
            let Some((id, _)) = graph.producer(value) else {
                continue;
            };
            let node = graph.node(id);
            let is_stored = || node.input(0).is_some_and(|data| self.is_bent(data));
            let bends = match node.op() {
                "Clip" | "Min" | "Max" | "Where" | "Log" | "Mod" | "Div" | "Floor" | "Sign" => true,
                "Greater" | "GreaterOrEqual" | "Less" | "LessOrEqual" | "Equal" => true,
                "If" | "Loop" => true,
                "Slice" | "Gather" => is_stored(),
                _ => false,
            };
            if bends {
                return true;
            }
            stack.extend(node.inputs().iter().flatten());
        }
        self.straight.extend(seen);
        false
    }

    /// Whether a value is stored, and its numbers do not rise or fall evenly along every axis: those of
    /// buckets, or of distances up to some.
    fn is_bent(&self, value: ValueId) -> bool {
        let known = self.runs.found.trace.get(value);
        let is_small = known.dims.as_deref().is_some_and(|dims| LONG.allows(dims));
        if !self.runs.found.classes.of_value(value).is_constant() || !is_small {
            return false;
        }
        let is_uneven = |line: &[i64]| {
            let mut threes = line.windows(3);
            threes.any(|w| w[2].checked_sub(w[1]) != w[1].checked_sub(w[0]))
        };
        known.to_i64().is_some_and(|numbers| {
            (0..numbers.ndim()).any(|axis| {
                let mut lines = numbers.lanes(Axis(axis)).into_iter();
                lines.any(|line| is_uneven(&line.to_vec()))
            })
        })
    }

    /// How far a place of a table is beyond the number of tokens, where it moves with each of them; 0 where it
    /// does not.
    pub(super) fn ahead(&mut self, end: ValueId) -> usize {
        self.grows(end);
        let Some([Some(same), Some(longer)]) = &self.doubled else {
            return 0;
        };
        let lengths = self.runs.found.lengths;
        let place = |trace: &Trace| usize::try_from(trace.get(end).scalar_i64()?).ok();
        let [Some(first), Some(second)] = [same, longer].map(place) else {
            return 0;
        };
        let each = second.checked_sub(first) == Some(lengths.sequence);
        let ahead = first.checked_sub(self.tokens_of(end));
        ahead.filter(|_| each).unwrap_or(0)
    }

    /// Tokens of the stack whose sizes a place is computed from; those of the trial run where that is not clear.
    fn tokens_of(&self, place: ValueId) -> usize {
        let (graph, found) = (self.runs.model.graph(), self.runs.found);
        found.ports.tokens_behind(graph, place, found.lengths)
    }

    /// Whether a value has more elements where the sequence is longer; where that cannot be run,
    /// yes.
    pub(super) fn grows(&mut self, index: ValueId) -> bool {
        let count = |trace: &Trace| trace.get(index).elements();
        let tokens = self.runs.found.lengths.sequence;
        let runs = self.runs;
        // The longer run is of one sequence, as a shorter one is.
        let make = || [tokens, 2 * tokens].map(|tokens| runs.once(tokens, &LONG));
        let [same, longer] = self.doubled.get_or_insert_with(make);
        match (
            same.as_ref().and_then(count),
            longer.as_ref().and_then(count),
        ) {
            (Some(now), Some(then)) => then > now,
            _ => true,
        }
    }

    /// Runs of one sequence, of so many tokens and of twice as many, in a graph without a cache and of one stack.
    pub(super) fn pair(&mut self, value: ValueId) -> Option<(usize, [&Trace; 2])> {
        let found = self.runs.found;
        let tokens = found.lengths.sequence;
        if found.ports.longest(found.lengths) != tokens {
            return None;
        }
        self.grows(value);
        match &self.doubled {
            Some([Some(same), Some(longer)]) => Some((tokens, [same, longer])),
            _ => None,
        }
    }

    /// How many rows an index picks beside one for each token, in a graph without a cache and of one stack.
    pub(super) fn beside(&mut self, index: ValueId) -> usize {
        let Some((tokens, [same, longer])) = self.pair(index) else {
            return 0;
        };
        let more = |trace: &Trace, tokens: usize| trace.get(index).elements()?.checked_sub(tokens);
        match (more(same, tokens), more(longer, 2 * tokens)) {
            (Some(now), Some(then)) if now == then => now,
            _ => 0,
        }
    }

    /// Whether a place of a table moves backwards as the sequence grows, and another one as far ahead.
    pub(super) fn widens(&mut self, [start, end]: [ValueId; 2]) -> bool {
        self.grows(end);
        let Some([Some(same), Some(longer)]) = &self.doubled else {
            return false;
        };
        let moved = |value: ValueId| {
            let place = |trace: &Trace| trace.get(value).scalar_i64();
            place(longer)?.checked_sub(place(same)?)
        };
        match (moved(start), moved(end)) {
            (Some(back), Some(ahead)) => ahead > 0 && back.checked_add(ahead) == Some(0),
            _ => false,
        }
    }

    /// Whether a sequence longer than `length` reads beyond the rows; where that cannot be run,
    /// yes. The index has so many `tokens` in the trial run.
    pub(super) fn overruns(
        &mut self,
        (index, tokens): (ValueId, usize),
        rows: usize,
        length: usize,
    ) -> bool {
        let beyond = |v: &i64| *v < 0 || usize::try_from(*v).is_ok_and(|v| v >= rows);
        let trial = self.runs.found.lengths.sequence;
        // Many samples of sound make one token.
        let length = match tokens.checked_mul(SAMPLES) {
            Some(few) if few <= trial => (length + 1).saturating_mul(trial).div_ceil(tokens),
            _ => length,
        };
        let trace = self.beyond(length);
        match trace.and_then(|t| t.get(index).to_i64()) {
            Some(numbers) => numbers.iter().any(beyond),
            None => true,
        }
    }

    /// A run of one token more than `length`; `None` where it cannot be made.
    pub(super) fn beyond(&mut self, length: usize) -> Option<&Trace> {
        let wanted = (length + 1).saturating_sub(self.runs.found.lengths.past);
        let at = match self.last.iter().position(|(n, _)| *n == wanted) {
            Some(at) => at,
            None if self.made == RUNS => return None,
            None => {
                self.made += 1;
                self.last.truncate(KEPT - 1);
                self.last.insert(0, (wanted, self.runs.once(wanted, &LONG)));
                0
            }
        };
        self.last[at].1.as_ref()
    }
}
