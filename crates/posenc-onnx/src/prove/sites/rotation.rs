//! One rotation, cut out and run at positions up to the expected length.

#[cfg(not(target_family = "wasm"))]
use std::panic::resume_unwind;

use posenc_ir::eval::{Trace, Value};
use posenc_ir::{DType, Model, Tensor, ValueId};
use posenc_runtime::{Backend, ModelSource, Options, Session};
use rustc_hash::FxHashMap;

use crate::detect::{Found, RotaryOperand};
use crate::graph::lane::Lane;
use crate::graph::ports::{Lengths, Role};
use crate::graph::region::Region;
use crate::prove::bound::Precision;
use crate::prove::cutout::{CutRun, Cutout, Positions, cut_out};
use crate::prove::expected::Expected;
use crate::prove::measure::{Content, Measured, RotationRun};
use crate::prove::trial::{BUDGET, Trial, trial_run};
use crate::prove::{VerifyError, sample};

/// The most elements of content in one run.
const CONTENT: usize = 1 << 25;

/// A rotation to run and compare.
pub(super) struct RotationCheck<'a> {
    pub(super) model: &'a Model,
    pub(super) found: &'a Found,
    pub(super) backend: &'a dyn Backend,
    pub(super) trial: &'a Trial<'a>,
    pub(super) precision: Precision,
    pub(super) half: &'a RotaryOperand,
    /// Whether the graph was found to choose frequencies by the positions.
    pub(super) switch: bool,
    pub(super) expected: &'a Expected,
    pub(super) site: &'a str,
}

