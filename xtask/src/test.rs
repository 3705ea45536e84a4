//! Installs ONNX Runtime for the tests, runs all tests, and reads printed models with the official
//! parser.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pip::{Package, python};
use crate::schema;

/// The version for the tests.
const PACKAGE: &str = "onnxruntime==1.31.1";

/// Where it is installed; `posenc-onnx` finds it there.
const FOLDER: &str = ".onnxruntime";

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !has_library(root) {
        let package = Package {
            name: PACKAGE,
            folder: &root.join(FOLDER),
            // Only the library is used: the wheel for another Python works too.
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
    if arguments.is_empty() {
        read_prints(root)
    } else {
        skipped("the check that printed models can be read: arguments select tests");
        Ok(())
    }
}

/// Prints every model of the fixtures, and of the collections in `../shared` where they are present,
/// and reads the texts with the parser of the `onnx` package.
fn read_prints(root: &Path) -> Result<()> {
    let package = schema::install(root)?;
    let target = crate::target()?;
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
            let folder = folder.display();
            skipped(&format!("printed models of {folder}, which is absent"));
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
        bail!("the official parser cannot read the printed models");
    }
    Ok(())
}

#[allow(clippy::print_stderr)] // a skipped check must not look like a passed one
fn skipped(what: &str) {
    eprintln!("skipped: {what}");
}

/// Every `model.onnx` under a folder.
fn models_under(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let mut open = vec![folder.to_path_buf()];
    while let Some(folder) = open.pop() {
        let entries = folder.read_dir();
        let entries = entries.with_context(|| format!("cannot read {}", folder.display()))?;
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
