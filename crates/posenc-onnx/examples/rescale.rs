//! Extends the context of a RoPE model fourfold, and compares the result with its formula.
//!
//! `cargo run --example rescale -- model.onnx long.onnx`

use std::error::Error;
use std::path::Path;

use posenc_onnx::request::Config;
use posenc_onnx::{ExternalData, Model, Rescale};

/// Rescales `input` to `output`; returns the plan in words.
pub fn rescale(input: &Path, output: &Path) -> Result<String, Box<dyn Error>> {
    let model = Model::open(input)?;
    // Where the graph does not show the length that it was trained on, its config may.
    let request = Rescale::yarn(4.0).model_config(Config::next_to(input));
    let plan = model.plan(request)?;
    let words = plan.to_string();
    let done = plan.apply()?;
    #[cfg(feature = "tract")]
    done.verify(&posenc_onnx::Tract::default())?.ensure_ok()?;
    done.save(output, ExternalData::Auto)?;
    Ok(words)
}

#[allow(dead_code, clippy::print_stdout)] // a program may print; its test calls `rescale`
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(input), Some(output)) = (args.next(), args.next()) else {
        return Err("give the model to read and the file to write".into());
    };
    println!("{}", rescale(Path::new(&input), Path::new(&output))?);
    Ok(())
}
