//! A bias per pair of positions, from a table by the bucket of their distance.

use super::call::{Call, Outputs};
use super::shape::dim;
use super::{Value, Why};
use crate::dtype::DType;
use crate::eval::array::{Array, flat, from_vec};
use crate::eval::cast::rounded_to_f32;

/// `RelativePositionBias`: from a table `[buckets, heads]` and the numbers of queries and keys, a bias
/// `[1, heads, q, k]`. The numbers of a head follow each other in the table, against its dimensions.
pub(super) fn relative_position_bias(c: &Call<'_>) -> Outputs {
    let table = c.need(0)?;
    let (q, k) = (c.need(1)?.scalar_i64(), c.need(2)?.scalar_i64());
    let (buckets, heads, q, k) = match (table.dims.as_deref(), q, k) {
        (Some(&[buckets, heads]), Some(q), Some(k)) => (buckets, heads, dim(q)?, dim(k)?),
        (Some(dims), _, _) if dims.len() != 2 => return Err(Why::Rank.into()),
        _ => return Ok(vec![Value::shaped(table.dtype, None)]),
    };
    let dims = vec![1, heads, q, k];
    let shaped = Value::shaped(table.dtype, Some(dims.clone()));
    if !c.budget.allows(&dims) {
        return Ok(vec![shaped]);
    }
    let Some(rows) = c.array(0).and_then(Array::floats) else {
        return Ok(vec![shaped]);
    };
    let farthest = c.int("max_distance")?.unwrap_or(128);
    let both = c.flag("is_bidirectional")?;
    let rows = flat(&rows);
    let mut out = Vec::with_capacity(heads * q * k);
    for head in 0..heads {
        for i in 0..q {
            for j in 0..k {
                let distance = j as i64 - i as i64;
                let row = bucket(buckets, farthest, both, distance);
                out.push(rows.get(head * buckets + row).copied().unwrap_or(f64::NAN));
            }
        }
    }
    let array = from_vec(&dims, out).map(Array::Float);
    Ok(vec![match array {
        Some(array) => Value::of(table.dtype, array),
        None => shaped,
    }])
}

/// The bucket of a distance: near distances have one each, far ones share the others by their
/// logarithm.
fn bucket(buckets: usize, farthest: i64, both: bool, distance: i64) -> usize {
    let (n, first, far) = if !both {
        (buckets, 0, (-distance).max(0))
    } else if distance > 0 {
        (buckets / 2, buckets / 2, distance)
    } else {
        (buckets / 2, 0, -distance)
    };
    let exact = n / 2;
    let far = usize::try_from(far).unwrap_or(usize::MAX);
    if far < exact {
        return first + far;
    }
    let ratio = (far as f64 / exact as f64).ln() / (farthest as f64 / exact as f64).ln();
    let beyond = rounded_to_f32(ratio * (n - exact) as f64, Some(DType::F32)) as usize;
    first + exact.saturating_add(beyond).min(n.saturating_sub(1))
}
