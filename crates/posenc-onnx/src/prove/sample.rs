//! Positions at which to check a rotation of any length.

use std::collections::BTreeSet;

use posenc_runtime::feeds::Random;

/// Positions up to `length`, in order: the first ones, powers of two and their neighbors, the last
/// ones, and a few at random, the same ones every time.
pub(crate) fn positions(length: usize) -> Vec<i64> {
    let last = i64::try_from(length.max(1)).unwrap_or(i64::MAX) - 1;
    let mut all = BTreeSet::from([0, 1, 2, 3, last - 1, last]);
    let powers = (2..62).map(|k| 1i64 << k);
    for power in powers.take_while(|p| *p <= last) {
        all.extend([power - 1, power, power + 1]);
    }
    let mut random = Random::new(length as u64);
    all.extend((0..8).map(|_| random.uniform(0.0, last as f64) as i64));
    all.retain(|p| (0..=last).contains(p));
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_positions_cover_any_length() {
        for length in [1usize, 2, 3, 64, 65, 4096, 131_072, usize::MAX / 2] {
            let all = positions(length);
            let last = i64::try_from(length).unwrap() - 1;
            assert_eq!((all[0], all[all.len() - 1]), (0, last), "{length}");
            assert!(all.windows(2).all(|w| w[0] < w[1]), "{length}");
            assert!(all.len() <= 200, "{length}: {}", all.len());
        }
        assert_eq!(positions(4), [0, 1, 2, 3]);
        let many = positions(131_072);
        for p in [63, 64, 65, 65_535, 65_536, 65_537, 131_070] {
            assert!(many.contains(&p), "{p}");
        }
        assert_eq!(many, positions(131_072));
    }
}
