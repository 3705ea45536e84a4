//! Whole models at several lengths, in several runtimes, with optimizations off and on.

use posenc_ir::Tensor;
use posenc_runtime::{Optimization, Session};

use super::VerifyError;
use super::caches::unfilled;
use super::feeds::{Padding, is_padding};
use super::inputs;
use super::moved::in_order;
use super::noise::{Noise, noise};
use super::points::{Meaning, Point};
use super::row::{Judge, partner, uncompared};
use super::run::{Outputs, RuntimeTarget, run};
use super::subject::Subject;
use super::tolerance::Tolerance;
use crate::graph::ports::{Lengths, place};
use crate::graph::reorder::Order;
use crate::report::Run;

/// Whole runs of one model, compared with another model in the same runtime or, without one, with
/// the first runtime that ran.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    subject: &'a Subject<'a>,
    other: Option<&'a Subject<'a>>,
    /// What the other has in another order.
    moved: &'a [(String, Order)],
    points: &'a [Point],
    /// The inputs that were given; empty for random ones.
    given: &'a [(String, Tensor)],
    /// The outputs of the first run, per length.
    first: Vec<Outputs>,
    /// What quantization alone changes, per length.
    noise: Vec<Noise>,
    /// Whether runtimes computed different outputs of padding, and equal ones of tokens.
    pub(crate) pads_apart: bool,
    /// Whether outputs were left out that contain caches of a window which no tokens fill.
    pub(crate) are_unfilled: bool,
    /// Runs that a model need not support and does not, in words.
    pub(crate) left_out: Vec<String>,
    /// Whether bounds come from what quantization changes of equal sequences.
    pub(crate) is_noisy: bool,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(
        subject: &'a Subject<'a>,
        (other, moved): (Option<&'a Subject<'a>>, &'a [(String, Order)]),
        (points, given): (&'a [Point], &'a [(String, Tensor)]),
    ) -> Self {
        Self {
            subject,
            other,
            moved,
            points,
            given,
            first: vec![],
            noise: vec![],
            pads_apart: false,
            are_unfilled: false,
            left_out: vec![],
            is_noisy: false,
        }
    }

    /// Runs in one runtime, with optimizations on and, where it supports that, off.
    pub(crate) fn run(&mut self, target: &RuntimeTarget<'_>) -> Result<Vec<Run>, VerifyError> {
        let mut runs = vec![];
        let mut first = vec![];
        // The others are compared with the first run of all, so that is the usual setting.
        for optimization in [Optimization::On, Optimization::Off] {
            let Some(mut session) = self.subject.load(target, optimization)? else {
                continue;
            };
            let mut against = match self.other {
                Some(other) => other.load(target, optimization)?,
                None => None,
            };
            let (mut own, mut empty) = (vec![], vec![]);
            for (i, point) in self.points.iter().enumerate() {
                let at = &point.at;
                let site = format!("length {}, {}", at.sequence, target.setting(optimization));
                let sessions = (&mut session, against.as_mut());
                let (got, other) = self.outputs(sessions, *point, &site)?;
                if self.noise.len() == i {
                    let noise = match got.is_empty() {
                        true => Noise::default(),
                        false => noise(self.subject, session.as_mut(), *at),
                    };
                    self.is_noisy |= noise.is_any();
                    self.noise.push(noise);
                }
                let want = match self.other {
                    Some(_) => other,
                    None => {
                        let first = self.first.get(i).or(first.get(i));
                        first.filter(|outputs| !outputs.is_empty()).cloned()
                    }
                };
                let compared = self.compared(&got, want.as_ref(), (i, *point));
                let of = (*at, self.padding(*point));
                for (output, row) in compared {
                    let is_empty = has_nothing(&output, &got, want.as_ref());
                    let row = target.row(optimization, of, output, row);
                    match is_empty {
                        true => empty.push(row),
                        false => own.push(row),
                    }
                }
                if self.other.is_none() && first.len() == i {
                    first.push(got);
                }
            }
            match own.is_empty() {
                // Where no output has anything to compare, that is no pass.
                true => own = empty,
                false => empty.iter().for_each(|row| self.leave_out_empty(row)),
            }
            let placed = session.placement();
            own.iter_mut()
                .for_each(|run| run.placement = placed.clone());
            runs.extend(own);
        }
        if self.first.is_empty() {
            self.first = first;
        }
        Ok(runs)
    }

    /// The outputs of a run, and those of the other model where they are compared; none where the run is
    /// optional and a model does not do it.
    fn outputs(
        &mut self,
        (session, against): (&mut Box<dyn Session>, Option<&mut Box<dyn Session>>),
        point: Point,
        site: &str,
    ) -> Result<(Outputs, Option<Outputs>), VerifyError> {
        let fed = self.fed(self.subject, point)?;
        let got = run(session.as_mut(), &fed, site).map_err(|e| e.of_model(self.subject.name));
        let want = match (self.other, against) {
            (Some(other), Some(session)) if point.meaning != Meaning::Alone => {
                let fed = same_or_own(&fed, self.fed(other, point)?);
                let want = run(session.as_mut(), &fed, site);
                Some(want.map_err(|error| error.of_model(other.name)))
            }
            _ => None,
        };
        match (&got, &want) {
            // What the other model does, this one has to do too.
            (Err(error), None | Some(Err(_))) | (Ok(_), Some(Err(error))) if point.is_optional => {
                self.leave_out(point, &error.to_string());
                return Ok((vec![], None));
            }
            _ => {}
        }
        let mut got = got?;
        self.are_unfilled |= leave_unfilled(&mut got, self.subject, point.at);
        let want = want.transpose()?.zip(self.other);
        let want = want.map(|(mut want, other)| {
            leave_unfilled(&mut want, other, point.at);
            in_order(want, self.moved)
        });
        Ok((got, want.transpose()?))
    }

    fn leave_out(&mut self, point: Point, why: &str) {
        let why = format!("{}, because {why}", point.words());
        if !self.left_out.contains(&why) {
            self.left_out.push(why);
        }
    }

    fn leave_out_empty(&mut self, row: &Run) {
        let Run { output, length, .. } = row;
        let why = format!("output {output} at length {length}, because it has no elements there");
        if !self.left_out.contains(&why) {
            self.left_out.push(why);
        }
    }

    /// The inputs of a run of one of the models.
    fn fed(&self, subject: &Subject<'_>, point: Point) -> Result<Inputs, VerifyError> {
        let of = (subject.model.graph(), subject.ports());
        inputs::fed(of, (point.at, point.padding), self.given)
    }

    /// Where the sequences of a run are padded.
    fn padding(&self, point: Point) -> Padding {
        match self.given.is_empty() && self.subject.is_padded() && point.at.batch > 1 {
            true => point.padding,
            false => Padding::None,
        }
    }

    /// A row for every output. Of one model in two runtimes, tokens alone are compared where the outputs of
    /// padding differ: what a fused operator computes of these is its own affair.
    fn compared(
        &mut self,
        got: &Outputs,
        want: Option<&Outputs>,
        (index, point): (usize, Point),
    ) -> Vec<(String, Run)> {
        if point.padding == Padding::Left && !want.unwrap_or(got).iter().all(is_of_numbers) {
            let why = "the model computes no numbers there";
            self.leave_out(point, why);
            return vec![];
        }
        let judge = Judge {
            tolerance: self.tolerance(point.at),
            noise: self.noise.get(index),
            vocabulary: self.subject.vocabulary,
        };
        let mut all = judge.rows(got, want, point.meaning);
        if let Some(want) = want.filter(|_| point.meaning == Meaning::NewFunction) {
            for why in other_sizes(self.subject, &mut all, [got, want]) {
                if !self.left_out.contains(&why) {
                    self.left_out.push(why);
                }
            }
        }
        let pads = self.given.is_empty() && self.subject.is_padded();
        let Some(want) = want.filter(|_| self.other.is_none() && pads) else {
            return all;
        };
        if all.iter().all(|(_, row)| row.ok) {
            return all;
        }
        let [got, want] = [got, want].map(|outputs| tokens_only(outputs, point));
        let of_tokens = judge.rows(&got, Some(&want), point.meaning);
        for ((_, row), (_, alone)) in all.iter_mut().zip(of_tokens) {
            if !row.ok && alone.ok {
                *row = alone;
                self.pads_apart = true;
            }
        }
        all
    }

    /// The wider of the tolerances of the two models, in a run of these lengths.
    fn tolerance(&self, at: Lengths) -> Tolerance {
        let last = (at.past + at.sequence).saturating_sub(1);
        let of = |subject: &Subject<'_>| subject.angles.widen(subject.tolerance, last);
        let a = of(self.subject);
        let b = self.other.map_or(a, of);
        Tolerance {
            atol: a.atol.max(b.atol),
            rtol: a.rtol.max(b.rtol),
            share: a.share.max(b.share),
            rms: a.rms,
        }
    }
}

