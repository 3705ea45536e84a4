//! How many queries and keys there are, and the distance of each pair.

use posenc_ir::{Dim, Emitter, ScopeId, Tensor, ValueId};

use crate::attention::Site;
use crate::detect::Runs;
use crate::ports::{Port, Ports, Role};
use crate::swap::Ground;

/// Distances of fixed lengths are stored where there are no more than this.
const STORED: usize = 1 << 14;

/// A number of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::swap::put_in) enum Length {
    /// The same in every run.
    Fixed(usize),
    /// The axes of these values, one behind the other.
    Along(Vec<(ValueId, usize)>),
    /// What this value says, an integer of any type and shape.
    Said(ValueId),
}

/// Queries and keys of a site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::swap::put_in) struct Lengths {
    pub(in crate::swap::put_in) queries: Length,
    pub(in crate::swap::put_in) keys: Length,
    /// There are as many of both in every run.
    pub(in crate::swap::put_in) square: bool,
    /// How far each sequence goes, by its last index, where sequences stand at the start of
    /// their rows.
    pub(in crate::swap::put_in) last: Option<ValueId>,
}

/// What is computed of the lengths, once for all sites with the same; the last query stands at the
/// last key.
#[derive(Debug)]
pub(in crate::swap::put_in) struct Grid {
    scope: ScopeId,
    lengths: Lengths,
    /// The lengths in runs; nothing else has the same.
    runs: Vec<[usize; 2]>,
    queries: Option<ValueId>,
    keys: Option<ValueId>,
    last_key: Option<ValueId>,
    places: Option<ValueId>,
    distances: Option<ValueId>,
}

impl Grid {
    /// The number of queries, a scalar.
    pub(in crate::swap::put_in) fn queries(&mut self, out: &mut Emitter<'_>) -> ValueId {
        match self.lengths.square {
            true => self.keys(out),
            false => {
                let length = &self.lengths.queries;
                *self.queries.get_or_insert_with(|| count(out, length))
            }
        }
    }

    /// The number of keys, a scalar.
    pub(in crate::swap::put_in) fn keys(&mut self, out: &mut Emitter<'_>) -> ValueId {
        let length = &self.lengths.keys;
        *self.keys.get_or_insert_with(|| count(out, length))
    }

    /// The index of the last key, a scalar.
    pub(in crate::swap::put_in) fn last_key(&mut self, out: &mut Emitter<'_>) -> ValueId {
        if let Some(last) = self.last_key {
            return last;
        }
        let last = match self.lengths.keys {
            Length::Fixed(keys) => scalar(out, keys as i64 - 1),
            _ => {
                let (keys, one) = (self.keys(out), scalar(out, 1));
                out.op("Sub", &[keys, one])
            }
        };
        *self.last_key.insert(last)
    }

    /// The index of each key, `[keys]`.
    pub(in crate::swap::put_in) fn places(&mut self, out: &mut Emitter<'_>) -> ValueId {
        if let Some(places) = self.places {
            return places;
        }
        let places = match self.lengths.keys {
            Length::Fixed(keys) => {
                let all: Vec<i64> = (0..keys as i64).collect();
                out.ints("places", &all)
            }
            _ => {
                let keys = self.keys(out);
                let (zero, one) = (scalar(out, 0), scalar(out, 1));
                out.op("Range", &[zero, keys, one])
            }
        };
        *self.places.insert(places)
    }

    /// The distance of each pair, key − query: `[queries, keys]`, after an axis of sequences where
    /// these differ.
    pub(in crate::swap::put_in) fn distances(&mut self, out: &mut Emitter<'_>) -> ValueId {
        if let Some(distances) = self.distances {
            return distances;
        }
        let distances = match self.fixed() {
            Some([queries, keys]) if queries * keys <= STORED => {
                let past = keys as i64 - queries as i64;
                let rows = 0..queries as i64;
                let all: Vec<i64> = rows
                    .flat_map(|i| (0..keys as i64).map(move |j| j - i - past))
                    .collect();
                out.constant("distances", Tensor::from_i64(&[queries, keys], &all))
            }
            _ => {
                let places = self.places(out);
                let from = self.from(out);
                out.op("Sub", &[places, from])
            }
        };
        *self.distances.insert(distances)
    }

    fn fixed(&self) -> Option<[usize; 2]> {
        match (&self.lengths.queries, &self.lengths.keys) {
            (Length::Fixed(queries), Length::Fixed(keys)) if self.lengths.last.is_none() => {
                Some([*queries, *keys])
            }
            _ => None,
        }
    }

    /// The index of each query among the keys, `[queries, 1]`.
    fn from(&mut self, out: &mut Emitter<'_>) -> ValueId {
        if let Some([queries, keys]) = self.fixed() {
            let past = keys as i64 - queries as i64;
            let all: Vec<i64> = (0..queries as i64).map(|i| i + past).collect();
            return out.constant("queries", Tensor::from_i64(&[queries, 1], &all));
        }
        let column = out.ints("column", &[-1, 1]);
        if let Some(last) = self.lengths.last {
            return self.from_last(out, last, column);
        }
        let places = match self.lengths.square {
            true => self.places(out),
            false => {
                let (queries, keys) = (self.queries(out), self.keys(out));
                let past = out.op("Sub", &[keys, queries]);
                let one = scalar(out, 1);
                out.op("Range", &[past, keys, one])
            }
        };
        out.op("Reshape", &[places, column])
    }

