//! Functions of the distance that are known but no family of ours.

use std::collections::BTreeMap;

/// Differences between numbers and a kernel, as a share of the number.
const NEAR: f64 = 1e-4;

/// The kernel that the numbers of every head follow, in words: KERPLE's logarithm or power
/// (Chi et al., arXiv:2205.09921).
pub(crate) fn kernel(profile: &BTreeMap<i64, Vec<f64>>) -> Option<String> {
    let here = profile.get(&0)?;
    let falls = |head: usize, far: i64| {
        let at = profile.get(&-far).or_else(|| profile.get(&far))?;
        Some(here[head] - at[head])
    };
    let all = |formula: &dyn Fn(f64, f64, f64) -> f64| {
        (0..here.len()).all(|head| {
            let (Some(one), Some(two)) = (falls(head, 1), falls(head, 2)) else {
                return false;
            };
            let known = (3..).map_while(|d| Some((d as f64, falls(head, d)?)));
            let mut known = known.peekable();
            known.peek().is_some()
                && known.all(|(d, v)| (formula(one, two, d) - v).abs() <= NEAR * v.abs())
        })
    };
    if all(&logarithm) {
        return Some("falls with the logarithm of the distance, as KERPLE's does".to_owned());
    }
    let power = |one: f64, two: f64, d: f64| one * d.powf((two / one).log2());
    all(&power).then(|| "falls with a power of the distance, as KERPLE's does".to_owned())
}

/// `a · ln(1 + r·d)` through its values at distances 1 and 2.
fn logarithm(one: f64, two: f64, d: f64) -> f64 {
    let (mut low, mut high) = (1e-9f64, 1e9f64);
    for _ in 0..200 {
        let r = (low * high).sqrt();
        match (2.0 * r).ln_1p() / r.ln_1p() > two / one {
            true => low = r,
            false => high = r,
        }
    }
    one / low.ln_1p() * (low * d).ln_1p()
}