/// Lets outputs have another size where another function is computed, and the size depends on the numbers that are
/// computed: as that of sound, whose length is a sum of durations. Returns what is not compared, with the reason.
fn other_sizes(
    subject: &Subject<'_>,
    rows: &mut [(String, Run)],
    [got, want]: [&Outputs; 2],
) -> Vec<String> {
    let graph = subject.model.graph();
    let depends = |name: &str| {
        let value = graph.find(graph.main(), name);
        value.is_some_and(|v| subject.found.trace.get(v).dims.is_none())
    };
    let mut left_out = vec![];
    for ((name, row), (_, own)) in rows.iter_mut().zip(got) {
        let other = want.iter().find(|(other, _)| other == name);
        let is_other = other.is_some_and(|(_, other)| {
            other.dims().len() == own.dims().len() && other.dims() != own.dims()
        });
        let alone = uncompared(own);
        if is_other && alone.ok && depends(name) {
            *row = alone;
            left_out.push(format!(
                "output {name} against that of the original, because its size depends on what is computed, and is \
                 another one"
            ));
        }
    }
    left_out
}

/// Whether an output has no elements, nor has that which it is compared with.
fn has_nothing(name: &str, got: &Outputs, want: Option<&Outputs>) -> bool {
    let Some(i) = got.iter().position(|(own, _)| own == name) else {
        return false;
    };
    let own = &got[i].1;
    let is_empty = own.dims().contains(&0);
    is_empty
        && want.is_none_or(|want| {
            partner(i, got, want).is_some_and(|other| other.dims() == own.dims())
        })
}

