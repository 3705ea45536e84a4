//! Whole models at several lengths, in several runtimes, with optimizations off and on.

use std::collections::BTreeMap;

use posenc_ir::{DType, Model, Tensor};
use posenc_runtime::{Optimization, Session};

use super::compare::{Difference, Tolerance, compare};
use super::feeds::{Padding, feeds};
use super::run::{Outputs, Source, Target, run, words};
use super::{VerifyError, VerifyOptions};
use crate::detect::Detection;
use crate::graph::dataflow::Class;
use crate::graph::ports::{Lengths, Ports};
use crate::report::Run;

/// Lengths that are looked at where none are given.
const LENGTHS: [usize; 5] = [1, 2, 64, 65, 128];

/// A model with what it takes to run it.
#[derive(Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) model: &'a Model,
    pub(crate) ports: Ports,
    pub(crate) tolerance: Tolerance,
    source: Source,
}

impl<'a> Subject<'a> {
    pub(crate) fn new(
        model: &'a Model,
        found: &Detection,
        options: &VerifyOptions,
    ) -> Result<Self, VerifyError> {
        Ok(Self {
            ports: found.ports.clone(),
            tolerance: tolerance(model, found, options),
            source: Source::of(model)?,
            model,
        })
    }

    pub(crate) fn load(
        &self,
        target: &Target<'_>,
        optimization: Optimization,
    ) -> Result<Option<Box<dyn Session>>, VerifyError> {
        target.load(&self.source, optimization)
    }
}

/// The lengths to run at, each once: those that are asked for, or the usual ones that the model's
/// tables and buffers hold, as far as its shapes allow.
pub(crate) fn lengths(found: &Detection, options: &VerifyOptions) -> Vec<Lengths> {
    let limit = found.limits.iter().map(|l| l.length).min();
    let usual = || -> Vec<usize> {
        let within = |l: &usize| limit.is_none_or(|limit| *l <= limit);
        LENGTHS.into_iter().filter(within).collect()
    };
    let wanted = match options.lengths.is_empty() {
        true => usual(),
        false => options.lengths.clone(),
    };
    let mut all: Vec<Lengths> = vec![];
    for sequence in wanted {
        let at = found.ports.fit(Lengths {
            batch: 2,
            sequence,
            past: 0,
        });
        if !all.contains(&at) {
            all.push(at);
        }
    }
    all
}

/// Whole runs of one model, compared with another model in the same runtime, or with the first
/// runtime that ran.
#[derive(Debug)]
pub(crate) struct Sweep<'a> {
    pub(crate) subject: &'a Subject<'a>,
    pub(crate) other: Option<&'a Subject<'a>>,
    pub(crate) lengths: &'a [Lengths],
    /// The outputs of the first run, one list a length.
    first: Vec<Outputs>,
}

impl<'a> Sweep<'a> {
    pub(crate) fn new(
        subject: &'a Subject<'a>,
        other: Option<&'a Subject<'a>>,
        lengths: &'a [Lengths],
    ) -> Self {
        Self {
            subject,
            other,
            lengths,
            first: vec![],
        }
    }

    /// Runs in one runtime, with optimizations on and, where it knows that, off.
    pub(crate) fn run(&mut self, target: &Target<'_>) -> Result<Vec<Run>, VerifyError> {
        let mut runs = vec![];
        let mut first = vec![];
        // The first run of all is what the others are compared with, so it is the usual one.
        for optimization in [Optimization::On, Optimization::Off] {
            let Some(mut session) = self.subject.load(target, optimization)? else {
                continue;
            };
            let mut against = match self.other {
                Some(other) => other.load(target, optimization)?,
                None => None,
            };
            let mut own = vec![];
            for (i, at) in self.lengths.iter().enumerate() {
                let site = format!("length {}, {}", at.sequence, target.name(optimization));
                let got = go(self.subject, session.as_mut(), *at, &site)?;
                let want = match (self.other, &mut against) {
                    (Some(other), Some(session)) => Some(go(other, session.as_mut(), *at, &site)?),
                    _ => self.first.get(i).or(first.get(i)).cloned(),
                };
                let tolerance = self.tolerance();
                own.extend(
                    rows(&got, want.as_ref(), tolerance).map(|(output, row)| Run {
                        runtime: target.backend.name().to_owned(),
                        provider: target.provider.to_string(),
                        optimization: words(optimization).to_owned(),
                        length: at.sequence,
                        batch: at.batch,
                        output,
                        ..row
                    }),
                );
                if self.other.is_none() && first.len() == i {
                    first.push(got);
                }
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

    /// The wider of the two models'.
    fn tolerance(&self) -> Tolerance {
        let (a, b) = (self.subject.tolerance, self.other.map(|o| o.tolerance));
        let b = b.unwrap_or(a);
        Tolerance {
            atol: a.atol.max(b.atol),
            rtol: a.rtol.max(b.rtol),
        }
    }
}

fn go(
    subject: &Subject<'_>,
    session: &mut dyn Session,
    at: Lengths,
    site: &str,
) -> Result<Outputs, VerifyError> {
    let fed = feeds(subject.model.graph(), &subject.ports, at, Padding::Right)?;
    run(session, &fed, site)
}

/// A row for every output; of a run that stands alone, whether it is made of numbers.
fn rows<'a>(
    got: &'a Outputs,
    want: Option<&'a Outputs>,
    tolerance: Tolerance,
) -> impl Iterator<Item = (String, Run)> + 'a {
    got.iter().enumerate().map(move |(i, (name, tensor))| {
        let row = match want {
            None => alone(tensor),
            Some(want) => {
                let same = want.iter().find(|(other, _)| other == name);
                let at = want.get(i).filter(|_| want.len() == got.len());
                match same.or(at) {
                    Some((_, want)) => row(compare(tensor, want, tolerance)),
                    None => Run {
                        ok: false,
                        ..alone(tensor)
                    },
                }
            }
        };
        (name.clone(), row)
    })
}

/// What is asked for, or what the coarsest type that the model computes content in allows.
pub(crate) fn tolerance(model: &Model, found: &Detection, options: &VerifyOptions) -> Tolerance {
    let types = model.graph().values().filter_map(|v| {
        let content = found.classes.of_value(v).has(Class::CONTENT);
        found.trace.get(v).dtype.filter(|_| content)
    });
    let coarsest = types
        .filter_map(|t| Some((t, t.epsilon()?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let usual = Tolerance::of(coarsest.map_or(DType::F32, |(dtype, _)| dtype));
    Tolerance {
        atol: options.atol.unwrap_or(usual.atol),
        rtol: options.rtol.unwrap_or(usual.rtol),
    }
}

pub(crate) fn row(found: Difference) -> Run {
    Run {
        max_abs: found.max_abs,
        rel: found.rel,
        cosine: found.cosine,
        bound: Some(found.bound),
        ok: found.ok,
        ..blank()
    }
}

fn alone(tensor: &Tensor) -> Run {
    let values = tensor.to_f64s();
    Run {
        ok: values.is_some_and(|v| !v.is_empty() && !v.iter().any(|x| x.is_nan())),
        ..blank()
    }
}

fn blank() -> Run {
    Run {
        runtime: String::new(),
        provider: String::new(),
        optimization: String::new(),
        length: 0,
        batch: 0,
        output: String::new(),
        max_abs: None,
        rel: None,
        cosine: None,
        bound: None,
        ok: false,
        first_divergence: None,
        placement: BTreeMap::new(),
    }
}
