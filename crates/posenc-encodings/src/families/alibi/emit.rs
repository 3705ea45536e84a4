//! The nodes that compute linear biases.

use posenc_ir::Emitter;

use super::Alibi;
use crate::bias::emit::per_head;
use crate::bias::{BiasPorts, Emitted, Order, ScoreBias, exact};

impl Alibi {
    /// Slopes times distances, or, where the bias is straight, times the indices of keys.
    pub(super) fn nodes(&self, out: &mut Emitter<'_>, ports: &mut dyn BiasPorts) -> Emitted {
        let distances = ports.distances(out);
        let (distances, sign) = if self.is_straight() {
            (distances, 1.0)
        } else {
            (out.op("Abs", &[distances]), -1.0)
        };
        let slopes: Vec<f64> = self.slopes.iter().map(|m| sign * m).collect();
        let slopes = per_head(out, ports, "slopes", &slopes);
        let distances = out.cast(distances, exact(ports.dtype()));
        let biases = out.op("Mul", &[distances, slopes]);
        Emitted::rounded(out, ports, biases, Order::HeadsFirst)
    }
}
