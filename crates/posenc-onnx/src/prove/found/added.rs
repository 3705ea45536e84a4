//! Rows that are added to the embeddings: sines and cosines against their formula, and which rows of a learned table
//! each position reads.

use ndarray::{Array2, Axis};
use posenc_ir::{DType, ValueId};
use posenc_runtime::Backend;

use super::row::{precision, rows};
use crate::detect::context::Context;
use crate::detect::finding::{Encoding, Finding};
use crate::detect::limits::{self, source_name};
use crate::graph::ports::Lengths;
use crate::prove::bound::{Against, Precision, ROUNDINGS, SINGLE, Worst};
use crate::prove::compute::{BUDGET, Compute, Runtime, TrialRun, array};
use crate::report::{Limit, LimitCause, SiteCheck};
use posenc_encodings::families::learned::Learned;
use posenc_encodings::families::sinusoidal::Sinusoidal;
use posenc_ir::Use;

/// The most positions that are computed.
const LONG: usize = 3000;

/// How far the rows of the trial run may be from those of a table, as a share of the largest number.
const EQUAL: f64 = 1e-5;

/// A value of rows that is added.
pub(super) struct Added<'a> {
    context: &'a Context<'a>,
    finding: &'a Finding,
    entry: Use,
    value: ValueId,
}

impl<'a> Added<'a> {
    /// Every value that a finding adds, once.
    pub(super) fn all(context: &'a Context<'a>, finding: &'a Finding) -> Vec<Self> {
        let mut all: Vec<Self> = vec![];
        for entry in &finding.entries {
            let value = context.graph().node(entry.node).input(entry.slot());
            let value = value.filter(|value| all.iter().all(|known| known.value != *value));
            all.extend(value.map(|value| Self {
                context,
                finding,
                entry: *entry,
                value,
            }));
        }
        all
    }

    /// The node that adds it.
    pub(super) fn place(&self) -> String {
        self.context.graph().place(self.entry.node)
    }

    /// Compares the rows that a runtime computes with what was read.
    ///
    /// # Errors
    /// Why they cannot be compared.
    pub(super) fn check(&self, backend: &dyn Backend) -> Result<Vec<SiteCheck>, String> {
        if self.context.graph().node(self.entry.node).op() == "EmbedLayerNormalization" {
            return Err("the operator reads its table by itself".to_owned());
        }
        let check = match &self.finding.encoding {
            Encoding::Sinusoidal(code) => self.code(code, backend)?,
            Encoding::Learned(table) => self.picked(table, backend)?,
            _ => return Ok(vec![]),
        };
        Ok(vec![check])
    }

    /// The usable rows of a learned table, the number of the first, and their type.
    pub(super) fn learned_rows(&self) -> Option<(Array2<f64>, usize, Option<DType>)> {
        let Encoding::Learned(table) = &self.finding.encoding else {
            return None;
        };
        let rows = self.table(table).ok()?;
        let usable = rows.slice_move(ndarray::s![table.offset.., ..]);
        let dtype = self.finding.table.map(|value| self.context.dtype(value));
        Some((usable, table.offset, dtype))
    }

    /// The rows of sines and cosines.
    fn code(&self, code: &Sinusoidal, backend: &dyn Backend) -> Result<SiteCheck, String> {
        let got = self.longest(code.dim, backend)?;
        let (first, want) = match code.image {
            Some(image) => {
                let want = code.reference_grid().ok_or("its grid is not known")?;
                (image.prefix, want)
            }
            None => (0, self.sequence(code, &got)),
        };
        if got.nrows() != first + want.nrows() {
            return Err(format!("it adds {} rows", got.nrows()));
        }
        let is_fixed = self.context.graph().stored(self.value).is_some();
        let epsilon = self.precision();
        let precision = Precision {
            angle: if is_fixed || self.finding.table.is_some() {
                SINGLE
            } else {
                epsilon
            },
            stored: Some(DType::F32),
            content: epsilon,
        };
        let fit = 2.0 * self.finding.fit_error.unwrap_or(0.0);
        let mut worst = Worst::default();
        for ((row, column), want) in want.indexed_iter() {
            let at = (row + code.offset) as f64 + self.context.found.lengths.past as f64;
            let frequency = code.frequency(column);
            let bound = precision.wave(at, frequency, code.amplitude.abs(), Against::Formula);
            worst.add(got[[first + row, column]], *want, bound.max(fit));
        }
        let last = got.nrows().saturating_sub(1);
        Ok(worst.check(
            &self.place(),
            format!("rows {first} to {last} (sinusoidal)"),
        ))
    }

