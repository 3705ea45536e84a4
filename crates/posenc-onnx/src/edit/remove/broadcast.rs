//! Broadcasting of dimensions.

/// The dimensions of two values broadcast with each other; `None` if they do not fit.
pub(crate) fn broadcast(a: &[usize], b: &[usize]) -> Option<Vec<usize>> {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let mut dims = long.to_vec();
    let offset = long.len() - short.len();
    for (i, n) in short.iter().enumerate() {
        let own = &mut dims[offset + i];
        match (*own, *n) {
            (a, b) if a == b => {}
            (1, b) => *own = b,
            (_, 1) => {}
            _ => return None,
        }
    }
    Some(dims)
}
