//! A convolution along the sequence that is added to its input:
//! `y[c, t] = x[c, t] + act(b[c] + Σ_i Σ_τ w[c, i, τ] · x[g(c) + i, t + τ − pad])`.
//!
//! Channels are convolved in groups, at the least one channel each (depthwise); `g(c)` is the
//! first channel of the group of c. Tokens may stand on a grid, the kernel then has two axes. It
//! needs no table, and so sets no limit to the length.
//! Sources: Baevski et al., arXiv:2006.11477, section 2 (wav2vec 2.0: 128 wide, 16 groups, GELU);
//! Chu et al., arXiv:2102.10882, section 3 (conditional positional encodings, 3 × 3 depthwise).

pub mod emit;

use std::any::Any;

use ndarray::{Array1, Array2, Array3, ArrayD};
use serde_json::json;

use crate::describe::{Description, sides};
use crate::encoding::{Common, Encoding, GivenTensors, Learned, PlanError, Start};
use crate::family::{Entry, Family};
use crate::input_term::{InputTerm, Source};
use crate::params::Params;

/// What the family declares.
pub static FAMILY: Family = Family {
    word: "conv",
    about: "A depthwise convolution added to the input",
    adds: "`x + gelu(depthwise conv(x))` on the embeddings",
    params: &[],
    common: &[],
    tensors: &[
        Learned {
            name: "weight",
            shape: "[D, 1, k]",
            about: "",
            slot: 1,
            shared: true,
        },
        Learned {
            name: "bias",
            shape: "[D]",
            about: "",
            slot: 10,
            shared: true,
        },
    ],
    starts: ["zeros, k = 3", "N(0, 4/k) as wav2vec 2.0"],
    learned: &[],
    describe,
    entry: Entry::input_term::<ConvTerm>(false),
};

/// `kernel 3 × 3, 64 groups`.
fn describe(to: &mut Description<'_>) {
    if let Some(kernel) = to.get("kernel") {
        to.say(format!("kernel {}", sides(kernel)));
    }
    match to.count("groups") {
        Some(1) => to.say("1 group"),
        Some(groups) => to.say(format!("{groups} groups")),
        None => {}
    }
}

/// A convolutional encoding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Width of the kernel along each axis of the sequence.
    pub kernel: Vec<usize>,
    /// Groups of channels: as many as channels where the convolution is depthwise.
    pub groups: usize,
}

impl Encoding for Conv {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    // The width of a kernel of one axis is a number.
    fn params(&self) -> Params {
        let kernel = match self.kernel[..] {
            [width] => json!(width),
            _ => json!(self.kernel),
        };
        let mut params = Params::new();
        params.insert("kernel".into(), kernel);
        params.insert("groups".into(), json!(self.groups));
        params
    }
}

/// Width of the kernel of a rewrite.
const KERNEL: usize = 3;

/// A convolution as a rewrite inserts it: depthwise, along the tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvTerm {
    /// Width of the kernel.
    pub kernel: usize,
    /// Width of the embeddings, where a file gives the weights.
    pub width: Option<usize>,
}

impl Encoding for ConvTerm {
    fn word(&self) -> &'static str {
        FAMILY.word
    }

    fn params(&self) -> Params {
        let mut params = Params::new();
        params.insert("kernel".into(), json!(self.kernel));
        params
    }
}

impl InputTerm for ConvTerm {
    fn plan(_common: &Common, tensors: &GivenTensors) -> Result<Self, PlanError> {
        let given = tensors.dims(FAMILY.tensors[0].name);
        let size = |axis: usize| given.and_then(|(_, dims)| dims.get(axis).copied());
        Ok(Self {
            kernel: size(2).unwrap_or(KERNEL),
            width: size(0),
        })
    }

    fn source(&self) -> Source {
        Source::Convolution(self.kernel)
    }

    fn width(&self) -> Option<usize> {
        self.width
    }

    fn tensors(&self, dim: usize) -> Vec<Vec<usize>> {
        vec![vec![dim, 1, self.kernel], vec![dim]]
    }

    fn start(&self, tensor: usize) -> Start {
        if tensor == 0 {
            // wav2vec 2.0 starts with a deviation of 2/√(k · dim), dim being 1 here.
            Start::normal((4.0 / self.kernel as f64).sqrt())
        } else {
            Start::constant(0.0)
        }
    }

    // It is a function of the embeddings.
    fn reference(
        &self,
        _tensors: &[ArrayD<f64>],
        _dim: usize,
        _positions: &[usize],
    ) -> Option<Array2<f64>> {
        None
    }

    fn is_read_as(&self, found: &dyn Encoding) -> bool {
        let found = (found as &dyn Any).downcast_ref::<Conv>();
        found.is_some_and(|found| found.kernel == [self.kernel])
    }

    fn is_found_as(
        &self,
        found: &dyn Encoding,
        _max_length: Option<usize>,
        _common: &Common,
    ) -> bool {
        found.word() == self.word()
    }
}

/// The convolution alone, of `x` `[channel, token]` with weights `[channel, channel of the group,
/// tap]`, in f64: as many tokens as go in, zeros beyond the ends, `pad` taps before the token.
pub fn reference(
    x: &Array2<f64>,
    weight: &Array3<f64>,
    bias: &Array1<f64>,
    pad: usize,
) -> Array2<f64> {
    let (channels, tokens) = x.dim();
    let (_, members, taps) = weight.dim();
    Array2::from_shape_fn((channels, tokens), |(c, t)| {
        let first = c / members * members;
        let mut sum = bias[c];
        for i in 0..members {
            for tap in 0..taps {
                let at = (t + tap).checked_sub(pad).filter(|at| *at < tokens);
                sum += at.map_or(0.0, |at| weight[[c, i, tap]] * x[[first + i, at]]);
            }
        }
        sum
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_one_axis_is_a_number() {
        let kernel = |kernel: &[usize]| {
            let conv = Conv {
                kernel: kernel.to_vec(),
                groups: 4,
            };
            conv.params()["kernel"].clone()
        };
        assert_eq!(kernel(&[16]), json!(16));
        assert_eq!(kernel(&[3, 3]), json!([3, 3]));
    }

    #[test]
    fn a_tap_beside_the_token_shifts_and_groups_keep_apart() {
        let x = Array2::from_shape_fn((4, 5), |(c, t)| (10 * c + t) as f64);
        let mut weight = Array3::zeros((4, 2, 3));
        // Channel 3 reads channel 2, one token later.
        weight[[3, 0, 2]] = 1.0;
        let bias = Array1::from_vec(vec![0.0, 0.5, 0.0, 0.0]);
        let y = reference(&x, &weight, &bias, 1);
        assert_eq!(y.row(3).to_vec(), [21.0, 22.0, 23.0, 24.0, 0.0]);
        assert_eq!(y.row(1).to_vec(), [0.5; 5]);
        assert_eq!(y.row(2).to_vec(), [0.0; 5]);
    }
}
