//! Compiles `proto/onnx.proto` to `crates/posenc-ir/src/proto/onnx.rs`.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};

pub(crate) fn run(root: &Path) -> Result<()> {
    let schema = root.join("proto/onnx.proto");
    let descriptors = protox::compile([&schema], [root.join("proto")])?;
    let out = root.join("crates/posenc-ir/src/proto");
    prost_build::Config::new()
        // Payloads stay slices of the buffer that they are decoded from.
        .bytes(["."])
        // Rare and large: most attributes are a number or a list.
        .boxed(".onnx.AttributeProto.g")
        .boxed(".onnx.AttributeProto.sparse_tensor")
        .out_dir(&out)
        .compile_fds(descriptors)?;
    let status = Command::new("rustfmt")
        .args(["--edition", "2024"])
        .arg(out.join("onnx.rs"))
        .status()?;
    if !status.success() {
        bail!("rustfmt failed on the generated code");
    }
    Ok(())
}
