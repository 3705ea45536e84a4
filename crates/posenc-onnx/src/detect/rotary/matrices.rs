//! The matrix that a region applies to the features of a head at each position.

use ndarray::{Array2, Array3, Axis, s};
use posenc_ir::eval::{Budget, Trace, Value, probe};
use posenc_ir::{Model, ValueId};
use rustc_hash::FxHashMap;

use super::site::ProbeMode;
use crate::graph::region::{Inside, Region};
use posenc_encodings::families::rope::Unread;

/// Numbers that a table or the matrices of a region may have.
pub(super) const ROOM: Budget = Budget { elements: 1 << 28 };

/// Room for the values of one probe.
const BUDGET: Budget = Budget { elements: 1 << 22 };

/// Numbers that all probes of a region may be given.
const PROBED: Budget = Budget { elements: 1 << 30 };

/// The matrix of the region at every position, `[pos, out, in]`, and the mode of probing in which
/// other content obeys them too.
pub(crate) fn matrices(
    model: &Model,
    base: &Trace,
    change: &FxHashMap<ValueId, Value>,
    region: &Region,
) -> Result<(Array3<f64>, ProbeMode), Unread> {
    if let Some(inside) = &region.inside {
        return Ok((fused(model, base, change, inside)?, ProbeMode::Spread));
    }
    let probing = Probing::of(model, base, change, region)?;
    // Different content for every head and token must obey the same matrices.
    let mixed = probing.run(|slot, p, j| probing.mixed(slot, p, j))?;
    let spread = probing.spread()?;
    match probing.obeys(&mixed, &spread, |slot| slot) {
        Ok(()) => Ok((spread, ProbeMode::Spread)),
        Err(Unread::NotLinear) => {
            let uniform = probing.uniform()?;
            let mixed = probing.run(|_, p, j| probing.mixed(0, p, j))?;
            probing.obeys(&mixed, &uniform, |_| 0)?;
            Ok((uniform, ProbeMode::Uniform))
        }
        Err(why) => Err(why),
    }
}

/// The same for a region that was probed before in this mode, and of which other inputs have
/// changed: it is known to be linear.
pub(crate) fn matrices_again(
    model: &Model,
    base: &Trace,
    change: &FxHashMap<ValueId, Value>,
    region: &Region,
    mode: ProbeMode,
) -> Result<Array3<f64>, Unread> {
    if let Some(inside) = &region.inside {
        return fused(model, base, change, inside);
    }
    let probing = Probing::of(model, base, change, region)?;
    match mode {
        ProbeMode::Spread => probing.spread(),
        ProbeMode::Uniform => probing.uniform(),
    }
}

/// The same for a region whose pairs of features, as places in its output, are known too: one
/// probe of all pairs gives their cos and sin, and features in no pair are kept.
pub(crate) fn matrices_of_pairs(
    model: &Model,
    base: &Trace,
    change: &FxHashMap<ValueId, Value>,
    region: &Region,
    pairs: &[(usize, usize)],
) -> Result<Array3<f64>, Unread> {
    if let Some(inside) = &region.inside {
        return fused(model, base, change, inside);
    }
    let probing = Probing::of(model, base, change, region)?;
    let mut firsts = vec![0.0; probing.width];
    for (a, _) in pairs {
        firsts[*a] = 1.0;
    }
    let y = probing.run(|_, _, j| firsts[j])?;
    let mut maps = identity(probing.length, probing.width);
    for p in 0..probing.length {
        for (a, b) in pairs.iter().copied() {
            let (cos, sin) = (y[[0, p, a]], y[[0, p, b]]);
            maps[[p, a, a]] = cos;
            maps[[p, b, b]] = cos;
            maps[[p, b, a]] = sin;
            maps[[p, a, b]] = -sin;
        }
    }
    Ok(maps)
}

/// Identity matrices.
fn identity(length: usize, width: usize) -> Array3<f64> {
    let mut maps = Array3::zeros((length, width, width));
    for mut map in maps.outer_iter_mut() {
        map.diag_mut().fill(1.0);
    }
    maps
}

/// The rotation within a fused operator, from the rows of cos and sin that it reads.
fn fused(
    model: &Model,
    base: &Trace,
    change: &FxHashMap<ValueId, Value>,
    inside: &Inside,
) -> Result<Array3<f64>, Unread> {
    let got = probe(model, base, change, &[inside.cos, inside.sin], &BUDGET);
    let got = got.map_err(|_| Unread::NotEvaluated)?;
    let table = |i: usize| got[i].to_f64().ok_or(Unread::NotEvaluated);
    let (cos, sin) = (table(0)?, table(1)?);
    let &[rows, n] = cos.shape() else {
        return Err(Unread::NotEvaluated);
    };
    let length = inside.length.min(rows.saturating_sub(inside.first));
    let width = inside.width;
    let fits = ROOM.allows(&[length, width, width]);
    if cos.shape() != sin.shape() || length < 2 || 2 * n > width || !fits {
        return Err(Unread::NotEvaluated);
    }
    let mut maps = identity(length, width);
    for p in 0..length {
        for i in 0..n {
            let (a, b) = if inside.interleaved {
                (2 * i, 2 * i + 1)
            } else {
                (i, i + n)
            };
            let at = [inside.first + p, i];
            maps[[p, a, a]] = cos[at];
            maps[[p, b, b]] = cos[at];
            maps[[p, b, a]] = sin[at];
            maps[[p, a, b]] = -sin[at];
        }
    }
    Ok(maps)
}

