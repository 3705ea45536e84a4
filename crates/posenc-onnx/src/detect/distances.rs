//! Distances of keys from queries.

use posenc_ir::ValueId;

use crate::detect::context::Context;

/// Whether a value is, for each query and key, how far the key is from the query, in integers.
pub(crate) fn are_distances(context: &Context<'_>, value: ValueId) -> bool {
    let known = context.found.trace.get(value);
    if !known.dtype.is_some_and(|dtype| dtype.is_int()) {
        return false;
    }
    let Some(numbers) = known.to_i64().filter(|numbers| numbers.ndim() >= 2) else {
        return false;
    };
    let rank = numbers.ndim();
    let [queries, keys] = [numbers.shape()[rank - 2], numbers.shape()[rank - 1]];
    if queries < 2 || keys < queries {
        return false;
    }
    let past = (keys - queries) as i64;
    [1, -1].iter().any(|sign| {
        numbers.indexed_iter().all(|(at, number)| {
            let (query, key) = (at[rank - 2] as i64, at[rank - 1] as i64);
            *number == sign * (key - query - past)
        })
    })
}
