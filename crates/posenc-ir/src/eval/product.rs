//! Products of matrices.

use ndarray::ArrayView2;

use super::array::{Array, flat, from_vec};
use super::binary::zip;
use super::call::{Call, Outputs, typed};
use super::data::Shared;
use super::shape::{broadcast, offsets, strides};
use super::{Budget, EvalError, Value, Why};
use crate::dtype::DType;

/// A product of two stacks of matrices.
struct Product {
    batch: Vec<usize>,
    /// Batch dimensions of either operand.
    own: [Vec<usize>; 2],
    rows: usize,
    inner: usize,
    columns: usize,
    /// The dimensions of the result.
    dims: Vec<usize>,
    /// Whether each operand is transposed.
    transposed: [bool; 2],
}

impl Product {
    /// As in numpy: an operand of rank 1 is a row on the left and a column on the right, and the
    /// result does not have its added dimension.
    fn new(a: &[usize], b: &[usize], transposed: [bool; 2]) -> Result<Self, EvalError> {
        let split = |dims: &[usize], flip: bool, left: bool| match *dims {
            [] => Err(EvalError::from(Why::Rank)),
            [n] if left => Ok((Vec::new(), 1, n)),
            [n] => Ok((Vec::new(), n, 1)),
            [ref batch @ .., r, c] if flip => Ok((batch.to_vec(), c, r)),
            [ref batch @ .., r, c] => Ok((batch.to_vec(), r, c)),
        };
        let (batch_a, rows, inner) = split(a, transposed[0], true)?;
        let (batch_b, inner_b, columns) = split(b, transposed[1], false)?;
        if inner != inner_b {
            return Err(Why::Shapes.into());
        }
        let batch = broadcast(&batch_a, &batch_b)?;
        let mut dims = batch.clone();
        if a.len() > 1 {
            dims.push(rows);
        }
        if b.len() > 1 {
            dims.push(columns);
        }
        Ok(Self {
            batch,
            own: [batch_a, batch_b],
            rows,
            inner,
            columns,
            dims,
            transposed: [transposed[0] && a.len() > 1, transposed[1] && b.len() > 1],
        })
    }

    /// The offset of each matrix of operand `i`, in the order of the result.
    fn starts(&self, i: usize, size: usize) -> Vec<usize> {
        let own = &self.own[i];
        let steps = strides(own);
        let missing = self.batch.len() - own.len();
        let step = |axis: usize| match axis.checked_sub(missing) {
            Some(j) if own[j] != 1 => (steps[j] * size) as isize,
            _ => 0,
        };
        let steps: Vec<isize> = (0..self.batch.len()).map(step).collect();
        offsets(&self.batch, &steps, 0)
    }

    fn work(&self) -> [usize; 4] {
        let batch = super::shape::elements(&self.batch).unwrap_or(usize::MAX);
        [batch, self.rows, self.inner, self.columns]
    }

    fn floats(&self, a: &Shared<f64>, b: &Shared<f64>) -> Option<Shared<f64>> {
        let (a, b) = (flat(a), flat(b));
        let sizes = [self.rows * self.inner, self.inner * self.columns];
        let mut out = Vec::with_capacity(super::shape::elements(&self.dims)?);
        for (i, j) in self
            .starts(0, sizes[0])
            .into_iter()
            .zip(self.starts(1, sizes[1]))
        {
            let view = |all: &'_ [f64], at: usize, size: usize| all.get(at..at + size).is_some();
            if !view(&a, i, sizes[0]) || !view(&b, j, sizes[1]) {
                return None;
            }
            let left = matrix(
                &a[i..i + sizes[0]],
                self.rows,
                self.inner,
                self.transposed[0],
            )?;
            let right = matrix(
                &b[j..j + sizes[1]],
                self.inner,
                self.columns,
                self.transposed[1],
            )?;
            out.extend(left.dot(&right).iter());
        }
        from_vec(&self.dims, out)
    }

    fn ints(&self, a: &Shared<i64>, b: &Shared<i64>) -> Option<Shared<i64>> {
        let (a, b) = (flat(a), flat(b));
        let (m, k, n) = (self.rows, self.inner, self.columns);
        let mut out = Vec::with_capacity(super::shape::elements(&self.dims)?);
        for (i, j) in self.starts(0, m * k).into_iter().zip(self.starts(1, k * n)) {
            let left = matrix(a.get(i..i + m * k)?, m, k, self.transposed[0])?;
            let right = matrix(b.get(j..j + k * n)?, k, n, self.transposed[1])?;
            for row in left.rows() {
                for column in right.columns() {
                    let terms = row.iter().zip(column).map(|(x, y)| x.wrapping_mul(*y));
                    out.push(terms.fold(0, i64::wrapping_add));
                }
            }
        }
        from_vec(&self.dims, out)
    }
}

/// A matrix of these dimensions; the elements may be transposed.
fn matrix<T>(
    all: &[T],
    rows: usize,
    columns: usize,
    transposed: bool,
) -> Option<ArrayView2<'_, T>> {
    if transposed {
        let view = ArrayView2::from_shape((columns, rows), all).ok()?;
        Some(view.reversed_axes())
    } else {
        ArrayView2::from_shape((rows, columns), all).ok()
    }
}

