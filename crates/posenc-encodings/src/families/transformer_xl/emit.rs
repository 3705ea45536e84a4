//! The nodes that compute sinusoids of the distance.

use posenc_ir::{Attr, DType, Emitter, Tensor, ValueId};

use super::Code;

impl Code {
    /// The code `[feature, distance]` of the distances `query − key` from `longest` down to
    /// `1 − queries`, two scalars. The code has no clamp, and sines before cosines.
    pub fn emit(
        &self,
        out: &mut Emitter<'_>,
        [longest, queries]: [ValueId; 2],
        dtype: DType,
    ) -> ValueId {
        // Half precision holds no whole numbers beyond 2048.
        let exact = match dtype {
            DType::F64 => DType::F64,
            _ => DType::F32,
        };
        // Counted up with its sign turned, which the frequencies turn back: tract has no range
        // that falls.
        let one = out.constant("one", Tensor::from_i64(&[], &[1]));
        let first = out.op("Neg", &[longest]);
        let distances = out.op("Range", &[first, queries, one]);
        let distances = out.cast(distances, exact);
        let dims = [self.frequencies.len(), 1];
        let turned: Vec<f64> = self.frequencies.iter().map(|f| -f).collect();
        let frequencies = Tensor::from_f64(exact, &dims, &turned);
        let frequencies = out.constant("frequencies", frequencies);
        let angles = out.op("Mul", &[frequencies, distances]);
        let (sin, cos) = (out.op("Sin", &[angles]), out.op("Cos", &[angles]));
        let code = out.op_with("Concat", &[sin, cos], &[("axis", Attr::Int(0))]);
        if exact == dtype {
            code
        } else {
            out.cast(code, dtype)
        }
    }
}
