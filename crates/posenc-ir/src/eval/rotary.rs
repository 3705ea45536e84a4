//! The fused rotation of pairs of features, `y = x · cos + rotated(x) · sin`.

use super::array::{Array, flat, from_vec};
use super::call::{Call, Outputs, typed};
use super::data::Shared;
use super::gather::place;
use super::shape;
use super::{EvalError, Why};

/// The layout of x: `[batch, heads, sequence, size]` or `[batch, sequence, heads · size]`.
#[derive(Clone, Copy, Debug)]
struct Layout {
    batch: usize,
    heads: usize,
    sequence: usize,
    size: usize,
    /// The number of elements of one head that rotate; the others are unchanged.
    rotary: usize,
    /// The distance from head to head and from position to position.
    steps: [usize; 2],
    adjacent: bool,
}

impl Layout {
    /// `rotary` 0 means all elements.
    fn new(dims: &[usize], heads: usize, rotary: usize, adjacent: bool) -> Result<Self, EvalError> {
        let (batch, heads, sequence, size, headed) = match *dims {
            [b, h, s, d] => (b, h, s, d, true),
            [b, s, d] if heads > 0 && d % heads == 0 => (b, heads, s, d / heads, false),
            [_, _, _] => return Err(Why::Attribute("num_heads").into()),
            _ => return Err(Why::Rank.into()),
        };
        let rotary = if rotary == 0 { size } else { rotary };
        if rotary > size || rotary % 2 != 0 {
            return Err(Why::Attribute("rotary_embedding_dim").into());
        }
        let row = shape::product(&[heads, size])?;
        Ok(Self {
            batch,
            heads,
            sequence,
            size,
            rotary,
            steps: if headed {
                [shape::product(&[sequence, size])?, size]
            } else {
                [size, row]
            },
            adjacent,
        })
    }

    /// `row` gives the row of the tables for a batch entry and a position.
    fn rotate(
        &self,
        x: &Shared<f64>,
        cos: &[f64],
        sin: &[f64],
        row: impl Fn(usize, usize) -> Option<usize>,
    ) -> Option<Shared<f64>> {
        let half = self.rotary / 2;
        self.turn(x, |b, s| {
            let at = row(b, s)? * half;
            let row = |table: &[f64]| Some(table.get(at..at + half)?.to_vec());
            Some([row(cos)?, row(sin)?])
        })
    }

    /// `waves` gives the cosines and sines of the pairs for a batch entry and a position.
    fn turn(
        &self,
        x: &Shared<f64>,
        waves: impl Fn(usize, usize) -> Option<[Vec<f64>; 2]>,
    ) -> Option<Shared<f64>> {
        let half = self.rotary / 2;
        let all = flat(x);
        let mut out = all.clone().into_owned();
        let per_batch = self.heads * self.sequence * self.size;
        for b in 0..self.batch {
            for s in 0..self.sequence {
                let [cos, sin] = waves(b, s)?;
                for h in 0..self.heads {
                    let base = b * per_batch + h * self.steps[0] + s * self.steps[1];
                    for i in 0..half {
                        let (p, q) = if self.adjacent {
                            (base + 2 * i, base + 2 * i + 1)
                        } else {
                            (base + i, base + half + i)
                        };
                        out[p] = all[p] * cos[i] - all[q] * sin[i];
                        out[q] = all[p] * sin[i] + all[q] * cos[i];
                    }
                }
            }
        }
        from_vec(x.shape(), out)
    }
}

/// The tables as rows of half the rotary size.
fn tables(c: &Call<'_>, [cos, sin]: [usize; 2]) -> Option<[Vec<f64>; 2]> {
    let read = |i: usize| Some(flat(&c.array(i)?.floats()?).into_owned());
    Some([read(cos)?, read(sin)?])
}

/// Inputs of ai.onnx: x, cos, sin, positions. Without positions the tables have a row for each
/// batch entry (or one for all) and position.
pub(super) fn rotary(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let (cos, _) = (c.need(1)?, c.need(2)?);
    let heads = shape::dim(c.int("num_heads")?.unwrap_or(0))?;
    let rotary = shape::dim(c.int("rotary_embedding_dim")?.unwrap_or(0))?;
    let adjacent = c.flag("interleaved")?;
    let Some(dims) = x.dims.as_deref() else {
        return typed(x.dtype);
    };
    let layout = Layout::new(dims, heads, rotary, adjacent)?;
    if let Some(cos) = cos.dims.as_deref()
        && cos.last() != Some(&(layout.rotary / 2))
    {
        return Err(Why::Shapes.into());
    }
    c.map(x.dtype, |a| {
        let x = a.floats()?;
        let table = cos.dims.as_deref()?;
        let [cos, sin] = tables(c, [1, 2])?;
        let rotated = match c.at(3) {
            Some(positions) => {
                let positions = Positions::read(positions.ints(c.budget)?, &layout)?;
                layout.rotate(&x, &cos, &sin, |b, s| positions.row(b, s, table[0]))
            }
            None => {
                let &[batches, length, _] = table else {
                    return None;
                };
                if length != layout.sequence || batches != 1 && batches != layout.batch {
                    return None;
                }
                let row = |b: usize, s: usize| Some(if batches == 1 { s } else { b * length + s });
                layout.rotate(&x, &cos, &sin, row)
            }
        };
        Some(Array::Float(rotated?))
    })
}

/// What the attributes of an operator of com.microsoft say of its pairs.
struct Pairing {
    heads: usize,
    rotary: usize,
    adjacent: bool,
}

impl Pairing {
    fn read(c: &Call<'_>) -> Result<Self, EvalError> {
        Ok(Self {
            heads: shape::dim(c.int("num_heads")?.unwrap_or(0))?,
            rotary: shape::dim(c.int("rotary_embedding_dim")?.unwrap_or(0))?,
            adjacent: c.flag("interleaved")?,
        })
    }

