//! Replaces the positional encoding of a model by ALiBi, from bytes to bytes.
//!
//! `cargo run --example swap -- model.onnx alibi.onnx`

use std::error::Error;

use posenc_onnx::{Alibi, Model, RefusalKind, Swap};

/// The model with ALiBi; `None` where it has nothing to work on.
pub fn swap(model: &[u8]) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
    let model = Model::from_bytes(model)?;
    let plan = match model.plan(Swap::to(Alibi::default())) {
        Ok(plan) => plan,
        Err(error)
            if error
                .refusal()
                .is_some_and(|r| *r.kind() == RefusalKind::NoSite) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    Ok(Some(plan.apply()?.to_bytes()?))
}

#[allow(dead_code)] // the test calls `swap`
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(input), Some(output)) = (args.next(), args.next()) else {
        return Err("give the model to read and the file to write".into());
    };
    let swapped = swap(&std::fs::read(input)?)?;
    std::fs::write(output, swapped.ok_or("the model has no attention")?)?;
    Ok(())
}
