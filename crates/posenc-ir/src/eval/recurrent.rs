//! Recurrent layers: dimensions only.

use super::call::{Call, Outputs};
use super::shape;
use super::{Value, Why};

/// Y `[steps, directions, batch, hidden]`, Y_h and (of LSTM) Y_c `[directions, batch, hidden]`;
/// with `layout` 1 the batch is first.
pub(super) fn recurrent(c: &Call<'_>) -> Outputs {
    let weights = match c.dims(2) {
        Some([_, _, hidden]) => Some(*hidden),
        _ => None,
    };
    with_hidden(c, weights)
}

/// The same with weights `[directions, hidden, 4 · hidden]`, of integers.
pub(super) fn quantized(c: &Call<'_>) -> Outputs {
    let weights = match c.dims(2) {
        Some([_, hidden, _]) => Some(*hidden),
        _ => None,
    };
    with_hidden(c, weights)
}

/// With the hidden features that an attribute names, or else the weights.
fn with_hidden(c: &Call<'_>, weights: Option<usize>) -> Outputs {
    let x = c.need(0)?;
    let named = c.int("hidden_size")?.map(shape::dim).transpose()?;
    let hidden = named.or(weights);
    let directions = match c.string("direction")? {
        Some("bidirectional") => 2,
        _ => 1,
    };
    let batch_first = c.flag("layout")?;
    let (Some(dims), Some(hidden)) = (x.dims.as_deref(), hidden) else {
        return Ok(vec![Value::shaped(x.dtype, None); 3]);
    };
    let &[first, second, _] = dims else {
        return Err(Why::Rank.into());
    };
    let (all, last) = if batch_first {
        (
            vec![first, second, directions, hidden],
            vec![first, directions, hidden],
        )
    } else {
        (
            vec![first, directions, second, hidden],
            vec![directions, second, hidden],
        )
    };
    let last = Value::shaped(x.dtype, Some(last));
    Ok(vec![Value::shaped(x.dtype, Some(all)), last.clone(), last])
}
