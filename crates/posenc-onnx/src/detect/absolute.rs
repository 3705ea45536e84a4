//! What is added to the residual stream: learned tables and sinusoids.

mod alike;
mod beside;
mod coordinates;
mod grid;
mod not_added;
mod rows;
mod source;

use posenc_ir::eval::Trace;
use posenc_ir::{DType, Graph, Model, ValueId};

use super::found::{Found, Refused};
use super::results::Results;
use super::runs::{BUDGET, COARSE, LONGER, Runs, longer, rounding};
use crate::attention::stream::{Addition, Join, Stream, Tokens};
use crate::detect::finding::{Encoding, Finding};
use crate::graph::dataflow::Class;
use posenc_encodings::families::learned::Learned;
use posenc_encodings::families::sinusoidal::{self, Image, Precision, Sinusoidal};
use posenc_encodings::kind::{Form, Stack};
use posenc_encodings::miss::Miss;

pub(crate) use coordinates::{CoordinateCache, input_of_coordinates, meet_coordinates};
use grid::{Patches, patches};
use rows::{Rows, rounded_to};
use source::{PositionTable, TableSearch};

pub(crate) fn find(runs: &mut Runs<'_>, results: &mut Results) {
    let (model, found) = (runs.model, runs.found);
    let (graph, classes, trace) = (model.graph(), &found.classes, &found.trace);
    let stream = match found.attention[..] {
        [] => Stream::before(graph, classes, trace, &found.mixed),
        _ => Stream::of(graph, classes, trace, &found.attention),
    };
    if stream.more {
        let why = "too many values are added to the residual stream; some were not examined";
        results.not_evaluated.push(why.to_owned());
    }
    let mut known: Vec<(Key, Finding)> = vec![];
    for addition in &stream.additions {
        let candidate = Candidate::of(model, found, addition);
        for (key, finding) in candidate.map_or_else(Vec::new, |c| c.findings(results)) {
            let same = known.iter_mut().find(|(k, _)| *k == key);
            match same {
                Some((_, before)) => before.merge(finding),
                None => known.push((key, finding)),
            }
        }
    }
    let tables: Vec<ValueId> = known.iter().filter_map(|(key, _)| key.table).collect();
    let alike = alike::find(model, found, &stream, &tables);
    results.not_evaluated.extend(alike);
    results.findings.extend(known.into_iter().map(|(_, f)| f));
    results
        .findings
        .extend(coordinates::find(model, found, &stream.lookups));
}

/// What distinguishes the encodings of a stack: the table, or the computed code.
#[derive(Clone, Debug, PartialEq)]
struct Key {
    stack: Option<Stack>,
    /// No site of self-attention sees it.
    cross: bool,
    table: Option<ValueId>,
    encoding: Encoding,
}

/// Something that is added and varies along the sequence.
struct Candidate<'a> {
    model: &'a Model,
    found: &'a Found,
    addition: &'a Addition,
    /// What is added.
    value: ValueId,
    /// The axes of tokens of that; `None` where an operator reads rows by itself.
    along: Option<Tokens>,
    /// Its numbers; `None` where they are not at hand.
    rows: Option<Rows>,
    /// The tables that it is read from; none where it is computed.
    tables: Vec<PositionTable>,
    patches: Patches,
}

impl<'a> Candidate<'a> {
    /// The candidate of an addition; `None` where nothing varies along the sequence.
    fn of(model: &'a Model, found: &'a Found, addition: &'a Addition) -> Option<Self> {
        let (graph, trace) = (model.graph(), &found.trace);
        let entry = addition.entry;
        let node = graph.node(entry.node);
        let value = node.input(entry.slot())?;
        let search = TableSearch {
            graph,
            classes: &found.classes,
            trace,
        };
        let tokens = addition.tokens;
        let copies = found.lengths.batch;
        if node.op() == "EmbedLayerNormalization" {
            let table = embedded(trace, addition, value, node.input(8))?;
            return Some(Self {
                rows: rows::of_table(trace, &table),
                tables: vec![table],
                patches: Patches::default(),
                model,
                found,
                addition,
                value,
                along: None,
            });
        }
        let along =
            crate::attention::stream::back(graph, trace, entry.node, 0, entry.slot(), tokens)?;
        let rows = match Rows::of(trace.get(value), along, copies) {
            rows::RowsOf::Rows(rows) => Some(rows),
            rows::RowsOf::Alike => return None,
            rows::RowsOf::Absent => None,
        };
        let count = rows.as_ref().map(|r| r.count());
        let mut tables = search.tables(value, along);
        for table in &mut tables {
            let read = table.read.take();
            table.read = read.map(|read| rows::once(read, copies, count));
        }
        let content = addition.content;
        let patches = content.map(|v| patches(graph, &found.classes, trace, v, tokens, count));
        Some(Self {
            model,
            found,
            addition,
            value,
            along: Some(along),
            rows,
            tables,
            patches: patches.unwrap_or_default(),
        })
    }

