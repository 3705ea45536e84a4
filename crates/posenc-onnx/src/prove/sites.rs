//! Rotations, site by site, run by a runtime and compared with the formula in f64.
//!
//! Content with 1 in the first feature of every pair comes out as m·cos in the first and m·sin in
//! the second, to the bit, whatever form the graph gives the rotation: that reads cos and sin as
//! they meet content. Random content, other for every head, then shows that pairs, heads and all
//! other features go where they belong.

#[cfg(test)]
mod tests;

use posenc_ir::eval::{Trace, Value};
use posenc_ir::{DType, Model, Tensor, ValueId};
use posenc_runtime::{Backend, ModelSource, Options};
use rustc_hash::FxHashMap;

use super::VerifyError;
use super::bound::Precision;
use super::cutout::{Cutout, Origin, cut_out, precision};
use super::expected::Expected;
use super::measure::{Content, Frame, Measured};
use super::sample;
use super::trial::{BUDGET, Trial, trial_run};
use crate::detect::{Detection, Half};
use crate::graph::lane::Lane;
use crate::graph::ports::{Lengths, Role};
use crate::graph::region::Region;
use crate::graph::signature::{Count, Signatures};
use crate::report::SiteCheck;

/// The most elements of content in one run.
const CONTENT: usize = 1 << 25;

/// Runs the rotations of queries and keys at the expected sites and compares them with the
/// formula. Rotations that are the same, operators, constants and shapes, run once.
///
/// Four quantities a site: `cos` and `sin` as they meet content, up to the expected length, and
/// `q` and `k`, each of them once more against the stored frequencies where these are given. A
/// site without a rotation is a check that failed, without a number.
///
/// # Errors
/// Where a rotation cannot be cut out or the runtime does not run it, with the site; where there
/// is nothing to check.
pub fn check_rope(
    model: &Model,
    found: &Detection,
    sites: &[Expected],
    backend: &dyn Backend,
) -> Result<Vec<SiteCheck>, VerifyError> {
    if sites.is_empty() {
        return Err(VerifyError::unsupported("verify", "no site is expected"));
    }
    let mut run = Checks {
        model,
        found,
        backend,
        trial: Trial::of(model, found),
        signatures: Signatures::default(),
        done: vec![],
    };
    let mut checks = vec![];
    for expected in sites {
        run.site(expected, &mut checks)?;
    }
    Ok(checks)
}

struct Checks<'a> {
    model: &'a Model,
    found: &'a Detection,
    backend: &'a dyn Backend,
    trial: Trial<'a>,
    signatures: Signatures,
    /// What was measured already: the rotation, and what was expected of it.
    done: Vec<(usize, Expected, Measured)>,
}

impl Checks<'_> {
    fn site(
        &mut self,
        expected: &Expected,
        checks: &mut Vec<SiteCheck>,
    ) -> Result<(), VerifyError> {
        let attention = self
            .found
            .attention
            .iter()
            .find(|s| s.layer == expected.site);
        let name = match attention {
            Some(site) => site.name.clone(),
            None => format!("attention site {}", expected.site),
        };
        let mut check = |quantity: &str, error: Option<f64>, bound: f64, ok: bool| {
            checks.push(SiteCheck {
                site: name.clone(),
                quantity: quantity.to_owned(),
                max_error: error,
                bound,
                ok,
            });
        };
        let found = self.found;
        let Some(rotary) = found.rotary.iter().find(|r| r.site == expected.site) else {
            check("rotation", None, 0.0, false);
            return Ok(());
        };
        let switch = rotary.switch.is_some();
        let q = self.half(&rotary.query, switch, expected, &name)?;
        let k = self.half(&rotary.key, switch, expected, &name)?;
        let rows = [
            ("cos", q.cos.worse(&k.cos)),
            ("sin", q.sin.worse(&k.sin)),
            ("q", q.content),
            ("k", k.content),
        ];
        for (quantity, worst) in rows {
            check(
                quantity,
                worst.formula.error,
                worst.formula.bound,
                worst.formula.ok(),
            );
        }
        if expected.stored.is_some() {
            for (quantity, worst) in rows {
                let quantity = format!("{quantity} (stored frequencies)");
                check(
                    &quantity,
                    worst.stored.error,
                    worst.stored.bound,
                    worst.stored.ok(),
                );
            }
        }
        Ok(())
    }

    /// What a rotation gives, measured now or before.
    fn half(
        &mut self,
        half: &Half,
        switch: bool,
        expected: &Expected,
        site: &str,
    ) -> Result<Measured, VerifyError> {
        let run = Rotation {
            model: self.model,
            found: self.found,
            backend: self.backend,
            trial: &self.trial,
            precision: precision(self.model, self.found, &half.region),
            switch,
            half,
            expected,
            site,
        };
        if half.region.inside.is_some() {
            return run.inside();
        }
        let graph = self.model.graph();
        // At other lengths the numbers are others: how they are computed counts.
        let counts = (half.region).counts(graph, &self.found.classes, Count::Origin);
        let trace = &self.found.trace;
        let rotation = self.signatures.region(graph, &half.region, trace, counts);
        // Which site it is does not matter to the numbers.
        let wanted = Expected {
            site: 0,
            ..expected.clone()
        };
        let same = |(r, e, _): &&(usize, Expected, Measured)| *r == rotation && *e == wanted;
        if let Some((.., measured)) = self.done.iter().find(same) {
            return Ok(*measured);
        }
        let measured = run.measure()?;
        self.done.push((rotation, wanted, measured));
        Ok(measured)
    }
}

