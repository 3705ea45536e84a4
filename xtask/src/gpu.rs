//! Puts together a check of rewritten models on an NVIDIA GPU, and runs it where there is one.
//!
//! The check needs PyTorch's exports of its models and ONNX Runtime's package for CUDA, some 4 GB, so
//! that it is no part of the tests. The machine that has the GPU may be another one: the folder
//! `target/gpu-check/bundle` is all that it needs, with NVIDIA's CUDA 13 and cuDNN 9.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::pip::{Package, python};
use crate::scripts::Scripts;

/// What makes the models.
const PACKAGES: [&str; 7] = [
    "numpy",
    "onnx",
    "onnxruntime==1.31.1",
    "onnxscript",
    "safetensors",
    "torch",
    "transformers",
];

/// What runs them.
const RUNTIME: &str = "onnxruntime-gpu==1.31.1";

/// `[MIB]`: also pack the bundle, into parts of so many MiB.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<ExitCode> {
    let parts = match arguments {
        [] => None,
        [parts] => Some(
            parts
                .parse::<u32>()
                .context("`gpu-check` takes a number of MiB")?,
        ),
        _ => bail!("`gpu-check` takes one argument: the MiB of a part of the bundle"),
    };
    let folder = root.join("target/gpu-check");
    let [tools, packages, models, bundle] =
        ["tools", "packages", "models", "bundle"].map(|name| folder.join(name));
    let scripts = Scripts::prepare(root, &tools, &PACKAGES)?;
    let runtime = Package {
        name: RUNTIME,
        folder: &packages,
        options: &[&[]],
    };
    runtime.provide(|| packages.join("onnxruntime").is_dir())?;
    if !models.is_dir() {
        scripts.call(&root.join("fixtures/gpu_models.py"), &[&models])?;
    }
    let pack = root.join("tests/python/gpu_bundle.py");
    let size = parts.map(|parts| parts.to_string());
    let mut from = vec![root, &scripts.binary, &models, &packages, &bundle];
    from.extend(size.as_deref().map(Path::new));
    scripts.call(&pack, &from)?;
    if parts.is_some() {
        return Ok(ExitCode::SUCCESS);
    }
    let python = python()?;
    let status = Command::new(python)
        .arg(bundle.join("gpu.py"))
        .arg(&bundle)
        .arg("--out")
        .arg(folder.join("results"))
        .env("PYTHONPATH", &tools)
        .status()
        .with_context(|| format!("cannot start {python}"))?;
    // 5 says that there is no GPU, as the tool does.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}
