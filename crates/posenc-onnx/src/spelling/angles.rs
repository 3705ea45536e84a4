//! Angles that an exporter computed for all positions of a graph of one length, and angles that are moved by
//! a quarter of a rotation.

use std::f64::consts::FRAC_PI_2;

use posenc_ir::{Attr, DType, NodeId, Tensor};

use super::draft::Draft;
use super::view::View;

/// `Cos` or `Sin` of a stored table of angles, `[…, position, pair]`, of as many positions as the graph takes:
/// of positions times frequencies, where that gives the same numbers to the bit.
pub(super) fn of_positions(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let angles = view.graph().node(id).input(0)?;
    let table = view
        .constant(angles)
        .filter(|table| table.dtype() == DType::F32)?;
    let (width, others) = table.dims().split_last()?;
    let (rows, outer) = others.split_last()?;
    let is_own = draft.now(angles) == angles && outer.iter().all(|n| *n == 1);
    if !is_own || view.fixed_sequence() != Some(*rows) || *rows < 3 {
        return None;
    }
    let numbers: Vec<f32> = table.to_f64s()?.into_iter().map(|v| v as f32).collect();
    let frequencies = numbers.get(*width..2 * width)?;
    let is_product = numbers
        .chunks_exact(*width)
        .enumerate()
        .all(|(position, row)| {
            let mut pairs = row.iter().zip(frequencies);
            pairs.all(|(angle, frequency)| {
                (position as f32 * frequency).to_bits() == angle.to_bits()
            })
        });
    if !is_product || frequencies.iter().all(|frequency| *frequency == 0.0) {
        return None;
    }
    let of = |axis: usize, numbers: &[f64]| {
        let mut dims = vec![1; table.dims().len()];
        dims[axis] = numbers.len();
        Tensor::from_f64(DType::F32, &dims, numbers)
    };
    let last = outer.len() + 1;
    let frequencies: Vec<f64> = frequencies.iter().map(|f| f64::from(*f)).collect();
    let (half, again) = frequencies.split_at(width / 2);
    let is_twice = half == again;
    let positions: Vec<f64> = (0..*rows).map(|position| position as f64).collect();
    let positions = draft
        .emitter()
        .constant("positions", of(last - 1, &positions));
    let frequencies = of(last, if is_twice { half } else { &frequencies });
    let frequencies = draft.emitter().constant("frequencies", frequencies);
    let mut made = draft.op("Mul", &[positions, frequencies], &[]);
    if is_twice {
        let axis = Attr::Int(i64::try_from(last).ok()?);
        made = draft.op("Concat", &[made, made], &[("axis", axis)]);
    }
    draft.replace(angles, made)
}

/// How near to a quarter of a rotation a number of single precision is.
const QUARTER: f64 = 1e-6;

/// `Sin(x + π/2)` is `Cos(x)`, and `Cos(x − π/2)` is `Sin(x)`.
pub(super) fn moved(view: &View<'_>, draft: &mut Draft<'_>, id: NodeId) -> Option<()> {
    let node = view.graph().node(id);
    let (_, sum) = view.maker(node.input(0)?)?;
    let (first, second) = (sum.input(0)?, sum.input(1)?);
    let (angle, by) = match sum.op() {
        "Add" => match view.number(second) {
            Some(by) => (first, by),
            None => (second, view.number(first)?),
        },
        "Sub" => (first, -view.number(second)?),
        _ => return None,
    };
    let other = match node.op() {
        "Sin" if (by - FRAC_PI_2).abs() <= QUARTER => "Cos",
        "Cos" if (by + FRAC_PI_2).abs() <= QUARTER => "Sin",
        _ => return None,
    };
    // A number with more axes than the angle would give it these.
    let keeps = |d: &[&[usize]]| d[0] == d[1];
    if !view.all(&[angle, node.input(0)?], keeps) {
        return None;
    }
    let wave = draft.op(other, &[angle], &[]);
    draft.replace(node.output(0)?, wave)
}
