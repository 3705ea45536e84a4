//! The elements of a constant as numbers, whatever their type: truth values are 0 and 1.

use ndarray::ArrayD;
use posenc_ir::eval::Value;
use posenc_ir::{DType, Tensor};

/// The elements of a value; `None` where they are not at hand.
pub(super) fn read(value: &Value) -> Option<ArrayD<f64>> {
    match value.dtype? {
        DType::Bool => Some(value.to_bool()?.mapv(|b| f64::from(u8::from(b)))),
        dtype if dtype.is_float() => value.to_f64(),
        _ => Some(value.to_i64()?.mapv(|n| n as f64)),
    }
}

/// A tensor of this type with these elements.
pub(super) fn tensor(dtype: DType, elements: &ArrayD<f64>) -> Tensor {
    let all: Vec<f64> = elements.iter().copied().collect();
    match dtype {
        DType::Bool => {
            let all: Vec<bool> = all.iter().map(|v| *v != 0.0).collect();
            Tensor::from_bool(elements.shape(), &all)
        }
        _ => Tensor::from_f64(dtype, elements.shape(), &all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_type_are_read_as_they_were_written() {
        let numbers = ArrayD::from_shape_fn(vec![2, 2], |at| f64::from(u8::from(at[0] == at[1])));
        for dtype in [DType::Bool, DType::I64, DType::U8, DType::F16, DType::F32] {
            let made = tensor(dtype, &numbers);
            assert_eq!((made.dtype(), made.dims()), (dtype, &[2, 2][..]));
            let value = Value::from_tensor(&made);
            assert_eq!(read(&value).as_ref(), Some(&numbers), "{dtype}");
        }
        assert_eq!(read(&Value::opaque(DType::F32, vec![2, 2])), None);
    }
}
