//! Reproducible random numbers: SplitMix64.

/// A stream of numbers that the seed determines.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The stream of that seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `end`; 0 where that is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % (end.max(1) as u64)) as usize
    }

    /// One of `list`, which is not empty.
    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
