//! Writes what the operator check knows, from the Python packages of ONNX and ONNX Runtime.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pip::{Package, python};

/// The version that the facts are read from, and that reads what is printed.
const PACKAGE: &str = "onnx==1.23.2";

/// The version of ONNX Runtime whose own operators are known.
const RUNTIME: &str = "onnxruntime==1.31.1";

/// Where they are installed, under the root.
const FOLDER: &str = "target/onnx-wheel";

/// The table, under the root.
const TABLE: &str = "crates/posenc-ir/src/schema/operators.txt";

/// Prints the table.
const SCRIPT: &str = include_str!("schema.py");

/// Writes the table, or with `--check` compares it.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let is_check = match arguments {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("`cargo xtask schema` takes nothing but `--check`"),
    };
    let folder = install(root)?;
    provide(RUNTIME, &folder, "onnxruntime")?;
    let printed = Command::new(python()?)
        .args(["-c", SCRIPT])
        .env("PYTHONPATH", &folder)
        .output()
        .context("Python does not start")?;
    if !printed.status.success() {
        bail!(
            "reading {PACKAGE} and {RUNTIME} failed: {}",
            String::from_utf8_lossy(&printed.stderr).trim()
        );
    }
    let table = root.join(TABLE);
    if !is_check {
        return Ok(std::fs::write(table, printed.stdout)?);
    }
    if std::fs::read(table)? != printed.stdout {
        bail!("{TABLE} is not what `cargo xtask schema` writes");
    }
    Ok(())
}

/// The folder of the package, which is installed if it is not there yet.
pub(crate) fn install(root: &Path) -> Result<PathBuf> {
    let folder = root.join(FOLDER);
    provide(PACKAGE, &folder, "onnx")?;
    Ok(folder)
}

/// Installs a package that has a module of this name.
fn provide(name: &str, folder: &Path, module: &str) -> Result<()> {
    let package = Package {
        name,
        folder,
        options: &[&[]],
    };
    package.provide(|| folder.join(module).is_dir())
}
