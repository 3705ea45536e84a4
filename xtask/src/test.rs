//! Gets ONNX Runtime for the tests, then runs all tests.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The version that the tests run with.
const PACKAGE: &str = "onnxruntime==1.31.1";

/// Where it is installed: `posenc-onnx` itself looks there too.
const FOLDER: &str = ".onnxruntime";

/// How often the download is tried.
const TRIES: u64 = 3;

pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<()> {
    if !has_library(root) {
        install(root)?;
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

/// Installs the Python package of ONNX Runtime, whose library is all that is used of it.
fn install(root: &Path) -> Result<()> {
    let python = python()?;
    let pip = Command::new(python)
        .args(["-m", "pip", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !pip.is_ok_and(|status| status.success()) {
        bail!(
            "`{python} -m pip` does not run: install pip with `{python} -m ensurepip` or the \
             system's package python3-pip"
        );
    }
    announce();
    for attempt in 1..=TRIES {
        // Only the library is used, so that the wheel of another Python does as well.
        for version in [&[][..], &["--python-version", "3.12"]] {
            let status = Command::new(python)
                .args([
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--disable-pip-version-check",
                ])
                .args(["--no-deps", "--only-binary=:all:", "--upgrade"])
                .args(version)
                .arg("--target")
                .arg(root.join(FOLDER))
                .arg(PACKAGE)
                .status()
                .with_context(|| format!("{python} does not start"))?;
            if status.success() && has_library(root) {
                return Ok(());
            }
        }
        if attempt < TRIES {
            sleep(Duration::from_secs(3 * attempt));
        }
    }
    bail!(
        "pip could not install {PACKAGE} into {FOLDER}, and its own words stand above: it needs \
         the network or a mirror (PIP_INDEX_URL), and a system that the package has a wheel for"
    );
}

#[allow(clippy::print_stderr)] // a download should not look like a hang
fn announce() {
    eprintln!("installing {PACKAGE} into {FOLDER}");
}

/// The name under which Python 3 starts.
fn python() -> Result<&'static str> {
    ["python3", "python"]
        .into_iter()
        .find(|name| {
            Command::new(name)
                .args(["-c", "import sys; sys.exit(sys.version_info[0] != 3)"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .is_ok_and(|status| status.success())
        })
        .context("no Python 3 was found: it is needed once, to install ONNX Runtime for the tests")
}
