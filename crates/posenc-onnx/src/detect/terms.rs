//! Vectors by distance that meet queries, keys or the weights of attention: Shaw, Transformer-XL,
//! disentangled attention.
//!
//! Each term that joins the scores is traced to the product in which content meets vectors. The
//! vectors are replaced by the numbers of their rows, and the scores show which pair meets which
//! row, however it was gathered, shifted or padded before. How rows follow the distance, whose
//! content meets them and what the rows are made from determine the family.

mod after;
mod family;
mod longer;
mod meeting;
mod met;
mod one_head;
mod reading;
mod source;
mod weights;

use posenc_ir::{Graph, NodeId, Use, ValueId};
use rustc_hash::FxHashMap;

use super::absolute::{CoordinateCache, meet_coordinates};
use super::found::Refused;
use super::results::Results;
use super::runs::Runs;
use crate::attention::Site;
use crate::detect::finding::{Encoding, Finding};
use crate::graph::dataflow::{Class, Classes};
use crate::graph::region::{Aspect, Region};
use crate::graph::signature::Signatures;
use family::{decide, finding, reach};
pub(crate) use meeting::joins;
use meeting::{Joins, Meeting};
use met::{Distances, Gathering, Met, Reading, Side, Waves};
use posenc_encodings::families::shaw::{self, Clip};
use posenc_encodings::families::transformer_xl;
use reading::{ReadError, Reader};

pub(crate) fn find(runs: &mut Runs<'_>, results: &mut Results) {
    let mut known = ReadingCache::default();
    for site in &runs.found.attention {
        let found = at_site(runs, &mut known, site, results);
        results.findings.extend(found);
        results.findings.extend(behind(runs, site));
    }
}

/// What meets the weights of a site behind the softmax.
fn behind(runs: &Runs<'_>, site: &Site) -> Option<Finding> {
    let met = after::meetings(runs.model.graph(), runs.found, site);
    let why = "numbers by position meet the weights of attention behind the softmax";
    let made = || finding(site, Encoding::Unknown, met.clone(), vec![why.to_owned()]);
    (!met.is_empty()).then(made)
}

/// Sines and cosines, none, or why vectors that look like them are others.
type WaveResult = Result<Option<Waves>, String>;

/// What was read so far: equal layers are read once.
#[derive(Default)]
struct ReadingCache {
    signatures: Signatures,
    readings: FxHashMap<usize, (Reading, Option<Distances>)>,
    codes: FxHashMap<ValueId, Vec<(Distances, WaveResult)>>,
    /// Whether values are computed from sines or cosines.
    computed: FxHashMap<ValueId, bool>,
    coordinates: CoordinateCache,
}

/// The findings at a site.
fn at_site(
    runs: &mut Runs<'_>,
    known: &mut ReadingCache,
    site: &Site,
    results: &mut Results,
) -> Vec<Finding> {
    let (model, found) = (runs.model, runs.found);
    let graph = model.graph();
    let joins = meeting::joins(graph, &found.classes, &found.trace, site);
    let mut refuse = |node: NodeId, why: &str| {
        results.no_encodings.push(Refused {
            site: site.index,
            node,
            why: why.to_owned(),
        });
    };
    let unknown =
        |entry: Use, why: String| finding(site, Encoding::Unknown, vec![entry], vec![why]);
    let mut findings = vec![];
    for (join, why) in &joins.others {
        let value = graph.node(join.node).input(join.slot());
        if value.is_some_and(|v| meet_coordinates(graph, found, &mut known.coordinates, v)) {
            let why = "a term computed from coordinates of the input is added to the scores";
            findings.push(unknown(*join, why.to_owned()));
        } else {
            refuse(join.node, why)
        }
    }
    let (mut met, mut unread) = (vec![], vec![]);
    for meeting in &joins.meetings {
        if site.product.is_none() {
            if places(meeting, &found.classes, graph) {
                let why = "content is multiplied with positions in the mask of a fused operator";
                unread.push(unknown(meeting.vectors, why.to_owned()));
            } else {
                let why = "content is multiplied with vectors in the mask of a fused operator";
                refuse(meeting.node, why);
            }
            continue;
        }
        if meeting.is_picked {
            let why = "content picks which of its products with vectors joins the scores";
            unread.push(unknown(meeting.vectors, why.to_owned()));
            continue;
        }
        match known.read(runs, site, &joins, meeting) {
            Ok(one) => met.push(one),
            Err(ReadError::Everywhere) => {
                refuse(meeting.node, "the term is the same for all pairs of queries and keys");
            }
            Err(ReadError::Absent) => results.not_evaluated.push(format!(
                "{}: could not evaluate the vectors that content is multiplied with: their data is absent or too large",
                graph.place(meeting.node)
            )),
            Err(ReadError::Other(why)) => unread.push(unknown(meeting.vectors, why.to_owned())),
        }
    }
    for one in &mut met {
        match known.waves(runs, one) {
            Ok(code) => one.code = code,
            Err(why) => unread.push(unknown(one.entry, why)),
        }
    }
    let sinusoids: Vec<&Met> = met.iter().filter(|one| one.code.is_some()).collect();
    if let [_, second, ..] = sinusoids[..] {
        results.not_evaluated.push(format!(
            "{}: queries meet sinusoids of the distance in several products, which could not be read as one",
            graph.place(second.entry.node)
        ));
    }
    if !unread.is_empty() {
        findings.extend(unread);
        return findings;
    }
    match gathered(runs, site) {
        Ok(value) => findings.extend(decide(site, met, value)),
        Err((entry, why)) => {
            findings.extend(decide(site, met, None));
            findings.push(unknown(entry, why));
        }
    }
    findings
}

