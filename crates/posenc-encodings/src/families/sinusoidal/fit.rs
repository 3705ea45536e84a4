//! Reading a sinusoidal code from rows: amplitudes, then angles, then the law of frequencies.

use std::f64::consts::{PI, TAU};

use ndarray::{Array2, ArrayView2};
use posenc_ir::DType;

use super::{Columns, Denominator, Sinusoidal};
use crate::layout::Layout;
use crate::miss::Miss;

/// How exactly rows are held.
#[derive(Clone, Copy, Debug)]
pub struct Precision {
    /// Of a sine of amplitude 1.
    value: f64,
    /// Of a frequency, as a share of it.
    frequency: f64,
}

impl Precision {
    /// By how much a sine of amplitude 1 may be off.
    pub fn value(self) -> f64 {
        self.value
    }

    /// Of rows that are stored in a type; `None` stands for one of 32 bits.
    pub fn of(dtype: Option<DType>) -> Self {
        let (value, frequency) = match dtype {
            Some(DType::F16) => (2e-3, 5e-3),
            Some(DType::BF16) => (1e-2, 2e-2),
            Some(t) if t.is_int() => (2e-2, 5e-2),
            _ => (1e-4, 1e-4),
        };
        Self { value, frequency }
    }

    /// At an angle: what was rounded in it grows with it.
    fn at(self, angle: f64) -> f64 {
        self.value + angle.abs() * 1.2e-7
    }
}

/// Reads rows `[position, dim]` of tokens at these rising positions, the first two of which are
/// neighbors, as a code of no image. Rows of zeros are those of padding and do not count.
/// Also gives the largest difference from the formula.
///
/// # Errors
/// A [`Miss`] that says what about the numbers is no sinusoid.
pub fn identify(
    positions: &[f64],
    rows: ArrayView2<'_, f64>,
    precision: Precision,
) -> Result<(Sinusoidal, f64), Miss> {
    let (width, mut misses) = (rows.ncols(), vec![]);
    let kept: Vec<usize> = (0..rows.nrows())
        .filter(|r| rows.row(*r).iter().any(|v| *v != 0.0))
        .collect();
    if kept.len() + 1 < rows.nrows() {
        return Err(Miss::new("several rows are zero"));
    }
    let positions: Vec<f64> = kept.iter().map(|r| positions[*r]).collect();
    let rows = rows.select(ndarray::Axis(0), &kept);
    if positions.len() < 3 || width < 4 {
        return Err(Miss::new("there are too few rows or columns to tell"));
    }
    for layout in [Layout::Half, Layout::Interleaved] {
        for cosines_first in [false, true] {
            let form = Form {
                columns: Columns::of(layout, width),
                cosines_first,
            };
            match form.identify(&positions, &rows, precision) {
                Ok(found) => return Ok(found),
                Err(miss) => misses.push(miss),
            }
        }
    }
    // The form that went farthest says best what is wrong.
    let farthest = misses.into_iter().max_by_key(|(stage, _)| *stage);
    Err(farthest.map_or_else(|| Miss::new("no form fits"), |(_, miss)| miss))
}

/// A way to lay out sines and cosines.
#[derive(Clone, Copy)]
struct Form {
    columns: Columns,
    cosines_first: bool,
}

/// A miss, and how far the form went before.
type Stage = (usize, Miss);

impl Form {
    fn identify(
        self,
        positions: &[f64],
        rows: &Array2<f64>,
        precision: Precision,
    ) -> Result<(Sinusoidal, f64), Stage> {
        let miss = |stage: usize, why: String| (stage, Miss::new(why));
        let amplitude = self.amplitude(rows, precision).map_err(|m| (0, m))?;
        let lines: Vec<Line> = (0..self.columns.pairs)
            .map(|i| self.line(i, positions, rows))
            .collect();
        let law = Law::of(&lines, precision).map_err(|why| miss(1, why))?;
        let offset = first_position(&lines);
        let whole = offset.round();
        if (offset - whole).abs() > 0.05 || whole < 0.0 {
            let why = format!("the first position is {offset:.2}");
            return Err(miss(2, why));
        }
        let width = self.columns.width;
        let (denominator, base) = law.base(width, precision);
        let factor = snap(1.0 / law.first, precision.frequency / 20.0);
        let found = Sinusoidal {
            dim: width,
            layout: self.columns.layout,
            cosines_first: self.cosines_first,
            denominator,
            base,
            factor,
            amplitude: snap(amplitude, precision.value / 10.0),
            max_positions: None,
            offset: whole as usize,
            image: None,
        };
        let want = found.reference(positions);
        let error = |p: usize| {
            let pairs = rows.row(p).into_iter().zip(want.row(p));
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
        };
        let errors: Vec<f64> = (0..positions.len()).map(error).collect();
        let bad = (0..positions.len()).find(|p| {
            let angle = (positions[*p] + whole) / factor;
            let bound = amplitude * precision.at(angle);
            errors[*p].is_nan() || errors[*p] > bound
        });
        if let Some(p) = bad {
            let why = format!(
                "the row at position {} differs from that sinusoid by {:.1e}",
                positions[p], errors[p]
            );
            return Err(miss(3, why));
        }
        Ok((found, errors.into_iter().fold(0.0, f64::max)))
    }

