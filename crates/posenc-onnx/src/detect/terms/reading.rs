//! Which vector each pair of a query and a key meets, read by running the scores with vectors and
//! content of our own.

use ndarray::{Array2, Array4, ArrayD, Axis, IxDyn, Slice};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{Model, ValueId};
use rustc_hash::FxHashMap;

use super::meeting::{Joins, Meeting};
use super::met::{Reading, Side};
use super::one_head::OneHead;
use crate::attention::Site;
use crate::attention::plane::HIDDEN;

/// Elements that a probe may take.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// Numbers of rows are read off ratios of scores to this.
const WHOLE: f64 = 1e-3;

/// Why pairs could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadError {
    /// The scores do not follow: data that is absent, or sizes beyond the budget.
    Absent,
    /// All pairs meet the same vectors.
    Everywhere,
    /// The numbers do not read as one vector for each pair.
    Other(&'static str),
}

/// One meeting of a site.
pub(crate) struct Reader<'a> {
    model: &'a Model,
    trace: &'a Trace,
    site: &'a Site,
    joins: &'a Joins,
    meeting: &'a Meeting,
    /// One head in place of all.
    one_head: Option<OneHead>,
}

type Seeds = FxHashMap<ValueId, Value>;

impl<'a> Reader<'a> {
    pub(crate) fn new(
        model: &'a Model,
        trace: &'a Trace,
        site: &'a Site,
        joins: &'a Joins,
        meeting: &'a Meeting,
    ) -> Self {
        Self {
            model,
            trace,
            site,
            joins,
            meeting,
            one_head: None,
        }
    }

    pub(crate) fn read(mut self) -> Result<Reading, ReadError> {
        let graph = self.model.graph();
        self.one_head = OneHead::of(graph, self.trace, self.site, self.joins, self.meeting);
        if let Some(one) = &self.one_head
            && let Ok(Some(mut reading)) = self.by_table(one.table)
            && let Some((_, axis)) = reading.table
            && let Some(&table) = self.meeting.chain.last()
            && let Some(axis) = one.origin(graph, self.trace, &self.meeting.chain, axis)
        {
            reading.table = Some((table, axis));
            reading.shared = self.is_shared(table, axis);
            return Ok(reading);
        }
        self.one_head = None;
        let table = self.meeting.chain.last();
        match table.map(|t| self.by_table(*t)) {
            Some(Ok(Some(reading))) => Ok(reading),
            _ => self.by_numbers(),
        }
    }

    /// Reads rows of a table that is filled with the numbers of its rows. `None` where no axis of
    /// it alone distinguishes the pairs.
    fn by_table(&self, table: ValueId) -> Result<Option<Reading>, ReadError> {
        let dims = self.dims(table)?;
        let content = self.content(|_| 1.0)?;
        let filled = |of: &dyn Fn(&IxDyn) -> f64| {
            let mut seeds = content.clone();
            let data = ArrayD::from_shape_fn(dims.clone(), |at| of(&at));
            seeds.insert(table, Value::float(data));
            self.scores(&seeds)
        };
        let zero = filled(&|_| 0.0)?;
        let one = filled(&|_| 1.0)? - &zero;
        let seen = visible(&zero);
        let numbered = |axis: usize, number: &[f64]| {
            let numbers = filled(&|at| number[at[axis]])?;
            Ok::<_, ReadError>((numbers - &zero) / &one)
        };
        let mut candidates = vec![];
        for axis in (0..dims.len()).filter(|a| dims[*a] > 1) {
            let all: Vec<f64> = (0..dims[axis]).map(|row| row as f64).collect();
            let numbers = numbered(axis, &all)?;
            if varies(&numbers, &seen) {
                candidates.push((axis, numbers));
            }
        }
        let Some((axis, numbers)) = candidates.pop().filter(|_| candidates.is_empty()) else {
            return Ok(None);
        };
        let read = |numbers| agreed(numbers, |pair| seen[pair] && one[pair] != 0.0, whole);
        let rows = match read(&numbers) {
            Some(rows) => Some(rows),
            // Each sequence of a batch may have rows of its own, of equal numbers.
            None => match self.first_of_equal(table, axis) {
                Some(first) => read(&numbered(axis, &first)?),
                None => None,
            },
        };
        let rows = rows.ok_or(ReadError::Other(
            "the scores are no sums of rows of a table",
        ))?;
        let mut seeds = content;
        seeds.insert(table, Value::float(ArrayD::ones(dims.clone())));
        let doubled = self.scores(&{
            let mut seeds = seeds.clone();
            seeds.extend(self.content(|_| 2.0)?);
            seeds
        })?;
        linear(&one, &(doubled - &zero), &seen)?;
        let (groups, heads, ..) = seen.dim();
        let is_seen = |(i, j): (usize, usize)| {
            let mut all = (0..groups).flat_map(|g| (0..heads).map(move |h| [g, h, i, j]));
            all.any(|at| seen[at])
        };
        let nothing = rows.indexed_iter().filter(|(_, row)| row.is_none());
        let without = nothing.map(|(pair, _)| pair).filter(|pair| is_seen(*pair));
        Ok(Some(Reading {
            side: self.side(&seeds, &seen)?,
            past: self.past(&rows),
            without: without.collect(),
            rows,
            table: Some((table, axis)),
            shared: self.is_shared(table, axis),
        }))
    }