    /// The layout of x where tables have columns for `half` pairs; `None` where they do not fit.
    fn layout(&self, dims: &[usize], half: usize) -> Option<Layout> {
        // Without a number of heads, the tables have the size of a head.
        let heads = match dims {
            [_, _, hidden] if self.heads == 0 && half > 0 => hidden / (2 * half),
            _ => self.heads,
        };
        let layout = Layout::new(dims, heads, self.rotary, self.adjacent).ok()?;
        (layout.rotary == 2 * half).then_some(layout)
    }
}

/// Inputs of com.microsoft: x, positions, cos, sin. A single position is the first one.
pub(super) fn contrib_rotary(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let (positions, cos, _) = (c.need(1)?, c.need(2)?, c.need(3)?);
    let pairing = Pairing::read(c)?;
    let packed = c.flag("is_packed_batching")?;
    c.map(x.dtype, |a| {
        if packed {
            return None;
        }
        let x = a.floats()?;
        let &[rows, half] = cos.dims.as_deref()? else {
            return None;
        };
        let layout = pairing.layout(x.shape(), half)?;
        let [cos, sin] = tables(c, [2, 3])?;
        let positions = Positions::read(positions.ints(c.budget)?, &layout)?;
        let rotated = layout.rotate(&x, &cos, &sin, |b, s| positions.row(b, s, rows));
        Some(Array::Float(rotated?))
    })
}

/// Inputs of com.microsoft: x, positions `[3, batch, sequence]`, cos, sin. Each pair has the rows of one of
/// the streams of positions.
pub(super) fn multimodal_rotary(c: &Call<'_>) -> Outputs {
    let x = c.need(0)?;
    let (positions, cos, _) = (c.need(1)?, c.need(2)?, c.need(3)?);
    let pairing = Pairing::read(c)?;
    let takes_turns = match c.int("mrope_layout")?.unwrap_or(0) {
        0 => Some(false),
        1 => Some(true),
        _ => None,
    };
    let packed = c.flag("is_packed_batching")?;
    let scale = c.float("scale")?.unwrap_or(1.0);
    let sections = c.ints("mrope_section")?;
    c.map(x.dtype, |a| {
        // The runtime multiplies by the scale, which the plain rotation has not.
        if packed || scale != 1.0 {
            return None;
        }
        let x = a.floats()?;
        let &[rows, half] = cos.dims.as_deref()? else {
            return None;
        };
        let layout = pairing.layout(x.shape(), half)?;
        let streams = position_streams(sections?, half, takes_turns?)?;
        let of_tokens = [3, layout.batch, layout.sequence];
        if positions.dims.as_deref()? != of_tokens {
            return None;
        }
        let tables = tables(c, [2, 3])?;
        let ids = positions.ints(c.budget)?;
        let rotated = layout.turn(&x, |b, s| {
            let row = |stream: &usize| {
                let id = *ids.get((stream * layout.batch + b) * layout.sequence + s)?;
                place(id, rows).filter(|_| id >= 0)
            };
            let rows: Vec<usize> = streams.iter().map(row).collect::<Option<_>>()?;
            let wave = |table: &Vec<f64>| {
                let pairs = rows.iter().enumerate();
                let pairs = pairs.map(|(pair, row)| table.get(row * half + pair).copied());
                pairs.collect::<Option<Vec<f64>>>()
            };
            let [cos, sin] = &tables;
            Some([wave(cos)?, wave(sin)?])
        });
        Some(Array::Float(rotated?))
    })
}

/// The stream of positions, 0 to 2, that picks the row of each pair in an `MRotaryEmbedding`: in sections, or in
/// turns for as long as the second and third have pairs left. `sections` has the number of pairs of each. `None`
/// where the sections do not share out the pairs.
pub fn position_streams(sections: &[i64], pairs: usize, takes_turns: bool) -> Option<Vec<usize>> {
    let counts = sections.iter().map(|n| usize::try_from(*n).ok());
    let &[time, height, width] = counts.collect::<Option<Vec<_>>>()?.as_slice() else {
        return None;
    };
    let counts = [time, height, width];
    let sum = counts.into_iter().try_fold(0, usize::checked_add);
    if sum != Some(pairs) {
        return None;
    }
    Some(match takes_turns {
        false => (0..3).flat_map(|s| vec![s; counts[s]]).collect(),
        true => (0..pairs)
            .map(|pair| match pair % 3 {
                0 => 0,
                s if pair / 3 < counts[s] => s,
                _ => 0,
            })
            .collect(),
    })
}

/// Position ids: one per batch entry and position, one per position, or the first one.
enum Positions {
    Each(Vec<i64>, usize),
    Shared(Vec<i64>),
    From(i64),
}

impl Positions {
    fn read(ids: Vec<i64>, layout: &Layout) -> Option<Self> {
        if ids.len() == layout.batch.checked_mul(layout.sequence)? {
            Some(Self::Each(ids, layout.sequence))
        } else if ids.len() == 1 {
            Some(Self::From(ids[0]))
        } else if ids.len() == layout.sequence {
            Some(Self::Shared(ids))
        } else {
            None
        }
    }

    /// The row of a table for a batch entry and a position; `None` out of range.
    fn row(&self, batch: usize, at: usize, rows: usize) -> Option<usize> {
        let id = match self {
            Self::Each(ids, length) => *ids.get(batch * length + at)?,
            Self::Shared(ids) => *ids.get(at)?,
            Self::From(first) => first.checked_add(at as i64)?,
        };
        place(id, rows).filter(|_| id >= 0)
    }
}