    /// The length of every pair, which is the same in each.
    fn amplitude(self, rows: &Array2<f64>, precision: Precision) -> Result<f64, Miss> {
        let lengths = || {
            rows.rows().into_iter().flat_map(move |row| {
                let length = |[a, b]: [usize; 2]| row[a].hypot(row[b]);
                self.columns.pairs().map(length).collect::<Vec<_>>()
            })
        };
        let count = (rows.nrows() * self.columns.pairs) as f64;
        let mean = lengths().sum::<f64>() / count;
        let worst = lengths().map(|l| (l - mean).abs()).fold(0.0, f64::max);
        if mean.is_nan() || mean <= 0.0 || worst > 2.0 * precision.value * mean {
            return Err(Miss::new("no two columns are sine and cosine of one angle"));
        }
        Ok(mean)
    }

    /// The angle of a pair as a line over the positions.
    fn line(self, pair: usize, positions: &[f64], rows: &Array2<f64>) -> Line {
        let [first, second] = self.columns.pairs().nth(pair).unwrap_or_default();
        let angle = |r: usize| {
            let (a, b) = (rows[[r, first]], rows[[r, second]]);
            if self.cosines_first {
                b.atan2(a)
            } else {
                a.atan2(b)
            }
        };
        let start = angle(0);
        let (mut turned, mut slope) = (0.0, 0.0);
        for r in 1..positions.len() {
            let step = positions[r] - positions[r - 1];
            turned += slope * step + wrapped(angle(r) - angle(r - 1) - slope * step);
            slope = turned / (positions[r] - positions[0]);
        }
        Line {
            at_first: start - slope * positions[0],
            slope,
        }
    }
}

/// An angle that grows with the position.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// At position 0, up to whole turns.
    at_first: f64,
    /// Per position.
    slope: f64,
}

/// A geometric row of frequencies.
struct Law {
    first: f64,
    /// The logarithm of the ratio of neighbors.
    fall: f64,
}

impl Law {
    fn of(lines: &[Line], precision: Precision) -> Result<Self, String> {
        if let Some(i) = lines
            .iter()
            .position(|l| l.slope.is_nan() || l.slope <= 0.0)
        {
            return Err(format!("pair {i} does not turn forwards"));
        }
        let logs: Vec<f64> = lines.iter().map(|l| l.slope.ln()).collect();
        let first = logs[0];
        let fall = (first - logs[logs.len() - 1]) / (logs.len() - 1) as f64;
        if fall <= precision.frequency {
            return Err("the frequencies do not fall".to_owned());
        }
        // A ratio known from both ends: each frequency between lies on the line.
        let off = |i: &usize| (logs[*i] - (first - fall * *i as f64)).abs() > precision.frequency;
        match (0..logs.len()).find(off) {
            Some(i) => Err(format!("frequency {i} is not in line with the others")),
            None => Ok(Self {
                first: first.exp(),
                fall,
            }),
        }
    }

    /// The denominator for which the base is the rounder number, and that base.
    fn base(&self, width: usize, precision: Precision) -> (Denominator, f64) {
        let both = [Denominator::Pairs, Denominator::PairsLessOne].map(|d| {
            let base = snap((self.fall * d.of(width)).exp(), precision.frequency);
            (d, base)
        });
        let digits = |base: f64| format!("{base:e}").split('e').next().map_or(0, str::len);
        if digits(both[1].1) < digits(both[0].1) {
            both[1]
        } else {
            both[0]
        }
    }
}

/// The position of the first token: the lowest frequency gives it roughly, each higher one more
/// exactly.
fn first_position(lines: &[Line]) -> f64 {
    let slowest = lines.last().map_or(0.0, |l| wrapped(l.at_first) / l.slope);
    lines.iter().rev().fold(slowest, |near, line| {
        let off = wrapped(line.at_first - near * line.slope);
        near + off / line.slope
    })
}

/// The angle between −π and π.
fn wrapped(angle: f64) -> f64 {
    (angle + PI).rem_euclid(TAU) - PI
}

/// The number of fewest digits that lies this near.
pub(crate) fn snap(x: f64, share: f64) -> f64 {
    let near = |digits: usize| format!("{x:.digits$e}").parse::<f64>().ok();
    let close = |y: &f64| (y - x).abs() <= share * x.abs();
    (0..9).filter_map(near).find(close).unwrap_or(x)
}