    /// For each row of a table, the first row with the same numbers; `None` where all differ.
    fn first_of_equal(&self, table: ValueId, axis: usize) -> Option<Vec<f64>> {
        let data = self.trace.get(table).to_f64()?;
        let mut first: FxHashMap<Vec<u64>, usize> = FxHashMap::default();
        let rows = data.axis_iter(Axis(axis)).enumerate();
        let all: Vec<f64> = rows
            .map(|(place, row)| {
                // −0 is 0.
                let numbers = row.iter().map(|v| (v + 0.0).to_bits()).collect();
                *first.entry(numbers).or_insert(place) as f64
            })
            .collect();
        (first.len() < all.len()).then_some(all)
    }

    /// Distinguishes vectors by the scores that they give.
    fn by_numbers(&self) -> Result<Reading, ReadError> {
        let zero = self.scores(&self.content(|_| 0.0)?)?;
        let seen = visible(&zero);
        let runs: Vec<Array4<f64>> = [1.0, 2.0]
            .iter()
            .map(|seed| {
                let content = self.content(|k| probing(k, *seed))?;
                Ok(self.scores(&content)? - &zero)
            })
            .collect::<Result<_, _>>()?;
        if !runs.iter().any(|r| varies(r, &seen)) {
            return Err(ReadError::Everywhere);
        }
        let doubled = self.content(|k| 2.0 * probing(k, 1.0))?;
        linear(&runs[0], &(self.scores(&doubled)? - &zero), &seen)?;
        let (_, heads, queries, keys) = zero.dim();
        let group = clearest(&seen);
        let scale = runs.iter().flat_map(|r| r.iter()).zip(seen.iter().cycle());
        let scale = scale
            .filter(|(_, s)| **s)
            .fold(0.0, |m: f64, (v, _)| m.max(v.abs()));
        let mut met: Vec<Vec<f64>> = vec![];
        let rows = Array2::from_shape_fn((queries, keys), |(i, j)| {
            if !(0..heads).all(|h| seen[[group, h, i, j]]) {
                return None;
            }
            let at = |r: &Array4<f64>| (0..heads).map(|h| r[[group, h, i, j]]).collect::<Vec<_>>();
            let vector: Vec<f64> = runs.iter().flat_map(at).collect();
            let near = |v: &Vec<f64>| {
                let mut pairs = v.iter().zip(&vector);
                pairs.all(|(a, b)| (a - b).abs() <= 1e-5 * scale)
            };
            let place = met.iter().position(near).unwrap_or_else(|| {
                met.push(vector.clone());
                met.len() - 1
            });
            i64::try_from(place).ok()
        });
        Ok(Reading {
            side: self.side(&self.content(|k| 1.0 + (k as f64).sin())?, &seen)?,
            past: self.past(&rows),
            rows,
            without: vec![],
            table: None,
            shared: false,
        })
    }