/// Whether the vectors that content meets follow from positions.
fn places(meeting: &Meeting, classes: &Classes, graph: &Graph) -> bool {
    let at = meeting.vectors;
    let value = graph.node(at.node).input(at.slot());
    value.is_some_and(|v| classes.of_value(v).has(Class::POSITION))
}

/// Vectors that the weights gather: where, and the row of each distance.
///
/// # Errors
/// With where the weights gather what cannot be read, and why it cannot.
fn gathered(runs: &mut Runs<'_>, site: &Site) -> Result<Option<Gathering>, (Use, String)> {
    let (model, found) = (runs.model, runs.found);
    let graph = model.graph();
    let mut read = None;
    for one in weights::gathered(graph, &found.classes, &found.trace, site) {
        let refuse = |why: &str| (one.vectors, why.to_owned());
        let rows = weights::rows(model, &found.trace, site, &one).map_err(refuse)?;
        let Some(weights::Rows {
            rows,
            without,
            table,
            axis,
        }) = rows
        else {
            continue;
        };
        if read.is_some() {
            return Err(refuse("weights of attention gather vectors twice"));
        }
        let (queries, keys) = rows.dim();
        let reading = Reading {
            side: Side::Key,
            rows,
            without,
            past: i64::try_from(keys.saturating_sub(queries)).unwrap_or(0),
            table: Some((table, axis)),
            shared: true,
        };
        let short = reading
            .by_distance()
            .ok_or_else(|| refuse("weights of attention gather vectors, but not by distance"))?;
        let picks = meeting::picks(graph, &one.chain);
        let long = longer::distances(runs, &picks, &reading);
        read = Some(Gathering {
            entry: one.vectors,
            rows: self::rows(runs, &reading),
            distances: long.unwrap_or(short),
            is_window: !reading.without.is_empty(),
        });
    }
    Ok(read)
}

impl ReadingCache {
    /// Reads a meeting; of equal ones the first alone.
    fn read(
        &mut self,
        runs: &mut Runs<'_>,
        site: &Site,
        joins: &Joins,
        meeting: &Meeting,
    ) -> Result<Met, ReadError> {
        let (model, found) = (runs.model, runs.found);
        let graph = model.graph();
        let table = meeting.chain.last().copied();
        let signature = self.signature(runs, site, joins, meeting);
        let (reading, distances) = match signature.and_then(|a| self.readings.get(&a)) {
            Some((reading, distances)) => {
                let mut reading = reading.clone();
                reading.table = reading.table.and_then(|(_, axis)| Some((table?, axis)));
                (reading, distances.clone())
            }
            None => {
                let reading = Reader::new(model, &found.trace, site, joins, meeting).read()?;
                let short = reading.by_distance();
                let long = short
                    .is_some()
                    .then(|| longer::distances(runs, &joins.picks, &reading));
                let distances = long.flatten().or(short);
                if let (Some(signature), Some(_)) = (signature, reading.table) {
                    self.readings
                        .insert(signature, (reading.clone(), distances.clone()));
                }
                (reading, distances)
            }
        };
        let made = reading
            .table
            .map(|(t, axis)| source::sources(graph, &found.trace, t, axis));
        let made = made.unwrap_or_default();
        let rows = rows(runs, &reading);
        Ok(Met {
            entry: meeting.vectors,
            side: reading.side,
            projected: made.iter().any(|s| s.projected),
            rows,
            origin: made.iter().find_map(|s| s.stored_rows(graph, &found.trace)),
            reading,
            distances,
            code: None,
        })
    }

    /// What the scores of a site compute of a meeting, by number.
    fn signature(
        &mut self,
        runs: &Runs<'_>,
        site: &Site,
        joins: &Joins,
        meeting: &Meeting,
    ) -> Option<usize> {
        let (graph, found) = (runs.model.graph(), runs.found);
        let lane = site.query.lane;
        let region = Region {
            input: meeting.content,
            input_lane: lane,
            output: site.scores?,
            output_lane: lane,
            entries: vec![],
            inside: None,
        };
        let table = *meeting.chain.last()?;
        let mut shapes = joins.besides(graph, meeting);
        shapes.push(table);
        shapes.extend(site.product);
        let count = |v: ValueId| {
            if shapes.contains(&v) {
                return Aspect::Shape;
            }
            let content = found.classes.of_value(v).has(Class::CONTENT);
            if content || meeting.chain.contains(&v) {
                Aspect::Origin
            } else {
                Aspect::Numbers
            }
        };
        Some(self.signatures.region(graph, &region, &found.trace, count))
    }

