//! The nodes that compute linear biases.

use posenc_ir::{DType, Emitter, Tensor, ValueId};

use super::Alibi;

impl Alibi {
    /// The biases `[heads.., query, key]` of distances, key − query, `[query, key]`. Of places of
    /// keys, which a softmax cannot tell from distances as long as the bias goes on straight,
    /// those of each key. `heads` are the axes that the heads are told apart by.
    pub fn emit(
        &self,
        out: &mut Emitter<'_>,
        distances: ValueId,
        heads: &[usize],
        dtype: DType,
    ) -> ValueId {
        // Half precision holds no whole numbers beyond 2048.
        let exact = match dtype {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        let (distances, sign) = match self.symmetric {
            Some(true) => (out.op("Abs", &[distances]), -1.0),
            _ => (distances, 1.0),
        };
        let slopes: Vec<f64> = self.slopes.iter().map(|m| sign * m).collect();
        let dims = [heads, &[1, 1]].concat();
        let slopes = out.constant("slopes", Tensor::from_f64(exact, &dims, &slopes));
        let distances = out.cast(distances, exact);
        let biases = out.op("Mul", &[distances, slopes]);
        match exact == dtype {
            true => biases,
            false => out.cast(biases, dtype),
        }
    }
}