    /// The code of the tokens of a sequence. A cache may come before the first, which then counts as position 0 all the
    /// same.
    fn sequence(&self, code: &Sinusoidal, got: &Array2<f64>) -> Array2<f64> {
        let from = |first: usize| -> Array2<f64> {
            let places: Vec<f64> = (first..first + got.nrows()).map(|p| p as f64).collect();
            let mut rows = code.reference(&places);
            // Some tables begin with a row of zeros.
            if let Some(zeros) = got
                .rows()
                .into_iter()
                .next()
                .filter(|r| r.iter().all(|v| *v == 0.0))
            {
                rows.row_mut(0).assign(&zeros);
            }
            rows
        };
        let off = |rows: &Array2<f64>| {
            let both = rows.iter().zip(got).take(rows.ncols());
            both.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        let (after, same) = (from(self.context.found.lengths.past), from(0));
        if off(&same) < off(&after) {
            same
        } else {
            after
        }
    }

    /// The rows of a learned table, up to a factor and a row that is the same for all positions, as of a type of token.
    fn picked(&self, learned: &Learned, backend: &dyn Backend) -> Result<SiteCheck, String> {
        let table = self.table(learned)?;
        if learned.grid.is_some() && self.finding.table != Some(self.value) {
            return Err("its rows are those of a grid, which may be resized".to_owned());
        }
        if self.is_bent() {
            return Err("later positions read rows that earlier ones read".to_owned());
        }
        let first = self.context.found.lengths.past;
        let reference = |rows: &Array2<f64>| {
            let places: Vec<usize> = (first..first + rows.nrows()).collect();
            let want = learned.reference(table.view(), &places);
            want.ok_or_else(|| "more rows are added than the table has".to_owned())
        };
        let trial = self.context.found.trace.get(self.value).to_f64();
        let trial =
            trial.and_then(|data| rows(data, learned.dim, self.context.found.lengths.batch));
        let trial = trial.ok_or("its numbers are not at hand")?;
        let relation = Relation::of(&reference(&trial)?, &trial);
        let relation = relation.ok_or("what is added is computed from the rows of its table")?;
        let got = self.longest(learned.dim, backend)?;
        let want = relation.of_rows(&reference(&got)?);
        let epsilon = self.precision();
        let mut worst = Worst::default();
        for ((at, got), want) in got.indexed_iter().zip(&want) {
            let size = want.abs() + relation.row[at.1].abs();
            worst.add(*got, *want, ROUNDINGS * epsilon * size);
        }
        let from = first + learned.offset;
        let last = (from + got.nrows()).saturating_sub(1);
        Ok(worst.check(&self.place(), format!("rows {from} to {last} (learned)")))
    }

    /// Whether positions pick rows of the table, whose end no sequence reaches: what picks is kept from growing with
    /// them.
    fn is_bent(&self) -> bool {
        let (graph, found) = (self.context.graph(), self.context.found);
        let picks = !found.classes.of_value(self.value).is_constant();
        let name = self.finding.table.and_then(|v| source_name(graph, v));
        let ends = |limit: &Limit| limit.cause == LimitCause::Table && limit.value == name;
        picks && !limits::all(graph, found).iter().any(ends)
    }

    /// The rows of the table that is read.
    fn table(&self, learned: &Learned) -> Result<Array2<f64>, String> {
        let value = self.finding.table.ok_or("it has no table")?;
        if !self.context.dtype(value).is_float() {
            return Err("its table is quantized".to_owned());
        }
        let stored = self.context.graph().constant(value);
        let data = match &stored {
            Some(tensor) => array(tensor),
            None => self.context.found.trace.get(value).to_f64(),
        };
        let table = data.and_then(|data| rows(data, learned.dim, 1));
        let table = table.ok_or("the numbers of its table are not at hand")?;
        match table.nrows() == learned.table_rows {
            true => Ok(table),
            false => Err("its rows are of several tables".to_owned()),
        }
    }

    fn precision(&self) -> f64 {
        let found = self.context.found;
        precision(
            self.context.graph(),
            &found.classes,
            &found.trace,
            self.value,
        )
    }

    /// The rows of the longest sequence that the model takes, or else of the trial run.
    fn longest(&self, width: usize, backend: &dyn Backend) -> Result<Array2<f64>, String> {
        let found = self.context.found;
        let ends = found.limits.iter().map(|limit| limit.length);
        let end = ends.chain(self.finding.max_length).min().unwrap_or(LONG);
        let all = end.min(LONG).min(BUDGET.elements / width.max(1));
        let wanted = Lengths {
            batch: 1,
            sequence: all.saturating_sub(found.lengths.past),
            ..found.lengths
        };
        let long = found.ports.fit(wanted) == wanted && wanted.sequence > found.lengths.sequence;
        let long = long.then(|| self.computed(wanted, width, backend));
        match long {
            Some(Ok(rows)) => Ok(rows),
            _ => self.computed(found.ports.alone(found.lengths), width, backend),
        }
    }

    fn computed(
        &self,
        at: Lengths,
        width: usize,
        backend: &dyn Backend,
    ) -> Result<Array2<f64>, String> {
        let (model, found) = (self.context.model, self.context.found);
        let data = match model.graph().constant(self.value) {
            Some(tensor) => array(&tensor).ok_or("its numbers are not at hand")?,
            None => {
                let place = self.place();
                let run = TrialRun {
                    site: &place,
                    model,
                    trace: &found.trace,
                    seeds: &found.ports.seeds(model.graph(), at),
                };
                let computed = Runtime(backend).compute(&run, &[], self.value);
                computed.map_err(|error| error.to_string())?
            }
        };
        let rows = rows(data, width, at.batch);
        rows.ok_or_else(|| "its rows cannot be told apart".to_owned())
    }
}

/// What becomes of the rows of a table: each times a factor, plus one row.
struct Relation {
    factor: f64,
    row: ndarray::Array1<f64>,
}

impl Relation {
    /// Of rows and what is added; `None` where something else becomes of them.
    fn of(rows: &Array2<f64>, added: &Array2<f64>) -> Option<Self> {
        let mean = |of: &Array2<f64>| of.mean_axis(Axis(0));
        let (center, sum) = (mean(rows)?, mean(added)?);
        let (apart, moved) = (rows - &center, added - &sum);
        let factor = (&apart * &moved).sum() / (&apart * &apart).sum();
        if !factor.is_finite() {
            return None;
        }
        let relation = Self {
            row: &sum - &(factor * &center),
            factor,
        };
        let most = added.iter().fold(0.0, |most: f64, v| most.max(v.abs()));
        let want = relation.of_rows(rows);
        let mut pairs = added.iter().zip(&want);
        pairs
            .all(|(a, b)| (a - b).abs() <= EQUAL * most)
            .then_some(relation)
    }

    fn of_rows(&self, rows: &Array2<f64>) -> Array2<f64> {
        self.factor * rows + &self.row
    }
}