    /// Whose content it is: where that of one token alone acts.
    fn side(&self, seeds: &Seeds, seen: &Array4<bool>) -> Result<Side, ReadError> {
        let content = self.meeting.content;
        let dims = self.dims(content)?;
        let whole = seeds[&content].to_f64().ok_or(ReadError::Absent)?;
        let mut without = seeds.clone();
        without.insert(content, Value::float(ArrayD::zeros(dims.clone())));
        let zero = self.scores(&without)?;
        let (_, _, queries, keys) = zero.dim();
        let mut sides = vec![];
        let free = |a: &usize| !self.meeting.features.contains(a) && dims[*a] > 1;
        for axis in (0..dims.len()).filter(free) {
            let token = dims[axis] / 2;
            let mut one = ArrayD::zeros(dims.clone());
            let at = || Slice::from(token..=token);
            one.slice_axis_mut(Axis(axis), at())
                .assign(&whole.slice_axis(Axis(axis), at()));
            let mut seeds = seeds.clone();
            seeds.insert(content, Value::float(one));
            let moved = self.scores(&seeds)? - &zero;
            let acts = |i: usize, j: usize| {
                let lanes = moved.slice(ndarray::s![.., .., i, j]);
                let seen = seen.slice(ndarray::s![.., .., i, j]);
                lanes.iter().zip(&seen).any(|(m, s)| *s && m.abs() > 1e-9)
            };
            let any_row = |i: usize| (0..keys).any(|j| acts(i, j));
            let any_column = |j: usize| (0..queries).any(|i| acts(i, j));
            let rows = (0..queries).filter(|i| any_row(*i)).count();
            let columns = (0..keys).filter(|j| any_column(*j)).count();
            let plane = dims[axis] == queries || dims[axis] == keys;
            sides.push(match (rows < queries, columns < keys) {
                _ if rows == 0 => continue,
                // After a causal mask, keys of one query are few as well.
                (true, true) if rows == 1 && (columns > 1 || any_row(token)) => Side::Query,
                (true, true) if columns == 1 => Side::Key,
                (true, false) => Side::Query,
                (false, true) => Side::Key,
                (true, true) if plane => {
                    return Err(ReadError::Other(
                        "the content of a token acts on pairs of other tokens",
                    ));
                }
                _ => continue,
            });
        }
        match sides[..] {
            [] => Err(ReadError::Other(
                "the content of every token acts on all pairs",
            )),
            [first, ..] if sides.iter().all(|s| *s == first) => Ok(first),
            _ => Err(ReadError::Other(
                "the content of queries and of keys acts at once",
            )),
        }
    }

    /// Content that is the same for all tokens and heads, by feature.
    fn content(&self, of: impl Fn(usize) -> f64) -> Result<Seeds, ReadError> {
        let dims = self.dims(self.meeting.content)?;
        let features = &self.meeting.features;
        let data = ArrayD::from_shape_fn(dims.clone(), |at| {
            of(features.iter().fold(0, |k, a| k * dims[*a] + at[*a]))
        });
        Ok(FxHashMap::from_iter([(
            self.meeting.content,
            Value::float(data),
        )]))
    }

    /// Whether a row of the table is as wide as the features that it meets: one for all heads.
    fn is_shared(&self, table: ValueId, axis: usize) -> bool {
        let dims = self.trace.get(table).dims.as_deref();
        let each = dims.map(|d| d.iter().product::<usize>() / d[axis].max(1));
        each.is_some() && each == self.width()
    }

    /// Features of the content that the vectors meet.
    fn width(&self) -> Option<usize> {
        let dims = self.trace.get(self.meeting.content).dims.as_ref()?;
        Some(self.meeting.features.iter().map(|a| dims[*a]).product())
    }

    fn dims(&self, value: ValueId) -> Result<Vec<usize>, ReadError> {
        let dims = self.trace.get(value).dims.clone();
        let dims = dims.map(|dims| match &self.one_head {
            Some(one) => one.dims(value, dims),
            None => dims,
        });
        dims.filter(|d| BUDGET.allows(d)).ok_or(ReadError::Absent)
    }