    /// The sines and cosines that the vectors are made from, if they are; why not, where they look
    /// like it and are others.
    fn waves(&mut self, runs: &mut Runs<'_>, met: &Met) -> WaveResult {
        let (Some(distances), Some((table, axis))) = (&met.distances, met.reading.table) else {
            return Ok(None);
        };
        let (graph, found) = (runs.model.graph(), runs.found);
        let Some(rows) = found
            .trace
            .get(table)
            .dims
            .as_ref()
            .and_then(|d| d.get(axis).copied())
        else {
            return Ok(None);
        };
        let mut missed = None;
        for source in source::sources(graph, &found.trace, table, axis) {
            let codes = self.codes.entry(source.value).or_default();
            let read = match codes.iter().find(|(d, _)| d == distances) {
                Some((_, read)) => read.clone(),
                None => {
                    let code = source.code(&found.trace, Some(rows));
                    let read = match code.filter(source::is_wave) {
                        Some(code) => waves(runs, &source, &code, distances).map(Some),
                        None => Ok(None),
                    };
                    codes.push((distances.clone(), read.clone()));
                    read
                }
            };
            match read {
                Ok(None) => {
                    let computed = self.computed.entry(source.value);
                    if *computed.or_insert_with(|| source.waves(graph)) {
                        let why =
                            "vectors that are computed from sines or cosines, but are no sinusoids";
                        missed.get_or_insert_with(|| why.to_owned());
                    }
                }
                Ok(Some(waves)) => return Ok(Some(waves)),
                Err(why) => missed = Some(why),
            }
        }
        missed.map_or(Ok(None), Err)
    }
}

/// The rows of the table of a reading; `None` where they grow with the sequence.
fn rows(runs: &mut Runs<'_>, reading: &Reading) -> Option<usize> {
    let (table, axis) = reading.table?;
    let found = runs.found;
    let count = |dims: &Option<Vec<usize>>| dims.as_ref()?.get(axis).copied();
    let rows = count(&found.trace.get(table).dims)?;
    let longer = runs.at(2 * found.lengths.sequence);
    let grown = longer.and_then(|t| count(&t.get(table).dims));
    grown.is_none_or(|n| n == rows).then_some(rows)
}

/// Reads sines and cosines of the distance off the rows that the distances pick.
fn waves(
    runs: &mut Runs<'_>,
    source: &source::RowSource,
    code: &ndarray::Array2<f64>,
    distances: &Distances,
) -> Result<Waves, String> {
    let pick = |code: &ndarray::Array2<f64>, rows: &mut dyn Iterator<Item = (i64, i64)>| {
        rows.filter_map(|(d, row)| {
            let row = usize::try_from(row).ok().filter(|r| *r < code.nrows())?;
            Some((-d, code.row(row).to_vec()))
        })
        .collect::<Vec<_>>()
    };
    let short = pick(code, &mut distances.iter().map(|(d, r)| (*d, *r)));
    let mut read = transformer_xl::identify(&short).map_err(|miss| miss.why)?;
    let clip = shaw::identify(distances).ok();
    let stored = source.stored(runs.model.graph(), &runs.found.trace, code.ncols());
    let mut max_length = None;
    if let Some(clip) = clip {
        if let Some((stored, cut)) = stored {
            let clip = if cut {
                center(&stored).map(|center| Clip { center, ..clip })
            } else {
                Some(clip)
            };
            max_length = clip.and_then(|c| reach(&c, stored.nrows(), distances));
        } else if read.clamp.is_none()
            && let Some(long) = runs.at(LONG).and_then(|t| source.code(t, None))
            && let Some(center) = center(&long)
        {
            // A longer code has its center elsewhere.
            let last = i64::try_from(long.nrows()).unwrap_or(0);
            let mut rows = (0..last).map(|row| (clip.step * (row - center), row));
            let rows = pick(&long, &mut rows);
            if let Ok(longer) = transformer_xl::identify(&rows) {
                read.clamp = longer.clamp;
            }
        }
    }
    Ok(Waves {
        code: read,
        max_length,
    })
}

/// Tokens of the run that shows where a code is clamped.
const LONG: usize = 1100;

/// The row of distance 0: sines of 0, and half of the features 1.
fn center(code: &ndarray::Array2<f64>) -> Option<i64> {
    let exact = |row: &ndarray::ArrayView1<f64>| {
        let zeros = row.iter().filter(|v| v.abs() < 1e-9).count();
        let ones = row.iter().filter(|v| (*v - 1.0).abs() < 1e-9).count();
        zeros == ones && zeros + ones == row.len()
    };
    let place = code.rows().into_iter().position(|r| exact(&r))?;
    i64::try_from(place).ok()
}
