//! The nodes that compute linear biases.

use posenc_ir::{Emitter, Tensor};

use super::Alibi;
use crate::bias::{BiasPorts, Emitted, Order, exact};

impl Alibi {
    /// Slopes times distances, or, where the bias is straight, times the indices of keys.
    pub(super) fn nodes(&self, out: &mut Emitter<'_>, ports: &mut dyn BiasPorts) -> Emitted {
        let dtype = ports.dtype();
        let exact = exact(dtype);
        let distances = ports.distances(out);
        let (distances, sign) = if self.symmetric == Some(true) {
            (out.op("Abs", &[distances]), -1.0)
        } else {
            (distances, 1.0)
        };
        let slopes: Vec<f64> = self.slopes.iter().map(|m| sign * m).collect();
        let sequences = if ports.is_by_sequence() {
            &[1][..]
        } else {
            &[]
        };
        let dims = [ports.heads(), sequences, &[1, 1]].concat();
        let slopes = out.constant("slopes", Tensor::from_f64(exact, &dims, &slopes));
        let distances = out.cast(distances, exact);
        let biases = out.op("Mul", &[distances, slopes]);
        Emitted {
            value: if exact == dtype {
                biases
            } else {
                out.cast(biases, dtype)
            },
            order: Order::HeadsFirst,
        }
    }
}
