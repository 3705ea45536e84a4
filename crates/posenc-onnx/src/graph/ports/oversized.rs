//! Declared sizes of inputs that no run can have.

use posenc_ir::eval::Budget;
use posenc_ir::{DType, Dim};

/// The longest dimension of ids, positions and masks.
const TOKENS: usize = 1 << 21;

/// The longest one of numbers, as samples of sound.
const SAMPLES: usize = 1 << 24;

/// The most elements of an input.
const ELEMENTS: Budget = Budget {
    elements: match 1usize.checked_shl(40) {
        Some(most) => most,
        // Where addresses have 32 bits.
        None => 1 << 30,
    },
};

/// Opens the declared dimensions that are too long, the longest first. Returns them with their sizes.
pub(super) fn open(dtype: DType, dims: &mut [Dim]) -> Vec<(usize, usize)> {
    let longest = if dtype.is_float() { SAMPLES } else { TOKENS };
    let mut opened = vec![];
    loop {
        let sizes = dims.iter().enumerate();
        let sizes = sizes.filter_map(|(axis, dim)| match dim {
            Dim::Known(size) => Some((axis, *size)),
            _ => None,
        });
        let known: Vec<(usize, usize)> = sizes.collect();
        let Some((axis, size)) = known.iter().copied().max_by_key(|(_, size)| *size) else {
            return opened;
        };
        let all: Vec<usize> = known.iter().map(|(_, size)| *size).collect();
        if size <= longest && ELEMENTS.allows(&all) {
            return opened;
        }
        dims[axis] = Dim::Unknown;
        opened.push((axis, size));
    }
}

/// A sentence for a dimension of an input that was opened.
pub(super) fn warning(name: &str, (axis, size): (usize, usize)) -> String {
    format!(
        "the input {name} is declared to be {size} long along axis {axis}: no run is that long, and this axis is read \
         as one of any length"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dimensions_that_no_run_has_are_opened() {
        let cases: [(&[usize], &[usize]); 6] = [
            (&[2, 4096], &[]),
            (&[32, 32, 1 << 17, 128], &[]),
            (&[0, 1 << 21], &[]),
            (&[2, 1 << 31], &[1]),
            (&[1 << 62, i64::MAX as usize], &[1, 0]),
            (&[1 << 19, 1 << 20, 64], &[1]),
        ];
        for (sizes, want) in cases {
            let mut dims: Vec<Dim> = sizes.iter().map(|size| Dim::Known(*size)).collect();
            let opened = open(DType::I64, &mut dims);
            let axes: Vec<usize> = opened.iter().map(|(axis, _)| *axis).collect();
            assert_eq!(axes, want, "{sizes:?}");
            for (axis, size) in opened {
                assert_eq!((&dims[axis], size), (&Dim::Unknown, sizes[axis]));
            }
        }
        let minute = |dtype| open(dtype, &mut [Dim::Known(1), Dim::Known(48_000 * 60)]).len();
        assert_eq!([minute(DType::F32), minute(DType::I64)], [0, 1]);
    }
}