    /// `[group, head, query, key]` of the scores with the product and all other terms at zero.
    fn scores(&self, seeds: &Seeds) -> Result<Array4<f64>, ReadError> {
        let (Some(product), Some(scores), Some(plane)) =
            (self.site.product, self.site.scores, self.site.plane)
        else {
            return Err(ReadError::Other("the scores cannot be followed"));
        };
        let mut all = seeds.clone();
        all.extend(self.one_head.iter().flat_map(|one| one.seeds.clone()));
        let others = self.joins.besides(self.model.graph(), self.meeting);
        for value in others.into_iter().chain([product]) {
            let zeros = ArrayD::zeros(self.dims(value)?);
            all.insert(value, Value::float(zeros));
        }
        let got = probe(self.model, self.trace, &all, &[scores], &BUDGET);
        let data = got.ok().and_then(|v| v.first()?.to_f64());
        // Runs are compared with each other.
        let known = self.dims(scores)?;
        let data = data.filter(|d| d.shape() == known);
        let heads = match self.one_head {
            Some(_) => Some(1),
            None => self.site.heads,
        };
        let data = data.ok_or(ReadError::Absent)?;
        let data = crate::attention::scores::by_head(data, plane, heads);
        let data = data.ok_or(ReadError::Other(
            "the scores have no axes of queries and keys",
        ))?;
        // A sink adds a column that is no key.
        let keys = self.site.keys(self.trace);
        let keys = keys.map_or(data.dim().3, |n| n.min(data.dim().3));
        Ok(data.slice_move(ndarray::s![.., .., .., ..keys]))
    }

    fn past(&self, rows: &Array2<Option<i64>>) -> i64 {
        let (queries, keys) = rows.dim();
        i64::try_from(keys.saturating_sub(queries)).unwrap_or(0)
    }
}

/// A feature of content that is like drawn at random.
fn probing(feature: usize, seed: f64) -> f64 {
    (1.3 * seed * (feature + 1) as f64 + seed).sin() + 0.1
}

/// Whether twice the content gives twice the scores.
fn linear(once: &Array4<f64>, twice: &Array4<f64>, seen: &Array4<bool>) -> Result<(), ReadError> {
    let pairs = once.iter().zip(twice).zip(seen).filter(|(_, s)| **s);
    let mut off = pairs.map(|((a, b), _)| (2.0 * a - b).abs() > 1e-6 * (1.0 + a.abs()));
    if off.any(|off| off) {
        Err(ReadError::Other("the scores are not linear in the content"))
    } else {
        Ok(())
    }
}

/// Which pairs no mask hides.
fn visible(plane: &Array4<f64>) -> Array4<bool> {
    let mut seen = Array4::from_elem(plane.dim(), false);
    for (row, mut seen) in plane.rows().into_iter().zip(seen.rows_mut()) {
        let best = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        seen.zip_mut_with(&row, |s, v| *s = !v.is_nan() && best - v <= HIDDEN);
    }
    seen
}

/// The group in which the fewest pairs are hidden.
fn clearest(seen: &Array4<bool>) -> usize {
    let count = |g: &usize| seen.index_axis(Axis(0), *g).iter().filter(|s| **s).count();
    (0..seen.dim().0).rev().max_by_key(count).unwrap_or(0)
}

/// Whether visible pairs of one head and group differ.
fn varies(data: &Array4<f64>, seen: &Array4<bool>) -> bool {
    let planes = data.outer_iter().zip(seen.outer_iter());
    let planes = planes.flat_map(|(d, s)| {
        let heads = d.outer_iter().map(|d| d.to_owned()).collect::<Vec<_>>();
        heads
            .into_iter()
            .zip(s.outer_iter().map(|s| s.to_owned()).collect::<Vec<_>>())
    });
    planes.into_iter().any(|(d, s)| {
        let all = d.iter().zip(&s).filter(|(v, s)| **s && v.is_finite());
        let range = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (v, _)| {
            (a.min(*v), b.max(*v))
        });
        range.1 - range.0 > WHOLE
    })
}

fn whole(number: f64) -> Option<i64> {
    let near = number.round();
    ((number - near).abs() < WHOLE && near.abs() < 1e12).then_some(near as i64)
}

/// One number for each pair, the same for all heads and groups in which it counts; `None` where
/// they do not, or where it is none.
fn agreed(
    numbers: &Array4<f64>,
    counts: impl Fn([usize; 4]) -> bool,
    read: impl Fn(f64) -> Option<i64>,
) -> Option<Array2<Option<i64>>> {
    let (groups, heads, queries, keys) = numbers.dim();
    let mut rows = Array2::from_elem((queries, keys), None);
    for g in 0..groups {
        for h in 0..heads {
            for i in 0..queries {
                for j in 0..keys {
                    let at = [g, h, i, j];
                    if !counts(at) {
                        continue;
                    }
                    let row = read(numbers[at])?;
                    if rows[[i, j]].is_some_and(|r| r != row) {
                        return None;
                    }
                    rows[[i, j]] = Some(row);
                }
            }
        }
    }
    Some(rows)
}
