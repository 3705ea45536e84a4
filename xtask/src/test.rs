//! Gets ONNX Runtime for the tests, runs all tests, and has printed models read by the official
//! parser.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pip::{Package, python};
use crate::schema;

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
    match arguments {
        [] => prints_are_read(root),
        // Some of the tests were asked for.
        _ => Ok(()),
    }
}

/// Prints every model of the fixtures, and of the collections beside the workspace where they are
/// there, and has the texts read by the parser of the `onnx` package.
fn prints_are_read(root: &Path) -> Result<()> {
    let package = schema::install(root)?;
    // This program stands in a profile's folder of the same target.
    let this = std::env::current_exe().context("xtask does not find itself")?;
    let target = this
        .ancestors()
        .nth(2)
        .context("xtask stands in a target")?;
    let binary = format!("posenc-onnx{}", std::env::consts::EXE_SUFFIX);
    let mut models = vec![];
    models_under(&root.join("fixtures"), &mut models)?;
    if models.is_empty() {
        bail!("there are no models in fixtures/");
    }
    for part in ["zoo", "mini", "forms"] {
        let folder = root.join("../shared").join(part);
        if folder.is_dir() {
            models_under(&folder, &mut models)?;
        } else {
            skipped(&folder);
        }
    }
    models.sort();
    let status = Command::new(python()?)
        .arg(root.join("tests/python/print_is_read.py"))
        .arg(target.join("release").join(binary))
        .args(&models)
        .env("PYTHONPATH", &package)
        .status()
        .context("Python does not start")?;
    if !status.success() {
        bail!("the official parser does not read what is printed");
    }
    Ok(())
}

#[allow(clippy::print_stderr)] // a skip should not look like a pass
fn skipped(folder: &Path) {
    eprintln!("skipped: reading prints: there is no {}", folder.display());
}

/// Every `model.onnx` under a folder.
fn models_under(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = folder.read_dir();
        let entries = entries.with_context(|| format!("{} is no folder", folder.display()))?;
        for path in entries.flatten().map(|e| e.path()) {
            if path.is_dir() {
                open.push(path);
            } else if path.file_name().is_some_and(|name| name == "model.onnx") {
                found.push(path);
            }
        }
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