/// One rotation under way.
struct Rotation<'a> {
    model: &'a Model,
    found: &'a Detection,
    backend: &'a dyn Backend,
    trial: &'a Trial<'a>,
    precision: Precision,
    half: &'a Half,
    /// Whether detection saw the frequencies change with the positions.
    switch: bool,
    expected: &'a Expected,
    site: &'a str,
}

impl Rotation<'_> {
    /// The rotation that a fused operator does itself, which no runtime shows: from the rows of
    /// cos and sin that it is given in the trial run.
    fn inside(&self) -> Result<Measured, VerifyError> {
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
        let frame = Frame {
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
            let numbers = frame.content(kind).and_then(|c| Some((c.to_f64s()?, c)));
            let (mut y, content) = numbers.ok_or_else(|| {
                VerifyError::unsupported(self.site, "the features of a head cannot be followed")
            })?;
            for p in 0..tokens {
                for (i, (a, b)) in rope.pairs.iter().copied().enumerate() {
                    let (a, b) = (p * rope.head_dim + a, p * rope.head_dim + b);
                    let (cos, sin) = (rotation.cos[[p, i]], rotation.sin[[p, i]]);
                    (y[a], y[b]) = (y[a] * cos - y[b] * sin, y[b] * cos + y[a] * sin);
                }
            }
            let output = Tensor::from_f64(DType::F32, frame.dims, &y);
            frame.compare(kind, &content, &output, &mut measured);
        }
        Ok(measured)
    }

    fn measure(&self) -> Result<Measured, VerifyError> {
        let mut measured = Measured::default();
        let lengths = self.trial.lengths;
        let trial = (&*self.trial.trace, &self.trial.seeds);
        let computed = self.try_cut(trial, lengths, Origin::Computed)?;
        let computed = computed.ok_or_else(|| {
            VerifyError::unsupported(self.site, "the content is too large to be fed")
        })?;
        let fed = self.try_cut(trial, lengths, Origin::Fed)?;
        // As the model counts by itself: the first position, and where it comes from. Where the
        // runtime cannot count that way, the positions are those of the trial run.
        match (self.computed(&computed, lengths, &mut measured), &fed) {
            (Err(VerifyError::Runtime { .. }), Some(fed)) => {
                self.computed(fed, lengths, &mut measured)?;
            }
            (result, _) => result?,
        }
        let max = self.expected.max_length;
        match (fed, self.expected.law.changes_at()) {
            (Some(fed), None) => self.fed(&fed, &[sample::positions(max)], measured),
            // The choice was seen to follow these positions.
            (Some(fed), Some(change)) if self.switch => {
                let change = change.min(max);
                let all = sample::positions(max);
                let last = i64::try_from(change).unwrap_or(i64::MAX);
                let (short, long) = all.iter().partition(|p| **p < last);
                let edges = [vec![last - 1], vec![last.min(max as i64 - 1)]];
                let [before, after] = edges;
                self.fed(&fed, &[short, before, after, long], measured)
            }
            (_, None) => self.longer(&[max / 2, max], 0, measured),
            (_, Some(change)) => {
                let all = [
                    change.saturating_sub(1),
                    change,
                    change + 1,
                    2 * change,
                    max,
                ];
                self.longer(&all.map(|l| l.min(max)), change, measured)
            }
        }
    }

    /// Feeds lists of positions where the graph has them as numbers, a few at a time.
    fn fed(
        &self,
        cutout: &Cutout,
        lists: &[Vec<i64>],
        mut measured: Measured,
    ) -> Result<Measured, VerifyError> {
        let tokens = cutout.dims[self.half.region.input_lane.sequence];
        let mut session = self.load(cutout)?;
        let contents = self.contents(cutout)?;
        let mut chunks = lists
            .iter()
            .flat_map(|l| l.chunks(tokens.max(1)))
            .peekable();
        while let Some(chunk) = chunks.next() {
            let last = chunk.iter().copied().max().unwrap_or(0);
            let mut chunk = chunk.to_vec();
            chunk.resize(tokens, last);
            let length = usize::try_from(last).unwrap_or(0) + 1;
            // Where features go does not depend on the position: once more is enough.
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

    /// Runs at whole lengths, as far as they fit into memory; one beyond `change`, where the
    /// frequencies change, has to.
    fn longer(
        &self,
        lengths: &[usize],
        change: usize,
        mut measured: Measured,
    ) -> Result<Measured, VerifyError> {
        let mut lengths: Vec<usize> = lengths.iter().copied().filter(|l| *l > 1).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let wanted = lengths.iter().any(|l| *l > change);
        let mut reached = false;
        for length in lengths {
            let Some((at, trace, seeds)) = self.at(length) else {
                continue;
            };
            let Some(cutout) = self.try_cut((&trace, &seeds), at, Origin::Computed)? else {
                continue;
            };
            self.computed(&cutout, at, &mut measured)?;
            reached |= at.past + at.sequence > change;
        }
        if wanted && !reached && self.found.ports.fixed_sequence().is_none() {
            let why = "no length beyond the original one fits into memory, and the positions \
                       cannot be fed: the frequencies there cannot be checked";
            return Err(VerifyError::unsupported(self.site, why));
        }
        Ok(measured)
    }

    /// A trial run of that many tokens; `None` where the model's shapes do not allow it or the
    /// content would be too large.
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

    fn try_cut(
        &self,
        (trace, seeds): (&Trace, &FxHashMap<ValueId, Value>),
        at: Lengths,
        origin: Origin,
    ) -> Result<Option<Cutout>, VerifyError> {
        let region = &self.half.region;
        let dims = trace.get(region.input).dims.as_ref();
        let tokens = dims.map_or(0, |d| d[region.input_lane.sequence]);
        let start = self.start(at, tokens);
        cut_out(
            self.model,
            self.found,
            (trace, seeds),
            region,
            origin,
            (self.site, start),
        )
    }

    /// One run as the model counts by itself.
    fn computed(
        &self,
        cutout: &Cutout,
        at: Lengths,
        measured: &mut Measured,
    ) -> Result<(), VerifyError> {
        let tokens = cutout.dims[self.half.region.input_lane.sequence];
        let start = self.start(at, tokens);
        let positions: Vec<i64> = (0..tokens as i64).map(|i| start + i).collect();
        let length = usize::try_from(start).unwrap_or(0) + tokens;
        let mut session = self.load(cutout)?;
        let contents = self.contents(cutout)?;
        let at = (&positions[..], length);
        self.run(cutout, session.as_mut(), at, &contents, measured)
    }

    fn load(&self, cutout: &Cutout) -> Result<Box<dyn posenc_runtime::Session>, VerifyError> {
        let source = ModelSource::Bytes {
            model: &cutout.cut.bytes,
            folder: None,
        };
        let loaded = self.backend.load(source, &Options::default());
        loaded.map_err(|e| VerifyError::runtime(self.site, e))
    }

    /// Units, then random numbers, to feed; the same for all positions.
    fn contents(&self, cutout: &Cutout) -> Result<Vec<(Content, Tensor)>, VerifyError> {
        let frame = self.frame(cutout, &[], 0);
        let kinds = [Content::Units, Content::Random].into_iter();
        let contents = kinds.map(|kind| Some((kind, frame.content(kind)?)));
        contents.collect::<Option<_>>().ok_or_else(|| {
            let why = "the features of a head cannot be followed through the rotation";
            VerifyError::unsupported(self.site, why)
        })
    }

    fn frame<'a>(&'a self, cutout: &'a Cutout, positions: &'a [i64], length: usize) -> Frame<'a> {
        Frame {
            expected: self.expected,
            precision: &self.precision,
            region: &self.half.region,
            dtype: cutout.dtype,
            dims: &cutout.dims,
            positions,
            length,
        }
    }

    /// Runs contents at these positions, of an input of that length, and takes in how far the
    /// results are off.
    fn run(
        &self,
        cutout: &Cutout,
        session: &mut dyn posenc_runtime::Session,
        (positions, length): (&[i64], usize),
        contents: &[(Content, Tensor)],
        measured: &mut Measured,
    ) -> Result<(), VerifyError> {
        let frame = self.frame(cutout, positions, length);
        for (kind, content) in contents {
            let mut feeds: Vec<(&str, Tensor)> = vec![(&cutout.content, content.clone())];
            for counter in &cutout.counters {
                feeds.push((&counter.name, counter.feed(positions)));
            }
            let rest = cutout.rest.iter();
            feeds.extend(rest.map(|(name, tensor)| (name.as_str(), tensor.clone())));
            let got = session.run(&feeds, &[]);
            let got = got.map_err(|e| VerifyError::runtime(self.site, e))?;
            let Some((_, output)) = got.into_iter().next() else {
                let why = "the runtime gave no output";
                return Err(VerifyError::unsupported(self.site, why));
            };
            frame.compare(*kind, content, &output, measured);
        }
        Ok(())
    }
}