/// A region that is probed.
struct Probing<'a> {
    model: &'a Model,
    base: &'a Trace,
    change: &'a FxHashMap<ValueId, Value>,
    region: &'a Region,
    dims: Vec<usize>,
    length: usize,
    width: usize,
    /// Heads times sequences.
    others: usize,
}

impl<'a> Probing<'a> {
    fn of(
        model: &'a Model,
        base: &'a Trace,
        change: &'a FxHashMap<ValueId, Value>,
        region: &'a Region,
    ) -> Result<Self, Unread> {
        let dims = base.get(region.input).dims.clone();
        let dims = dims.ok_or(Unread::NotEvaluated)?.to_vec();
        let lane = &region.input_lane;
        let width = lane.width(&dims).ok_or(Unread::NoFeatures)?;
        let length = dims[lane.sequence];
        let others = dims.iter().product::<usize>() / (length * width).max(1);
        let fits = BUDGET.allows(&dims)
            && ROOM.allows(&[length, width, width])
            && PROBED.allows(&[others, length, width, width]);
        let is_empty = length == 0 || width == 0 || others == 0;
        if is_empty || lane.feature == Some(lane.sequence) || !fits {
            return Err(Unread::NotEvaluated);
        }
        Ok(Self {
            model,
            base,
            change,
            region,
            dims,
            length,
            width,
            others,
        })
    }

    /// The output, `[slot, pos, feature]`, for content by slot, token and feature.
    fn run(&self, content: impl Fn(usize, usize, usize) -> f64) -> Result<Array3<f64>, Unread> {
        let shape = (self.others, self.length, self.width);
        self.run_on(Array3::from_shape_fn(shape, |(slot, p, j)| {
            content(slot, p, j)
        }))
    }

    /// The same for content as numbers.
    fn run_on(&self, x: Array3<f64>) -> Result<Array3<f64>, Unread> {
        let region = self.region;
        let x = (region.input_lane.join(x, &self.dims)).ok_or(Unread::NoFeatures)?;
        let mut seeds = self.change.clone();
        seeds.insert(region.input, Value::float(x));
        let got = probe(self.model, self.base, &seeds, &[region.output], &BUDGET);
        let y = got.ok().and_then(|v| v.into_iter().next()?.to_f64());
        let y = y.ok_or(Unread::NotEvaluated)?;
        let (lane, dims) = (&region.output_lane, y.shape().to_vec());
        if lane.sequence.max(lane.feature.unwrap_or(0)) >= dims.len()
            || dims[lane.sequence] != self.length
            || lane.width(&dims) != Some(self.width)
            || y.len() != self.length * self.width * self.others
        {
            return Err(Unread::NoFeatures);
        }
        lane.split(y).ok_or(Unread::NoFeatures)
    }

    /// Reads several unit vectors at a time, one in each head and sequence.
    fn spread(&self) -> Result<Array3<f64>, Unread> {
        let mut maps = Array3::zeros((self.length, self.width, self.width));
        for first in (0..self.width).step_by(self.others) {
            let units = (first..self.width).take(self.others);
            let mut x = Array3::zeros((self.others, self.length, self.width));
            for (slot, unit) in units.clone().enumerate() {
                x.slice_mut(s![slot, .., unit]).fill(1.0);
            }
            let y = self.run_on(x)?;
            for (slot, unit) in units.enumerate() {
                let column = y.index_axis(Axis(0), slot);
                maps.index_axis_mut(Axis(2), unit).assign(&column);
            }
        }
        Ok(maps)
    }

    /// Reads one unit vector at a time, the same in every head and sequence.
    fn uniform(&self) -> Result<Array3<f64>, Unread> {
        let mut maps = Array3::zeros((self.length, self.width, self.width));
        for unit in 0..self.width {
            let y = self.run(|_, _, j| f64::from(u8::from(unit == j)))?;
            for ((slot, p, i), v) in y.indexed_iter() {
                if slot == 0 {
                    maps[[p, i, unit]] = *v;
                } else if (maps[[p, i, unit]] - v).abs() > 1e-9 * (1.0 + v.abs()) {
                    return Err(Unread::NotLinear);
                }
            }
        }
        Ok(maps)
    }

    /// Random content by slot, token and feature.
    fn mixed(&self, slot: usize, p: usize, j: usize) -> f64 {
        let place = (slot * self.length + p) * self.width + j;
        let mixed = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed >> 40) as f64 / (1u64 << 24) as f64 - 0.5
    }

    /// Whether random content, the same in slots that `like` maps to one, is mapped as the matrices
    /// say.
    fn obeys(
        &self,
        y: &Array3<f64>,
        maps: &Array3<f64>,
        like: impl Fn(usize) -> usize,
    ) -> Result<(), Unread> {
        // Few features mix with a feature.
        let terms = |p: usize, i: usize| -> Vec<(usize, f64)> {
            let row = maps.slice(s![p, i, ..]);
            let row = row.iter().copied().enumerate();
            row.filter(|(_, v)| *v != 0.0).collect()
        };
        let terms = Array2::from_shape_fn((self.length, self.width), |(p, i)| terms(p, i));
        for ((slot, p, i), v) in y.indexed_iter() {
            let terms = terms[[p, i]].iter();
            let want: f64 = terms.map(|(j, m)| m * self.mixed(like(slot), p, *j)).sum();
            let equal = (v - want).abs() < 1e-9 * (1.0 + want.abs()); // NaN is not
            if !equal {
                return Err(Unread::NotLinear);
            }
        }
        Ok(())
    }
}
