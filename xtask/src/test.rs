//! Gets ONNX Runtime for the tests, then runs all tests.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pip::Package;

/// The version that the tests run with.
const PACKAGE: &str = "onnxruntime==1.31.1";

/// Where it is installed: `posenc-onnx` itself looks there too.
const FOLDER: &str = ".onnxruntime";

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !has_library(root) {
        let package = Package {
            name: PACKAGE,
            folder: &root.join(FOLDER),
            // Only the library is used, so that the wheel of another Python does as well.
            options: &[&["--no-deps"], &["--no-deps", "--python-version", "3.12"]],
        };
        package.install(|| has_library(root))?;
    }
    let status = Command::new(env!("CARGO"))
        .args(["test", "--release", "--workspace"])
        .args(arguments)
        .current_dir(root)
        .status()
        .context("cargo does not start")?;
    if !status.success() {
        bail!("tests failed");
    }
    Ok(())
}

fn has_library(root: &Path) -> bool {
    let capi = root.join(FOLDER).join("onnxruntime").join("capi");
    let Ok(entries) = capi.read_dir() else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libonnxruntime.") || name == "onnxruntime.dll"
    })
}
