//! The Python package: its wheel, its tests and its types, in a virtual environment of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pip::python;
use crate::process::succeed;

/// Where the environment and the wheel are, under the target folder.
const FOLDER: &str = "python";

/// The most that a wheel may weigh, in bytes.
const SIZE: u64 = 20 << 20;

/// Builds the wheel, installs it, and runs the tests with these arguments of pytest.
pub(crate) fn run(root: &Path, target: &Path, arguments: &[String]) -> Result<()> {
    let sources = root.join("bindings/python");
    let package = sources.join("python/posenc_onnx");
    // The binary, whose output the tests compare with, and everything that the wheel shares with it.
    let mut cargo = Command::new(env!("CARGO"));
    let cargo = cargo.current_dir(root).args(["build", "--release"]);
    succeed("cargo build", cargo)?;
    let (environment, wheel) = build(root, target)?;
    environment.pip(&["install", "--no-deps"], &wheel)?;
    let in_sources = |words: &[&str]| {
        let mut command = environment.python();
        command.current_dir(root).args(words);
        command
    };
    let options = sources.join("options.py");
    let mut command = in_sources(&[]);
    succeed("options.py --check", command.arg(options).arg("--check"))?;
    let mut command = in_sources(&["-m", "mypy"]);
    let own = ["options.py", "examples", "tests"].map(|name| sources.join(name));
    let checked = std::iter::once(package).chain(own);
    succeed("mypy", command.args(checked))?;
    let mut command = in_sources(&["-m", "mypy.stubtest", "posenc_onnx"]);
    // Of the package that is installed, and not of the sources.
    succeed("stubtest", command.current_dir(target))?;
    let binary = format!("posenc-onnx{}", std::env::consts::EXE_SUFFIX);
    let mut command = in_sources(&["-m", "pytest"]);
    command
        .args(arguments)
        .env("POSENC_ONNX_BINARY", target.join("release").join(binary));
    succeed("pytest", &mut command)
}

/// Builds the wheel.
pub(crate) fn wheel(root: &Path, target: &Path) -> Result<PathBuf> {
    Ok(build(root, target)?.1)
}

/// An environment with what builds and tests the package, and the wheel.
fn build(root: &Path, target: &Path) -> Result<(Environment, PathBuf)> {
    let environment = Environment::fresh(&target.join(FOLDER).join("environment"))?;
    let requirements = root.join("bindings/python/requirements.txt");
    environment.pip(&["install", "--requirement"], &requirements)?;
    let wheel = environment.wheel(root, &target.join(FOLDER).join("wheels"))?;
    let size = wheel.metadata()?.len();
    if size > SIZE {
        bail!("the wheel has {size} bytes, more than {SIZE}");
    }
    said(&format!("{}: {:.1} MB", wheel.display(), size as f64 / 1e6));
    Ok((environment, wheel))
}

/// A virtual environment.
struct Environment {
    scripts: PathBuf,
}

impl Environment {
    /// Makes one in place of what was there.
    fn fresh(folder: &Path) -> Result<Self> {
        let mut made = Command::new(python()?);
        let made = made.args(["-m", "venv", "--clear"]).arg(folder);
        succeed("python -m venv", made)?;
        let scripts = folder.join(if cfg!(windows) { "Scripts" } else { "bin" });
        Ok(Self { scripts })
    }

    fn python(&self) -> Command {
        Command::new(self.scripts.join("python"))
    }

    fn pip(&self, words: &[&str], what: &Path) -> Result<()> {
        let mut command = self.python();
        command.args(["-m", "pip", "--quiet", "--disable-pip-version-check"]);
        succeed("pip", command.args(words).arg(what))
    }

    /// The wheel, in a folder that has no other.
    fn wheel(&self, root: &Path, folder: &Path) -> Result<PathBuf> {
        if folder.is_dir() {
            fs::remove_dir_all(folder)?;
        }
        let mut command = Command::new(self.scripts.join("maturin"));
        command
            .args(["build", "--release", "--locked", "--quiet", "--out"])
            .arg(folder);
        command
            .arg("--interpreter")
            .arg(self.scripts.join("python"));
        succeed("maturin build", command.current_dir(root))?;
        let entries = folder.read_dir()?.flatten().map(|entry| entry.path());
        let mut wheels = entries.filter(|path| path.extension().is_some_and(|e| e == "whl"));
        wheels.next().context("maturin made no wheel")
    }
}

#[allow(clippy::print_stdout)] // the size is what people want to know
fn said(what: &str) {
    println!("{what}");
}
