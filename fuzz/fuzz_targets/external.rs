#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use posenc_fuzz::external::Folder;
use posenc_fuzz::random::Random;

static FOLDER: LazyLock<Folder> = LazyLock::new(Folder::new);

fuzz_target!(|data: &[u8]| posenc_fuzz::external(&FOLDER, data));

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let changed =
        posenc_fuzz::mutate::model(&data[..size], max_size, &mut Random::new(seed.into()));
    data[..changed.len()].copy_from_slice(&changed);
    changed.len()
});