    /// The index of each query of each sequence, `[batch, queries, 1]`: the new ones are the last
    /// of a sequence, or all where nothing came before.
    fn from_last(&mut self, out: &mut Emitter<'_>, last: ValueId, column: ValueId) -> ValueId {
        let queries = self.queries(out);
        let (zero, one) = (scalar(out, 0), scalar(out, 1));
        let places = out.op("Range", &[zero, queries, one]);
        let places = out.op("Reshape", &[places, column]);
        let last = out.cast(last, posenc_ir::DType::I64);
        let sequences = out.ints("sequences", &[-1, 1, 1]);
        let last = out.op("Reshape", &[last, sequences]);
        let length = out.op("Add", &[last, one]);
        let past = out.op("Sub", &[length, queries]);
        let past = out.op("Max", &[past, zero]);
        out.op("Add", &[past, places])
    }

    /// Whether distances have an axis of sequences.
    pub(in crate::swap::put_in) fn is_ragged(&self) -> bool {
        self.lengths.last.is_some()
    }
}

/// A scalar.
pub(in crate::swap::put_in) fn scalar(out: &mut Emitter<'_>, n: i64) -> ValueId {
    out.constant("count", Tensor::from_i64(&[], &[n]))
}

/// A length as a scalar.
fn count(out: &mut Emitter<'_>, length: &Length) -> ValueId {
    let mut all: Option<ValueId> = None;
    match length {
        Length::Fixed(n) => return scalar(out, *n as i64),
        Length::Said(value) => {
            let value = out.cast(*value, posenc_ir::DType::I64);
            let none = out.ints("scalar", &[]);
            return out.op("Reshape", &[value, none]);
        }
        Length::Along(parts) => {
            for (value, axis) in parts {
                let shape = out.op("Shape", &[*value]);
                let axis = scalar(out, *axis as i64);
                let part = out.op("Gather", &[shape, axis]);
                all = Some(match all {
                    Some(before) => out.op("Add", &[before, part]),
                    None => part,
                });
            }
        }
    }
    all.unwrap_or_else(|| scalar(out, 0))
}

/// The grids of a graph.
pub(in crate::swap::put_in) struct Grids<'a> {
    ground: &'a Ground<'a>,
    runs: Runs<'a>,
    grids: Vec<Grid>,
}

impl<'a> Grids<'a> {
    pub(in crate::swap::put_in) fn new(ground: &'a Ground<'a>) -> Self {
        Self {
            ground,
            runs: Runs::new(ground.model, ground.found),
            grids: vec![],
        }
    }

    /// The grid of a site whose queries and keys stand on axes of values, by number.
    pub(in crate::swap::put_in) fn of(&mut self, site: &Site, lengths: Lengths) -> usize {
        let runs = self.lengths(&lengths);
        let said = |l: &Lengths| match l.keys {
            Length::Said(value) => Some(value),
            _ => None,
        };
        let same = |g: &Grid| {
            let told = !runs.is_empty() && g.runs == runs;
            let alike = lengths.square == g.lengths.square
                && lengths.last == g.lengths.last
                && said(&lengths) == said(&g.lengths);
            g.scope == site.scope && (g.lengths == lengths || told && alike)
        };
        if let Some(known) = self.grids.iter().position(same) {
            return known;
        }
        self.grids.push(Grid {
            scope: site.scope,
            lengths,
            runs,
            queries: None,
            keys: None,
            last_key: None,
            places: None,
            distances: None,
        });
        self.grids.len() - 1
    }

    pub(in crate::swap::put_in) fn get(&mut self, grid: usize) -> &mut Grid {
        &mut self.grids[grid]
    }

    /// The lengths in the trial run and in a longer one, where there is one.
    fn lengths(&mut self, lengths: &Lengths) -> Vec<[usize; 2]> {
        let found = self.ground.found;
        let of = |trace: &posenc_ir::eval::Trace| -> Option<[usize; 2]> {
            let long = |length: &Length| match length {
                Length::Fixed(n) => Some(*n),
                Length::Along(parts) => {
                    let sizes = parts.iter().map(|(v, axis)| {
                        let dims = trace.get(*v).dims.as_ref()?;
                        dims.get(*axis).copied()
                    });
                    sizes.sum()
                }
                Length::Said(_) => Some(0),
            };
            Some([long(&lengths.queries)?, long(&lengths.keys)?])
        };
        let short = of(&found.trace);
        let long = self.runs.at(2 * found.lengths.sequence + 1).and_then(of);
        short.into_iter().chain(long).collect()
    }
}

/// The length of an axis of a value: a number where every run has the same.
pub(in crate::swap::put_in) fn length(ground: &Ground<'_>, value: ValueId, axis: usize) -> Length {
    let dims = ground.dims(value).and_then(|dims| dims.get(axis));
    let declared = ground.graph().value(value).shape();
    let declared = match declared.and_then(|shape| shape.get(axis)) {
        Some(Dim::Known(n)) => dims == Some(n),
        _ => false,
    };
    match dims.filter(|_| declared || is_fixed(&ground.found.ports)) {
        Some(n) => Length::Fixed(*n),
        None => Length::Along(vec![(value, axis)]),
    }
}

/// Whether the inputs fix every length but that of the batch.
fn is_fixed(ports: &Ports) -> bool {
    let known = |dims: &[Dim]| dims.iter().all(|d| matches!(d, Dim::Known(_)));
    let ids = |p: &&Port| matches!(p.role, Role::Tokens | Role::Positions);
    let tokens = ports.iter().any(|p| ids(&p) && p.dims.len() > 1);
    // Rows of ids and pictures stand one behind the other; of other things the first axis may
    // be that of tokens.
    ports.iter().all(|p| match tokens || p.dims.len() == 4 {
        true => known(p.dims.get(1..).unwrap_or_default()),
        false => known(&p.dims),
    })
}
