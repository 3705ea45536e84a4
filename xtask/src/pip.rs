//! Python packages, installed into a folder of the workspace.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The number of attempts to download.
const TRIES: u64 = 3;

/// A package with its destination.
#[derive(Debug)]
pub(crate) struct Package<'a> {
    /// Name and version.
    pub(crate) name: &'a str,
    /// The folder, which pip creates.
    pub(crate) folder: &'a Path,
    /// Lists of other options of pip, tried in order until one succeeds.
    pub(crate) options: &'a [&'a [&'a str]],
}

impl Package<'_> {
    /// Installs the package where it is not there yet.
    pub(crate) fn provide(&self, is_there: impl Fn() -> bool) -> Result<()> {
        match is_there() {
            true => Ok(()),
            false => self.install(is_there),
        }
    }

    /// Installs the package until `is_there`.
    pub(crate) fn install(&self, is_there: impl Fn() -> bool) -> Result<()> {
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
        self.announce();
        for attempt in 1..=TRIES {
            for options in self.options {
                let status = Command::new(python)
                    .args([
                        "-m",
                        "pip",
                        "install",
                        "--quiet",
                        "--disable-pip-version-check",
                    ])
                    .args(["--only-binary=:all:", "--upgrade"])
                    .args(*options)
                    .arg("--target")
                    .arg(self.folder)
                    .arg(self.name)
                    .status()
                    .with_context(|| format!("cannot start {python}"))?;
                if status.success() && is_there() {
                    return Ok(());
                }
            }
            if attempt < TRIES {
                sleep(Duration::from_secs(3 * attempt));
            }
        }
        bail!(
            "pip could not install {} into {}; its own messages are above. It needs the network or a \
             mirror (PIP_INDEX_URL), and a system for which the package has a wheel",
            self.name,
            self.folder.display()
        );
    }

    #[allow(clippy::print_stderr)] // a download must not look like a hang
    fn announce(&self) {
        eprintln!("installing {} into {}", self.name, self.folder.display());
    }
}

/// The command that starts Python 3.
pub(crate) fn python() -> Result<&'static str> {
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
        .context("Python 3 was not found; it is needed once, to install a package")
}
