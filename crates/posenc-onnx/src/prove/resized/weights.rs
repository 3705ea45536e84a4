//! The definition of the interpolations, against which numbers of another grid are compared.

use posenc_encodings::resize::{Antialias, Corners, Resizing};

use crate::plan::resize::table::Interpolation;

/// The old rows of each new one, with weights that are not 0.
pub(super) fn shares(old: usize, new: usize, by: &Interpolation) -> Vec<Vec<(usize, f64)>> {
    let Interpolation {
        by,
        corners,
        antialias,
    } = *by;
    let row = |row: usize| {
        let own = (0..old).map(|of| (of, share([row, new], [of, old], by, corners, antialias)));
        own.filter(|(_, weight)| *weight != 0.0).collect()
    };
    (0..new).map(row).collect()
}

/// The weight of an old row in a new one, by the definition of the interpolation.
fn share(
    [row, new]: [usize; 2],
    [of, old]: [usize; 2],
    by: Resizing,
    corners: Corners,
    antialias: Antialias,
) -> f64 {
    let (reach, sharp) = match (by, antialias) {
        (Resizing::Linear, _) => (1.0, None),
        (_, Antialias::Off) => (2.0, Some(-0.75)),
        (_, Antialias::On) => (2.0, Some(-0.5)),
    };
    let kernel = |x: f64| {
        let x: f64 = x.abs();
        match sharp {
            _ if x >= reach => 0.0,
            None => 1.0 - x,
            Some(a) if x <= 1.0 => (a + 2.0) * x.powi(3) - (a + 3.0) * x.powi(2) + 1.0,
            Some(a) => a * (x.powi(3) - 5.0 * x.powi(2) + 8.0 * x - 4.0),
        }
    };
    let (last, side) = (old as i64 - 1, old as f64);
    if old == new {
        return f64::from(u8::from(row == of));
    }
    match antialias {
        Antialias::Off => {
            let at = match corners {
                Corners::HalfPixel => (row as f64 + 0.5) * side / new as f64 - 0.5,
                Corners::Aligned if new > 1 => row as f64 * (side - 1.0) / (new as f64 - 1.0),
                Corners::Aligned => 0.0,
            };
            // The outermost rows go on for ever.
            let around = (at.floor() as i64 - 3)..=(at.floor() as i64 + 3);
            let own = around.filter(|k| (*k).clamp(0, last) == of as i64);
            own.map(|k| kernel(at - k as f64)).sum()
        }
        Antialias::On => {
            let width = (side / new as f64).max(1.0);
            let center = (row as f64 + 0.5) * side / new as f64;
            let weight = |k: usize| kernel((k as f64 + 0.5 - center) / width);
            weight(of) / (0..old).map(weight).sum::<f64>()
        }
    }
}