impl RotationCheck<'_> {
    /// Measures a rotation inside a fused operator, whose result no runtime returns: by the rows of
    /// cos and sin that are its inputs in the trial run.
    pub(super) fn inside_operator(&self) -> Result<Measured, VerifyError> {
        let rotation = &self.half.rotation;
        let rope = &rotation.rope;
        let tokens = rotation.cos.shape()[0];
        let lane = Lane {
            sequence: 1,
            feature: Some(2),
            group: None,
            offset: 0,
        };
        let region = Region {
            input_lane: lane,
            output_lane: lane,
            ..self.half.region.clone()
        };
        let start = rotation.start.round() as i64;
        let positions: Vec<i64> = (0..tokens as i64).map(|i| start + i).collect();
        let run = RotationRun {
            expected: self.expected,
            precision: &self.precision,
            region: &region,
            dtype: DType::F32,
            dims: &[1, tokens, rope.head_dim],
            positions: &positions,
            length: self.found.lengths.past + self.found.lengths.sequence,
        };
        let mut measured = Measured::default();
        for kind in [Content::Units, Content::Random] {
            let numbers = run.content(kind).and_then(|c| Some((c.to_f64s()?, c)));
            let (mut y, content) = numbers.ok_or_else(|| {
                VerifyError::unsupported(self.site, "cannot follow the features of a head")
            })?;
            for p in 0..tokens {
                for (i, (a, b)) in rope.pairs.iter().copied().enumerate() {
                    let (a, b) = (p * rope.head_dim + a, p * rope.head_dim + b);
                    let (cos, sin) = (rotation.cos[[p, i]], rotation.sin[[p, i]]);
                    (y[a], y[b]) = (y[a] * cos - y[b] * sin, y[b] * cos + y[a] * sin);
                }
            }
            let output = Tensor::from_f64(DType::F32, run.dims, &y);
            run.compare(kind, &content, &output, &mut measured);
        }
        Ok(measured)
    }

    pub(super) fn measure(&self) -> Result<Measured, VerifyError> {
        let lengths = self.trial.lengths;
        let trial = (&*self.trial.trace, &self.trial.seeds);
        let computed = self.try_cut(trial, lengths, Positions::Computed)?;
        let computed = computed.ok_or_else(|| {
            VerifyError::unsupported(self.site, "the input of the rotation is too large to run")
        })?;
        let fed = self.try_cut(trial, lengths, Positions::Fed)?;
        // Both have the content of the trial run.
        let contents = self.contents(&computed)?;
        let (as_computed, elsewhere) = at_once(
            || self.as_computed(&computed, fed.as_ref(), &contents, lengths),
            || self.elsewhere(fed.as_ref(), &contents),
        );
        Ok(as_computed?.worse(&elsewhere?))
    }

    /// At positions as the model computes them, which checks the first position too. If the runtime cannot
    /// compute them, those of the trial run are fed.
    fn as_computed(
        &self,
        computed: &Cutout,
        fed: Option<&Cutout>,
        contents: &[(Content, Tensor)],
        lengths: Lengths,
    ) -> Result<Measured, VerifyError> {
        match (self.computed(computed, contents, lengths), fed) {
            (Err(VerifyError::Runtime { .. }), Some(fed)) => self.computed(fed, contents, lengths),
            (result, _) => result,
        }
    }

    /// At positions up to the expected length.
    fn elsewhere(
        &self,
        fed: Option<&Cutout>,
        contents: &[(Content, Tensor)],
    ) -> Result<Measured, VerifyError> {
        let max = self.expected.max_length;
        match (fed, self.expected.law.changes_at()) {
            (Some(fed), None) => self.fed(fed, contents, &[sample::positions(max)]),
            // The graph was found to choose by these positions.
            (Some(fed), Some(change)) if self.switch => {
                let change = change.min(max);
                let all = sample::positions(max);
                let last = i64::try_from(change).unwrap_or(i64::MAX);
                let (short, long) = all.iter().partition(|p| **p < last);
                let (before, after) = (vec![last - 1], vec![last.min(max as i64 - 1)]);
                self.fed(fed, contents, &[short, before, after, long])
            }
            (_, None) => self.longer(&[max / 2, max], 0),
            (_, Some(change)) => {
                let all = [
                    change.saturating_sub(1),
                    change,
                    change + 1,
                    2 * change,
                    max,
                ];
                self.longer(&all.map(|l| l.min(max)), change)
            }
        }
    }

    /// Feeds lists of positions where the graph has them as numbers, as many at a time as there are
    /// tokens.
    fn fed(
        &self,
        cutout: &Cutout,
        contents: &[(Content, Tensor)],
        lists: &[Vec<i64>],
    ) -> Result<Measured, VerifyError> {
        let mut measured = Measured::default();
        let tokens = cutout.dims[self.half.region.input_lane.sequence];
        let mut session = self.load(cutout)?;
        let mut chunks = lists
            .iter()
            .flat_map(|l| l.chunks(tokens.max(1)))
            .peekable();
        while let Some(chunk) = chunks.next() {
            let last = chunk.iter().copied().max().unwrap_or(0);
            let mut chunk = chunk.to_vec();
            chunk.resize(tokens, last);
            let length = usize::try_from(last).unwrap_or(0) + 1;
            // The order of features does not depend on the position: random content once is enough.
            let count = if chunks.peek().is_some() {
                1
            } else {
                contents.len()
            };
            let contents = &contents[..count];
            let at = (&chunk[..], length);
            self.run(cutout, session.as_mut(), at, contents, &mut measured)?;
        }
        Ok(measured)
    }

    /// Runs at whole lengths, as far as they fit into memory; at least one of them must be beyond
    /// `change`, where the frequencies change.
    fn longer(&self, lengths: &[usize], change: usize) -> Result<Measured, VerifyError> {
        let mut measured = Measured::default();
        let mut lengths: Vec<usize> = lengths.iter().copied().filter(|l| *l > 1).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let wanted = lengths.iter().any(|l| *l > change);
        let mut reached = false;
        for length in lengths {
            let Some((at, trace, seeds)) = self.at(length) else {
                continue;
            };
            if !self.follows(&trace, at) {
                // Every run is the one that was measured.
                reached |= change == 0;
                continue;
            }
            let Some(cutout) = self.try_cut((&trace, &seeds), at, Positions::Computed)? else {
                continue;
            };
            let run = self.computed(&cutout, &self.contents(&cutout)?, at)?;
            measured = measured.worse(&run);
            reached |= at.past + at.sequence > change;
        }
        if wanted && !reached && self.found.ports.fixed_sequence().is_none() {
            let why = "cannot check the frequencies beyond the original length: no such run fits \
                       into memory, and positions cannot be fed";
            return Err(VerifyError::unsupported(self.site, why));
        }
        Ok(measured)
    }

    /// A trial run of that many tokens; `None` if the model's shapes do not allow it or the content
    /// would be too large.
    fn at(&self, length: usize) -> Option<(Lengths, Trace, FxHashMap<ValueId, Value>)> {
        let trial = self.found.lengths;
        let ports = &self.found.ports;
        let wanted = match trial.past {
            0 => Lengths {
                batch: 1,
                sequence: length,
                past: 0,
            },
            _ => {
                let sequence = trial.sequence.min(length - 1);
                Lengths {
                    batch: 1,
                    sequence,
                    past: length - sequence,
                }
            }
        };
        let at = ports.fit(wanted);
        if at.sequence + at.past != length {
            return None;
        }
        let (trace, seeds) = trial_run(self.model, self.found, at, &BUDGET);
        let content = trace.get(self.half.region.input).elements()?;
        let fed = ports
            .iter()
            .filter(|p| p.role != Role::Past)
            .filter_map(|p| trace.get(p.value).elements());
        (content.max(fed.max().unwrap_or(0)) <= CONTENT).then_some((at, trace, seeds))
    }

    /// The position of the first token that the rotation sees.
    fn start(&self, at: Lengths, tokens: usize) -> i64 {
        self.expected.first + (at.past + at.sequence).saturating_sub(tokens) as i64
    }

    /// Whether the rotation sees another number of tokens in a run of another length, which it does not in
    /// windows and pictures.
    fn follows(&self, trace: &Trace, at: Lengths) -> bool {
        let trial = self.found.lengths;
        let sees_others = self.tokens(trace) != self.tokens(&self.found.trace);
        trial.past > 0 || at.sequence == trial.sequence || sees_others
    }

    /// How many tokens the rotation sees in a run.
    fn tokens(&self, trace: &Trace) -> Option<usize> {
        let region = &self.half.region;
        let dims = trace.get(region.input).dims.as_ref()?;
        dims.get(region.input_lane.sequence).copied()
    }

    fn try_cut(
        &self,
        (trace, seeds): (&Trace, &FxHashMap<ValueId, Value>),
        at: Lengths,
        positions: Positions,
    ) -> Result<Option<Cutout>, VerifyError> {
        let tokens = self.tokens(trace).unwrap_or(0);
        let run = CutRun {
            trace,
            seeds,
            start: self.start(at, tokens),
        };
        let region = &self.half.region;
        cut_out(self.model, self.found, run, region, positions, self.site)
    }

    /// One run with positions as the graph computes them, or with the same positions fed.
    fn computed(
        &self,
        cutout: &Cutout,
        contents: &[(Content, Tensor)],
        at: Lengths,
    ) -> Result<Measured, VerifyError> {
        let tokens = cutout.dims[self.half.region.input_lane.sequence];
        let start = self.start(at, tokens);
        let positions: Vec<i64> = (0..tokens as i64).map(|i| start + i).collect();
        let length = usize::try_from(start).unwrap_or(0) + tokens;
        let mut session = self.load(cutout)?;
        let at = (&positions[..], length);
        let mut measured = Measured::default();
        self.run(cutout, session.as_mut(), at, contents, &mut measured)?;
        Ok(measured)
    }

    fn load(&self, cutout: &Cutout) -> Result<Box<dyn Session>, VerifyError> {
        let source = ModelSource::Bytes {
            model: &cutout.cut.bytes,
            folder: None,
        };
        let loaded = self.backend.load(source, &Options::default());
        loaded.map_err(|e| VerifyError::runtime(self.site, e))
    }

    /// Units, then random numbers, to feed; the same for all positions.
    fn contents(&self, cutout: &Cutout) -> Result<Vec<(Content, Tensor)>, VerifyError> {
        let run = self.rotation_run(cutout, &[], 0);
        let kinds = [Content::Units, Content::Random].into_iter();
        let contents = kinds.map(|kind| Some((kind, run.content(kind)?)));
        contents.collect::<Option<_>>().ok_or_else(|| {
            let why = "cannot follow the features of a head through the rotation";
            VerifyError::unsupported(self.site, why)
        })
    }

    fn rotation_run<'a>(
        &'a self,
        cutout: &'a Cutout,
        positions: &'a [i64],
        length: usize,
    ) -> RotationRun<'a> {
        RotationRun {
            expected: self.expected,
            precision: &self.precision,
            region: &self.half.region,
            dtype: cutout.dtype,
            dims: &cutout.dims,
            positions,
            length,
        }
    }

    /// Runs contents at these positions, of an input of that length, and adds the distances from
    /// the formula to `measured`.
    fn run(
        &self,
        cutout: &Cutout,
        session: &mut dyn Session,
        (positions, length): (&[i64], usize),
        contents: &[(Content, Tensor)],
        measured: &mut Measured,
    ) -> Result<(), VerifyError> {
        let run = self.rotation_run(cutout, positions, length);
        for (kind, content) in contents {
            let mut feeds: Vec<(&str, Tensor)> = vec![(&cutout.content, content.clone())];
            for input in &cutout.positions {
                feeds.push((&input.name, input.feed(positions)));
            }
            let constant = cutout.constant.iter();
            feeds.extend(constant.map(|(name, tensor)| (name.as_str(), tensor.clone())));
            let got = session.run(&feeds, &[]);
            let got = got.map_err(|e| VerifyError::runtime(self.site, e))?;
            let Some((_, output)) = got.into_iter().next() else {
                let why = "the runtime returned no output";
                return Err(VerifyError::unsupported(self.site, why));
            };
            run.compare(*kind, content, &output, measured);
        }
        Ok(())
    }
}

/// Computes two results at the same time, where there are threads.
#[cfg(not(target_family = "wasm"))]
fn at_once<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        let first = first.join();
        (first.unwrap_or_else(|panic| resume_unwind(panic)), second)
    })
}

#[cfg(target_family = "wasm")]
fn at_once<A, B>(first: impl FnOnce() -> A, second: impl FnOnce() -> B) -> (A, B) {
    (first(), second())
}
