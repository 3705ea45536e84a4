//! Convolutions of known elements.

use super::array::{Array, flat, from_vec};
use super::data::Shared;
use super::shape::elements;
use super::window::{Auto, Window};

/// The most multiplications, per allowed element of a value.
const WORK: usize = 64;

/// The elements of a convolution of `x` `[batch, channel, ..]` with weights
/// `[channel, channel of the group, ..]` as a value of these dimensions; `None` where it takes too
/// long, or pads are automatic.
pub(super) fn convolved(
    x: &Shared<f64>,
    weight: &Shared<f64>,
    bias: Option<&Shared<f64>>,
    window: &Window,
    dims: &[usize],
    most: usize,
) -> Option<Array> {
    let (from, taps) = (x.shape().to_vec(), weight.shape().to_vec());
    let work = elements(dims)?.checked_mul(elements(&taps[1..])?)?;
    if window.auto == Auto::Same || work > most.checked_mul(WORK)? {
        return None;
    }
    let (x, weight) = (flat(x), flat(weight));
    let bias = bias.map(flat);
    let (channels, depth) = (*from.get(1)?, *taps.get(1)?);
    let [batch, made, ref space @ ..] = *dims else {
        return None;
    };
    let (inside, kernel) = (&from[2..], &taps[2..]);
    let groups = channels.checked_div(depth)?;
    let per_group = made.checked_div(groups)?.max(1);
    let [plane, area, count] = [elements(inside)?, elements(kernel)?, elements(space)?];
    if count.checked_mul(area)? > most {
        return None;
    }
    // For each position of the result and each tap, the index that is read.
    let mut reads = Vec::with_capacity(count * area);
    for place in 0..count {
        let at = unravel(place, space);
        for tap in 0..area {
            let tap = unravel(tap, kernel);
            reads.push(window.reads(&at, &tap, inside));
        }
    }
    let mut y = Vec::with_capacity(batch * made * count);
    for b in 0..batch {
        for c in 0..made {
            let first = c / per_group * depth;
            let start = bias.as_ref().map_or(Some(0.0), |v| v.get(c).copied())?;
            for place in 0..count {
                let reads = reads.get(place * area..(place + 1) * area)?;
                let mut sum = start;
                for i in 0..depth {
                    let x = x.get((b * channels + first + i) * plane..)?;
                    let weight = weight.get((c * depth + i) * area..)?;
                    let terms = reads.iter().zip(weight);
                    sum += terms
                        .filter_map(|(at, w)| Some(w * x.get((*at)?)?))
                        .sum::<f64>();
                }
                y.push(sum);
            }
        }
    }
    from_vec(dims, y).map(Array::Float)
}

/// The coordinates of an index in row-major order.
fn unravel(mut place: usize, dims: &[usize]) -> Vec<usize> {
    let mut index = vec![0; dims.len()];
    for (i, n) in dims.iter().enumerate().rev() {
        index[i] = place % n;
        place /= n;
    }
    index
}

impl Window {
    /// The index that a tap reads with the window at `at`; `None` in the pads.
    fn reads(&self, at: &[usize], tap: &[usize], dims: &[usize]) -> Option<usize> {
        let mut place = 0usize;
        for (i, n) in dims.iter().enumerate() {
            let pad = match self.auto {
                Auto::No => self.pads.get(i).copied()?,
                _ => 0,
            };
            let [at, tap] = [*at.get(i)?, *tap.get(i)?].map(|n| n as i64);
            let first = at.checked_mul(*self.strides.get(i)?)?;
            let step = tap.checked_mul(*self.dilations.get(i)?)?;
            let here = first.checked_add(step)?.checked_sub(pad)?;
            let here = usize::try_from(here).ok().filter(|h| h < n)?;
            place = place.checked_mul(*n)?.checked_add(here)?;
        }
        Some(place)
    }
}
