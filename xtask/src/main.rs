//! Project chores. `cargo xtask proto` regenerates the checked-in protobuf code.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

fn main() -> Result<()> {
    match std::env::args().nth(1).as_deref() {
        Some("proto") => proto(),
        other => bail!("unknown task {other:?}: the one task is `proto`"),
    }
}

/// Compiles `proto/onnx.proto` to `crates/posenc-ir/src/proto/onnx.rs`.
fn proto() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask stands in the workspace")?;
    let schema = root.join("proto/onnx.proto");
    let descriptors = protox::compile([&schema], [root.join("proto")])?;
    let out: PathBuf = root.join("crates/posenc-ir/src/proto");
    prost_build::Config::new()
        // Payloads stay slices of the buffer that they are decoded from.
        .bytes(["."])
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
