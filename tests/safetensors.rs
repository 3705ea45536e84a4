//! Files of random tensors for `--params`.

use std::fs;
use std::path::Path;

use posenc_runtime::feeds::Random;
use serde_json::{Value, json};

/// Writes a file of one tensor with values in −1 … 1, which depend on its size.
///
/// # Panics
/// When the file cannot be written.
pub fn random(path: &Path, name: &str, dims: [u64; 2]) {
    let count = dims[0] * dims[1];
    let entry = json!({ "dtype": "F32", "shape": dims, "data_offsets": [0, 4 * count] });
    let header = Value::from_iter([(name, entry)]).to_string();
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    let mut random = Random::new(count);
    for _ in 0..count {
        bytes.extend((random.uniform(-1.0, 1.0) as f32).to_le_bytes());
    }
    fs::write(path, bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}