    fn graph(&self) -> &Graph {
        self.model.graph()
    }

    /// What it is.
    fn findings(&self, results: &mut Results) -> Vec<(Key, Finding)> {
        if self.addition.join != Join::Summed {
            return self.not_added().into_iter().collect();
        }
        let place = self.graph().place(self.addition.entry.node);
        let Some(rows) = &self.rows else {
            let found: Vec<_> = self.tables.iter().filter_map(|t| self.absent(t)).collect();
            if found.is_empty() {
                return self.unread().into_iter().collect();
            }
            for why in found.iter().flat_map(|(_, f)| &f.evidence) {
                results.not_evaluated.push(format!("{place}: {why}"));
            }
            return found;
        };
        if self.is_beside() {
            self.refuse(results, "the added rows are tokens beside the others");
            return vec![];
        }
        let content = self.addition.content;
        if content.is_some_and(|v| self.found.gathered.contains(&v)) {
            self.refuse(
                results,
                "the added rows are those of learned queries, not of tokens",
            );
            return vec![];
        }
        if rows.dim() < 2 {
            return vec![self.unknown("adds one number to all features of each position")];
        }
        match self.sinusoidal(rows) {
            Ok((table, encoding, error)) => {
                return vec![self.finding(table, Encoding::Sinusoidal(encoding), Some(error))];
            }
            Err(why) => self.refuse(results, &format!("no sinusoid: {why}")),
        }
        if self.has_parts(rows) {
            results.not_evaluated.push(format!(
                "{place}: one row is added to all tokens of a part of the sequence, and another to those of the next \
                 part; whether it stands for a position or for the type of these tokens is not known"
            ));
            return vec![];
        }
        let mut evidence = vec![];
        let mut findings = vec![];
        for table in &self.tables {
            match self.learned(table) {
                Ok(mut encoding) => {
                    encoding.dim = table.width(&self.found.trace, rows.dim());
                    let encoding = Encoding::Learned(encoding);
                    findings.push(self.finding(Some(table.value), encoding, None));
                }
                Err(why) => evidence.push(format!("no table read by position: {why}")),
            }
        }
        // A constant that was computed when the model was loaded is a table too.
        let constant = self.found.classes.of_value(self.value).is_constant();
        if self.tables.is_empty() && constant {
            let count = i64::try_from(rows.count()).unwrap_or(0);
            let table = PositionTable {
                value: self.value,
                picked: self.value,
                rows: rows.count(),
                dim: rows.dim(),
                read: Some((0..count).collect()),
                joined_rows: 0,
                resized: None,
            };
            if let Ok(encoding) = self.learned(&table) {
                let encoding = Encoding::Learned(encoding);
                findings.push(self.finding(Some(self.value), encoding, None));
            }
        }
        if findings.is_empty() {
            let shape = format!("[{}, {}]", rows.count(), rows.dim());
            evidence.insert(
                0,
                format!(
                    "{place} adds rows {shape} that depend on the position and are no sinusoids"
                ),
            );
            let mut unknown = self.finding(None, Encoding::Unknown, None);
            unknown.1.evidence = evidence;
            unknown.0.table = Some(self.value);
            findings.push(unknown);
        }
        findings
    }

    /// Whether each part of the sequence has a row of its own, alone or beside those of a table.
    fn has_parts(&self, rows: &Rows) -> bool {
        let [table] = &self.tables[..] else {
            return rows.are_of_parts();
        };
        let beside = rows::from_first(&self.found.trace, table, rows.count());
        rows.are_of_parts() || beside.is_some_and(|table| rows.parts_beside(&table))
    }

