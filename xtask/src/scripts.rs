//! Python scripts that measure the tool, with the packages that they import.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pip::{Package, python};

/// What scripts run with.
#[derive(Debug)]
pub(crate) struct Scripts {
    /// The tool, as it was just built.
    pub(crate) binary: PathBuf,
    packages: PathBuf,
}

impl Scripts {
    /// Builds the tool, and installs packages that are not in a folder yet.
    pub(crate) fn prepare(root: &Path, packages: &Path, names: &[&str]) -> Result<Self> {
        build(root)?;
        for name in names {
            let import = name.split('=').next().unwrap_or(name).replace('-', "_");
            let is_there = || packages.join(&import).is_dir();
            if !is_there() {
                let package = Package {
                    name,
                    folder: packages,
                    options: &[&[]],
                };
                package.install(is_there)?;
            }
        }
        let binary = format!("target/release/posenc-onnx{}", std::env::consts::EXE_SUFFIX);
        Ok(Self {
            binary: root.join(binary),
            packages: packages.to_owned(),
        })
    }

    /// Runs a script.
    pub(crate) fn call(&self, script: &Path, arguments: &[&Path]) -> Result<()> {
        let python = python()?;
        let status = Command::new(python)
            .arg(script)
            .args(arguments)
            .env("PYTHONPATH", &self.packages)
            .status()
            .with_context(|| format!("cannot start {python}"))?;
        if !status.success() {
            bail!("{} ended with {status}", script.display());
        }
        Ok(())
    }
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
