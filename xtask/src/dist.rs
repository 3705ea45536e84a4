//! What a release consists of: an archive with the binary, the wheel, the page, and their checksums.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::pip::python;
use crate::process::{output, succeed};

/// The shells that get a completion script, with the name of its file.
const SHELLS: [(&str, &str); 5] = [
    ("bash", "posenc-onnx.bash"),
    ("elvish", "posenc-onnx.elv"),
    ("fish", "posenc-onnx.fish"),
    ("powershell", "_posenc-onnx.ps1"),
    ("zsh", "_posenc-onnx"),
];

/// The files of the workspace that go with the binary.
const FILES: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Makes everything of a release in `target/dist`, from an empty folder.
pub(crate) fn run(root: &Path, target: &Path, arguments: &[String]) -> Result<()> {
    if !arguments.is_empty() {
        bail!("`dist` takes no arguments");
    }
    let out = target.join("dist");
    if out.is_dir() {
        fs::remove_dir_all(&out)?;
    }
    fs::create_dir_all(&out)?;
    let release = Release {
        root,
        out: &out,
        version: env!("CARGO_PKG_VERSION"),
        triple: triple()?,
    };
    release.binary(target)?;
    release.wheel(target)?;
    release.page(target)?;
    release.checksums()
}

struct Release<'a> {
    root: &'a Path,
    out: &'a Path,
    version: &'a str,
    triple: String,
}

impl Release<'_> {
    /// The binary with completions, manual pages and licences.
    fn binary(&self, target: &Path) -> Result<()> {
        let cargo = ["build", "--release", "--locked", "-p", "posenc-cli"];
        succeed("cargo build", self.command(env!("CARGO")).args(cargo))?;
        let name = format!("posenc-onnx{}", std::env::consts::EXE_SUFFIX);
        let built = target.join("release").join(&name);
        let stem = format!("posenc-onnx-{}-{}", self.version, self.triple);
        let folder = self.out.join(&stem);
        let completions = folder.join("completions");
        fs::create_dir_all(&completions)?;
        fs::copy(&built, folder.join(&name)).with_context(|| built.display().to_string())?;
        for file in FILES {
            fs::copy(self.root.join(file), folder.join(file)).context(file)?;
        }
        for (shell, file) in SHELLS {
            let script = output(
                "completions",
                Command::new(&built).args(["completions", shell]),
            )?;
            fs::write(completions.join(file), script)?;
        }
        succeed(
            "posenc-onnx man",
            Command::new(&built)
                .args(["--quiet", "man"])
                .arg(folder.join("man")),
        )?;
        let licences = folder.join("THIRD-PARTY-LICENCES");
        let [package, triple] = ["posenc-cli", &self.triple].map(OsStr::new);
        self.script("licences.py", &[package, triple, licences.as_os_str()])?;
        self.pack(&folder)
    }

    /// The Python package.
    fn wheel(&self, target: &Path) -> Result<()> {
        let wheel = crate::python::wheel(self.root, target)?;
        let name = wheel.file_name().context("a wheel has a name")?;
        fs::copy(&wheel, self.out.join(name))?;
        Ok(())
    }

    /// The page for the browser, as it is served.
    fn page(&self, target: &Path) -> Result<()> {
        crate::page::run(self.root, target, &[])?;
        let built = target.join("page");
        let folder = self.out.join(format!("posenc-onnx-page-{}", self.version));
        fs::create_dir_all(&folder)?;
        for entry in built.read_dir()? {
            let entry = entry?;
            fs::copy(entry.path(), folder.join(entry.file_name()))?;
        }
        let licences = folder.join("THIRD-PARTY-LICENCES");
        let [package, triple] = ["posenc-web", "wasm32-unknown-unknown"].map(OsStr::new);
        self.script("licences.py", &[package, triple, licences.as_os_str()])?;
        for file in ["LICENSE-APACHE", "LICENSE-MIT"] {
            fs::copy(self.root.join(file), folder.join(file)).context(file)?;
        }
        self.pack(&folder)
    }

    /// Packs a folder of the release, and removes it.
    fn pack(&self, folder: &Path) -> Result<()> {
        let mut archive = folder.to_owned().into_os_string();
        archive.push(".tar.gz");
        let words = [OsStr::new("pack"), folder.as_os_str(), &archive];
        self.script("release.py", &words)?;
        fs::remove_dir_all(folder)?;
        Ok(())
    }

    fn checksums(&self) -> Result<()> {
        self.script("release.py", &[OsStr::new("sums"), self.out.as_os_str()])
    }

    fn script(&self, name: &str, arguments: &[&OsStr]) -> Result<()> {
        let mut command = self.command(python()?);
        command.env("CARGO", env!("CARGO"));
        succeed(
            name,
            command
                .arg(self.root.join("xtask").join(name))
                .args(arguments),
        )
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.root);
        command
    }
}

/// The target that cargo builds for here.
fn triple() -> Result<String> {
    let said = output(
        "rustc",
        Command::new("rustc").args(["--version", "--verbose"]),
    )?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not say its host")?.to_owned())
}