    /// The rows as sines and cosines, with the table that contains them.
    fn sinusoidal(&self, rows: &Rows) -> Result<(Option<ValueId>, Sinusoidal, f64), Miss> {
        let trace = &self.found.trace;
        let table = match &self.tables[..] {
            [table] => Some(table),
            _ => None,
        };
        let dtype = table.map_or(self.value, |t| t.value);
        let stored = self.dtype(dtype).max_loss(rounded_to(&rows.numbers));
        let precision = Precision::of(stored.max_loss(self.dtype(self.value)));
        if let Some(grid) = self.patches.grid {
            let patches = grid[0] * grid[1];
            let prefix = rows.count().saturating_sub(patches);
            let of_patches = rows.numbers.slice(ndarray::s![prefix.., ..]);
            if let Ok((code, error)) = sinusoidal::identify_grid(of_patches, grid, precision) {
                let image = code.image.map(|image| Image { prefix, ..image });
                let max_positions = table.map(|t| t.rows);
                let code = Sinusoidal {
                    image,
                    max_positions,
                    ..code
                };
                return Ok((table.map(|t| t.value), code, error));
            }
        }
        let near: Vec<f64> = (0..rows.count()).map(|p| p as f64).collect();
        let (code, error) = sinusoidal::identify(&near, rows.numbers.view(), precision)?;
        // A table has to be sinusoidal in all its rows.
        let (mut code, mut error) = (code, error);
        let most = |error: f64| 10.0 * error.max(precision.value());
        let mut max_positions = None;
        if let Some((table, first)) = table.and_then(|t| Some((t, t.first()?))) {
            if let Some((at, sample)) = rows::sample(trace, table, first)
                && code.amplitude == 1.0
            {
                (code, error) = sinusoidal::identify(&at, sample.view(), precision)?;
                rows::follow(trace, table, first, &code, most(error))?;
            }
            let past = self.first();
            let unused = first.checked_sub(past).unwrap_or(first);
            max_positions = Some(table.rows.saturating_sub(unused));
        }
        self.goes_on(&code, max_positions, most(error))?;
        code.offset = code.offset.checked_sub(self.first()).unwrap_or(code.offset);
        code.max_positions = max_positions;
        Ok((table.map(|t| t.value), code, error))
    }

    /// Whether what is added in longer sequences is of the same code, up to an error. What cannot be
    /// computed is not compared.
    ///
    /// # Errors
    /// With the first row of another code.
    fn goes_on(
        &self,
        code: &Sinusoidal,
        max_positions: Option<usize>,
        most: f64,
    ) -> Result<(), Miss> {
        let rounding = rounding(self.dtype(self.value));
        let longest = max_positions.map_or(usize::MAX, |n| n.saturating_sub(self.first()));
        for tokens in LONGER.map(|n| n.min(longest)) {
            let off = |place: usize| most + rounding * place as f64;
            let Some(along) = self.along.filter(|_| off(tokens) <= COARSE) else {
                continue;
            };
            let values = longer(self.model, self.found, &[self.value], tokens, &BUDGET);
            let rows = values.map(|values| Rows::of(&values[0], along, self.found.lengths.batch));
            let Some(rows::RowsOf::Rows(rows)) = rows else {
                continue;
            };
            let places: Vec<usize> = (0..rows.count()).collect();
            if let Some(place) = rows::departs(&rows.numbers, &places, code, off) {
                return Err(Miss::new(format!(
                    "with {tokens} tokens, that at place {place} gets a row of another code"
                )));
            }
        }
        Ok(())
    }

    /// The table as one that is learned.
    fn learned(&self, table: &PositionTable) -> Result<Learned, Miss> {
        let Patches { prefix, grid, .. } = self.patches;
        let rows = table.rows + table.joined_rows;
        let shape = [rows, table.dim];
        let grid = table.resized.or(grid);
        let Some(read) = &table.read else {
            return Ok(Learned {
                max_positions: rows,
                table_rows: rows,
                dim: table.dim,
                offset: 0,
                prefix,
                grid,
            });
        };
        let found = Learned::identify(shape, read, self.first(), prefix, grid)?;
        // Patches begin after rows that class tokens read elsewhere.
        let shared = self.graph().uses(table.value).len() > 1;
        Ok(if grid.is_some() && found.offset > 0 && shared {
            Learned {
                max_positions: table.rows,
                prefix: found.offset,
                offset: 0,
                ..found
            }
        } else {
            found
        })
    }