fn is_of_numbers((_, tensor): &(String, Tensor)) -> bool {
    uncompared(tensor).nan == 0
}

/// The inputs of a run.
type Inputs = Vec<(String, Tensor)>;

/// Leaves out caches of a window that no tokens fill; whether there are any.
fn leave_unfilled(outputs: &mut Outputs, subject: &Subject<'_>, at: Lengths) -> bool {
    let unfilled = unfilled(subject.model.graph(), subject.ports(), at);
    outputs.retain(|(name, _)| !unfilled.contains(name));
    !unfilled.is_empty()
}

/// The inputs of another model, which are those of the first where both have one: which numbers an input is fed
/// may depend on what was read of a model.
fn same_or_own(first: &[(String, Tensor)], mut own: Inputs) -> Inputs {
    for (name, tensor) in &mut own {
        let same = first.iter().find(|(other, given)| {
            other == name && given.dims() == tensor.dims() && given.dtype() == tensor.dtype()
        });
        if let Some((_, given)) = same {
            *tensor = given.clone();
        }
    }
    own
}

/// The outputs with zeros in place of what belongs to padding.
fn tokens_only(outputs: &Outputs, point: Point) -> Outputs {
    let of = |(name, tensor): &(String, Tensor)| {
        let masked = without_padding(tensor, point).unwrap_or_else(|| tensor.clone());
        (name.clone(), masked)
    };
    outputs.iter().map(of).collect()
}

/// A tensor of [batch, …, tokens, …] with zeros for padding; `None` for any other.
fn without_padding(tensor: &Tensor, Point { at, padding, .. }: Point) -> Option<Tensor> {
    let dims = tensor.dims();
    let axis = 1 + dims.iter().skip(1).position(|size| *size == at.sequence)?;
    if dims.first() != Some(&at.batch) {
        return None;
    }
    let mut values = tensor.to_f64s()?;
    for (i, value) in values.iter_mut().enumerate() {
        if is_padding(
            place(i, dims, 0),
            at.past + place(i, dims, axis),
            at,
            padding,
        ) {
            *value = 0.0;
        }
    }
    Some(Tensor::from_f64(tensor.dtype(), dims, &values))
}

#[cfg(test)]
mod tests {
    use posenc_ir::Model;

    use super::*;
    use crate::detect::{Options, detect};
    use crate::prove::options::VerifyOptions;

    /// A run of one sequence.
    fn point(sequence: usize, meaning: Meaning) -> Point {
        let at = Lengths {
            batch: 1,
            sequence,
            past: 0,
        };
        Point {
            at,
            padding: Padding::None,
            is_optional: false,
            meaning,
        }
    }

    /// Whether outputs of these sizes are let through, and what is said to be left out. Another run has three numbers
    /// of sound, and three of a token each.
    fn judged(name: &str, sizes: [usize; 2], meaning: Meaning) -> (bool, Vec<String>) {
        let model = Model::parse(
            "<ir_version: 8, opset_import: [\"\" : 17]>\n\
             g (int64[batch,sequence] input_ids) => (float[axes,samples] audio, float[batch,sequence] y)\n\
             <float[4] table = {0.5, 0.0, 1.0, 2.0}>\n\
             { y = Gather(table, input_ids) places = NonZero(y) audio = Cast <to = 1> (places) }",
        );
        let model = model.unwrap();
        let found = detect(&model, &Options::default());
        let subject = Subject::new(&model, &found, &VerifyOptions::default()).unwrap();
        let point = point(3, meaning);
        let points = [point];
        let mut sweep = Sweep::new(&subject, (Some(&subject), &[]), (&points, &[]));
        let outputs = |size: usize| {
            let tensor = Tensor::from_f64(posenc_ir::DType::F32, &[1, size], &vec![0.5; size]);
            vec![(name.to_owned(), tensor)]
        };
        let [got, want] = sizes.map(outputs);
        let rows = sweep.compared(&got, Some(&want), (0, point));
        (rows[0].1.ok, sweep.left_out)
    }

