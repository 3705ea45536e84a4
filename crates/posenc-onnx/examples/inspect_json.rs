//! Prints what a model encodes positions with, as JSON.
//!
//! `cargo run --example inspect_json -- model.onnx`

use std::error::Error;
use std::path::Path;

use posenc_onnx::Model;

/// The report of a model.
pub fn inspect(path: &Path) -> Result<String, Box<dyn Error>> {
    let report = Model::open(path)?.inspect();
    Ok(serde_json::to_string_pretty(&report)?)
}

#[allow(dead_code, clippy::print_stdout)] // a program may print; its test calls `inspect`
fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("give the model to read")?;
    println!("{}", inspect(Path::new(&path))?);
    Ok(())
}