/// The product of inputs `a` and `b`, each possibly transposed in its last two axes.
fn multiply(
    c: &Call<'_>,
    [a, b]: [usize; 2],
    transposed: [bool; 2],
    dtype: Option<DType>,
    finish: impl FnOnce(Array) -> Option<Array>,
) -> Outputs {
    let (left, right) = (c.need(a)?, c.need(b)?);
    let (Some(x), Some(y)) = (left.dims.as_deref(), right.dims.as_deref()) else {
        return typed(dtype);
    };
    let product = Product::new(x, y, transposed)?;
    Ok(vec![c.value(dtype, product.dims.clone(), |_| {
        // Checked before an operand is converted.
        if left.data.is_none() || right.data.is_none() || !c.budget.allows_work(&product.work()) {
            return None;
        }
        finish(match (c.array(a)?, c.array(b)?) {
            (Array::Float(a), Array::Float(b)) => Array::Float(product.floats(&a, &b)?),
            (Array::Int(a), Array::Int(b)) => Array::Int(product.ints(&a, &b)?),
            _ => return None,
        })
    })])
}

pub(super) fn mat_mul(c: &Call<'_>) -> Outputs {
    multiply(c, [0, 1], [false; 2], c.dtype(0).or(c.dtype(1)), Some)
}

/// The content of integer products with zero points is not computed.
pub(super) fn mat_mul_integer(c: &Call<'_>) -> Outputs {
    multiply(c, [0, 1], [false; 2], Some(DType::I32), |_| None)
}

/// Quantized operands, float result.
pub(super) fn mat_mul_to_float(c: &Call<'_>) -> Outputs {
    multiply(c, [0, 1], [false; 2], Some(DType::F32), |_| None)
}

pub(super) fn quantized_mat_mul(c: &Call<'_>) -> Outputs {
    multiply(c, [0, 3], [false; 2], c.dtype(7).or(c.dtype(0)), |_| None)
}

/// alpha · A B + C of integers with scales, as numbers where the result has no scale.
pub(super) fn quantized_gemm(c: &Call<'_>) -> Outputs {
    let transposed = [c.flag("transA")?, c.flag("transB")?];
    let dtype = match c.at(7) {
        Some(_) => c.dtype(8).or(c.dtype(0)),
        None => c.dtype(1),
    };
    multiply(c, [0, 3], transposed, dtype, |_| None)
}

/// alpha · A B, each operand possibly transposed.
pub(super) fn fused_mat_mul(c: &Call<'_>) -> Outputs {
    let dtype = c.dtype(0).or(c.dtype(1));
    let alpha = c.float("alpha")?.unwrap_or(1.0);
    let transposed = [c.flag("transA")?, c.flag("transB")?];
    let moved = |flag: &'static str, slot: usize| -> Result<Option<Value>, EvalError> {
        Ok(if c.flag(flag)? {
            move_after_batch(c.need(slot)?, c.budget)
        } else {
            None
        })
    };
    let own = [moved("transBatchA", 0)?, moved("transBatchB", 1)?];
    let inputs: Vec<Option<&Value>> = own
        .iter()
        .zip([c.at(0), c.at(1)])
        .map(|(own, given)| own.as_ref().or(given))
        .collect();
    let c = &Call {
        inputs: &inputs,
        ..*c
    };
    multiply(c, [0, 1], transposed, dtype, |a| scaled(a, alpha))
}

/// Moves the first axis after the batch axes, before the last.
fn move_after_batch(value: &Value, budget: &Budget) -> Option<Value> {
    let dims = value.dims.as_deref().filter(|d| d.len() > 2)?;
    let last = dims.len() - 1;
    let order: Vec<usize> = (1..last).chain([0, last]).collect();
    let dims_after = order.iter().map(|a| dims[*a]).collect();
    Some(match value.array(budget) {
        Some(Array::Float(a)) => Value::of(value.dtype, Array::Float(a.permuted_axes(order))),
        Some(Array::Int(a)) => Value::of(value.dtype, Array::Int(a.permuted_axes(order))),
        _ => Value::shaped(value.dtype, Some(dims_after)),
    })
}

fn scaled(array: Array, factor: f64) -> Option<Array> {
    match array {
        Array::Float(a) if factor != 1.0 => {
            Some(Array::Float(a.mapv(|v| v * factor).into_shared()))
        }
        Array::Int(_) if factor != 1.0 => None,
        array => Some(array),
    }
}

/// The same before an activation: dimensions only.
pub(super) fn fused_gemm(c: &Call<'_>) -> Outputs {
    let outputs = gemm(c)?;
    Ok(outputs.into_iter().map(Value::without_data).collect())
}

/// alpha · A B + beta · C for matrices A and B.
pub(super) fn gemm(c: &Call<'_>) -> Outputs {
    for i in 0..2 {
        if c.dims(i).is_some_and(|dims| dims.len() != 2) {
            return Err(Why::Rank.into());
        }
    }
    let (alpha, beta) = (c.float("alpha")?, c.float("beta")?);
    let (alpha, beta) = (alpha.unwrap_or(1.0), beta.unwrap_or(1.0));
    let transposed = [c.flag("transA")?, c.flag("transB")?];
    let dtype = c.dtype(0).or(c.dtype(1));
    multiply(c, [0, 1], transposed, dtype, |a| {
        let product = scaled(a, alpha)?;
        if c.at(2).is_none() {
            return Some(product);
        }
        let dims = product.dims().to_vec();
        Some(match (product, scaled(c.array(2)?, beta)?) {
            (Array::Float(a), Array::Float(b)) => Array::Float(zip(&a, &b, &dims, |a, b| a + b)?),
            (Array::Int(a), Array::Int(b)) => Array::Int(zip(&a, &b, &dims, i64::wrapping_add)?),
            _ => return None,
        })
    })
}
