//! The arithmetic of sliding windows, without overflow.

use super::call::Call;
use super::shape::dim;
use super::{EvalError, Why};

/// How the input is padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Auto {
    /// With explicit pads.
    No,
    /// So that the result has the length of the input divided by the stride.
    Same,
    /// Not at all.
    Valid,
}

/// Kernel, stride, dilation and pads along each spatial axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) kernel: Vec<i64>,
    pub(super) strides: Vec<i64>,
    pub(super) dilations: Vec<i64>,
    /// Those at the start of all axes, then those at the end.
    pub(super) pads: Vec<i64>,
    pub(super) auto: Auto,
    pub(super) ceil: bool,
}

impl Window {
    /// Reads the attributes of a node; `kernel` is the shape of the weights, where no attribute gives it.
    pub(super) fn read(
        c: &Call<'_>,
        rank: usize,
        kernel: Option<&[usize]>,
    ) -> Result<Self, EvalError> {
        let kernel = match (c.ints("kernel_shape")?, kernel) {
            (Some(kernel), _) => kernel.to_vec(),
            (None, Some(kernel)) => kernel.iter().map(|d| *d as i64).collect(),
            (None, None) => return Err(Why::Attribute("kernel_shape").into()),
        };
        let list = |name: &'static str, or: i64, n: usize| match c.ints(name)? {
            Some(list) if list.len() == n => Ok(list.to_vec()),
            Some(_) => Err(EvalError::from(Why::Attribute(name))),
            None => Ok(vec![or; n]),
        };
        let window = Self {
            strides: list("strides", 1, rank)?,
            dilations: list("dilations", 1, rank)?,
            pads: list("pads", 0, 2 * rank)?,
            auto: match c.string("auto_pad")? {
                Some("SAME_UPPER" | "SAME_LOWER") => Auto::Same,
                Some("VALID") => Auto::Valid,
                None | Some("NOTSET" | "") => Auto::No,
                Some(_) => return Err(Why::Attribute("auto_pad").into()),
            },
            ceil: c.flag("ceil_mode")?,
            kernel,
        };
        let sizes = [&window.kernel, &window.strides, &window.dilations];
        if window.kernel.len() != rank || sizes.iter().any(|all| all.iter().any(|n| *n < 1)) {
            return Err(Why::Attribute("kernel_shape").into());
        }
        Ok(window)
    }

    /// The number of elements that the kernel spans along axis `i`.
    fn span(&self, i: usize) -> i128 {
        i128::from(self.dilations[i]) * (i128::from(self.kernel[i]) - 1) + 1
    }

    /// The number of windows along axis `i` of this length.
    pub(super) fn fits(&self, i: usize, length: usize) -> Result<usize, EvalError> {
        let (n, stride) = (length as i128, i128::from(self.strides[i]));
        let rank = self.kernel.len();
        let (before, after) = match self.auto {
            Auto::Same => return dim((n + stride - 1) / stride),
            Auto::Valid => (0, 0),
            Auto::No => (i128::from(self.pads[i]), i128::from(self.pads[i + rank])),
        };
        let free = n + before + after - self.span(i);
        if free < 0 {
            return Err(Why::Dimension.into());
        }
        let mut count = free / stride + 1;
        // When rounding up, a last window that starts in the input or the first pads counts.
        if self.ceil && free % stride != 0 && count * stride < n + before {
            count += 1;
        }
        dim(count)
    }

    /// The length along axis `i` for which there are `length` windows: the inverse of `fits`.
    pub(super) fn unfits(&self, i: usize, length: usize, extra: i64) -> Result<usize, EvalError> {
        let (n, stride) = (length as i128, i128::from(self.strides[i]));
        let rank = self.kernel.len();
        if self.auto == Auto::Same {
            return dim(n * stride);
        }
        let pads = match self.auto {
            Auto::No => i128::from(self.pads[i]) + i128::from(self.pads[i + rank]),
            _ => 0,
        };
        dim(stride * (n - 1) + i128::from(extra) + self.span(i) - pads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(kernel: i64, stride: i64, pads: [i64; 2], ceil: bool) -> Window {
        Window {
            kernel: vec![kernel],
            strides: vec![stride],
            dilations: vec![1],
            pads: pads.to_vec(),
            auto: Auto::No,
            ceil,
        }
    }

    #[test]
    fn windows_are_counted_as_in_the_standard() {
        let cases = [
            (window(3, 1, [0, 0], false), 5, Ok(3)),
            (window(3, 2, [1, 1], false), 6, Ok(3)),
            (window(3, 2, [0, 0], true), 6, Ok(3)),
            (window(2, 2, [0, 0], true), 5, Ok(3)),
            // The last window would start in the pads at the end.
            (window(1, 3, [0, 3], true), 3, Ok(2)),
            (window(7, 1, [0, 0], false), 6, Err(Why::Dimension.into())),
        ];
        for (window, length, want) in cases {
            assert_eq!(window.fits(0, length), want, "{window:?} {length}");
        }
        let same = Window {
            auto: Auto::Same,
            ..window(3, 2, [0, 0], false)
        };
        assert_eq!(same.fits(0, 5), Ok(3));
        assert_eq!(window(3, 2, [1, 1], false).unfits(0, 3, 1), Ok(6));
        let huge = window(i64::MAX, i64::MAX, [0, 0], false);
        assert_eq!(
            huge.unfits(0, usize::MAX / 2, 0),
            Err(Why::Dimension.into())
        );
    }
}
