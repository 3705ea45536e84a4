#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use posenc_fuzz::random::Random;

fuzz_target!(|data: &[u8]| posenc_fuzz::diff(data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let changed =
        posenc_fuzz::mutate::model(&data[..size], max_size, &mut Random::new(seed.into()));
    data[..changed.len()].copy_from_slice(&changed);
    changed.len()
});