    #[test]
    fn what_is_computed_may_decide_the_size_of_an_output_where_it_may_differ() {
        let (ok, left_out) = judged("audio", [4, 3], Meaning::NewFunction);
        let why = "output audio against that of the original, because its size depends on what is computed, and is \
                   another one";
        assert_eq!((ok, left_out), (true, vec![why.to_owned()]));
        let same = judged("audio", [3, 3], Meaning::NewFunction);
        assert_eq!(same, (true, vec![]), "nothing to say");
        // Where nothing may differ, and where inputs decide the size.
        assert_eq!(judged("audio", [4, 3], Meaning::Same), (false, vec![]));
        assert_eq!(judged("y", [4, 3], Meaning::NewFunction), (false, vec![]));
        // Nothing at all is no sound.
        assert_eq!(
            judged("audio", [0, 3], Meaning::NewFunction),
            (false, vec![])
        );
    }

    /// The rows of a model without rotations against another, at lengths 1 and 3, and what is said to be left out.
    fn swept(
        own: &str,
        other: Option<&str>,
        points: &[usize],
    ) -> (Vec<(usize, bool)>, Vec<String>) {
        let model = |body: &str| {
            let text = format!(
                "<ir_version: 8, opset_import: [\"\" : 17]>\n\
                 g (int64[batch,sequence] input_ids) => (float[batch,n] y)\n\
                 <float[4] table = {{0.5, 0.0, 1.0, 2.0}}, int64[1] zero = {{0}}, int64[1] one = {{1}}, \
                 int64[1] last = {{-1}}>\n\
                 {{ x = Gather(table, input_ids) {body} }}"
            );
            Model::parse(&text).unwrap()
        };
        let models: Vec<Model> = [Some(own), other]
            .into_iter()
            .flatten()
            .map(model)
            .collect();
        let read = |model: &Model| detect(model, &Options::default());
        let found: Vec<_> = models.iter().map(read).collect();
        let options = VerifyOptions::default();
        let subjects = models.iter().zip(&found);
        let subjects: Vec<Subject<'_>> = subjects
            .map(|(model, found)| Subject::new(model, found, &options).unwrap())
            .collect();
        let points = points.iter().map(|n| point(*n, Meaning::Same));
        let points: Vec<Point> = points.collect();
        let mut sweep = Sweep::new(&subjects[0], (subjects.get(1), &[]), (&points, &[]));
        let backend = crate::prove::testing::Evaluator::default();
        let rows = sweep.run(&backend.target()).unwrap();
        let mut rows: Vec<_> = rows.iter().map(|row| (row.length, row.ok)).collect();
        rows.sort_unstable();
        rows.dedup();
        (rows, sweep.left_out)
    }

    #[test]
    fn outputs_without_elements_are_not_compared_and_said_to_be_left_out() {
        let (shifted, whole) = ("y = Slice(x, zero, last, one)", "y = Identity(x)");
        let why = "output y at length 1, because it has no elements there";
        let left_out = vec![why.to_owned()];
        let both = swept(shifted, Some(shifted), &[1, 3]);
        assert_eq!(both, (vec![(3, true)], left_out.clone()));
        assert_eq!(swept(shifted, None, &[1, 3]), (vec![(3, true)], left_out));
        // In one of them alone, and nothing anywhere.
        for (own, other) in [(shifted, whole), (whole, shifted)] {
            let (rows, left_out) = swept(own, Some(other), &[1, 3]);
            assert_eq!((rows, left_out), (vec![(1, false), (3, false)], vec![]));
        }
        for other in [Some(shifted), None] {
            let nothing = swept(shifted, other, &[1]);
            assert_eq!(nothing, (vec![(1, false)], vec![]));
        }
    }

    #[test]
    fn inputs_that_two_models_have_are_the_same() {
        let input = |name: &str, numbers: &[i64]| {
            (name.to_owned(), Tensor::from_i64(&[numbers.len()], numbers))
        };
        let first = [input("ids", &[5, 6]), input("mask", &[1])];
        let own = vec![
            input("ids", &[1, 2]),
            input("mask", &[1, 1]),
            input("places", &[0]),
        ];
        let fed = same_or_own(&first, own);
        // Another size or name is another input.
        let want = [
            input("ids", &[5, 6]),
            input("mask", &[1, 1]),
            input("places", &[0]),
        ];
        assert_eq!(fed, want);
    }
}