    /// A table of which what is added could not be computed.
    fn absent(&self, table: &PositionTable) -> Option<(Key, Finding)> {
        let encoding = Encoding::Learned(self.learned(table).ok()?);
        let mut found = self.finding(Some(table.value), encoding, None);
        if self.found.trace.get(table.value).data.is_none() {
            let name = self.graph().name(table.value);
            found.1.evidence = vec![format!(
                "the data of the position table {name} is absent; it may be sinusoidal"
            )];
        }
        Some(found)
    }

    /// Something that follows the position and could not be computed.
    fn unread(&self) -> Option<(Key, Finding)> {
        let class = self.found.classes.of_value(self.value);
        let mut found = self.finding(Some(self.value), Encoding::Unknown, None);
        let place = self.graph().place(self.addition.entry.node);
        found.1.evidence = vec![format!(
            "{place} adds a value that depends on the position and could not be evaluated"
        )];
        let misses = self.tables.iter().filter_map(|t| self.learned(t).err());
        let misses = misses.map(|why| format!("no table read by position: {why}"));
        found.1.evidence.extend(misses);
        class.has(Class::POSITION).then_some(found)
    }

    fn finding(
        &self,
        table: Option<ValueId>,
        encoding: Encoding,
        fit_error: Option<f64>,
    ) -> (Key, Finding) {
        let entry = self.addition.entry;
        let contrib = self.graph().node(entry.node).op() == "EmbedLayerNormalization";
        let max_length = match &encoding {
            Encoding::Learned(e) if e.grid.is_none() => Some(e.max_positions),
            Encoding::Sinusoidal(e) if e.image.is_none() => e.max_positions,
            _ => None,
        };
        let lead = self.patches.lead;
        let max_length = max_length.map(|rows| rows.saturating_sub(lead));
        let mut sites = self.addition.sites.clone();
        let stack_of = |site: &usize| self.found.attention[*site].place.stack;
        let stack = sites.first().and_then(stack_of);
        // Learned queries of another stack read what this one gives.
        sites.retain(|s| stack_of(s) == stack || !self.found.attention[*s].cross);
        let finding = Finding {
            encoding: encoding.clone(),
            sites,
            entries: vec![entry],
            table,
            form: if contrib { Form::Contrib } else { Form::Ops },
            fit_error,
            max_length,
            lead,
            evidence: vec![],
        };
        let cross = |site: &usize| self.found.attention[*site].cross;
        let key = Key {
            stack,
            cross: finding.sites.iter().all(cross),
            table,
            encoding,
        };
        (key, finding)
    }

    fn refuse(&self, results: &mut Results, why: &str) {
        if let Some(site) = self.addition.sites.first() {
            results.no_encodings.push(Refused {
                site: *site,
                node: self.addition.entry.node,
                why: why.to_owned(),
            });
        }
    }

    /// The position of the first token of the trial run.
    fn first(&self) -> usize {
        self.found.lengths.past
    }

    fn dtype(&self, value: ValueId) -> Option<DType> {
        let declared = self.graph().dtype(value);
        declared.or(self.found.trace.get(value).dtype)
    }
}

/// The coarser of two types in which the same numbers are stored.
trait Coarser {
    fn max_loss(self, other: Self) -> Self;
}

impl Coarser for Option<DType> {
    fn max_loss(self, other: Self) -> Self {
        let rank = |t: &Self| match t {
            Some(t) if t.is_int() => 3,
            Some(DType::BF16) => 2,
            Some(DType::F16) => 1,
            _ => 0,
        };
        [self, other].into_iter().max_by_key(rank).flatten()
    }
}

/// The table of an operator that gathers by itself.
fn embedded(
    trace: &Trace,
    addition: &Addition,
    value: ValueId,
    ids: Option<ValueId>,
) -> Option<PositionTable> {
    let [rows, dim] = *trace.get(value).dims.as_deref()? else {
        return None;
    };
    let [_, length, _] = addition.dims[..] else {
        return None;
    };
    let read = match ids {
        Some(ids) => trace
            .get(ids)
            .to_i64()?
            .iter()
            .copied()
            .take(length)
            .collect(),
        None => (0..i64::try_from(length).ok()?).collect(),
    };
    Some(PositionTable {
        value,
        picked: value,
        rows,
        dim,
        read: Some(read),
        joined_rows: 0,
        resized: None,
    })
}
